"""The write pipeline: extract, score, embed, reconcile with what is there, store durably; the order is here alone."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping, Sequence
from weakref import WeakValueDictionary

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.caller import Caller
from hindsight_core.drafting import Times, candidates, check
from hindsight_core.effects import Kept
from hindsight_core.embedding import Embedder
from hindsight_core.errors import (
    ConfigurationError,
    Conflict,
    FieldError,
    InvalidInput,
    MissingExtra,
    ProviderUnavailable,
)
from hindsight_core.extraction import Candidate
from hindsight_core.filtering import theirs
from hindsight_core.gate import GateSettings, Verdict, find_secret, judge, weigh
from hindsight_core.hearing import Heard, hear
from hindsight_core.journal import Journal
from hindsight_core.judging import Judge, Question, Ruling
from hindsight_core.loops import pausing
from hindsight_core.models import Scope
from hindsight_core.orders import Order, without_orders
from hindsight_core.pair_reader import PairReader
from hindsight_core.passages import Passages
from hindsight_core.planning import Texts, WritePlan
from hindsight_core.reconciliation import ReconcileSettings
from hindsight_core.requests import WriteRequest
from hindsight_core.responses import WriteResponse
from hindsight_core.slots import read
from hindsight_core.stores import MemoryStore, Receipt, Vector
from hindsight_core.summary import embedded_text

ATTEMPTS = 64
# So many pairs of one request are read, likeliest first: a long log is not held up by its many.
READINGS = 8
# Seconds that the embedder has to itself.
HEAD_START = 0.001
_log = logging.getLogger("hindsight.writing")


class Writer:
    """Writes for one store and embedder; concurrent writes to one namespace wait for each other in this process.

    Between processes the store's sequence decides: who comes second plans again on what the first one left.
    """

    def __init__(
        self,
        store: MemoryStore,
        embedder: Embedder | None,
        gate: GateSettings,
        settings: ReconcileSettings,
        journal: Journal,
        arbiter: Judge | None = None,
        reader: PairReader | None = None,
    ) -> None:
        self._store = store
        self._journal = journal
        self._embedder = embedder
        self._gate = gate
        self._settings = settings
        self._arbiter = arbiter
        self._reader = reader
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def write(
        self,
        request: WriteRequest,
        caller: Caller,
        passages: Passages | None = None,
        given: Sequence[Order] = (),
    ) -> WriteResponse:
        """Decide about every candidate of the request and store what is kept, all of it or nothing.

        A judge is asked once at most, for what is contested or when the request says so (`reconcile: judge`).
        Messages that are orders to forget (`given`) are kept nowhere, nor beside what follows them.
        """
        times = check(request, caller)
        if request.reconcile == "judge" and self._arbiter is None:
            raise InvalidInput.of("reconcile", "there is no judge here: HINDSIGHT_JUDGE names none")
        scope = caller.scope(request)
        fingerprint = "" if request.idempotency_key is None else _fingerprint(request)
        spent = await self._answered(scope, request, fingerprint)
        if isinstance(spent, WriteResponse):
            return spent
        offered = without_orders(candidates(request), request, given)
        passages = passages or Passages(self._embedder)
        judged = await self._judge(request, offered, passages, scope, times)
        rulings: dict[Texts, Ruling] = {}
        said: dict[Texts, NDArray[np.float32]] = {}
        degraded: str | None = None
        asked = False
        lock = self._locks.setdefault(scope.namespace, asyncio.Lock())
        for attempt in range(ATTEMPTS):
            async with lock:
                plan = WritePlan(
                    self._store, request, caller, scope, times, self._settings, passages.model, rulings, said
                )
                expected = await plan.run(offered, judged, spent=spent)
                left = READINGS - len(said) if self._reader is not None else 0
                unread = sorted(plan.unread, key=lambda pair: -plan.unread[pair])[:left]
                asks = plan.questions if self._arbiter is not None and not asked and not unread else {}
                open_ = bool(asks or unread)
                response = msgspec.structs.replace(plan.response(), degraded=degraded)
                receipt = None
                if request.idempotency_key is not None and not spent:
                    body = msgspec.json.encode(response)
                    receipt = Receipt(key=request.idempotency_key, fingerprint=fingerprint, answer=body)
                try:
                    if not open_ and (not plan.ledger.empty or receipt is not None):
                        await self._store.commit(
                            scope.namespace,
                            plan.ledger.changes(receipt=receipt),
                            expected=expected,
                            searchable=request.wait == "searchable",
                        )
                except Conflict:
                    spent = await self._answered(scope, request, fingerprint)
                    if isinstance(spent, WriteResponse):
                        return spent
                else:
                    if not open_:
                        if plan.accesses:
                            self._journal.record(scope.namespace, None, plan.accesses)
                        return response
            if unread:
                # Outside the lock, as below; what the decisions change may bring up other pairs.
                said |= await self._read(unread)
                continue
            if asks:
                # Outside the lock: nobody waits for the judge but this write, which then plans again.
                asked = True
                rulings, degraded = await self._ask(asks)
                continue
            await asyncio.sleep(0.001 * min(attempt, 20))
        raise Conflict(
            f"The namespace {scope.namespace!r} is being written so often that this write found no turn.",
            remedy="Try again; nothing of it was stored.",
        )

    async def _read(self, unread: Sequence[Texts]) -> dict[Texts, NDArray[np.float32]]:
        """What the reader says of these pairs; nothing where it cannot, and it is not asked again."""
        assert self._reader is not None
        try:
            found = await self._reader.read([(old, new) for new, old in unread])
        except ConfigurationError as exc:
            _log.error("reader.failed", extra={"detail": exc.detail, "setting": "HINDSIGHT_READER"})
            self._reader = None
            return {}
        return dict(zip(unread, found, strict=True))

    async def _ask(self, questions: Mapping[Texts, Question]) -> tuple[dict[Texts, Ruling], str | None]:
        """What the judge says, and what is to be known about it where it fails: then rules decide."""
        assert self._arbiter is not None
        try:
            rulings = await self._arbiter.rule(list(questions.values()))
        except (ProviderUnavailable, MissingExtra) as exc:
            _log.warning("judge.failed", extra={"detail": exc.detail, "setting": "HINDSIGHT_JUDGE"})
            return {}, f"{exc.detail} Rules decided."
        return dict(zip(questions, rulings, strict=True)), None

    async def _answered(self, scope: Scope, request: WriteRequest, fingerprint: str) -> WriteResponse | bool:
        """The answer that this request was given before; else whether its key is spent, on what was erased since."""
        if request.idempotency_key is None:
            return False
        receipt = await self._store.receipt(scope.namespace, request.idempotency_key)
        if receipt is None or not receipt.answer:
            return receipt is not None
        if receipt.fingerprint != fingerprint:
            raise Conflict(
                "idempotency_key: was used for another request.",
                remedy="Use a fresh key for every new request, and the same one only to repeat it.",
                errors=(FieldError("idempotency_key", "was used for another request"),),
            )
        return msgspec.json.decode(receipt.answer, type=WriteResponse)

    async def _judge(
        self, request: WriteRequest, offered: list[Candidate], passages: Passages, scope: Scope, times: Times
    ) -> dict[int, Kept | Verdict | None]:
        """By position: kept with vectors, a verdict that keeps it out, or None for what was dismissed before."""
        offered[:] = [_without_secrets(candidate) for candidate in offered]
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
        texts = {i: (embedded_text(offered[i].text), embedded_text(offered[i].statement)) for i in open_}
        asked = [request.task] if request.task and self._embedder is not None else []
        # All in one batch, also what only the kept ones will need: most are kept, and a text costs more in a batch of
        # its own.
        wanted = [text for i in open_ for text in (*texts[i], offered[i].text, *offered[i].previous)]
        embedded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        reading = asyncio.create_task(
            _meanwhile(embedded, [offered[i] for i in open_], compared=request.reconcile != "none")
        )
        try:
            await passages.of([*wanted, *asked])
        except BaseException:
            reading.cancel()
            # It is over before this is raised; what it raised itself, if it did, matters no more.
            await asyncio.gather(reading, return_exceptions=True)
            raise
        finally:
            embedded.set_result(None)
        heard = await reading
        vectors = await passages.of([texts[i][0] for i in open_])
        stated = await passages.of([texts[i][1] for i in open_])
        task = (await passages.of(asked))[0] if asked else None
        model = passages.model
        readings = [weigh(one, said, model) async for one, said in pausing(list(zip(heard, stated, strict=True)))]

        def verdict_of(at: int, known: float | None = None) -> Verdict:
            bare = vectors[at]
            return judge(
                offered[open_[at]],
                vector=stated[at],
                task_similarity=None if task is None else self._similarity(bare, task),
                settings=self._gate,
                kind=request.kind,
                confidence=request.confidence,
                embedding_model=model,
                known=known,
                heard=heard[at],
                reading=readings[at],
            )

        verdicts = [verdict_of(at) async for at in pausing(range(len(open_)))]
        near = await self._known(
            scope, times, [v for v, found in zip(vectors, verdicts, strict=True) if not found.keep]
        )
        async for at in pausing(range(len(open_))):
            i, bare, verdict = open_[at], vectors[at], verdicts[at]
            if not verdict.keep and near:
                verdict = verdict_of(at, near.pop(0))
            if not (verdict.keep or request.force) or verdict.refused:
                judged[i] = verdict
                continue
            text = offered[i].text
            turns = await passages.of(offered[i].previous)
            _, mixed = await passages.pair(embedded_text(text), text, turns)
            judged[i] = Kept(candidate=offered[i], verdict=verdict, bare=bare, mixed=mixed)
        return judged

    async def _known(self, scope: Scope, times: Times, vectors: list[Vector]) -> list[float | None]:
        """For each vector the cosine of the nearest memory of the same user, None where there is none."""
        if not vectors or self._embedder is None:
            return []
        where = theirs(scope, times.now)
        found = await self._store.neighbours(scope.namespace, np.stack(vectors), where, 1)
        return [row[0].cosine if row else None for row in found]

    def _similarity(self, left: Vector, right: Vector) -> float:
        assert self._embedder is not None
        calibration = self._embedder.calibration
        cosine = float(left @ right)
        return min(1.0, max(0.0, (cosine - calibration.lo) / (calibration.hi - calibration.lo)))


async def _meanwhile(embedded: asyncio.Future[None], candidates: Sequence[Candidate], *, compared: bool) -> list[Heard]:
    """What decisions rest on besides vectors, read while these are being made."""
    # The embedder's thread cannot begin before this one lets go.
    await asyncio.wait([embedded], timeout=HEAD_START)
    heard: list[Heard] = []
    for candidate in candidates:
        if heard:
            await asyncio.sleep(0)
        heard.append(hear(candidate))
        if compared:
            read(candidate.text)
    return heard


def _without_secrets(candidate: Candidate) -> Candidate:
    """A secret is kept nowhere, so not as the turn before something else either."""
    context = candidate.context
    return msgspec.structs.replace(
        candidate,
        context=None if context is not None and find_secret(context) is not None else context,
        previous=tuple(turn for turn in candidate.previous if find_secret(turn) is None),
    )


def _fingerprint(request: WriteRequest) -> str:
    body = msgspec.structs.replace(request, idempotency_key=None)
    return hashlib.sha256(msgspec.json.encode(body)).hexdigest()
