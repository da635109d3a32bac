"""The one service behind HTTP, MCP, the command line and the scheduler: every operation, in the order of its steps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from hindsight_core import cursors
from hindsight_core.cache import Cache, open_cache
from hindsight_core.cache.vectors import VectorCache
from hindsight_core.caller import Caller, instant, millis
from hindsight_core.checks import Checks
from hindsight_core.config import Settings
from hindsight_core.decoding import decode
from hindsight_core.drafting import candidates
from hindsight_core.embedding import Embedder, open_embedder
from hindsight_core.embedding.cached import CachedEmbedder
from hindsight_core.errors import (
    ConfigurationError,
    HindsightError,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    ProviderUnavailable,
    Unavailable,
)
from hindsight_core.filtering import concerns, present_of, where_of
from hindsight_core.forgetting import Forgetter
from hindsight_core.gate import GateSettings
from hindsight_core.journal import Journal
from hindsight_core.judging import open_judge, open_phraser
from hindsight_core.legibility import check_legible, check_request
from hindsight_core.models import AuditEvent, Memory, Retrieval, Run, Status
from hindsight_core.orders import Obedience, orders
from hindsight_core.pacing import Pacing
from hindsight_core.passages import Passages
from hindsight_core.ranking import Weights
from hindsight_core.recall import TURNS
from hindsight_core.reconciliation import ReconcileSettings
from hindsight_core.requests import (
    BATCH_LIMIT,
    ContextRequest,
    EndTaskRequest,
    ForgetRequest,
    ListRequest,
    PageRequest,
    RecallRequest,
    Request,
    ResolveRequest,
    RestoreRequest,
    SearchRequest,
    SweepRequest,
    TaskRequest,
    UndoRequest,
    UpdateRequest,
    WriteRequest,
)
from hindsight_core.responses import (
    BatchItem,
    BatchResponse,
    ContextBlock,
    EventPage,
    ForgetResponse,
    History,
    ImportReport,
    MemoryPage,
    Readiness,
    Recall,
    ResolveResponse,
    RetrievalPage,
    RunPage,
    RunReport,
    SearchResponse,
    Stats,
    SweepReport,
    TaskBuffer,
    TaskEnd,
    TaskUpdate,
    UndoResponse,
    UpdateResponse,
    WriteResponse,
    problem_of,
)
from hindsight_core.restoring import restore
from hindsight_core.retention import rules_of
from hindsight_core.searching import Searcher, context_of
from hindsight_core.stores import Log, MemoryStore, open_store
from hindsight_core.summary import embedded_text
from hindsight_core.sweeping import Sweeper
from hindsight_core.tasks import Tasks
from hindsight_core.tokens import Tokens
from hindsight_core.transfer import Transfer
from hindsight_core.turns import Turns
from hindsight_core.undoing import Undoer
from hindsight_core.updating import Updater
from hindsight_core.wordings import Wording
from hindsight_core.writing import Writer

if TYPE_CHECKING:
    from hindsight_core.judging.phrasing import Phraser

_log = logging.getLogger("hindsight.service")
_LIVE: tuple[Status, ...] = ("active", "pending")
_HELD: tuple[Status, ...] = ("active", "superseded")
_ALL_EVENTS = 10_000
_LONGEST_TURN = 8000
_Answer = TypeVar("_Answer", WriteResponse, SearchResponse, ContextBlock, ForgetResponse)


class MemoryService:
    """Every operation on memories. Methods raise the errors of `hindsight_core.errors` and nothing else.

    One instance serves any number of concurrent calls on one event loop. `tokens` are those of its store.
    """

    def __init__(
        self, store: MemoryStore, embedder: Embedder | None, settings: Settings, cache: Cache | None = None
    ) -> None:
        self.cache = cache or open_cache(
            settings.redis, timeout=settings.redis_timeout, value_bytes=settings.vector_cache_mb << 20
        )
        self.vectors = VectorCache(self.cache, ttl=settings.vector_cache_ttl)
        self.tokens = Tokens(store)
        self._store = store
        self._embedder = embedder
        self._settings = settings
        self._warming: asyncio.Task[None] | None = None
        self._checks = Checks(store, embedder, self.cache if settings.redis else None)
        weights = _weights(settings)
        cached = None if embedder is None else CachedEmbedder(embedder, self.vectors)
        self._cached = cached
        self._journal = Journal(store, retrievals=settings.retrieval_log)
        self._arbiter = open_judge(
            settings.judge, api_key=settings.judge_key, timeout=settings.judge_timeout, tokens=settings.judge_tokens
        )
        self._writer = Writer(store, cached, _gate(settings), _reconcile(settings), self._journal, self._arbiter)
        self._searcher = Searcher(store, cached, weights, self._journal, settings.unsettled)
        self._forgetter = Forgetter(store, cached, weights, self.vectors)
        self._obedience = Obedience(store, cached, self._forgetter)
        self._tasks = Tasks(store, _gate(settings), self._write, settings.task_share)
        self._undoer = Undoer(store, cached)
        self._phraser = _phraser(settings)
        turns = Turns(store, timedelta(seconds=settings.schedule_lease))
        pace = Pacing(rate=settings.sweep_rate, share=settings.sweep_share)
        self._sweeper = Sweeper(store, rules_of(settings), pace, self.vectors, turns, self._wording)
        self._updater = Updater(store, cached, self._forgetter)
        self._transfer = Transfer(store, cached)

    async def start(self) -> None:
        """Prepare the store, and have the model load meanwhile.

        Raises `ConfigurationError` when the store's vectors are of another model or calibration. A remote model that
        is calibrated while starting must answer now (`ProviderUnavailable`); a pinned one may be down: searches then
        go on by words alone.
        """
        await self.cache.start()
        identity = None
        if self._embedder is not None:
            try:
                identity = self._embedder.identity.name
            except ConfigurationError:
                await self._embedder.embed([], "passage")
                identity = self._embedder.identity.name
        await self._store.prepare(identity)
        if self._embedder is not None:
            self._warming = asyncio.create_task(_warm(self._embedder))

    async def flush(self) -> None:
        """Write the statistics and the retrieval log of the searches so far."""
        await self._journal.flush()

    async def aclose(self) -> None:
        """Write what the journal holds and release store and embedder."""
        if self._warming is not None:
            await self._warming
        await self._checks.aclose()
        await self._journal.aclose()
        await self._store.aclose()
        if self._embedder is not None:
            await self._embedder.aclose()
        if self._arbiter is not None:
            await self._arbiter.aclose()
        if self._phraser is not None:
            await self._phraser.aclose()
        await self.cache.aclose()

    async def ready(self, within: float | None = None) -> Readiness:
        """Whether store, embedder and cache answer, `within` so many seconds."""
        return await self._checks.ready(within)

    # write

    async def write(self, request: WriteRequest, caller: Caller) -> WriteResponse:
        """Decide what of the request is kept and store it durably; see `hindsight_core.writing`."""
        check_request(request, decoded=caller.decoded)
        return self._noted(await self._write(request, caller))

    async def _write(self, request: WriteRequest, caller: Caller, passages: Passages | None = None) -> WriteResponse:
        """Write, and then forget what the messages order to forget."""
        given = orders(request)
        answer = await self._writer.write(request, caller, passages, given)
        if not given:
            return answer
        try:
            return await self._obedience.obey(given, answer, request, caller)
        except Unavailable as exc:
            # What was written stays, whatever became of the orders.
            raise OutcomeUnknown.after(exc) from exc

    async def add_to_task(self, task_id: str, request: TaskRequest, caller: Caller) -> TaskUpdate:
        """Add messages to the working memory of a task; see `hindsight_core.tasks`."""
        return await self._tasks.add(task_id, request, caller)

    async def task(self, task_id: str, request: Request, caller: Caller) -> TaskBuffer:
        """The working memory of a task."""
        return await self._tasks.read(task_id, request, caller)

    async def end_task(self, task_id: str, request: EndTaskRequest, caller: Caller) -> TaskEnd:
        """End a task: what is worth it becomes an episodic memory, the rest is forgotten."""
        return await self._tasks.end(task_id, request, caller)

    async def write_batch(self, items: Sequence[msgspec.Raw], caller: Caller) -> BatchResponse:
        """Up to 500 writes, each stored or refused by itself; their texts are embedded together."""
        if not items:
            raise InvalidInput.of("items", "is empty")
        if len(items) > BATCH_LIMIT:
            raise InvalidInput.of("items", f"at most {BATCH_LIMIT} in one batch")
        read: list[WriteRequest | HindsightError] = []
        for item in items:
            try:
                request = decode(item, WriteRequest)
                check_legible(request)
                read.append(request)
            except HindsightError as exc:
                read.append(exc)
        passages = Passages(self._cached)
        await self._embed_ahead([request for request in read if isinstance(request, WriteRequest)], passages)
        results: list[BatchItem] = []
        for index, found in enumerate(read):
            try:
                if isinstance(found, HindsightError):
                    raise found
                answer = await self._write(found, caller, passages)
            except HindsightError as exc:
                problem = problem_of(exc, caller.request_id)
                results.append(BatchItem(index=index, status=exc.status, problem=problem))
            else:
                status = 201 if answer.stored else 200
                results.append(
                    BatchItem(
                        index=index,
                        status=status,
                        decisions=answer.results,
                        run_id=answer.run_id,
                        degraded=answer.degraded,
                    )
                )
        return BatchResponse(results=tuple(results))

    async def _embed_ahead(self, requests: list[WriteRequest], passages: Passages) -> None:
        texts: list[str] = []
        for request in requests:
            if (request.content is None) == (request.messages is None):
                continue
            try:
                offered = [found.text for found in candidates(request) if found.dismissed is None]
                texts += [text for found in offered for text in (embedded_text(found), found)]
            except HindsightError:
                continue  # the write itself will name what is wrong
        try:
            await passages.of(texts)
        except ProviderUnavailable:
            return  # each item answers for itself

    async def import_lines(self, lines: Sequence[bytes], request: Request, caller: Caller) -> ImportReport:
        """Store lines of an export as they are, into the namespace of the request."""
        return await self._transfer.import_lines(lines, request, caller)

    # search

    async def search(self, request: SearchRequest, caller: Caller) -> SearchResponse:
        """The best memories for a question; see `hindsight_core.searching`."""
        check_request(request, decoded=caller.decoded)
        return self._noted(await self._searcher.search(request, caller))

    async def context(self, request: ContextRequest, caller: Caller) -> ContextBlock:
        """A block of text within a token budget, for the question or the last user message."""
        check_request(request, decoded=caller.decoded)
        question, recent = _question_of(request)
        shared = {
            name: getattr(request, name)
            for name in SearchRequest.__struct_fields__
            if name in ContextRequest.__struct_fields__ and name != "query"
        }
        found = await self._searcher.search(SearchRequest(query=question, recent=recent, **shared), caller)
        return self._noted(context_of(found))

    async def recall(self, request: RecallRequest, caller: Caller) -> Recall:
        """Whether a message needs memory at all, without touching a store."""
        check_request(request, decoded=caller.decoded)
        caller.scope(request)
        return await self._searcher.recall(request)

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

    async def get(self, memory_id: str, request: Request, caller: Caller) -> Memory:
        """One memory of any status; `NotFound` when it does not lie in the scope."""
        return (await self._forgetter.find(memory_id, caller.scope(request))).memory

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

    def export(self, request: ListRequest, caller: Caller) -> AsyncIterator[bytes]:
        """Every memory of the scope as JSON Lines, of any status; an `ExportRequest` may ask for their histories."""
        check_request(request, decoded=caller.decoded)
        for name in ("as_of", "cursor"):
            if getattr(request, name) is not None:
                raise InvalidInput.of(name, "an export is whole; list memories to see a part")
        return self._transfer.export(request, caller)

    async def stats(self, request: Request, caller: Caller) -> Stats:
        """How many memories, events and runs the namespace holds."""
        namespace = _whole(request, caller)
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

    # update

    async def update(self, memory_id: str, request: UpdateRequest, caller: Caller) -> UpdateResponse:
        """Change a memory by hand; see `hindsight_core.updating`."""
        check_request(request, decoded=caller.decoded)
        return await self._updater.update(memory_id, request, caller)

    async def resolve(self, memory_id: str, request: ResolveRequest, caller: Caller) -> ResolveResponse:
        """Settle a contested pair; `memory_id` is the newer one."""
        check_request(request, decoded=caller.decoded)
        return await self._updater.resolve(memory_id, request, caller)

    # forget

    async def forget(self, request: ForgetRequest, caller: Caller) -> ForgetResponse:
        """Forget what the request selects; see `hindsight_core.forgetting`."""
        check_request(request, decoded=caller.decoded)
        if request.mode == "erase" and not request.dry_run:
            # What this process has logged but not written yet is erased with the rest.
            await self._journal.flush()
        return self._noted(await self._forgetter.forget(request, caller))

    async def remains(self, texts: Sequence[str], models: Sequence[str]) -> list[str]:
        """Where texts still stand in all of the store, or their vectors by these models in the cache, as sentences."""
        left = await self._store.remains(texts)
        if kept := await self.vectors.kept(models, texts):
            left.append(f"The cache holds the vectors of {kept} of the texts, for {self.vectors.ttl:g} s at most.")
        return left

    async def expunge(self) -> None:
        """Take what was erased off the disk now, where the store leaves that to a later time."""
        await self._store.expunge()

    async def restore(self, memory_id: str, request: RestoreRequest, caller: Caller) -> UpdateResponse:
        """Bring a forgotten memory back."""
        check_request(request, decoded=caller.decoded)
        record = await self._forgetter.find(memory_id, caller.scope(request))
        return await restore(self._store, record, request, caller)

    async def runs(self, request: PageRequest, caller: Caller) -> RunPage:
        """A page of the namespace's runs."""
        _whole(request, caller)
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

    async def undo(self, run_id: str, request: UndoRequest, caller: Caller) -> UndoResponse:
        """Take a whole run back."""
        check_request(request, decoded=caller.decoded)
        scope = caller.scope(request)
        run = await self._forgetter.run(scope.namespace, run_id)
        return await self._undoer.undo(run, scope, request, caller)

    async def sweep(self, request: SweepRequest, caller: Caller) -> SweepReport:
        """Apply the policies of forgetting to a whole namespace; see `hindsight_core.sweeping`."""
        namespace = _whole(request, caller)
        # How often memories were answered is part of how much they are worth.
        await self._journal.flush()
        return await self._sweeper.sweep(namespace, request, caller)

    def _wording(self) -> Wording | None:
        return None if self._phraser is None else Wording(self._phraser, Passages(self._cached))

    def _noted(self, answer: _Answer) -> _Answer:
        """The answer, saying so where it was made without the cache and says nothing graver."""
        if answer.degraded is not None or self.cache.trouble is None:
            return answer
        return msgspec.structs.replace(answer, degraded=self.cache.trouble)

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


