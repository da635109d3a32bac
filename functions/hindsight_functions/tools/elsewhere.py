"""The memories of a server, for a client that names no agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import msgspec

from hindsight_core.errors import Forbidden
from hindsight_core.models import Memory
from hindsight_core.requests import (
    ContextRequest,
    ForgetRequest,
    ListRequest,
    Request,
    ResolveRequest,
    SearchRequest,
    UpdateRequest,
    WriteRequest,
)
from hindsight_core.responses import (
    ContextBlock,
    ForgetResponse,
    History,
    MemoryPage,
    ResolveResponse,
    SearchResponse,
    UpdateResponse,
    WriteResponse,
)
from hindsight_functions.tools.connection import Memories

T = TypeVar("T")
R = TypeVar("R", bound=Request)


class ServerMemories:
    """`Memories` of a server, asked for the agent of the request, or for the one that the token is bound to.

    Only the server knows whom a token is for. One that may not speak for the agent of the request is asked again
    without it, and then the server takes the token's. A token for any agent gains nothing by that: what else is
    forbidden to it, a namespace or a verb, is so whoever the agent is.
    """

    def __init__(self, server: Memories) -> None:
        self._server = server
        self._bound = False

    async def _ask(self, call: Callable[[R], Awaitable[T]], request: R) -> T:
        if not self._bound:
            try:
                return await call(request)
            except Forbidden:
                pass
        answer = await call(msgspec.structs.replace(request, agent_id=None))
        self._bound = True
        return answer

    async def write(self, request: WriteRequest) -> WriteResponse:
        return await self._ask(self._server.write, request)

    async def search(self, request: SearchRequest) -> SearchResponse:
        return await self._ask(self._server.search, request)

    async def context(self, request: ContextRequest) -> ContextBlock:
        return await self._ask(self._server.context, request)

    async def list_memories(self, request: ListRequest) -> MemoryPage:
        return await self._ask(self._server.list_memories, request)

    async def get(self, memory_id: str, request: Request) -> Memory:
        return await self._ask(partial(self._server.get, memory_id), request)

    async def history(self, memory_id: str, request: Request) -> History:
        return await self._ask(partial(self._server.history, memory_id), request)

    async def update(self, memory_id: str, request: UpdateRequest) -> UpdateResponse:
        return await self._ask(partial(self._server.update, memory_id), request)

    async def resolve(self, memory_id: str, request: ResolveRequest) -> ResolveResponse:
        return await self._ask(partial(self._server.resolve, memory_id), request)

    async def forget(self, request: ForgetRequest) -> ForgetResponse:
        return await self._ask(self._server.forget, request)
