"""The search function: everything that reads."""

from __future__ import annotations

from collections.abc import AsyncIterator

from litestar import Response, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from litestar.response import Stream

from hindsight_core.models import Memory, Retrieval
from hindsight_core.requests import (
    ContextRequest,
    ExportRequest,
    ListRequest,
    PageRequest,
    RecallRequest,
    Request,
    SearchRequest,
)
from hindsight_core.responses import (
    ContextBlock,
    EventPage,
    History,
    MemoryPage,
    Recall,
    RetrievalPage,
    SearchResponse,
    Stats,
)
from hindsight_functions.aws import LambdaHandler
from hindsight_functions.body import LINES
from hindsight_functions.call import Call
from hindsight_functions.http import create_app
from hindsight_functions.query import queried


@post("/v1/search", status_code=200)
async def search_memories(data: JSONBody[SearchRequest], call: NamedDependency[Call]) -> SearchResponse:
    """The best memories for a question, each with its score and the parts of it."""
    answer = await call.service.search(data, await call.by(data, "read"))
    call.metrics.searched(found=bool(answer.hits), degraded=answer.degraded is not None)
    return answer


@post("/v1/context", status_code=200)
async def make_context(data: JSONBody[ContextRequest], call: NamedDependency[Call]) -> ContextBlock:
    """A block of memories to paste into a prompt, within a token budget."""
    return await call.service.context(data, await call.by(data, "read"))


@post("/v1/recall", status_code=200)
async def ask_recall(data: JSONBody[RecallRequest], call: NamedDependency[Call]) -> Recall:
    """Whether a message needs memory at all, and why; no store is touched."""
    return await call.service.recall(data, await call.by(data, "read"))


@get("/v1/memories", **queried(ListRequest))
async def list_memories(asked: NamedDependency[ListRequest], call: NamedDependency[Call]) -> MemoryPage:
    """A page of memories in a stable order; `cursor` continues it."""
    return await call.service.list_memories(asked, await call.by(asked, "read"))


@get("/v1/memories/{memory_id:str}", **queried(Request))
async def get_memory(
    memory_id: FromPath[str], asked: NamedDependency[Request], call: NamedDependency[Call]
) -> Response[Memory]:
    """One memory of any status; its ETag is its version."""
    memory = await call.service.get(memory_id, asked, await call.by(asked, "read"))
    return Response(memory, headers={"ETag": f'"{memory.version}"'})


@get("/v1/memories/{memory_id:str}/history", **queried(Request))
async def get_history(
    memory_id: FromPath[str], asked: NamedDependency[Request], call: NamedDependency[Call]
) -> History:
    """Every change of one memory, oldest first."""
    return await call.service.history(memory_id, asked, await call.by(asked, "read"))


@get("/v1/events", **queried(PageRequest))
async def list_events(asked: NamedDependency[PageRequest], call: NamedDependency[Call]) -> EventPage:
    """A page of the namespace's changes, oldest first."""
    return await call.service.events(asked, await call.by(asked, "read"))


@get("/v1/export", media_type=LINES, **queried(ExportRequest))
async def export_memories(asked: NamedDependency[ExportRequest], call: NamedDependency[Call]) -> Stream:
    """Every memory of the scope as JSON Lines; suppressed ones only for a token with the verb admin."""
    lines = call.service.export(asked, await call.by(asked, "read"))
    # The first line is asked for here, so that what is wrong with the request is still an answer of its own.
    first = await anext(lines)
    return Stream(_chain(first, lines), media_type=LINES)


@get("/v1/stats", **queried(Request))
async def get_stats(asked: NamedDependency[Request], call: NamedDependency[Call]) -> Stats:
    """How many memories, changes and runs the namespace holds."""
    return await call.service.stats(asked, await call.by(asked, "read"))


@get("/v1/retrievals", **queried(PageRequest))
async def list_retrievals(asked: NamedDependency[PageRequest], call: NamedDependency[Call]) -> RetrievalPage:
    """A page of the logged searches, oldest first."""
    return await call.service.retrievals(asked, await call.by(asked, "read"))


@get("/v1/retrievals/{retrieval_id:str}", **queried(Request))
async def get_retrieval(
    retrieval_id: FromPath[str], asked: NamedDependency[Request], call: NamedDependency[Call]
) -> Retrieval:
    """One logged search, enough to replay it."""
    return await call.service.retrieval(retrieval_id, asked, await call.by(asked, "read"))


async def _chain(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for line in rest:
        yield line


routes = [
    search_memories,
    make_context,
    ask_recall,
    list_memories,
    get_memory,
    get_history,
    list_events,
    export_memories,
    get_stats,
    list_retrievals,
    get_retrieval,
]
app = create_app(routes, name="search", embedder=True)
handler = LambdaHandler(app)
