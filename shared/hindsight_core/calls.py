"""Each operation as the HTTP call that asks for it: what the sync and the async client have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec

from hindsight_core import errors
from hindsight_core.errors import HindsightError, InvalidInput, NotFound, OutcomeUnknown, TooManyRequests, Unavailable
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
    Problem,
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
JSON = "application/json"
LINES = "application/x-ndjson"
_BY_CODE = {
    found.code: found
    for found in vars(errors).values()
    if isinstance(found, type) and issubclass(found, HindsightError)
}
# For problems that only HTTP has, such as a path that leads nowhere.
_BY_STATUS: dict[int, type[HindsightError]] = {400: InvalidInput, 404: NotFound, 405: InvalidInput}


class HttpCall(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One call: where, with what, and what it answers.

    `operation` and `arguments` name it to a service in this process, method and path to one elsewhere.
    `reads`: it changes nothing. `repeatable`: sending it twice does no more than once, as with all that reads.
    """

    operation: str
    arguments: tuple[Any, ...]
    method: str
    path: str
    kind: type[T]
    params: list[tuple[str, str]] = []
    body: bytes | None = None
    content_type: str = JSON
    reads: bool = False
    repeatable: bool = False


def write(request: WriteRequest) -> HttpCall[WriteResponse]:
    return _post(
        "write", (request,), "/v1/memories", request, WriteResponse, repeatable=request.idempotency_key is not None
    )


def write_batch(items: Sequence[WriteRequest]) -> HttpCall[BatchResponse]:
    repeatable = all(item.idempotency_key is not None for item in items)
    raw = tuple(msgspec.Raw(msgspec.json.encode(item)) for item in items)
    return _post("write_batch", (raw,), "/v1/memories/batch", {"items": items}, BatchResponse, repeatable=repeatable)


def add_to_task(task_id: str, request: TaskRequest) -> HttpCall[TaskUpdate]:
    return _post("add_to_task", (task_id, request), f"/v1/tasks/{_id(task_id)}/messages", request, TaskUpdate)


def task(task_id: str, request: Request) -> HttpCall[TaskBuffer]:
    return _get("task", (task_id, request), f"/v1/tasks/{_id(task_id)}", request, TaskBuffer)


def end_task(task_id: str, request: EndTaskRequest) -> HttpCall[TaskEnd]:
    return _post("end_task", (task_id, request), f"/v1/tasks/{_id(task_id)}/end", request, TaskEnd)


def import_lines(lines: Sequence[bytes], namespace: str | None) -> HttpCall[ImportReport]:
    return HttpCall(
        operation="import_lines",
        arguments=(lines, Request(namespace=namespace)),
        method="POST",
        path="/v1/import",
        kind=ImportReport,
        params=[] if namespace is None else [("namespace", namespace)],
        body=b"\n".join(line.rstrip(b"\n") for line in lines),
        content_type=LINES,
        repeatable=True,
    )


def search(request: SearchRequest) -> HttpCall[SearchResponse]:
    return _post("search", (request,), "/v1/search", request, SearchResponse, reads=True)


def context(request: ContextRequest) -> HttpCall[ContextBlock]:
    return _post("context", (request,), "/v1/context", request, ContextBlock, reads=True)


def recall(request: RecallRequest) -> HttpCall[Recall]:
    return _post("recall", (request,), "/v1/recall", request, Recall, reads=True)


def list_memories(request: ListRequest) -> HttpCall[MemoryPage]:
    return _get("list_memories", (request,), "/v1/memories", request, MemoryPage)


def get(memory_id: str, request: Request) -> HttpCall[Memory]:
    return _get("get", (memory_id, request), f"/v1/memories/{_id(memory_id)}", request, Memory)


def history(memory_id: str, request: Request) -> HttpCall[History]:
    return _get("history", (memory_id, request), f"/v1/memories/{_id(memory_id)}/history", request, History)


def events(request: PageRequest) -> HttpCall[EventPage]:
    return _get("events", (request,), "/v1/events", request, EventPage)


def export(request: ListRequest) -> HttpCall[bytes]:
    return _get("export", (request,), "/v1/export", request, bytes)


def stats(request: Request) -> HttpCall[Stats]:
    return _get("stats", (request,), "/v1/stats", request, Stats)


def retrievals(request: PageRequest) -> HttpCall[RetrievalPage]:
    return _get("retrievals", (request,), "/v1/retrievals", request, RetrievalPage)


def retrieval(retrieval_id: str, request: Request) -> HttpCall[Retrieval]:
    return _get("retrieval", (retrieval_id, request), f"/v1/retrievals/{_id(retrieval_id)}", request, Retrieval)


def update(memory_id: str, request: UpdateRequest) -> HttpCall[UpdateResponse]:
    call = _post("update", (memory_id, request), f"/v1/memories/{_id(memory_id)}", request, UpdateResponse)
    return msgspec.structs.replace(call, method="PATCH")