def open_service(settings: Settings, *, embedder: bool = True) -> MemoryService:
    """The service that the settings describe; nothing is opened before `start` and the first call."""
    return MemoryService(
        open_store(settings.store, cache_bytes=settings.cache_mb << 20),
        embedder_of(settings) if embedder else None,
        settings,
    )


def embedder_of(settings: Settings) -> Embedder:
    """The embedder that the settings describe; nothing is loaded before its first call."""
    return open_embedder(
        settings.embedder,
        api_key=settings.embedder_key,
        timeout=settings.embedder_timeout,
        batch_size=settings.embedder_batch,
        dimension=settings.embedder_dimension or None,
        calibration=Path(settings.embedder_calibration) if settings.embedder_calibration else None,
    )


def _lives(status: Status | tuple[Status, ...] | None) -> bool:
    """Whether only memories are asked for that an expiry hides; what is forgotten is listed whether expired or not."""
    asked = status if isinstance(status, tuple) else (status,)
    return all(one is None or one in _LIVE for one in asked)


def _asked_in(entry: Retrieval, request: Request) -> bool:
    """Whether a logged search was made in the narrower scope that is asked for."""
    names = ("user_id", "agent_id", "session_id", "task_id")
    return all(getattr(request, name) in {None, entry.request.get(name)} for name in names)


