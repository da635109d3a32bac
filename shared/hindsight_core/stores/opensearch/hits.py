"""Hits of a search as the memories that they are, whichever schema their documents were written in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from hindsight_core.loops import both
from hindsight_core.stores.opensearch.access import Accesses
from hindsight_core.stores.opensearch.connection import Json
from hindsight_core.stores.opensearch.documents import (
    SOURCE,
    Columns,
    Kept,
    born_in,
    columns_in,
    document_id,
    kept_in,
    turn_in,
)
from hindsight_core.stores.opensearch.indices import Indices

# So many are decoded at a time, which takes a quarter of a millisecond.
_AT_A_TIME = 16


class Found(NamedTuple):
    """A hit, its memory, and the memory's access counter where it has one."""

    hit: Json
    kept: Kept
    counter: Json | None


async def found_in(
    indices: Indices,
    accesses: Accesses,
    namespace: str,
    pages: Sequence[Sequence[Json]],
    *,
    meanwhile: Callable[[Json, Kept], None] = lambda _hit, _kept: None,
) -> list[list[Found]]:
    """The hits of some pages with their memories, in this order; without what is gone by now.

    The searches asked for `MEMORY` or `RECORD`, and were sorted by the id at last. `meanwhile` is called once with each
    hit, while the counters of the memories are on their way.
    """
    hits = [hit for page in pages for hit in page]
    held = await columns_of(indices, namespace, hits)
    counters, kept = await both(
        accesses.of(namespace, {name: born_in(columns) for name, columns in held.items()}),
        _decoded(held, hits, meanwhile),
    )
    return [
        [Found(hit, kept[name], counters.get(name)) for hit in page if (name := hit["sort"][-1]) in kept]
        for page in pages
    ]


async def turns_before(indices: Indices, namespace: str, hits: Sequence[Json]) -> dict[str, str]:
    """Of each memory that a page of hits brought along, the turn before it, by its id; without those that have none."""
    found: dict[str, str] = {}
    for number, (name, columns) in enumerate((await columns_of(indices, namespace, hits)).items()):
        if number % _AT_A_TIME == 0:
            await asyncio.sleep(0)
        if turn := turn_in(columns):
            found[name] = turn
    return found


async def columns_of(indices: Indices, namespace: str, hits: Sequence[Json]) -> dict[str, Columns]:
    """The columns of each hit, by the id of its memory."""
    sources: dict[str, Json | None] = {hit["sort"][-1]: _brought(hit) for hit in hits}
    # A process of an earlier version wrote these after the start that wrote all others anew: they have no columns.
    old = [name for name, source in sources.items() if source is None]
    if old:
        places = [document_id(namespace, name) for name in old]
        documents = await indices.documents("memories", places, routing=namespace, source=SOURCE)
        for name, document in zip(old, documents, strict=True):
            sources[name] = None if document is None else document["_source"]
    return {name: columns_in(source) for name, source in sources.items() if source is not None}


def _brought(hit: Json) -> Json | None:
    fields = hit.get("fields", {})
    return {name: values[0] for name, values in fields.items()} if "kept" in fields else None


async def _decoded(
    held: Mapping[str, Columns], hits: Sequence[Json], meanwhile: Callable[[Json, Kept], None]
) -> dict[str, Kept]:
    found: dict[str, Kept] = {}
    for number, hit in enumerate(hits):
        if number % _AT_A_TIME == 0:
            await asyncio.sleep(0)
        name = hit["sort"][-1]
        if name in held:
            if name not in found:
                found[name] = kept_in(held[name])
            meanwhile(hit, found[name])
    return found
