"""The client: the service's operations, `Hindsight` for plain code and `AsyncHindsight` for async code.

Both take and give the structs of `hindsight_core.requests` and `responses`, and raise the errors of
`hindsight_core.errors`, just as the service itself does: over HTTP, or by `local` in this process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from hindsight_core import calls
from hindsight_core.calls import HttpCall
from hindsight_core.errors import MissingExtra
from hindsight_core.models import Memory, Retrieval
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

if TYPE_CHECKING:
    import httpx

    from hindsight_core.config import Settings

T = TypeVar("T")
DEFAULT_URL = "http://127.0.0.1:8100"
TIMEOUT = 120.0
_ANYWHERE, _RESTORE, _UNDO, _END = Request(), RestoreRequest(), UndoRequest(), EndTaskRequest()


class Way(Protocol):
    """How calls reach the memories: over HTTP, or in this process."""

    def start(self) -> None: ...
    def close(self) -> None: ...
    def send(self, call: HttpCall[T]) -> T: ...
    def lines(self, call: HttpCall[bytes]) -> Iterator[bytes]: ...


class AsyncWay(Protocol):
    """`Way` for async code."""

    async def start(self) -> None: ...
    async def close(self) -> None: ...
    async def send(self, call: HttpCall[T]) -> T: ...
    def lines(self, call: HttpCall[bytes]) -> AsyncIterator[bytes]: ...


class Hindsight:
    """A blocking client; close it, or use it as a context manager.

    `namespace` is that of requests which name none. Only what is safe to send twice is retried: reads, writes with
    an idempotency key, and whatever never reached the server. A change whose answer was lost raises `OutcomeUnknown`:
    look before you repeat it. `timeout` is in seconds, for one try of a call. `token` is what `hindsight token create`
    printed; None: what the variable `HINDSIGHT_TOKEN` holds, if it is set.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        namespace: str | None = None,
        token: str | None = None,
        timeout: float = TIMEOUT,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        try:
            from hindsight_core.overhttp import OverHttp
        except ModuleNotFoundError as exc:
            raise MissingExtra.of("The HTTP client", "client") from exc

        self.way: Way = OverHttp(url, namespace, token, timeout, transport)

    @classmethod
    def local(cls, store: str | None = None, *, namespace: str | None = None, settings: Settings | None = None) -> Self:
        """The memories of a store in this process, without a server; no token is asked for.

        `store` is a path or an `opensearch://` address; None: what the settings say, which are those of the
        environment unless given. The service runs in a thread of its own, which `close` ends after all is stored.
        """
        from hindsight_core.inprocess import InThread

        return cls.by(InThread.opened(store, namespace, settings))

    @classmethod
    def by(cls, way: Way) -> Self:
        """A client whose calls go this way."""
        client = cls.__new__(cls)
        client.way = way
        return client

    def __enter__(self) -> Self:
        self.way.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.way.close()

    def write(self, request: WriteRequest) -> WriteResponse:
        return self.way.send(calls.write(request))

    def write_batch(self, items: Sequence[WriteRequest]) -> BatchResponse:
        return self.way.send(calls.write_batch(items))

    def add_to_task(self, task_id: str, request: TaskRequest) -> TaskUpdate:
        return self.way.send(calls.add_to_task(task_id, request))

    def task(self, task_id: str, request: Request = _ANYWHERE) -> TaskBuffer:
        return self.way.send(calls.task(task_id, request))

    def end_task(self, task_id: str, request: EndTaskRequest = _END) -> TaskEnd:
        return self.way.send(calls.end_task(task_id, request))

    def import_lines(self, lines: Sequence[bytes], namespace: str | None = None) -> ImportReport:
        return self.way.send(calls.import_lines(lines, namespace))

    def search(self, request: SearchRequest) -> SearchResponse:
        return self.way.send(calls.search(request))

    def context(self, request: ContextRequest) -> ContextBlock:
        return self.way.send(calls.context(request))

    def recall(self, request: RecallRequest) -> Recall:
        return self.way.send(calls.recall(request))

    def list_memories(self, request: ListRequest) -> MemoryPage:
        return self.way.send(calls.list_memories(request))

    def get(self, memory_id: str, request: Request = _ANYWHERE) -> Memory:
        return self.way.send(calls.get(memory_id, request))

    def history(self, memory_id: str, request: Request = _ANYWHERE) -> History:
        return self.way.send(calls.history(memory_id, request))

    def events(self, request: PageRequest) -> EventPage:
        return self.way.send(calls.events(request))

    def export(self, request: ListRequest) -> Iterator[bytes]:
        """Every memory of the scope, one JSON line each, as they arrive."""
        return self.way.lines(calls.export(request))

    def stats(self, request: Request = _ANYWHERE) -> Stats:
        return self.way.send(calls.stats(request))

    def retrievals(self, request: PageRequest) -> RetrievalPage:
        return self.way.send(calls.retrievals(request))

    def retrieval(self, retrieval_id: str, request: Request = _ANYWHERE) -> Retrieval:
        return self.way.send(calls.retrieval(retrieval_id, request))

    def update(self, memory_id: str, request: UpdateRequest) -> UpdateResponse:
        return self.way.send(calls.update(memory_id, request))

    def resolve(self, memory_id: str, request: ResolveRequest) -> ResolveResponse:
        return self.way.send(calls.resolve(memory_id, request))

    def forget(self, request: ForgetRequest) -> ForgetResponse:
        return self.way.send(calls.forget(request))

    def restore(self, memory_id: str, request: RestoreRequest = _RESTORE) -> UpdateResponse:
        return self.way.send(calls.restore(memory_id, request))

    def runs(self, request: PageRequest) -> RunPage:
        return self.way.send(calls.runs(request))

    def run(self, run_id: str, request: Request = _ANYWHERE) -> RunReport:
        return self.way.send(calls.run(run_id, request))

    def undo(self, run_id: str, request: UndoRequest = _UNDO) -> UndoResponse:
        return self.way.send(calls.undo(run_id, request))

    def sweep(self, request: SweepRequest) -> SweepReport:
        return self.way.send(calls.sweep(request))

    def ready(self) -> Readiness:
        return self.way.send(calls.ready())


