"""Counts of memories by whose they are."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

from hindsight_core.models import MemoryType, Status
from hindsight_core.stores import Where
from hindsight_core.stores.opensearch.conditions import filters
from hindsight_core.stores.opensearch.connection import Json
from hindsight_core.stores.opensearch.indices import Indices

_PAGE = 1000


async def census(
    indices: Indices, namespace: str, statuses: Sequence[Status]
) -> dict[tuple[str | None, MemoryType], int]:
    """See `MemoryStore.census`."""
    sources: list[Json] = [
        {"user": {"terms": {"field": "user_id", "missing_bucket": True}}},
        {"type": {"terms": {"field": "memory_type"}}},
    ]
    query: Json = {"bool": {"filter": filters(namespace, Where(statuses=tuple(statuses)))}}
    buckets = _buckets(indices, namespace, {"query": query}, sources, None)
    return {(found["key"]["user"], found["key"]["type"]): found["doc_count"] async for found in buckets}


async def namespaces(indices: Indices, after: str | None, limit: int) -> list[str]:
    """See `MemoryStore.namespaces`."""
    found: list[str] = []
    last = None if after is None else {"namespace": after}
    async for bucket in _buckets(indices, None, {}, [{"namespace": {"terms": {"field": "namespace"}}}], last):
        if len(found) == limit:
            break
        found.append(bucket["key"]["namespace"])
    return found


async def _buckets(
    indices: Indices, routing: str | None, body: Json, sources: list[Json], after: Json | None
) -> AsyncGenerator[Any]:
    """The groups, a page at a time."""
    while True:
        composite: Json = {"size": _PAGE, "sources": sources} | ({} if after is None else {"after": after})
        asked: Json = {**body, "size": 0, "aggs": {"groups": {"composite": composite}}}
        groups: dict[str, Any] = (await indices.search("memories", routing, asked))["aggregations"]["groups"]
        for bucket in groups["buckets"]:
            yield bucket
        after = groups.get("after_key")
        if after is None:
            return
