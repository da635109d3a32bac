"""The write pipeline: extract, score, embed, reconcile with what is there, store durably; the order is here alone."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from datetime import timedelta
from weakref import WeakValueDictionary

import msgspec
import numpy as np

from hindsight_core.caller import Caller, millis
from hindsight_core.drafting import Times, candidates, check, draft
from hindsight_core.embedding import Embedder
from hindsight_core.errors import Conflict, InvalidInput, ProviderUnavailable
from hindsight_core.extraction import Candidate
from hindsight_core.gate import GateSettings, Verdict, find_secret, judge
from hindsight_core.ids import stable_id
from hindsight_core.indexing import index_fields, mix
from hindsight_core.ledger import Ledger, open_ledger
from hindsight_core.models import Contest, Contested, Decision, Memory, Scope
from hindsight_core.reconciliation import Outcome, ReconcileSettings, reconcile
from hindsight_core.requests import WriteRequest
from hindsight_core.responses import WriteResponse
from hindsight_core.stores import Access, MemoryStore, Neighbour, Receipt, Record, Vector, Where
from hindsight_core.summary import summarise

NEIGHBOURS = 16
OVERLAY_COSINE = 0.2
ATTEMPTS = 64
_MILLISECOND = timedelta(milliseconds=1)


class Passages:
    """Vectors of texts, each text embedded once however often it is asked for."""

    def __init__(self, embedder: Embedder | None) -> None:
        self._embedder = embedder
        self._known: dict[str, Vector] = {}

    @property
    def model(self) -> str | None:
        return None if self._embedder is None else self._embedder.identity.name

    async def of(self, texts: Sequence[str]) -> list[Vector]:
        """One calibrated unit vector a text; raises `ProviderUnavailable` when the embedder is down."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._known]
        if missing:
            if self._embedder is None:
                raise ProviderUnavailable(
                    "This function has no embedder, and a text is to be embedded.",
                    remedy="Send the call to a function that has one, such as the gateway.",
                )
            self._known.update(zip(missing, await self._embedder.embed(missing, "passage"), strict=True))
        return [self._known[text] for text in texts]


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate past the gate, with its vectors: what reconciliation works on."""

    candidate: Candidate
    verdict: Verdict
    bare: Vector
    mixed: Vector


class Writer:
    """Writes for one store and embedder; concurrent writes to one namespace wait for each other in this process.

    Between processes the store's sequence decides: who comes second plans again on what the first one left.
    """

    def __init__(
        self, store: MemoryStore, embedder: Embedder | None, gate: GateSettings, settings: ReconcileSettings
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._gate = gate
        self._settings = settings
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def write(self, request: WriteRequest, caller: Caller, passages: Passages | None = None) -> WriteResponse:
        """Decide about every candidate of the request and store what is kept, all of it or nothing."""
        times = check(request, caller)
        scope = caller.scope(request)
        fingerprint = _fingerprint(request)
        if (answer := await self._answered(scope, request, fingerprint)) is not None:
            return answer
        offered = candidates(request)
        passages = passages or Passages(self._embedder)
        judged = await self._judge(request, offered, passages)
        lock = self._locks.setdefault(scope.namespace, asyncio.Lock())
        for attempt in range(ATTEMPTS):
            async with lock:
                plan = _Plan(self._store, request, caller, scope, times, self._settings, passages.model)
                expected = await plan.run(offered, judged)
                response = plan.response()
                receipt = None
                if request.idempotency_key is not None:
                    body = msgspec.json.encode(response)
                    receipt = Receipt(key=request.idempotency_key, fingerprint=fingerprint, answer=body)
                try:
                    if not plan.ledger.empty or receipt is not None:
                        await self._store.commit(
                            scope.namespace,
                            plan.ledger.changes(receipt=receipt),
                            expected=expected,
                            searchable=request.wait == "searchable",
                        )
                except Conflict:
                    if (answer := await self._answered(scope, request, fingerprint)) is not None:
                        return answer
                else:
                    if plan.accesses:
                        await self._store.log(scope.namespace, accesses=plan.accesses)
                    return response
            await asyncio.sleep(0.001 * min(attempt, 20))
        raise Conflict(
            f"The namespace {scope.namespace!r} is being written so often that this write found no turn.",
            remedy="Try again; nothing of it was stored.",
        )

    async def _answered(self, scope: Scope, request: WriteRequest, fingerprint: str) -> WriteResponse | None:
        if request.idempotency_key is None:
            return None
        receipt = await self._store.receipt(scope.namespace, request.idempotency_key)
        if receipt is None:
            return None
        if receipt.fingerprint != fingerprint:
            raise Conflict(
                "idempotency_key: was used for another request.",
                remedy="Use a fresh key for every new request, and the same one only to repeat it.",
            )
        return msgspec.json.decode(receipt.answer, type=WriteResponse)

    async def _judge(
        self, request: WriteRequest, offered: list[Candidate], passages: Passages
    ) -> dict[int, Kept | Verdict | None]:
        """By position: kept with vectors, a verdict that keeps it out, or None for what was dismissed before."""
        open_: list[int] = []
        judged: dict[int, Kept | Verdict | None] = {}
        for i, candidate in enumerate(offered):
            judged[i] = None
            if candidate.dismissed is not None and not request.force:
                continue
            if find_secret(candidate.text) is not None:
                judged[i] = judge(candidate, vector=None, settings=self._gate)
            else:
                open_.append(i)
        texts = [_embedded(offered[i].text) for i in open_]
        turns = [turn for i in open_ for turn in offered[i].previous]
        vectors = await passages.of(texts)
        await passages.of(turns)
        task = (await passages.of([request.task]))[0] if request.task and self._embedder is not None else None
        for i, bare in zip(open_, vectors, strict=True):
            verdict = judge(
                offered[i],
                vector=bare,
                task_similarity=None if task is None else self._similarity(bare, task),
                settings=self._gate,
                kind=request.kind,
                confidence=request.confidence,
                embedding_model=passages.model,
            )
            if not (verdict.keep or request.force) or verdict.refused:
                judged[i] = verdict
                continue
            mixed = mix(bare, await passages.of(offered[i].previous))
            judged[i] = Kept(candidate=offered[i], verdict=verdict, bare=bare, mixed=mixed)
        return judged

    def _similarity(self, left: Vector, right: Vector) -> float:
        assert self._embedder is not None
        calibration = self._embedder.calibration
        cosine = float(left @ right)
        return min(1.0, max(0.0, (cosine - calibration.lo) / (calibration.hi - calibration.lo)))


class _Plan:
    """One attempt: what each candidate becomes, given what the store holds now."""

    def __init__(
        self,
        store: MemoryStore,
        request: WriteRequest,
        caller: Caller,
        scope: Scope,
        times: Times,
        settings: ReconcileSettings,
        model: str | None,
    ) -> None:
        self._store = store
        self._request = request
        self._caller = caller
        self._scope = scope
        self._times = times
        self._settings = settings
        self._model = model
        self.ledger: Ledger = open_ledger("write", scope.namespace, times.now, caller)
        self.accesses: list[Access] = []
        self._decisions: list[Decision] = []

    def response(self) -> WriteResponse:
        return WriteResponse(results=tuple(self._decisions), run_id=self.ledger.run.run_id)

    async def run(self, offered: list[Candidate], judged: dict[int, Kept | Verdict | None]) -> int | None:
        """Decide in order; the sequence that the decisions rest on, None when they rest on nothing stored."""
        request = self._request
        kept = [found for found in judged.values() if isinstance(found, Kept)]
        looks = bool(kept) and (request.reconcile == "auto" or bool(request.supersedes))
        expected = (await self._store.head(self._scope.namespace)).sequence if looks else None
        replaced = await self._named(request.supersedes) if request.supersedes and kept else []
        near: list[list[Neighbour]] = [[] for _ in kept]
        by_key: list[Record] = []
        if kept and request.reconcile == "auto":
            near = await self._store.neighbours(
                self._scope.namespace, np.stack([found.bare for found in kept]), self._where(), NEIGHBOURS
            )
            if request.key is not None:
                where = msgspec.structs.replace(self._where(), key=request.key)
                by_key = await self._store.scan(self._scope.namespace, where, after=None, limit=NEIGHBOURS)
        turn = iter(near)
        for i, candidate in enumerate(offered):
            found = judged[i]
            if isinstance(found, Kept):
                self._store_one(i, found, self._around(found, next(turn), by_key), replaced)
            else:
                self._decisions.append(_kept_out(candidate, found))
        return expected

    def _where(self) -> Where:
        """Whose memories a new one can touch: the same user's, as far as this agent may see them."""
        return Where(
            user_id=self._scope.user_id,
            no_user=self._scope.user_id is None,
            reader=self._scope.agent_id,
            statuses=("active", "pending", "suppressed"),
            alive_at=millis(self._times.now),
        )

    async def _named(self, ids: tuple[str, ...]) -> list[Record]:
        found = {record.memory.id: record for record in await self._store.get(self._scope.namespace, ids)}
        for i, memory_id in enumerate(ids):
            record = found.get(memory_id)
            if record is None or record.memory.user_id != self._scope.user_id:
                raise InvalidInput.of(f"supersedes[{i}]", f"there is no memory {memory_id!r} in this scope")
            if record.memory.status not in {"active", "pending"}:
                raise InvalidInput.of(f"supersedes[{i}]", f"{memory_id!r} is {record.memory.status} already")
        return list(found.values())

    def _around(self, kept: Kept, near: list[Neighbour], by_key: list[Record]) -> list[Neighbour]:
        """The neighbours as this run has left them, with what the run itself added."""
        known = {neighbour.record.memory.id: neighbour for neighbour in near}
        for record in [*by_key, *self.ledger.added()]:
            if record.memory.id in known or record.bare is None:
                continue
            cosine = float(record.bare @ kept.bare)
            if cosine >= OVERLAY_COSINE or (record.memory.key is not None and record.memory.key == self._request.key):
                known[record.memory.id] = Neighbour(record=record, cosine=cosine)
        current = [
            Neighbour(record=self.ledger.get(neighbour.record), cosine=neighbour.cosine) for neighbour in known.values()
        ]
        live = [found for found in current if found.record.memory.status in {"active", "pending", "suppressed"}]
        return sorted(live, key=lambda found: (-found.cosine, found.record.memory.id))

    def _store_one(self, position: int, kept: Kept, around: list[Neighbour], replaced: list[Record]) -> None:
        request, scope = self._request, self._scope
        if request.idempotency_key is not None:
            memory_id = stable_id(scope.namespace, request.idempotency_key, str(position))
        else:
            memory_id = self._caller.new_id(self._times.now)
        new = draft(request, kept.candidate, kept.verdict, scope, self._times, memory_id)
        if self._model is not None:
            new = msgspec.structs.replace(new, embedding_model=self._model)
        if replaced:
            reason = "The caller named what it replaces."
            outcome = Outcome(decision="supersede", targets=tuple(old.memory.id for old in replaced), reason=reason)
        elif request.reconcile == "none":
            outcome = Outcome(decision="add", reason="Stored beside what is there, as asked.")
        else:
            outcome = reconcile(new, kept.bare, around, settings=self._settings, embedding_model=self._model)
        records = {found.record.memory.id: found.record for found in around} | {old.memory.id: old for old in replaced}
        targets = [records[target] for target in outcome.targets if target in records]
        stored = self._apply(new, kept, outcome, targets, records)
        touched = outcome.decision in {"supersede", "refine"} and not outcome.late
        self._decisions.append(
            Decision(
                index=kept.candidate.index,
                text=kept.candidate.text,
                decision=outcome.decision,
                memory_id=None if stored is None else stored.id,
                memory=stored,
                scores=kept.verdict.scores,
                reason=_sentences(kept.verdict.reason, outcome.reason),
                superseded=tuple(target.memory.id for target in targets) if touched else (),
                related=() if touched else tuple(target.memory.id for target in targets),
                contests=tuple(
                    Contested(
                        id=contender.id,
                        content=records[contender.id].memory.content,
                        probability=contender.probability,
                        why=contender.why,
                        ask=contender.ask,
                    )
                    for contender in outcome.contests
                    if contender.id in records
                ),
                evidence={"gate": kept.verdict.evidence, "reconciliation": outcome.evidence},
            )
        )

    def _apply(
        self, new: Memory, kept: Kept, outcome: Outcome, targets: list[Record], records: dict[str, Record]
    ) -> Memory | None:
        """Put the outcome into the ledger; the memory that now holds what was said, None when nothing does."""
        ledger, reason = self.ledger, outcome.reason
        if outcome.decision == "refuse":
            return None
        if outcome.decision == "duplicate" and targets:
            return self._confirm(new, targets[0])
        if outcome.late and targets:
            newer = min((target.memory for target in targets), key=lambda memory: memory.valid_from)
            new = msgspec.structs.replace(
                new,
                status="superseded",
                status_reason=reason,
                superseded_by=newer.id,
                valid_to=max(newer.valid_from, new.valid_from + _MILLISECOND),
            )
        elif outcome.decision in {"supersede", "refine"}:
            for target in targets:
                old = ledger.get(target)
                ledger.change(
                    old,
                    "superseded",
                    reason,
                    status="superseded",
                    status_reason=reason,
                    superseded_by=new.id,
                    valid_to=max(new.valid_from, old.memory.valid_from + _MILLISECOND),
                    updated_at=self._times.now,
                )
            new = msgspec.structs.replace(new, supersedes=tuple(target.memory.id for target in targets))
        elif outcome.decision == "pending":
            new = msgspec.structs.replace(new, status="pending", status_reason=reason)
        elif outcome.decision == "contest":
            for contender in outcome.contests:
                if (old_record := records.get(contender.id)) is not None:
                    old = ledger.get(old_record)
                    link = Contest(id=new.id, probability=contender.probability, reason=contender.why)
                    links = (*old.memory.contested_by, link)
                    ledger.change(old, "contested", contender.why, contested_by=links, updated_at=self._times.now)
        record = Record(memory=new, index=index_fields(new), bare=kept.bare, mixed=kept.mixed)
        ledger.add(record, "added", _sentences(kept.verdict.reason, reason))
        return new

    def _confirm(self, new: Memory, target: Record) -> Memory:
        """Heard again: the stored memory's confidence may rise and a pending one may come true.

        An agent's repetition is an echo, not corroboration.
        """
        old = self.ledger.get(target)
        self.accesses.append(Access(memory_id=old.memory.id, at=millis(self._times.now)))
        if new.source == "agent":
            return old.memory
        fields: dict[str, object] = {}
        if new.confidence > old.memory.confidence and new.status == "active":
            fields["confidence"] = new.confidence
        if old.memory.status == "pending" and new.status == "active":
            fields |= {"status": "active", "status_reason": "Said again, without a doubt."}
            if old.memory.kind == "speculation":
                fields["kind"] = new.kind
        if not fields:
            return old.memory
        fields["updated_at"] = self._times.now
        return self.ledger.change(old, "confirmed", "Said again.", **fields).memory


def _kept_out(candidate: Candidate, verdict: Verdict | None) -> Decision:
    if verdict is None:
        return Decision(
            index=candidate.index, text=candidate.text, decision="skip", reason=candidate.dismissed or "No candidate."
        )
    return Decision(
        index=candidate.index,
        text="" if verdict.refused else candidate.text,
        decision="refuse" if verdict.refused else "skip",
        scores=verdict.scores,
        reason=verdict.reason,
        evidence={"gate": verdict.evidence},
    )


def _embedded(text: str) -> str:
    return summarise(text) or text


def _sentences(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _fingerprint(request: WriteRequest) -> str:
    body = msgspec.structs.replace(request, idempotency_key=None)
    return hashlib.sha256(msgspec.json.encode(body)).hexdigest()
