"""What each candidate of a write becomes, given what the store holds, and the changes that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.caller import Caller, time_zone
from hindsight_core.cues import language_of, sentence
from hindsight_core.drafting import Times, draft, said_to_hold
from hindsight_core.effects import Effects, Kept, apply, sentences, unquoted, why_kept
from hindsight_core.errors import InvalidInput
from hindsight_core.extraction import Candidate
from hindsight_core.filtering import theirs
from hindsight_core.gate import Verdict
from hindsight_core.ids import dated_id, stable_id
from hindsight_core.judging import Question, Ruling
from hindsight_core.lateness import news_first
from hindsight_core.ledger import Ledger, open_ledger
from hindsight_core.models import Contested, Decision, Memory, Scope
from hindsight_core.reconciliation import Outcome, ReconcileSettings, reconcile
from hindsight_core.requests import WriteRequest
from hindsight_core.responses import WriteResponse
from hindsight_core.stores import Access, MemoryStore, Neighbour, Record
from hindsight_core.timeline import begin_earlier, holds_already, insert, line_of

NEIGHBOURS = 16
MOST_ASKED = 5
OVERLAY_COSINE = 0.2
Texts: TypeAlias = tuple[str, str]


class WritePlan:
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
        rulings: Mapping[Texts, Ruling] | None = None,
        said: Mapping[Texts, NDArray[np.float32]] | None = None,
    ) -> None:
        """`rulings` are what a judge has said already, by the texts of the news and of what it may replace.

        `said` is what a reader has said, by the same; the pairs that it has not been asked about are in
        `unread`, with the probability that something follows from each.
        """
        self._store = store
        self._request = request
        self._caller = caller
        self._scope = scope
        self._times = times
        self._settings = settings
        self._model = model
        self._rulings = rulings or {}
        self._said = said or {}
        self.unread: dict[Texts, float] = {}
        self.questions: dict[Texts, Question] = {}
        self.ledger: Ledger = open_ledger("write", scope.namespace, times.now, caller)
        self.accesses: list[Access] = []
        self._decisions: list[Decision] = []

    def response(self) -> WriteResponse:
        return WriteResponse(results=tuple(self._decisions), run_id=self.ledger.run.run_id)

    async def run(
        self, offered: list[Candidate], judged: dict[int, Kept | Verdict | None], *, spent: bool = False
    ) -> int | None:
        """Decide in order; the sequence that the decisions rest on, None when they rest on nothing stored.

        With a `spent` idempotency key, something of whose answer was erased since, nothing is stored any more.
        """
        request = self._request
        kept = [found for found in judged.values() if isinstance(found, Kept)]
        looks = bool(kept) and (request.reconcile != "none" or bool(request.supersedes))
        expected = (await self._store.head(self._scope.namespace)).sequence if looks else None
        replaced = await self._named(request.supersedes) if request.supersedes else []
        stored, erased = await self._stored_already(offered) if kept else ({}, set[int]())
        banned = await self._suppressed(kept) if kept else []
        near: list[list[Neighbour]] = [[] for _ in kept]
        by_key: list[Record] = []
        if kept and request.reconcile != "none":
            near = await self._store.neighbours(
                self._scope.namespace,
                np.stack([found.bare for found in kept]),
                theirs(self._scope, self._times.now),
                NEIGHBOURS,
            )
            if request.key is not None:
                where = msgspec.structs.replace(theirs(self._scope, self._times.now), key=request.key)
                by_key = await self._store.scan(self._scope.namespace, where, after=None, limit=NEIGHBOURS)
        turn = 0
        for i, candidate in enumerate(offered):
            found = judged[i]
            if isinstance(found, Kept):
                close = [*near[turn], *(banned[turn] if banned else [])]
                turn += 1
                if i in stored:
                    self._decisions.append(_known(candidate, stored[i]))
                elif spent or i in erased:
                    reason = sentence("key.erased", language_of(candidate.text), "commands")
                    self._decisions.append(
                        Decision(index=candidate.index, text=candidate.text, decision="refuse", reason=reason)
                    )
                else:
                    await self._store_one(i, found, self._around(found, close, by_key), replaced)
            else:
                self._decisions.append(_kept_out(candidate, found))
        return expected

    async def _suppressed(self, kept: list[Kept]) -> list[list[Neighbour]]:
        """What must not be learned again, near each candidate: whatever `reconcile` says, and past any expiry."""
        where = msgspec.structs.replace(theirs(self._scope, self._times.now), statuses=("suppressed",), alive_at=None)
        if not await self._store.scan(self._scope.namespace, where, after=None, limit=1):
            return []
        vectors = np.stack([found.bare for found in kept])
        return await self._store.neighbours(self._scope.namespace, vectors, where, NEIGHBOURS)

    async def _stored_already(self, offered: list[Candidate]) -> tuple[dict[int, Memory], set[int]]:
        """By position, what an earlier try under the same idempotency key has stored and whose answer is gone.

        And the positions of what it has stored and was erased since.
        """
        key = self._request.idempotency_key
        if key is None:
            return {}, set()
        ids = {id_: i for i, candidate in enumerate(offered) for id_ in self._stable_ids(key, i, candidate)}
        found = await self._store.get(self._scope.namespace, list(ids))
        stored = {ids[record.memory.id]: record.memory for record in found}
        gone = await self._store.erased(self._scope.namespace, [id_ for id_, i in ids.items() if i not in stored])
        return stored, {ids[memory_id] for memory_id in gone}

    def _stable_ids(self, key: str, position: int, candidate: Candidate) -> list[str]:
        """The id of what is stored under an idempotency key, then the one that earlier versions gave it.

        What has a date sorts by it; the instant of the call, which a repetition does not share, is none.
        """
        parts = (self._scope.namespace, key, str(position))
        at = candidate.at or self._times.observed_at
        undated = stable_id(*parts)
        return [undated] if at is None else [dated_id(at, position, *parts), undated]

    async def _named(self, ids: tuple[str, ...]) -> list[Record]:
        found = {record.memory.id: record for record in await self._store.get(self._scope.namespace, ids)}
        for i, memory_id in enumerate(ids):
            record = found.get(memory_id)
            if record is None or not self._touchable(record.memory):
                raise InvalidInput.of(f"supersedes[{i}]", f"there is no memory {memory_id!r} in this scope")
            if record.memory.status not in {"active", "pending"}:
                raise InvalidInput.of(f"supersedes[{i}]", f"{memory_id!r} is {record.memory.status} already")
        return list(found.values())

    def _touchable(self, memory: Memory) -> bool:
        """Whether this write may change a memory: the same user's, a private one only by its own agent.

        What is private replaces nothing that others see, and what is shared is never taken for known because of it.
        """
        if memory.user_id != self._scope.user_id or memory.visibility != self._request.visibility:
            return False
        return memory.visibility == "shared" or memory.agent_id == self._scope.agent_id

    def _around(self, kept: Kept, near: list[Neighbour], by_key: list[Record]) -> list[Neighbour]:
        """The neighbours as this run has left them, with what the run itself added."""
        known = {neighbour.record.memory.id: neighbour for neighbour in near}
        added = self.ledger.added() if self._request.reconcile != "none" else []
        for record in [*by_key, *added]:
            if record.memory.id in known or record.bare is None:
                continue
            cosine = float(record.bare @ kept.bare)
            if cosine >= OVERLAY_COSINE or (record.memory.key is not None and record.memory.key == self._request.key):
                known[record.memory.id] = Neighbour(record=record, cosine=cosine)
        current = [
            Neighbour(record=self.ledger.get(neighbour.record), cosine=neighbour.cosine) for neighbour in known.values()
        ]
        live = [
            found
            for found in current
            if found.record.memory.status in {"active", "pending", "suppressed"}
            and self._touchable(found.record.memory)
        ]
        return sorted(live, key=lambda found: (-found.cosine, found.record.memory.id))

    async def _store_one(self, position: int, kept: Kept, around: list[Neighbour], replaced: list[Record]) -> None:
        request, scope = self._request, self._scope
        if request.idempotency_key is not None:
            memory_id = self._stable_ids(request.idempotency_key, position, kept.candidate)[0]
        else:
            memory_id = self._caller.new_id(self._times.now)
        holds = said_to_hold(request, kept.candidate, kept.verdict, self._times)
        new = draft(request, kept.candidate, kept.verdict, scope, self._times, memory_id, holds)
        if self._model is not None:
            new = msgspec.structs.replace(new, embedding_model=self._model)
        outcome = self._outcome(new, kept, around, replaced)
        records = {found.record.memory.id: found.record for found in around} | {old.memory.id: old for old in replaced}
        targets = [records[target] for target in outcome.targets if target in records]
        if outcome.late and targets:
            newest = min(targets, key=lambda target: target.memory.valid_from)
            line = await line_of(self._store, scope.namespace, self.ledger, newest)
            new = insert(self.ledger, new, line, unquoted(outcome.reason))
        elif outcome.decision == "duplicate" and targets and holds_already(new, targets[0].memory):
            line = await line_of(self._store, scope.namespace, self.ledger, targets[0])
            begin_earlier(self.ledger, targets[0], line, new.valid_from, unquoted(outcome.reason))
        for doubted in (outcome.near if request.reconcile == "judge" else outcome.doubted)[:MOST_ASKED]:
            if (texts := _texts(new, records[doubted].memory)) not in self._rulings:
                news, old = news_first(new, records[doubted].memory)
                question = Question(old=old.content, new=news.content, old_source=old.source, new_source=news.source)
                self.questions[texts] = question
        effects = Effects(self.ledger, self.accesses, self._times.now)
        before = {old for target in targets for old in self.ledger.get(target).memory.supersedes}
        stored = apply(effects, new, kept, outcome, targets, records)
        touched = outcome.decision in {"supersede", "refine"} and not outcome.late
        # What is said again may settle what it was in doubt with.
        again = stored if outcome.decision == "duplicate" else None
        settled = () if again is None else tuple(old for old in again.supersedes if old not in before)
        settled = tuple(dict.fromkeys((*settled, *(old for old, _ in outcome.settled))))
        self._decisions.append(
            Decision(
                index=kept.candidate.index,
                text=kept.candidate.text,
                decision=outcome.decision,
                memory_id=None if stored is None else stored.id,
                memory=stored,
                scores=kept.verdict.scores,
                reason=sentences(why_kept(kept), outcome.reason),
                superseded=(*(target.memory.id for target in targets), *settled) if touched else settled,
                related=() if touched else tuple(target.memory.id for target in targets),
                contests=tuple(
                    Contested(
                        id=contender.id,
                        content=records[contender.id].memory.content,
                        probability=contender.probability,
                        why=contender.why,
                        ask=contender.ask,
                        late=contender.late,
                    )
                    for contender in outcome.contests
                    if contender.id in records
                ),
                evidence={
                    "gate": kept.verdict.evidence,
                    "reconciliation": outcome.evidence,
                    **({} if holds is None else {"holds": holds.evidence()}),
                },
            )
        )

    def _outcome(self, new: Memory, kept: Kept, around: list[Neighbour], replaced: list[Record]) -> Outcome:
        """What is suppressed stays so; then the caller's word; then what reconciliation finds."""
        banned = [found for found in around if found.record.memory.status == "suppressed"]
        if banned:
            ban = self._reconciled(new, kept, banned)
            if ban.decision == "refuse":
                return ban
        if replaced:
            targets = tuple(old.memory.id for old in replaced)
            if new.status == "pending":
                return Outcome(decision="pending", targets=targets, reason="A guess replaces nothing until confirmed.")
            return Outcome(decision="supersede", targets=targets, reason="The caller named what it replaces.")
        if self._request.reconcile == "none":
            return Outcome(decision="add", reason="Stored beside what is there, as asked.")
        return self._reconciled(new, kept, around)

    def _reconciled(self, new: Memory, kept: Kept, around: list[Neighbour]) -> Outcome:
        texts = {found.record.memory.id: _texts(new, found.record.memory) for found in around}
        outcome = reconcile(
            new,
            kept.bare,
            around,
            settings=self._settings,
            embedding_model=self._model,
            rulings={old: self._rulings[pair] for old, pair in texts.items() if pair in self._rulings},
            zone=time_zone(self._request.timezone),
            heard={old: self._said[pair] for old, pair in texts.items() if pair in self._said},
        )
        self.unread |= {texts[old]: share for old, share in outcome.unread.items()}
        return outcome


def _texts(new: Memory, old: Memory) -> Texts:
    news, former = news_first(new, old)
    return news.content, former.content


def _known(candidate: Candidate, memory: Memory) -> Decision:
    return Decision(
        index=candidate.index,
        text=candidate.text,
        decision="duplicate",
        memory_id=memory.id,
        memory=memory,
        reason="An earlier try with this idempotency key has stored it.",
    )


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