class AsyncHindsight:
    """`Hindsight` for async code; close it with `aclose`, or use it as an async context manager."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        namespace: str | None = None,
        token: str | None = None,
        timeout: float = TIMEOUT,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        try:
            from hindsight_core.overhttp import AsyncOverHttp
        except ModuleNotFoundError as exc:
            raise MissingExtra.of("The HTTP client", "client") from exc

        self.way: AsyncWay = AsyncOverHttp(url, namespace, token, timeout, transport)

    @classmethod
    def local(cls, store: str | None = None, *, namespace: str | None = None, settings: Settings | None = None) -> Self:
        """As `Hindsight.local`; the service runs on the event loop of the calls."""
        from hindsight_core.inprocess import InProcess

        return cls.by(InProcess.opened(store, namespace, settings))

    @classmethod
    def by(cls, way: AsyncWay) -> Self:
        """A client whose calls go this way."""
        client = cls.__new__(cls)
        client.way = way
        return client

    async def __aenter__(self) -> Self:
        await self.way.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self.way.close()

    async def write(self, request: WriteRequest) -> WriteResponse:
        return await self.way.send(calls.write(request))

    async def write_batch(self, items: Sequence[WriteRequest]) -> BatchResponse:
        return await self.way.send(calls.write_batch(items))

    async def add_to_task(self, task_id: str, request: TaskRequest) -> TaskUpdate:
        return await self.way.send(calls.add_to_task(task_id, request))

    async def task(self, task_id: str, request: Request = _ANYWHERE) -> TaskBuffer:
        return await self.way.send(calls.task(task_id, request))

    async def end_task(self, task_id: str, request: EndTaskRequest = _END) -> TaskEnd:
        return await self.way.send(calls.end_task(task_id, request))

    async def import_lines(self, lines: Sequence[bytes], namespace: str | None = None) -> ImportReport:
        return await self.way.send(calls.import_lines(lines, namespace))

    async def search(self, request: SearchRequest) -> SearchResponse:
        return await self.way.send(calls.search(request))

    async def context(self, request: ContextRequest) -> ContextBlock:
        return await self.way.send(calls.context(request))

    async def recall(self, request: RecallRequest) -> Recall:
        return await self.way.send(calls.recall(request))

    async def list_memories(self, request: ListRequest) -> MemoryPage:
        return await self.way.send(calls.list_memories(request))

    async def get(self, memory_id: str, request: Request = _ANYWHERE) -> Memory:
        return await self.way.send(calls.get(memory_id, request))

    async def history(self, memory_id: str, request: Request = _ANYWHERE) -> History:
        return await self.way.send(calls.history(memory_id, request))

    async def events(self, request: PageRequest) -> EventPage:
        return await self.way.send(calls.events(request))

    def export(self, request: ListRequest) -> AsyncIterator[bytes]:
        """Every memory of the scope, one JSON line each, as they arrive."""
        return self.way.lines(calls.export(request))

    async def stats(self, request: Request = _ANYWHERE) -> Stats:
        return await self.way.send(calls.stats(request))

    async def retrievals(self, request: PageRequest) -> RetrievalPage:
        return await self.way.send(calls.retrievals(request))

    async def retrieval(self, retrieval_id: str, request: Request = _ANYWHERE) -> Retrieval:
        return await self.way.send(calls.retrieval(retrieval_id, request))

    async def update(self, memory_id: str, request: UpdateRequest) -> UpdateResponse:
        return await self.way.send(calls.update(memory_id, request))

    async def resolve(self, memory_id: str, request: ResolveRequest) -> ResolveResponse:
        return await self.way.send(calls.resolve(memory_id, request))

    async def forget(self, request: ForgetRequest) -> ForgetResponse:
        return await self.way.send(calls.forget(request))

    async def restore(self, memory_id: str, request: RestoreRequest = _RESTORE) -> UpdateResponse:
        return await self.way.send(calls.restore(memory_id, request))

    async def runs(self, request: PageRequest) -> RunPage:
        return await self.way.send(calls.runs(request))

    async def run(self, run_id: str, request: Request = _ANYWHERE) -> RunReport:
        return await self.way.send(calls.run(run_id, request))

    async def undo(self, run_id: str, request: UndoRequest = _UNDO) -> UndoResponse:
        return await self.way.send(calls.undo(run_id, request))

    async def sweep(self, request: SweepRequest) -> SweepReport:
        return await self.way.send(calls.sweep(request))

    async def ready(self) -> Readiness:
        return await self.way.send(calls.ready())
