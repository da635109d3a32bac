"""What a task of evaluation is made of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from hindsight_core.evaluation.report import Line, Measure
from hindsight_core.requests import RecallRequest, SearchRequest, WriteRequest
from hindsight_core.responses import Recall, SearchResponse, WriteResponse

Item: TypeAlias = Any  # an instance of the task's `item`


class Memories(Protocol):
    """The operations that tasks need: a service in this process, or a server."""

    async def write(self, request: WriteRequest) -> WriteResponse: ...

    async def search(self, request: SearchRequest) -> SearchResponse: ...

    async def recall(self, request: RecallRequest) -> Recall: ...


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of file: the struct of a line, what becomes of one item in a fresh namespace, and the measures."""

    item: type[Any]
    judge: Callable[[Memories, str, Item], Awaitable[Sequence[Line]]]
    measure: Callable[[Sequence[Line]], tuple[Measure, ...]]
