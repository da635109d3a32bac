"""How often each memory was answered: counters beside the memories, since writing one anew would index it anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hindsight_core.stores import Access
from hindsight_core.stores.opensearch.connection import Json
from hindsight_core.stores.opensearch.documents import access_id
from hindsight_core.stores.opensearch.indices import Action, Indices, json

_COUNT = (
    "ctx._source.count += params.count;"
    " if (ctx._source.at == null || ctx._source.at < params.at) { ctx._source.at = params.at; }"
)


class Accesses:
    """The counters of a store's memories."""

    def __init__(self, indices: Indices) -> None:
        self._indices = indices

    async def of(self, namespace: str, born: Mapping[str, int]) -> dict[str, Json]:
        """The counter of each memory that has one, by the memory's id; `born` are all of them."""
        ids = {memory_id: access_id(namespace, memory_id, version) for memory_id, version in born.items()}
        found = await self._indices.documents("state", list(ids.values()))
        return {
            memory_id: counter["_source"] for memory_id, counter in zip(ids, found, strict=True) if counter is not None
        }

    async def add(self, namespace: str, accesses: Sequence[Access], born: Mapping[str, int]) -> None:
        """Count accesses of the memories that exist; `born` are those."""
        actions: list[Action] = []
        for access in accesses:
            if access.memory_id not in born:
                continue
            counts = {"count": access.count, "at": access.at}
            body = {"script": {"source": _COUNT, "params": counts}, "upsert": counts}
            place = access_id(namespace, access.memory_id, born[access.memory_id])
            fields = {"_id": place, "retry_on_conflict": 5}
            actions.append(Action("state", "update", fields, json(body)))
        # Counting twice would be wrong, counting once too few is not worth an error.
        await self._indices.write(actions, repeatable=False)
