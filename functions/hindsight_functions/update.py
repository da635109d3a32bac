"""The update function: changes by hand."""

from __future__ import annotations

from litestar import Response, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from hindsight_core.requests import ResolveRequest, UpdateRequest
from hindsight_core.responses import ResolveResponse, UpdateResponse
from hindsight_functions.aws import LambdaHandler
from hindsight_functions.call import Call
from hindsight_functions.http import create_app


@patch("/v1/memories/{memory_id:str}")
async def update_memory(
    memory_id: FromPath[str], data: JSONBody[UpdateRequest], call: NamedDependency[Call]
) -> Response[UpdateResponse]:
    """Change what is named, keep the rest; `If-Match` with an outdated version is a 409 and changes nothing."""
    answer = await call.service.update(memory_id, call.matching(data), await call.by(data, "write"))
    return Response(answer, headers={"ETag": f'"{answer.memory.version}"'})


@post("/v1/memories/{memory_id:str}/resolve", status_code=200)
async def resolve_memories(
    memory_id: FromPath[str], data: JSONBody[ResolveRequest], call: NamedDependency[Call]
) -> ResolveResponse:
    """Settle a contested pair: the path names the newer memory, `with` the older one."""
    return await call.service.resolve(memory_id, data, await call.by(data, "write"))


routes = [update_memory, resolve_memories]
app = create_app(routes, name="update", embedder=True)
handler = LambdaHandler(app)
