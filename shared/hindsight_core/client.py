"""The client: the service's operations over HTTP, `Hindsight` for plain code and `AsyncHindsight` for async code.

Both take and give the structs of `hindsight_core.requests` and `responses`, and raise the errors of
`hindsight_core.errors`, just as the service itself does.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from hindsight_core import calls
from hindsight_core.calls import HttpCall
from hindsight_core.config import TOKEN_VARIABLE
from hindsight_core.errors import HindsightError, InvalidInput, OutcomeUnknown, TooManyRequests, Unavailable
from hindsight_core.loopback import is_loopback
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

T = TypeVar("T")
DEFAULT_URL = "http://127.0.0.1:8100"
TIMEOUT = 120.0
RETRY_AFTER = (0.2, 1.0)
_LONGEST_WAIT = 30.0
_NEVER_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)
_ANYWHERE, _RESTORE, _UNDO, _END = Request(), RestoreRequest(), UndoRequest(), EndTaskRequest()


class _Client:
    """What both clients share: where the server is, and when a call is worth a second try."""

    def __init__(self, url: str, namespace: str | None, token: str | None, timeout: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise InvalidInput.of("url", f"{url!r} is no http:// or https:// address")
        # The address that MCP clients are given is at hand, and it is one path of the same server.
        self._url = url = url.rstrip("/").removesuffix("/mcp")
        headers = {"Accept": calls.JSON}
        if namespace is not None:
            headers["Hindsight-Namespace"] = namespace
        sent = os.environ.get(TOKEN_VARIABLE) if token is None else token
        if sent:
            headers["Authorization"] = f"Bearer {sent}"
        # A proxy of the environment cannot reach this machine's loopback for us.
        self._options: dict[str, Any] = {
            "base_url": url,
            "headers": headers,
            "timeout": httpx.Timeout(timeout, connect=min(5.0, timeout)),
            "trust_env": not is_loopback(parts.hostname),
        }

    def _content(self, call: HttpCall[Any]) -> dict[str, Any]:
        headers = {} if call.body is None else {"Content-Type": call.content_type}
        return {"params": call.params or None, "content": call.body, "headers": headers}

    def _wait(self, call: HttpCall[Any], error: Exception, tried: int) -> float | None:
        """Seconds until the call is tried again; None when it must not be, or is not worth it."""
        if tried >= len(RETRY_AFTER):
            return None
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return RETRY_AFTER[tried]  # it never arrived
        if isinstance(error, TooManyRequests):
            return error.retry_after if error.retry_after <= _LONGEST_WAIT else None
        if isinstance(error, Unavailable | httpx.TransportError) and call.repeatable:
            return RETRY_AFTER[tried]
        return None

    def _told(self, error: Exception, *, lost: bool = False) -> HindsightError:
        """The error to raise; `lost` says that a change was sent, and that what became of it nobody knows."""
        kind = OutcomeUnknown if lost else Unavailable
        if isinstance(error, Unavailable):
            return kind(error.detail, remedy=error.remedy) if lost else error
        if isinstance(error, HindsightError):
            return error
        if isinstance(error, _NEVER_SENT):
            return kind(
                f"{self._url} cannot be reached: {error}",
                remedy="Start the server with `hindsight serve`, or correct the URL.",
            )
        if isinstance(error, httpx.TimeoutException):
            return kind(f"{self._url} did not answer in time.", remedy="Send less at once, or look at the server.")
        return kind(f"The connection to {self._url} broke: {error}", remedy="Look at the server and its proxies.")

    @staticmethod
    def _read(call: HttpCall[T], response: httpx.Response) -> T:
        return calls.read_answer(call, response.status_code, response.content, response.headers.get("Retry-After"))


def _lost(call: HttpCall[Any], error: Exception) -> bool:
    """Whether a change was sent whose answer was lost on the way."""
    broke = isinstance(error, httpx.HTTPError) and not isinstance(error, _NEVER_SENT)
    return not call.reads and (broke or isinstance(error, OutcomeUnknown))


class Hindsight(_Client):
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
        super().__init__(url, namespace, token, timeout)
        self._http = httpx.Client(transport=transport, **self._options)

    def __enter__(self) -> Hindsight:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def write(self, request: WriteRequest) -> WriteResponse:
        return self._send(calls.write(request))

    def write_batch(self, items: Sequence[WriteRequest]) -> BatchResponse:
        return self._send(calls.write_batch(items))

    def add_to_task(self, task_id: str, request: TaskRequest) -> TaskUpdate:
        return self._send(calls.add_to_task(task_id, request))

    def task(self, task_id: str, request: Request = _ANYWHERE) -> TaskBuffer:
        return self._send(calls.task(task_id, request))

    def end_task(self, task_id: str, request: EndTaskRequest = _END) -> TaskEnd:
        return self._send(calls.end_task(task_id, request))

    def import_lines(self, lines: Sequence[bytes], namespace: str | None = None) -> ImportReport:
        return self._send(calls.import_lines(lines, namespace))

    def search(self, request: SearchRequest) -> SearchResponse:
        return self._send(calls.search(request))

    def context(self, request: ContextRequest) -> ContextBlock:
        return self._send(calls.context(request))

    def recall(self, request: RecallRequest) -> Recall:
        return self._send(calls.recall(request))

    def list_memories(self, request: ListRequest) -> MemoryPage:
        return self._send(calls.list_memories(request))

    def get(self, memory_id: str, request: Request = _ANYWHERE) -> Memory:
        return self._send(calls.get(memory_id, request))

    def history(self, memory_id: str, request: Request = _ANYWHERE) -> History:
        return self._send(calls.history(memory_id, request))

    def events(self, request: PageRequest) -> EventPage:
        return self._send(calls.events(request))

    def export(self, request: ListRequest) -> Iterator[bytes]:
        """Every memory of the scope, one JSON line each, as they arrive."""
        call = calls.export(request)
        try:
            with self._http.stream(call.method, call.path, **self._content(call)) as response:
                if response.status_code >= 400:
                    raise calls.error_of(response.status_code, response.read(), None)
                rest = b""
                for chunk in response.iter_bytes():
                    *lines, rest = (rest + chunk).split(b"\n")
                    yield from (line + b"\n" for line in lines)
        except httpx.HTTPError as exc:
            raise self._told(exc) from exc

    def stats(self, request: Request = _ANYWHERE) -> Stats:
        return self._send(calls.stats(request))

    def retrievals(self, request: PageRequest) -> RetrievalPage:
        return self._send(calls.retrievals(request))

    def retrieval(self, retrieval_id: str, request: Request = _ANYWHERE) -> Retrieval:
        return self._send(calls.retrieval(retrieval_id, request))

    def update(self, memory_id: str, request: UpdateRequest) -> UpdateResponse:
        return self._send(calls.update(memory_id, request))

    def resolve(self, memory_id: str, request: ResolveRequest) -> ResolveResponse:
        return self._send(calls.resolve(memory_id, request))

    def forget(self, request: ForgetRequest) -> ForgetResponse:
        return self._send(calls.forget(request))

    def restore(self, memory_id: str, request: RestoreRequest = _RESTORE) -> UpdateResponse:
        return self._send(calls.restore(memory_id, request))

    def runs(self, request: PageRequest) -> RunPage:
        return self._send(calls.runs(request))

    def run(self, run_id: str, request: Request = _ANYWHERE) -> RunReport:
        return self._send(calls.run(run_id, request))

    def undo(self, run_id: str, request: UndoRequest = _UNDO) -> UndoResponse:
        return self._send(calls.undo(run_id, request))

    def sweep(self, request: SweepRequest) -> SweepReport:
        return self._send(calls.sweep(request))

    def ready(self) -> Readiness:
        return self._send(calls.ready())

    def _send(self, call: HttpCall[T]) -> T:
        tried, lost = 0, False
        while True:
            try:
                return self._read(call, self._http.request(call.method, call.path, **self._content(call)))
            except (httpx.HTTPError, HindsightError) as exc:
                lost = lost or _lost(call, exc)
                wait = self._wait(call, exc, tried)
                if wait is None:
                    raise self._told(exc, lost=lost) from exc
            tried += 1
            time.sleep(wait)


class AsyncHindsight(_Client):
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
        super().__init__(url, namespace, token, timeout)
        self._http = httpx.AsyncClient(transport=transport, **self._options)

    async def __aenter__(self) -> AsyncHindsight:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def write(self, request: WriteRequest) -> WriteResponse:
        return await self._send(calls.write(request))

    async def write_batch(self, items: Sequence[WriteRequest]) -> BatchResponse:
        return await self._send(calls.write_batch(items))

    async def add_to_task(self, task_id: str, request: TaskRequest) -> TaskUpdate:
        return await self._send(calls.add_to_task(task_id, request))

    async def task(self, task_id: str, request: Request = _ANYWHERE) -> TaskBuffer:
        return await self._send(calls.task(task_id, request))

    async def end_task(self, task_id: str, request: EndTaskRequest = _END) -> TaskEnd:
        return await self._send(calls.end_task(task_id, request))

    async def import_lines(self, lines: Sequence[bytes], namespace: str | None = None) -> ImportReport:
        return await self._send(calls.import_lines(lines, namespace))

    async def search(self, request: SearchRequest) -> SearchResponse:
        return await self._send(calls.search(request))

    async def context(self, request: ContextRequest) -> ContextBlock:
        return await self._send(calls.context(request))

    async def recall(self, request: RecallRequest) -> Recall:
        return await self._send(calls.recall(request))

    async def list_memories(self, request: ListRequest) -> MemoryPage:
        return await self._send(calls.list_memories(request))

    async def get(self, memory_id: str, request: Request = _ANYWHERE) -> Memory:
        return await self._send(calls.get(memory_id, request))

    async def history(self, memory_id: str, request: Request = _ANYWHERE) -> History:
        return await self._send(calls.history(memory_id, request))

    async def events(self, request: PageRequest) -> EventPage:
        return await self._send(calls.events(request))

    async def export(self, request: ListRequest) -> AsyncIterator[bytes]:
        """Every memory of the scope, one JSON line each, as they arrive."""
        call = calls.export(request)
        try:
            async with self._http.stream(call.method, call.path, **self._content(call)) as response:
                if response.status_code >= 400:
                    raise calls.error_of(response.status_code, await response.aread(), None)
                rest = b""
                async for chunk in response.aiter_bytes():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        yield line + b"\n"
        except httpx.HTTPError as exc:
            raise self._told(exc) from exc

    async def stats(self, request: Request = _ANYWHERE) -> Stats:
        return await self._send(calls.stats(request))

    async def retrievals(self, request: PageRequest) -> RetrievalPage:
        return await self._send(calls.retrievals(request))

    async def retrieval(self, retrieval_id: str, request: Request = _ANYWHERE) -> Retrieval:
        return await self._send(calls.retrieval(retrieval_id, request))

    async def update(self, memory_id: str, request: UpdateRequest) -> UpdateResponse:
        return await self._send(calls.update(memory_id, request))

    async def resolve(self, memory_id: str, request: ResolveRequest) -> ResolveResponse:
        return await self._send(calls.resolve(memory_id, request))

    async def forget(self, request: ForgetRequest) -> ForgetResponse:
        return await self._send(calls.forget(request))

    async def restore(self, memory_id: str, request: RestoreRequest = _RESTORE) -> UpdateResponse:
        return await self._send(calls.restore(memory_id, request))

    async def runs(self, request: PageRequest) -> RunPage:
        return await self._send(calls.runs(request))

    async def run(self, run_id: str, request: Request = _ANYWHERE) -> RunReport:
        return await self._send(calls.run(run_id, request))

    async def undo(self, run_id: str, request: UndoRequest = _UNDO) -> UndoResponse:
        return await self._send(calls.undo(run_id, request))

    async def sweep(self, request: SweepRequest) -> SweepReport:
        return await self._send(calls.sweep(request))

    async def ready(self) -> Readiness:
        return await self._send(calls.ready())

    async def _send(self, call: HttpCall[T]) -> T:
        tried, lost = 0, False
        while True:
            try:
                return self._read(call, await self._http.request(call.method, call.path, **self._content(call)))
            except (httpx.HTTPError, HindsightError) as exc:
                lost = lost or _lost(call, exc)
                wait = self._wait(call, exc, tried)
                if wait is None:
                    raise self._told(exc, lost=lost) from exc
            tried += 1
            await asyncio.sleep(wait)
