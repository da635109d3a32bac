"""The write function: what is kept, one write, a batch, or an export read back."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from litestar import Response, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, RawBody
from msgspec import Meta

from hindsight_core.caller import instant
from hindsight_core.errors import UnsupportedMedia
from hindsight_core.models import Namespace
from hindsight_core.requests import BATCH_LIMIT, EndTaskRequest, Request, TaskRequest, WriteRequest
from hindsight_core.responses import BatchResponse, ImportReport, TaskBuffer, TaskEnd, TaskUpdate, WriteResponse
from hindsight_functions.aws import LambdaHandler
from hindsight_functions.body import LINES, BodyRequest
from hindsight_functions.call import Call
from hindsight_functions.http import create_app
from hindsight_functions.query import queried


class Batch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Writes, each with the fields of a single one; `namespace` and `now` are for those that name none."""

    items: Annotated[list[msgspec.Raw], Meta(min_length=1, max_length=BATCH_LIMIT)]
    namespace: Namespace | None = None
    now: datetime | None = None


@post("/v1/memories", status_code=200, opt={"also": {201: "Stored."}})
async def write_memory(data: JSONBody[WriteRequest], call: NamedDependency[Call]) -> Response[WriteResponse]:
    """Decide what of a content or of messages is kept, and store it: 201 when something was stored, else 200."""
    answer = await call.service.write(call.keyed(data), await call.by(data, "write"))
    call.metrics.decided(answer.results)
    return Response(answer, status_code=201 if answer.stored else 200)


@post("/v1/memories/batch", status_code=200)
async def write_batch(data: JSONBody[Batch], call: NamedDependency[Call]) -> BatchResponse:
    """Up to 500 writes, each stored or refused by itself."""
    call.unkeyed()
    items = call.narrowed(data.items)
    caller = await call.among(items, data.namespace, "write")
    if data.now is not None:
        caller = msgspec.structs.replace(caller, now=instant(data.now, "now"))
    answer = await call.service.write_batch(items, caller)
    for item in answer.results:
        call.metrics.decided(item.decisions or ())
    return answer


@post("/v1/import", status_code=200, reads=LINES, **queried(Request))
async def import_lines(
    request: BodyRequest, body: RawBody, asked: NamedDependency[Request], call: NamedDependency[Call]
) -> ImportReport:
    """Store up to 500 lines of an export as they are, ids kept; those that exist are left alone."""
    if request.content_type[0] not in {LINES, "application/jsonl"}:
        raise UnsupportedMedia(f"Content-Type is {request.content_type[0]!r}.", remedy="Send application/x-ndjson.")
    caller = await call.by(asked, "write")
    call.whole()
    return await call.service.import_lines(body.splitlines(), asked, caller)


@post("/v1/tasks/{task_id:str}/messages", status_code=200)
async def add_to_task(task_id: FromPath[str], data: JSONBody[TaskRequest], call: NamedDependency[Call]) -> TaskUpdate:
    """Add messages to the working memory of a task, within its share of the context window."""
    return await call.service.add_to_task(task_id, data, await call.by(data, "write"))


@get("/v1/tasks/{task_id:str}", **queried(Request))
async def get_task(task_id: FromPath[str], asked: NamedDependency[Request], call: NamedDependency[Call]) -> TaskBuffer:
    """The working memory of a task."""
    return await call.service.task(task_id, asked, await call.by(asked, "read"))


@post("/v1/tasks/{task_id:str}/end", status_code=200)
async def end_task(task_id: FromPath[str], data: JSONBody[EndTaskRequest], call: NamedDependency[Call]) -> TaskEnd:
    """End a task: what is worth it becomes an episodic memory, the rest is forgotten."""
    return await call.service.end_task(task_id, data, await call.by(data, "write"))


routes = [write_memory, write_batch, import_lines, add_to_task, get_task, end_task]
app = create_app(routes, name="write", embedder=True, writes=True)
handler = LambdaHandler(app)