def resolve(memory_id: str, request: ResolveRequest) -> HttpCall[ResolveResponse]:
    return _post("resolve", (memory_id, request), f"/v1/memories/{_id(memory_id)}/resolve", request, ResolveResponse)


def forget(request: ForgetRequest) -> HttpCall[ForgetResponse]:
    return _post("forget", (request,), "/v1/forget", request, ForgetResponse, reads=request.dry_run)


def restore(memory_id: str, request: RestoreRequest) -> HttpCall[UpdateResponse]:
    return _post("restore", (memory_id, request), f"/v1/memories/{_id(memory_id)}/restore", request, UpdateResponse)


def runs(request: PageRequest) -> HttpCall[RunPage]:
    return _get("runs", (request,), "/v1/runs", request, RunPage)


def run(run_id: str, request: Request) -> HttpCall[RunReport]:
    return _get("run", (run_id, request), f"/v1/runs/{_id(run_id)}", request, RunReport)


def undo(run_id: str, request: UndoRequest) -> HttpCall[UndoResponse]:
    return _post("undo", (run_id, request), f"/v1/runs/{_id(run_id)}/undo", request, UndoResponse)


def sweep(request: SweepRequest) -> HttpCall[SweepReport]:
    # A second sweep would go on where the first one stopped, and only the first one's run takes back what that did.
    return _post("sweep", (request,), "/v1/sweeps", request, SweepReport, reads=request.dry_run)


def ready() -> HttpCall[Readiness]:
    return HttpCall(
        operation="ready", arguments=(), method="GET", path="/ready", kind=Readiness, reads=True, repeatable=True
    )


def read_answer(call: HttpCall[T], status: int, body: bytes, retry_after: str | None) -> T:
    """The answer of a call, or the error that the server named; `Unavailable` when it is no answer of ours.

    Where the call may have changed something before such an answer, the error is `OutcomeUnknown`.
    """
    if status < 400 or (call.path == "/ready" and status == 503):
        try:
            return msgspec.json.decode(body, type=call.kind)
        except msgspec.DecodeError as exc:
            unreadable = Unavailable(
                f"The answer to {call.method} {call.path} is not one of Hindsight's: {exc}.",
                remedy="Check that the URL is a Hindsight server's of this release.",
            )
            raise (unreadable if call.reads else OutcomeUnknown.after(unreadable)) from exc
    raise error_of(status, body, retry_after, changes=not call.reads)


def error_of(status: int, body: bytes, retry_after: str | None, *, changes: bool = False) -> HindsightError:
    """The error behind a problem; `Unavailable` for an answer without one, such as a proxy's.

    `changes` says that the call was to change something, which a proxy's word does not tell: `OutcomeUnknown`.
    """
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except msgspec.DecodeError:
        unreadable = Unavailable(
            f"The server answered {status} and nothing readable.", remedy="Check the URL and its proxies."
        )
        return OutcomeUnknown.after(unreadable) if changes and status >= 500 else unreadable
    kind = _BY_CODE.get(problem.code) or _BY_STATUS.get(problem.status, HindsightError)
    if kind is TooManyRequests:
        seconds = int(retry_after) if retry_after and retry_after.isdigit() else 1
        return TooManyRequests(problem.detail, retry_after=seconds, remedy=problem.remedy)
    return kind(problem.detail, remedy=problem.remedy, errors=problem.errors)


def _post(
    operation: str,
    arguments: tuple[Any, ...],
    path: str,
    body: object,
    kind: type[T],
    *,
    reads: bool = False,
    repeatable: bool = False,
) -> HttpCall[T]:
    return HttpCall(
        operation=operation,
        arguments=arguments,
        method="POST",
        path=path,
        kind=kind,
        body=msgspec.json.encode(body),
        reads=reads,
        repeatable=reads or repeatable,
    )


def _get(operation: str, arguments: tuple[Any, ...], path: str, request: Request, kind: type[T]) -> HttpCall[T]:
    return HttpCall(
        operation=operation,
        arguments=arguments,
        method="GET",
        path=path,
        kind=kind,
        params=_params(request),
        reads=True,
        repeatable=True,
    )


def _params(request: Request) -> list[tuple[str, str]]:
    fields: dict[str, Any] = msgspec.to_builtins(request)
    filters: Mapping[str, Any] = fields.pop("filters", {})
    if filters.get("ids") == ():
        raise InvalidInput.of("filters.ids", "is empty")
    named = [*fields.items(), *((name, value) for name, value in filters.items() if name != "metadata")]
    named += [(f"metadata.{key}", value) for key, value in filters.get("metadata", {}).items()]
    return [(name, _text(item)) for name, value in named for item in _items(value)]


def _items(value: object) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        return [value]
    items: list[object] = list(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    # One parameter is split at commas, repeated ones are not.
    return [*items, ""] if len(items) == 1 and "," in str(items[0]) else items


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _id(value: str) -> str:
    if not value or value in {".", ".."}:
        raise InvalidInput.of("id", f"{value!r} is no id")
    return quote(value, safe="")