def _whole(request: Request, caller: Caller) -> str:
    """The namespace; what is kept for all of it cannot be told for a part."""
    for name in ("user_id", "agent_id", "session_id", "task_id"):
        if getattr(request, name) is not None:
            raise InvalidInput.of(name, "this is kept for the whole namespace and cannot be narrowed")
    return caller.scope(request).namespace


async def _warm(embedder: Embedder) -> None:
    try:
        await embedder.embed([], "passage")
    except HindsightError as exc:
        _log.warning("embedder.down", extra={"detail": exc.detail, "remedy": exc.remedy})


def _question_of(request: ContextRequest) -> tuple[str, tuple[str, ...]]:
    """The question, and the turns before it."""
    if (request.query is None) == (request.messages is None):
        raise InvalidInput.of("query", "give exactly one of `query` and `messages`")
    if request.query is not None:
        return request.query, ()
    messages = request.messages or ()
    for place in reversed(range(len(messages))):
        message = messages[place]
        if message.role == "user" and message.text.strip():
            before = tuple(turn.text[-_LONGEST_TURN:] for turn in messages[max(0, place - TURNS) : place])
            return message.text[-_LONGEST_TURN:], before
    raise InvalidInput.of("messages", "hold no message of the user to search for")


def _phraser(settings: Settings) -> Phraser | None:
    if settings.consolidate_wording == "extract":
        return None
    return open_phraser(
        settings.judge, api_key=settings.judge_key, timeout=settings.judge_timeout, tokens=settings.judge_tokens
    )


