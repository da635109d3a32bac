"""The indices are made as the docs say, and the nearest are looked for in one namespace of them alone."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import numpy as np

from hindsight_core.ranking import Weights, formula
from hindsight_core.stores import MemoryStore, Vector, open_store
from hindsight_core.stores.opensearch.mapping import INDICES
from opensearch_place import OpenSearchPlace
from samples import DAY, EVERYTHING, NAMESPACE, START, memory, puts, record, search, unit
from test_reembedding import NEW, NEW_DIMENSION, Embeds, old, silent

BY_VECTOR = formula(calibration=(0.0, 0.6), weights=Weights(alpha=1.0, offset=0.0))


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[MemoryStore]:
    store = open_store(url)
    try:
        yield store
    finally:
        await store.aclose()


def assert_as_prescribed(place: OpenSearchPlace, index: str, number: int, dimension: int | None) -> None:
    """The one index behind a name, and the fields of its vectors where it has any."""
    ((name, found),) = place.about(index).items()
    assert name == f"{place.prefix}-{index.partition('.')[0]}-{number:06}"
    assert found["aliases"] == {f"{place.prefix}-{index}": {}}
    assert found["mappings"]["dynamic"] == "strict"
    assert found["mappings"].get("_routing") == (None if index.startswith("state") else {"required": True})
    fields = found["mappings"]["properties"]
    vectors = {name: field for name, field in fields.items() if field["type"] == "knn_vector"}
    assert found["settings"]["index"].get("knn") == ("true" if index.startswith("memories") else None)
    assert vectors.keys() == (set() if dimension is None else {f"mixed_{dimension}", f"bare_{dimension}"})
    for field in vectors.values():
        assert field["dimension"] == dimension
        method = {"engine": "lucene", "name": "hnsw", "space_type": "cosinesimil"}
        assert field["method"] == method | {"parameters": {"m": 16, "ef_construction": 100}}


async def test_each_name_is_that_of_an_index_as_it_is_prescribed_with_the_vectors_of_the_model(
    opensearch_url: str,
) -> None:
    with OpenSearchPlace(opensearch_url) as place:
        async with opened(place.store_url) as store:
            await store.prepare("old@1/16")
            for index in INDICES:
                assert_as_prescribed(place, index, 1, None)
            await store.commit(NAMESPACE, puts(old(memory("a"))))
            assert_as_prescribed(place, "memories", 1, 16)
            await store.reembed(NEW, Embeds(), silent)
        assert_as_prescribed(place, "memories.2", 2, NEW_DIMENSION)
        for index in ("journal", "retrievals", "state.2"):
            assert_as_prescribed(place, index, 1, None)


async def test_nearest_are_those_of_the_namespace_however_many_of_another_are_nearer(
    opensearch_place: OpenSearchPlace,
) -> None:
    opensearch_place.empty()
    question = unit(0)

    def near(seed: int, apart: float) -> Vector:
        vector = question + apart * unit(1 + seed)
        return vector / np.float32(np.linalg.norm(vector))

    nearer = [record(memory(f"other-{n:04}", namespace="other"), near(n, 0.2)) for n in range(1200)]
    three = [record(memory(f"a{n}", confidence=0.5, observed_at=START - DAY), near(n, 1.0)) for n in range(3)]
    # Newer and surer, so that it is their vectors by which the three are found.
    newer = [record(memory(f"b{n:03}"), -near(n, 1.0)) for n in range(150)]
    async with opened(f"{opensearch_place.store_url}?exact_below=0") as store:
        await store.commit("other", puts(*nearer))
        await store.commit(NAMESPACE, puts(*three, *newer))
        (found,) = await store.neighbours(NAMESPACE, question[None, :], EVERYTHING, 3)
        assert {one.record.memory.id for one in found} == {"a0", "a1", "a2"}
        page = await store.rank(NAMESPACE, search(vector=question, by=BY_VECTOR, limit=3))
        assert {hit.memory.id for hit in page.hits} == {"a0", "a1", "a2"}
        assert page.in_scope == page.eligible == 153
        (best,) = await store.neighbours("other", question[None, :], EVERYTHING, 1)
        assert best[0].cosine > max(one.cosine for one in found)
