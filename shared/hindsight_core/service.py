"""The one service behind HTTP, MCP, the command line and the scheduler: every operation, in the order of its steps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from functools import partial
from typing import TypeVar

import msgspec

from hindsight_core.assembly import embedder_of, gate_of, phraser_of, reader_of, reconcile_of, weights_of
from hindsight_core.batching import write_each
from hindsight_core.browsing import Browser, whole
from hindsight_core.cache import Cache, open_cache
from hindsight_core.cache.copies import Copies
from hindsight_core.cache.vectors import VectorCache
from hindsight_core.caller import Caller
from hindsight_core.checks import Checks
from hindsight_core.config import Settings
from hindsight_core.embedding import Embedder
from hindsight_core.embedding.cached import CachedEmbedder
from hindsight_core.errors import ConfigurationError, HindsightError, InvalidInput, OutcomeUnknown, Unavailable
from hindsight_core.forgetting import Forgetter
from hindsight_core.journal import Journal
from hindsight_core.judging import open_judge
from hindsight_core.legibility import check_request
from hindsight_core.models import Memory, Retrieval
from hindsight_core.orders import Obedience, orders
from hindsight_core.pacing import Pacing
from hindsight_core.passages import Passages
from hindsight_core.recall import TURNS
from hindsight_core.requests import (
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
)
from hindsight_core.restoring import restore
from hindsight_core.retention import rules_of
from hindsight_core.searching import Searcher, context_of
from hindsight_core.stores import MemoryStore, open_store
from hindsight_core.sweeping import Sweeper
from hindsight_core.tasks import Tasks
from hindsight_core.tokens import Tokens
from hindsight_core.traces import Traces
from hindsight_core.transfer import Transfer
from hindsight_core.turns import Turns
from hindsight_core.undoing import Undoer
from hindsight_core.updating import Updater
from hindsight_core.warming import warm
from hindsight_core.wordings import Wording
from hindsight_core.writing import Writer

_log = logging.getLogger("hindsight.service")
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
        shared = self.cache if settings.redis else None
        copies = Copies(store, shared)
        traces = partial(Traces, self.vectors, copies)
        self._checks = Checks(store, embedder, shared)
        weights = weights_of(settings)
        cached = None if embedder is None else CachedEmbedder(embedder, self.vectors)
        self._cached = cached
        self._journal = Journal(store, retrievals=settings.retrieval_log)
        self._arbiter = open_judge(
            settings.judge, api_key=settings.judge_key, timeout=settings.judge_timeout, tokens=settings.judge_tokens
        )
        self._writer = Writer(
            store,
            cached,
            gate_of(settings),
            reconcile_of(settings),
            self._journal,
            self._arbiter,
            reader_of(settings),
        )
        self._searcher = Searcher(store, cached, weights, self._journal, settings.unsettled)
        self._forgetter = Forgetter(store, cached, weights, traces)
        self._browser = Browser(store, embedder, self._forgetter, self._journal)
        self._obedience = Obedience(store, cached, self._forgetter)
        self._tasks = Tasks(store, gate_of(settings), self._write, settings.task_share, copies)
        self._undoer = Undoer(store, cached)
        self._phraser = phraser_of(settings)
        turns = Turns(store, timedelta(seconds=settings.schedule_lease), copies)
        pace = Pacing(rate=settings.sweep_rate, share=settings.sweep_share)
        self._sweeper = Sweeper(store, rules_of(settings), pace, traces, turns, self._wording)
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

    async def warm(self, *, writes: bool = True) -> None:
        """Have a thread do what first calls would wait for, once the model is loaded; for who will answer many.

        Without `writes` only what searches need. What fails is logged: the first call that needs it says so.
        """
        try:
            if self._warming is not None:
                await asyncio.shield(self._warming)
            await asyncio.to_thread(warm, writes=writes)
        except Exception:
            _log.warning("warming.failed", exc_info=True)

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
        return await write_each(items, caller, Passages(self._cached), self._write)

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
        return await self._browser.list_memories(request, caller)

    async def get(self, memory_id: str, request: Request, caller: Caller) -> Memory:
        """One memory of any status; `NotFound` when it does not lie in the scope."""
        return (await self._forgetter.find(memory_id, caller.scope(request))).memory

    async def history(self, memory_id: str, request: Request, caller: Caller) -> History:
        """Every event of a memory, oldest first; of an erased one too, without text."""
        return await self._browser.history(memory_id, request, caller)

    async def events(self, request: PageRequest, caller: Caller) -> EventPage:
        """A page of the namespace's audit events."""
        return await self._browser.events(request, caller)

    def export(self, request: ListRequest, caller: Caller) -> AsyncIterator[bytes]:
        """Every memory of the scope as JSON Lines, of any status; an `ExportRequest` may ask for their histories."""
        check_request(request, decoded=caller.decoded)
        for name in ("as_of", "cursor"):
            if getattr(request, name) is not None:
                raise InvalidInput.of(name, "an export is whole; list memories to see a part")
        return self._transfer.export(request, caller)

    async def stats(self, request: Request, caller: Caller) -> Stats:
        """How many memories, events and runs the namespace holds."""
        return await self._browser.stats(request, caller)

    async def retrievals(self, request: PageRequest, caller: Caller) -> RetrievalPage:
        """A page of the retrieval log."""
        return await self._browser.retrievals(request, caller)

    async def retrieval(self, retrieval_id: str, request: Request, caller: Caller) -> Retrieval:
        """One logged search."""
        return await self._browser.retrieval(retrieval_id, request, caller)

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
        return await self._browser.runs(request, caller)

    async def run(self, run_id: str, request: Request, caller: Caller) -> RunReport:
        """One run with its events."""
        return await self._browser.run(run_id, request, caller)

    async def undo(self, run_id: str, request: UndoRequest, caller: Caller) -> UndoResponse:
        """Take a whole run back."""
        check_request(request, decoded=caller.decoded)
        scope = caller.scope(request)
        run = await self._forgetter.run(scope.namespace, run_id)
        return await self._undoer.undo(run, scope, request, caller)

    async def sweep(self, request: SweepRequest, caller: Caller) -> SweepReport:
        """Apply the policies of forgetting to a whole namespace; see `hindsight_core.sweeping`."""
        namespace = whole(request, caller)
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


def open_service(settings: Settings, *, embedder: bool = True) -> MemoryService:
    """The service that the settings describe; nothing is opened before `start` and the first call."""
    return MemoryService(
        open_store(settings.store, cache_bytes=settings.cache_mb << 20),
        embedder_of(settings) if embedder else None,
        settings,
    )


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
