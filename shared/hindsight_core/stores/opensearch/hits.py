"""Hits of a search as the memories that they are, whichever schema their documents were written in."""

from __future__ import annotations

from collections.abc import Sequence

from hindsight_core.stores.opensearch.connection import Json
from hindsight_core.stores.opensearch.documents import SOURCE, Kept, document_id, kept_in_document, kept_in_hit
from hindsight_core.stores.opensearch.indices import Indices


async def kept_in_hits(indices: Indices, namespace: str, hits: Sequence[Json]) -> list[tuple[Json, Kept]]:
    """Each hit with its memory, in this order; without what is gone by now.

    The search asked for `MEMORY` or `RECORD`, and was sorted by the id at last.
    """
    found = [kept_in_hit(hit) for hit in hits]
    # A process of an earlier version wrote these after the start that wrote all others anew: they have no columns.
    old = [number for number, kept in enumerate(found) if kept is None]
    if old:
        places = [document_id(namespace, hits[number]["sort"][-1]) for number in old]
        documents = await indices.documents("memories", places, routing=namespace, source=SOURCE)
        for number, document in zip(old, documents, strict=True):
            found[number] = None if document is None else kept_in_document(document["_source"])
    return [(hit, kept) for hit, kept in zip(hits, found, strict=True) if kept is not None]
