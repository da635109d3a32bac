"""What is there, read without a question: lists, histories, counts, and the logs of runs and searches, page by page."""

from __future__ import annotations

from hindsight_core import cursors
from hindsight_core.caller import Caller, instant, millis
from hindsight_core.embedding import Embedder
from hindsight_core.errors import InvalidInput, NotFound
from hindsight_core.filtering import concerns, present_of, where_of
from hindsight_core.forgetting import Forgetter
from hindsight_core.journal import Journal
from hindsight_core.legibility import check_request
from hindsight_core.models import AuditEvent, Retrieval, Run, Status
from hindsight_core.requests import ListRequest, PageRequest, Request
from hindsight_core.responses import EventPage, History, MemoryPage, RetrievalPage, RunPage, RunReport, Stats
from hindsight_core.stores import Log, MemoryStore

_LIVE: tuple[Status, ...] = ("active", "pending")
_HELD: tuple[Status, ...] = ("active", "superseded")
_ALL_EVENTS = 10_000


class Browser:
    """Reads one store; see `MemoryService` for what each method promises."""

    def __init__(self, store: MemoryStore, embedder: Embedder | None, forgetter: Forgetter, journal: Journal) -> None:
        self._store = store
        self._embedder = embedder
        self._forgetter = forgetter
        self._journal = journal

    async def list_memories(self, request: ListRequest, caller: Caller) -> MemoryPage:
        """A page of the scope's memories in a stable order; without a status what holds, will hold or is pending."""
        check_request(request, decoded=caller.decoded)
        scope, now = caller.scope(request), caller.clock(request)
        as_of = None if request.as_of is None else instant(request.as_of, "as_of", request.timezone)
        lasting = as_of
        if as_of is None and request.filters.status in {None, ()}:
            lasting = present_of(await self._store.head(scope.namespace), now)
        where = where_of(
            scope,
            request.filters,
            statuses=_HELD if as_of is not None else (*_LIVE, "superseded"),
            alive_at=now if _lives(request.filters.status) else None,
            begun_at=as_of,
            lasting_at=lasting,
            zone=request.timezone,
            everything=True,
        )
        after = cursors.decode(request.cursor)
        found = await self._store.scan(scope.namespace, where, after=after, limit=request.limit + 1)
        page = [record.memory for record in found[: request.limit]]
        more = len(found) > request.limit
        return MemoryPage(memories=tuple(page), cursor=cursors.encode(page[-1].id) if more else None)

    async def history(self, memory_id: str, request: Request, caller: Caller) -> History:
        """Every event of a memory, oldest first; of an erased one too, without text."""
        scope = caller.scope(request)
        found = await self._store.read(scope.namespace, "events", memory_id=memory_id, limit=_ALL_EVENTS)
        events = tuple(event for event in found if isinstance(event, AuditEvent))
        erased = any(event.action == "erased" for event in events)
        if not (erased and all(concerns(event, scope) for event in events)):
            await self._forgetter.find(memory_id, scope)
        return History(memory_id=memory_id, events=events)

    async def events(self, request: PageRequest, caller: Caller) -> EventPage:
        """A page of the namespace's audit events."""
        found, cursor = await self._page("events", request, caller)
        scope = caller.scope(request)
        events = (event for event in found if isinstance(event, AuditEvent) and concerns(event, scope))
        return EventPage(events=tuple(events), cursor=cursor)

    async def stats(self, request: Request, caller: Caller) -> Stats:
        """How many memories, events and runs the namespace holds."""
        namespace = whole(request, caller)
        counts = await self._store.count(namespace)
        by_status, log = counts.get("status", {}), counts.get("log", {})
        return Stats(
            namespace=namespace,
            memories=sum(by_status.values()),
            by_status=by_status,
            by_type=counts.get("memory_type", {}),
            by_kind=counts.get("kind", {}),
            events=log.get("events", 0),
            runs=log.get("runs", 0),
            embedding_model=None if self._embedder is None else self._embedder.identity.name,
        )

    async def retrievals(self, request: PageRequest, caller: Caller) -> RetrievalPage:
        """A page of the retrieval log."""
        await self._journal.flush()
        found, cursor = await self._page("retrievals", request, caller)
        entries = tuple(entry for entry in found if isinstance(entry, Retrieval) and _asked_in(entry, request))
        return RetrievalPage(retrievals=entries, cursor=cursor)

    async def retrieval(self, retrieval_id: str, request: Request, caller: Caller) -> Retrieval:
        """One logged search."""
        await self._journal.flush()
        found = await self._store.read(caller.scope(request).namespace, "retrievals", ids=[retrieval_id], limit=1)
        if not found or not isinstance(found[0], Retrieval) or not _asked_in(found[0], request):
            raise NotFound(f"There is no retrieval {retrieval_id!r} in this namespace.")
        return found[0]

    async def runs(self, request: PageRequest, caller: Caller) -> RunPage:
        """A page of the namespace's runs."""
        whole(request, caller)
        found, cursor = await self._page("runs", request, caller)
        return RunPage(runs=tuple(run for run in found if isinstance(run, Run)), cursor=cursor)

    async def run(self, run_id: str, request: Request, caller: Caller) -> RunReport:
        """One run with its events."""
        scope = caller.scope(request)
        run = await self._forgetter.run(scope.namespace, run_id)
        found = await self._store.read(scope.namespace, "events", run_id=run_id, limit=_ALL_EVENTS)
        events = tuple(event for event in found if isinstance(event, AuditEvent) and concerns(event, scope))
        if found and not events:
            raise NotFound(f"There is no run {run_id!r} in this scope.")
        return RunReport(run=run, events=events)

    async def _page(
        self, log: Log, request: PageRequest, caller: Caller
    ) -> tuple[list[AuditEvent] | list[Run] | list[Retrieval], str | None]:
        since = None if request.since is None else millis(instant(request.since, "since", request.timezone))
        found = await self._store.read(
            caller.scope(request).namespace,
            log,
            since=since,
            after=cursors.decode(request.cursor),
            limit=request.limit + 1,
        )
        if len(found) <= request.limit:
            return found, None
        page = found[: request.limit]
        last = page[-1]
        return page, cursors.encode(last.run_id if isinstance(last, Run) else last.id)


def _lives(status: Status | tuple[Status, ...] | None) -> bool:
    """Whether only memories are asked for that an expiry hides; what is forgotten is listed whether expired or not."""
    asked = status if isinstance(status, tuple) else (status,)
    return all(one is None or one in _LIVE for one in asked)


def _asked_in(entry: Retrieval, request: Request) -> bool:
    """Whether a logged search was made in the narrower scope that is asked for."""
    names = ("user_id", "agent_id", "session_id", "task_id")
    return all(getattr(request, name) in {None, entry.request.get(name)} for name in names)


def whole(request: Request, caller: Caller) -> str:
    """The namespace; what is kept for all of it cannot be told for a part."""
    for name in ("user_id", "agent_id", "session_id", "task_id"):
        if getattr(request, name) is not None:
            raise InvalidInput.of(name, "this is kept for the whole namespace and cannot be narrowed")
    return caller.scope(request).namespace
