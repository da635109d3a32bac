"""A store in this process behind the client's operations, so that a command need not know which it talks to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

import msgspec

from hindsight_core.caller import Caller
from hindsight_core.ids import new_id
from hindsight_core.models import Memory
from hindsight_core.requests import (
    ContextRequest,
    ForgetRequest,
    ListRequest,
    PageRequest,
    RecallRequest,
    Request,
    ResolveRequest,
    RestoreRequest,
    SearchRequest,
    SweepRequest,
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
    SearchResponse,
    Stats,
    SweepReport,
    UndoResponse,
    UpdateResponse,
    WriteResponse,
)
from hindsight_core.service import MemoryService


class Local:
    """A started service; each call is made by the actor `cli`, now, in `namespace` unless the request names one."""

    def __init__(self, service: MemoryService, namespace: str) -> None:
        self._service = service
        self._namespace = namespace

    def _caller(self) -> Caller:
        now = datetime.now(UTC)
        return Caller(
            now=now.replace(microsecond=now.microsecond // 1000 * 1000),
            new_id=new_id,
            namespace=self._namespace,
            actor="cli",
            request_id=new_id(now),
        )

    async def write(self, request: WriteRequest) -> WriteResponse:
        return await self._service.write(request, self._caller())

    async def write_batch(self, items: Sequence[WriteRequest]) -> BatchResponse:
        raw = [msgspec.Raw(msgspec.json.encode(item)) for item in items]
        return await self._service.write_batch(raw, self._caller())

    async def import_lines(self, lines: Sequence[bytes], namespace: str | None = None) -> ImportReport:
        return await self._service.import_lines(lines, Request(namespace=namespace), self._caller())

    async def search(self, request: SearchRequest) -> SearchResponse:
        return await self._service.search(request, self._caller())

    async def context(self, request: ContextRequest) -> ContextBlock:
        return await self._service.context(request, self._caller())

    async def recall(self, request: RecallRequest) -> Recall:
        return await self._service.recall(request, self._caller())

    async def list_memories(self, request: ListRequest) -> MemoryPage:
        return await self._service.list_memories(request, self._caller())

    async def get(self, memory_id: str, request: Request) -> Memory:
        return await self._service.get(memory_id, request, self._caller())

    async def history(self, memory_id: str, request: Request) -> History:
        return await self._service.history(memory_id, request, self._caller())

    async def events(self, request: PageRequest) -> EventPage:
        return await self._service.events(request, self._caller())

    def export(self, request: ListRequest) -> AsyncIterator[bytes]:
        return self._service.export(request, self._caller())

    async def stats(self, request: Request) -> Stats:
        return await self._service.stats(request, self._caller())

    async def update(self, memory_id: str, request: UpdateRequest) -> UpdateResponse:
        return await self._service.update(memory_id, request, self._caller())

    async def resolve(self, memory_id: str, request: ResolveRequest) -> ResolveResponse:
        return await self._service.resolve(memory_id, request, self._caller())

    async def forget(self, request: ForgetRequest) -> ForgetResponse:
        return await self._service.forget(request, self._caller())

    async def remains(self, texts: Sequence[str], models: Sequence[str]) -> list[str]:
        return await self._service.remains(texts, models)

    async def expunge(self) -> None:
        await self._service.expunge()

    async def restore(self, memory_id: str, request: RestoreRequest) -> UpdateResponse:
        return await self._service.restore(memory_id, request, self._caller())

    async def runs(self, request: PageRequest) -> RunPage:
        return await self._service.runs(request, self._caller())

    async def undo(self, run_id: str, request: UndoRequest) -> UndoResponse:
        return await self._service.undo(run_id, request, self._caller())

    async def retrievals(self, request: PageRequest) -> RetrievalPage:
        return await self._service.retrievals(request, self._caller())

    async def sweep(self, request: SweepRequest) -> SweepReport:
        return await self._service.sweep(request, self._caller())

    async def ready(self) -> Readiness:
        return await self._service.ready()
