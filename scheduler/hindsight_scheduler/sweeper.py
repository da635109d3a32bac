"""The sweeps that a slot asks for: in this process, or by the forget function over HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from hindsight_core.caller import Caller
from hindsight_core.client import AsyncHindsight
from hindsight_core.ids import new_id
from hindsight_core.leases import NAMESPACE
from hindsight_core.requests import SweepRequest
from hindsight_core.responses import SweepReport
from hindsight_core.service import MemoryService
from hindsight_core.stores import MemoryStore
from hindsight_scheduler.clock import now


class Sweeps(Protocol):
    async def namespaces(self) -> Sequence[str]:
        """The namespaces to sweep, in a stable order."""
        ...

    async def sweep(self, request: SweepRequest) -> SweepReport: ...


class InProcess:
    """Sweeps of the named namespaces, of all that hold memories where none is named."""

    def __init__(self, service: MemoryService, store: MemoryStore, named: Sequence[str]) -> None:
        self._service = service
        self._store = store
        self._named = named

    async def namespaces(self) -> Sequence[str]:
        return self._named or [name async for name in self._every()]

    async def sweep(self, request: SweepRequest) -> SweepReport:
        at = now()
        caller = Caller(now=at, new_id=new_id, actor="scheduler", request_id=new_id(at))
        return await self._service.sweep(request, caller)

    async def _every(self) -> AsyncGenerator[str]:
        after: str | None = None
        while page := await self._store.namespaces(after=after):
            for name in page:
                if name != NAMESPACE:
                    yield name
            after = page[-1]


class OverHttp:
    """Sweeps by a server; it decides by its own settings."""

    def __init__(self, client: AsyncHindsight, named: Sequence[str]) -> None:
        self._client = client
        self._named = named

    async def namespaces(self) -> Sequence[str]:
        return self._named

    async def sweep(self, request: SweepRequest) -> SweepReport:
        return await self._client.sweep(request)
