"""Forget and restore: runs of status changes that can be listed beforehand and taken back afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from datetime import datetime
from typing import Literal

import msgspec

from hindsight_core.caller import Caller, millis
from hindsight_core.derivation import Loss, orphans
from hindsight_core.embedding import Embedder
from hindsight_core.erasing import clear_contexts
from hindsight_core.errors import Conflict, InvalidInput, NotFound, OutcomeUnknown, Unavailable
from hindsight_core.filtering import in_scope, scope_where, where_of
from hindsight_core.ledger import Ledger, open_ledger
from hindsight_core.models import ForgetMode, Memory, Run, Scope
from hindsight_core.question import read
from hindsight_core.ranking import Weights, by_words, formula
from hindsight_core.requests import Filters, ForgetRequest
from hindsight_core.responses import Affected, ForgetResponse
from hindsight_core.retention import Verdict, applied
from hindsight_core.stores import MemoryStore, Query, Record
from hindsight_core.traces import AHEAD, Traces

PAGE = 500
EXCERPT = 80
LIST_AT_MOST = 1000
QUERY_AT_MOST = 10_000
_LEAST_SCORE = 0.5
_STATUS_OF: dict[ForgetMode, Literal["archived", "suppressed", "retracted"]] = {
    "archive": "archived",
    "suppress": "suppressed",
    "retract": "retracted",
}
_LOSS: dict[ForgetMode, Loss] = {"erase": "erased", "suppress": "suppressed", "retract": "retracted"}
_ATTEMPTS = 8


class _Work:
    """One call; `left` is how a dry run would have left memories so far, None for erased ones.

    `changed` tells that something was forgotten already, whatever happens to the rest.
    """

    def __init__(self, request: ForgetRequest, caller: Caller, scope: Scope, traces: Traces) -> None:
        self.request = request
        self.caller = caller
        self.scope = scope
        self.traces = traces
        self.left: dict[str, Memory | None] = {}
        self.changed = False

    def seen(self, memory: Memory) -> Memory | None:
        return self.left.get(memory.id, memory)


class Forgetter:
    """Takes memories out of sight, softly or for good, and brings them back where that is possible."""

    def __init__(
        self, store: MemoryStore, embedder: Embedder | None, weights: Weights, traces: Callable[[], Traces]
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._weights = weights
        self._traces = traces

    async def forget(self, request: ForgetRequest, caller: Caller, *, least_relevance: float = 0.0) -> ForgetResponse:
        """Forget what the request selects, page by page under one run id; an empty selection is refused.

        A query selects nothing that is less relevant than `least_relevance`, however new or sure it may be.
        `affected` lists the first 1 000, `count` all. A dry run lists exactly what the run would touch.
        """
        scope, now = caller.scope(request), caller.clock(request)
        _check_selection(request, scope)
        ledger = open_ledger(f"forget.{request.mode}", scope.namespace, now, caller, request.reason)
        work = _Work(request, caller, scope, self._traces())
        told: list[Affected] = []
        count = 0
        try:
            async for page in self._selected(work, now, least_relevance):
                run = msgspec.structs.replace(ledger.run, count=count)
                touched = await self._forget_page(work, run, page)
                count += len(touched)
                told.extend(touched[: LIST_AT_MOST - len(told)])
        except Unavailable as exc:
            if work.changed and not isinstance(exc, OutcomeUnknown):
                raise OutcomeUnknown.after(exc) from exc
            raise
        return ForgetResponse(
            run_id=ledger.run.run_id,
            dry_run=request.dry_run,
            affected=tuple(told),
            count=count,
            degraded="No embedder here: words alone were compared."
            if request.query is not None and self._embedder is None
            else work.traces.left,
        )

    async def find(self, memory_id: str, scope: Scope) -> Record:
        """The record under this id, if it lies in the scope; `NotFound` otherwise, as if it did not exist."""
        found = await self._store.get(scope.namespace, [memory_id])
        if not found or not in_scope(found[0].memory, scope):
            raise NotFound(f"There is no memory {memory_id!r} in this scope.")
        return found[0]

    async def run(self, namespace: str, run_id: str) -> Run:
        found = await self._store.read(namespace, "runs", run_id=run_id, limit=1)
        if not found or not isinstance(found[0], Run):
            raise NotFound(f"There is no run {run_id!r} in this namespace.")
        return found[0]

    async def _selected(self, work: _Work, now: datetime, least_relevance: float) -> AsyncIterator[list[Record]]:
        request, scope = work.request, work.scope
        if request.query is not None:
            yield await self._by_query(request, scope, now, least_relevance)
            return
        filters = request.filters or Filters()
        if request.ids is not None:
            ids = request.ids if filters.ids is None else tuple(id_ for id_ in request.ids if id_ in filters.ids)
            filters = msgspec.structs.replace(filters, ids=ids)
        where = where_of(scope, filters, zone=request.timezone, everything=True)
        erasing = request.mode == "erase" and not request.dry_run
        after: str | None = None
        looked = 0
        while page := await self._store.scan(scope.namespace, where, after=after, limit=PAGE):
            after = page[-1].memory.id
            if erasing and looked == 0 and len(page) == PAGE:
                rest = await self._store.scan(scope.namespace, where, after=after, limit=AHEAD - PAGE, vectors=False)
                memories = [record.memory for record in (*page, *rest)]
                await work.traces.ahead(self._store, scope.namespace, memories)
                looked = len(memories)
            looked = max(0, looked - len(page))
            yield page

    async def _by_query(
        self, request: ForgetRequest, scope: Scope, now: datetime, least_relevance: float
    ) -> list[Record]:
        assert request.query is not None
        head = await self._store.head(scope.namespace)
        question = read(request.query, now, head.speakers)
        vector, calibration, weights = None, (0.0, 1.0), by_words(self._weights)
        if self._embedder is not None:
            vector = (await self._embedder.embed([question.bare], "query"))[0]
            calibration = (self._embedder.calibration.lo, self._embedder.calibration.hi)
            weights = self._weights
        where = where_of(
            scope,
            request.filters or Filters(),
            statuses=None if request.mode == "erase" else ("active", "pending", "superseded"),
            zone=request.timezone,
            everything=True,
        )
        page = await self._store.rank(
            scope.namespace,
            Query(
                vector=vector,
                terms=question.terms,
                formula=formula(calibration=calibration, weights=weights, speakers=question.speakers),
                scope=scope_where(scope, everything=True),
                where=where,
                now=millis(now),
                limit=QUERY_AT_MOST,
                min_score=_LEAST_SCORE if request.min_score is None else request.min_score,
            ),
        )
        return await self._store.get(
            scope.namespace, [hit.memory.id for hit in page.hits if hit.parts.relevance >= least_relevance]
        )

    async def _forget_page(self, work: _Work, run: Run, page: list[Record]) -> list[Affected]:
        """Forget a page with what is derived from it."""
        touched, gone = await self._change(work, run, page, frozenset())
        if touched and not work.request.dry_run:
            # What was induced from them in the very moment goes too.
            run = msgspec.structs.replace(run, count=run.count + len(touched))
            touched += (await self._change(work, run, [], gone))[0]
        return touched

    async def _change(
        self, work: _Work, run: Run, page: list[Record], gone: frozenset[str]
    ) -> tuple[list[Affected], frozenset[str]]:
        """One change: what became of the page and of what is derived from it, or from `gone`; and all that is gone."""
        request, namespace = work.request, work.scope.namespace
        for _ in range(_ATTEMPTS):
            ledger = Ledger(run, work.caller)
            expected = (await self._store.head(namespace)).sequence if request.bring_back else None
            going = [record for record in page if _forgotten(work.seen(record.memory), request.mode)]
            lost = gone | {record.memory.id for record in going}
            verdicts = [(record, _verdict(request)) for record in going] + await self._derived(work, lost)
            touched: list[Affected] = []
            erased: list[Record] = []
            for record, verdict in verdicts:
                after = applied(record.memory, verdict, run.at)
                reason = "" if record.memory.id in lost else verdict.reason
                touched.append(affected(record.memory, "erased" if after is None else after.status, reason))
                if request.dry_run:
                    work.left[record.memory.id] = after
                elif after is None:
                    erased.append(record)
                    ledger.erase(record, verdict.reason)
                else:
                    put = msgspec.structs.replace(record, memory=msgspec.structs.replace(after, updated_at=run.at))
                    ledger.replace(record, put, verdict.action, verdict.reason)
            if erased:
                await work.traces.of(self._store, namespace, erased)
                await clear_contexts(self._store, ledger, erased, namespace, work.traces)
            if request.bring_back:
                touched += await self._bring_back(ledger, page, request, work.scope)
            if request.dry_run or not touched:
                return touched, lost
            try:
                await work.traces.commit(self._store, namespace, ledger.changes(), expected=expected)
            except Conflict:
                await asyncio.sleep(0.005)
                page = await self._store.get(namespace, [record.memory.id for record in page])
                continue
            work.changed = True
            return touched, lost
        raise Conflict("The namespace is being written so often that this run found no turn.", remedy="Try again.")

    async def _derived(self, work: _Work, gone: Collection[str]) -> list[tuple[Record, Verdict]]:
        how = _LOSS.get(work.request.mode)
        if how is None or not gone:
            return []
        found = await orphans(self._store, work.scope.namespace, gone, how, work.seen)
        verdicts = {memory.id: verdict for memory, verdict in found}
        records = await self._store.get(work.scope.namespace, list(verdicts))
        return [(record, verdicts[record.memory.id]) for record in records]

    async def _bring_back(
        self, ledger: Ledger, page: list[Record], request: ForgetRequest, scope: Scope
    ) -> list[Affected]:
        """What the forgotten ones had replaced holds again, unless something else replaced it meanwhile."""
        held = [record.memory for record in page if record.memory.status in {"active", "pending"}]
        ids = [old for memory in held for old in memory.supersedes]
        gone = {record.memory.id for record in page}
        back: list[Affected] = []
        for record in await self._store.get(scope.namespace, list(dict.fromkeys(ids))):
            memory = record.memory
            if memory.status == "superseded" and memory.superseded_by in gone and memory.id not in gone:
                back.append(affected(memory, "active"))
                ledger.change(
                    record,
                    "restored",
                    request.reason or "What had replaced it was forgotten.",
                    status="active",
                    status_reason="What had replaced it was forgotten.",
                    superseded_by=None,
                    valid_to=None,
                    updated_at=ledger.run.at,
                )
        return back


def _check_selection(request: ForgetRequest, scope: Scope) -> None:
    if request.ids is not None and not request.ids:
        raise InvalidInput.of("ids", "is empty, so nothing would be forgotten; for everything say `all: true`")
    if request.filters is not None and request.filters.ids == ():
        raise InvalidInput.of("filters.ids", "is empty, so nothing would be forgotten; leave it out, or name some")
    if request.query is not None and request.ids is not None:
        raise InvalidInput.of("query", "give `ids` or `query`, not both")
    if request.min_score is not None and request.query is None:
        raise InvalidInput.of("min_score", "is for a `query`, and there is none")
    filters = request.filters or Filters()
    # By what the filters mean: an empty list is no condition.
    narrow = where_of(scope, filters, zone=request.timezone, everything=True) != scope_where(scope, everything=True)
    if request.all and (request.ids is not None or request.query is not None or narrow):
        raise InvalidInput.of("all", "goes alone: it means everything in the scope")
    if not request.all and request.ids is None and request.query is None and not narrow:
        raise InvalidInput.of("ids", "select something with `ids`, `filters` or `query`, or say `all: true`")


def _forgotten(memory: Memory | None, mode: ForgetMode) -> bool:
    """Whether the mode changes anything about it; None is erased already."""
    return memory is not None and (mode == "erase" or memory.status != _STATUS_OF[mode])


def _verdict(request: ForgetRequest) -> Verdict:
    if request.mode == "erase":
        return Verdict(action="erased", reason=request.reason)
    why = request.reason or f"Asked to {request.mode}."
    return Verdict(action=_STATUS_OF[request.mode], reason=request.reason, fields={"status_reason": why})


def affected(memory: Memory, after: str, reason: str = "") -> Affected:
    """What a run does to a memory, as its answer tells it."""
    excerpt = memory.content if len(memory.content) <= EXCERPT else memory.content[: EXCERPT - 1] + "…"
    return Affected(id=memory.id, excerpt=excerpt, before=memory.status, after=after, reason=reason)
