"""Whose memories a connection works on, and the operations it may ask for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from hindsight_core.caller import Caller
from hindsight_core.errors import InvalidInput
from hindsight_core.models import Decision, Memory
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
from hindsight_core.service import MemoryService
from hindsight_core.tokens import Verb

# Whoever names no agent must not read the private memories of those that do, so it is one as well.
UNNAMED_AGENT = "mcp"


class Memories(Protocol):
    """The operations behind the tools: a service in this process, or `AsyncHindsight` for one elsewhere."""

    async def write(self, request: WriteRequest) -> WriteResponse: ...
    async def search(self, request: SearchRequest) -> SearchResponse: ...
    async def context(self, request: ContextRequest) -> ContextBlock: ...
    async def list_memories(self, request: ListRequest) -> MemoryPage: ...
    async def get(self, memory_id: str, request: Request) -> Memory: ...
    async def history(self, memory_id: str, request: Request) -> History: ...
    async def update(self, memory_id: str, request: UpdateRequest) -> UpdateResponse: ...
    async def resolve(self, memory_id: str, request: ResolveRequest) -> ResolveResponse: ...
    async def forget(self, request: ForgetRequest) -> ForgetResponse: ...


class Meter(Protocol):
    """What is counted of writes and searches."""

    def decided(self, decisions: tuple[Decision, ...]) -> None: ...
    def searched(self, *, found: bool, degraded: bool) -> None: ...


class ServiceMemories:
    """A started service; `allow` lets a call in and says who it is, and is asked before the service is touched."""

    def __init__(
        self, service: MemoryService, allow: Callable[[Verb], Awaitable[Caller]], meter: Meter | None = None
    ) -> None:
        self._service = service
        self._allow = allow
        self._meter = meter

    async def write(self, request: WriteRequest) -> WriteResponse:
        answer = await self._service.write(request, await self._allow("write"))
        if self._meter is not None:
            self._meter.decided(answer.results)
        return answer

    async def search(self, request: SearchRequest) -> SearchResponse:
        answer = await self._service.search(request, await self._allow("read"))
        if self._meter is not None:
            self._meter.searched(found=bool(answer.hits), degraded=answer.degraded is not None)
        return answer

    async def context(self, request: ContextRequest) -> ContextBlock:
        return await self._service.context(request, await self._allow("read"))

    async def list_memories(self, request: ListRequest) -> MemoryPage:
        return await self._service.list_memories(request, await self._allow("read"))

    async def get(self, memory_id: str, request: Request) -> Memory:
        return await self._service.get(memory_id, request, await self._allow("read"))

    async def history(self, memory_id: str, request: Request) -> History:
        return await self._service.history(memory_id, request, await self._allow("read"))

    async def update(self, memory_id: str, request: UpdateRequest) -> UpdateResponse:
        return await self._service.update(memory_id, request, await self._allow("write"))

    async def resolve(self, memory_id: str, request: ResolveRequest) -> ResolveResponse:
        return await self._service.resolve(memory_id, request, await self._allow("write"))

    async def forget(self, request: ForgetRequest) -> ForgetResponse:
        return await self._service.forget(request, await self._allow("write"))


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """One client's way to its memories. What is fixed here no argument of a tool can change.

    The namespace is fixed by `memories` (token, header or settings). Without a `user_id` the whole namespace is in
    reach, and an argument may narrow a call to one user; without an `agent_id` the client is the agent `mcp`.
    `new_key` makes an idempotency key for a write, where the way to the memories may lose an answer.
    """

    memories: Memories
    user_id: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    new_key: Callable[[], str] | None = None

    def scope(self, user_id: str | None = None) -> dict[str, Any]:
        """The scope fields of a request; raises `InvalidInput` where `user_id` is not the connection's."""
        if user_id is not None and self.user_id not in {None, user_id}:
            raise InvalidInput.of("user_id", f"this connection is bound to the user {self.user_id!r}; leave it out")
        return {
            "user_id": self.user_id or user_id,
            "agent_id": self.agent_id or UNNAMED_AGENT,
            "session_id": self.session_id,
        }
