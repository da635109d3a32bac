"""Counts of memories by whose they are."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from hindsight_core.models import MemoryType, Status
from hindsight_core.stores import Where
from hindsight_core.stores.opensearch.conditions import filters
from hindsight_core.stores.opensearch.connection import Json
from hindsight_core.stores.opensearch.indices import Indices
from hindsight_core.stores.opensearch.moments import Moments

_PAGE = 1000
_Search: TypeAlias = Callable[[Json], Awaitable[Json]]


async def census(
    indices: Indices, moments: Moments, namespace: str, statuses: Sequence[Status]
) -> dict[tuple[str | None, MemoryType], int]:
    """See `MemoryStore.census`. All counts are of one moment."""
    sources: list[Json] = [
        {"user": {"terms": {"field": "user_id", "missing_bucket": True}}},
        {"type": {"terms": {"field": "memory_type"}}},
    ]
    query: Json = {"query": {"bool": {"filter": filters(namespace, Where(statuses=tuple(statuses)))}}}
    found = await _page(lambda body: indices.search("memories", namespace, body), query, sources, None)
    if len(found) == _PAGE:  # one request does not tell all of them
        async with moments.opened("memories", namespace) as moment:
            found = [bucket async for bucket in _buckets(moment.search, query, sources, None)]
    return {(bucket["key"]["user"], bucket["key"]["type"]): bucket["doc_count"] for bucket in found}


async def namespaces(indices: Indices, after: str | None, limit: int) -> list[str]:
    """See `MemoryStore.namespaces`."""
    found: list[str] = []
    last = None if after is None else {"namespace": after}
    sources: list[Json] = [{"namespace": {"terms": {"field": "namespace"}}}]
    async for bucket in _buckets(lambda body: indices.search("memories", None, body), {}, sources, last):
        if len(found) == limit:
            break
        found.append(bucket["key"]["namespace"])
    return found


async def _buckets(search: _Search, query: Json, sources: list[Json], after: Json | None) -> AsyncGenerator[Any]:
    """The groups, a page at a time."""
    while True:
        page = await _page(search, query, sources, after)
        for bucket in page:
            yield bucket
        if len(page) < _PAGE:
            return
        after = page[-1]["key"]


async def _page(search: _Search, query: Json, sources: list[Json], after: Json | None) -> list[Any]:
    """The groups that follow."""
    composite: Json = {"size": _PAGE, "sources": sources} | ({} if after is None else {"after": after})
    answer = await search({**query, "size": 0, "aggs": {"groups": {"composite": composite}}})
    found: list[Any] = answer["aggregations"]["groups"]["buckets"]
    return found