def _weights(settings: Settings) -> Weights:
    try:
        return msgspec.json.decode(settings.ranking, type=Weights)
    except msgspec.DecodeError as exc:
        raise ConfigurationError(
            f"HINDSIGHT_RANKING: {exc}", remedy='Give a JSON object such as {"alpha": 0.4}, or unset it.'
        ) from exc


def _reconcile(settings: Settings) -> ReconcileSettings:
    try:
        return msgspec.json.decode(settings.reconcile, type=ReconcileSettings)
    except msgspec.DecodeError as exc:
        raise ConfigurationError(
            f"HINDSIGHT_RECONCILE: {exc}", remedy='Give a JSON object such as {"contest_at": 0.3}, or unset it.'
        ) from exc


def _gate(settings: Settings) -> GateSettings:
    try:
        parts = tuple(float(part) for part in settings.gate_weights.split(","))
    except ValueError:
        parts = ()
    total = sum(parts)
    if len(parts) != 4 or min(parts) < 0 or not 0 < total < float("inf"):
        raise ConfigurationError(
            f"HINDSIGHT_GATE_WEIGHTS: {settings.gate_weights!r} is not four weights of at least 0.",
            remedy="Give four numbers, such as 0.3,0.2,0.3,0.2.",
        )
    return GateSettings(
        threshold=settings.threshold,
        weights=(parts[0] / total, parts[1] / total, parts[2] / total, parts[3] / total),
    )
