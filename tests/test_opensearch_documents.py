"""Whatever a memory may hold can be written: a document that OpenSearch refuses would hold up its namespace."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from hindsight_core.indexing import IndexFields
from hindsight_core.lexical import impacts
from hindsight_core.models import Contest
from hindsight_core.ranking import Weights, formula
from hindsight_core.stores import Access, ChangeSet, MemoryStore, Receipt, Record, Vector, Where, open_store
from hindsight_core.stores.opensearch import hits
from hindsight_core.stores.opensearch.address import parse
from hindsight_core.stores.opensearch.connection import Connection
from hindsight_core.stores.opensearch.documents import Columns, Kept, kept_impact, kept_in, unpacked
from hindsight_core.stores.opensearch.mapping import SCHEMA
from hindsight_core.stores.opensearch.store import OpenSearchStore
from opensearch_place import OpenSearchPlace
from samples import EVERYTHING, NAMESPACE, START_MS, event, memory, puts, record, run, search, unit

BY_WORDS = formula(calibration=(0.0, 0.6), weights=Weights(alpha=0.0, offset=0.0))
FIRST, LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)


@pytest.fixture
async def store(opensearch_place: OpenSearchPlace) -> AsyncGenerator[MemoryStore]:
    opensearch_place.empty()
    store = open_store(opensearch_place.store_url)
    await store.prepare("model-a")
    yield store
    await store.aclose()


EXTREMES = {
    "a long id": memory("i" * 3000),
    "ids that are long and differ at their end": memory("i" * 2999 + "j"),
    "an id in many bytes": memory("茶" * 300),
    "a long text": memory("text", "茶壶是蓝色的" * 1333, context="壶" * 8000, speaker="李" * 5000),
    "a text without a single term": memory("empty", "?!"),
    "a long key and long tags": memory("key", key="k" * 40_000, tags=("t" * 128, "茶" * 128)),
    "long metadata": memory("metadata", metadata={"m" * 9000: "v" * 16_000, "n": [10**30, -1.5e308, 1e-320, True]}),
    "the first and the last instant": memory(
        "instants", observed_at=FIRST, valid_from=FIRST, valid_to=LAST, expires_at=LAST, precision="instant"
    ),
    "the shortest half-life": memory("short", half_life_days=5e-324, confidence=5e-324),
    "the longest half-life": memory("long", half_life_days=1.7e308),
    "long links": memory("links", supersedes=("s" * 9000,), contested_by=(Contest("c" * 9000, 1.0, "r" * 9000),)),
    "control and other odd characters": memory("odd", "\u0000\u0001\u2028\U0010ffff \ufeff‮ tea", user_id="\u0000"),
}


async def test_every_extreme_of_a_memory_is_stored_found_and_given_back(store: MemoryStore) -> None:
    for number, (name, of) in enumerate(EXTREMES.items()):
        put = record(of, unit(number))
        assert await store.commit(NAMESPACE, puts(put, run_id=name)) == number + 1, name
        (got,) = await store.get(NAMESPACE, [of.id])
        assert (got.memory, got.index) == (of, put.index), name
    page = await store.rank(NAMESPACE, search(["tea"], unit(1), limit=50))
    assert page.eligible == len(EXTREMES)
    assert all(0.0 <= hit.score <= 1.0 for hit in page.hits)
    assert {hit.memory.id for hit in page.hits} == {of.id for of in EXTREMES.values()}


@pytest.mark.parametrize("vector", [np.zeros(16, np.float32), np.full(16, np.nan, np.float32)], ids=["zero", "nan"])
async def test_a_vector_without_direction_is_none(store: MemoryStore, vector: np.ndarray) -> None:
    await store.commit(NAMESPACE, puts(record(memory("a"), vector), record(memory("b"), unit(1))))
    first, second = await store.get(NAMESPACE, ["a", "b"])
    assert first.bare is first.mixed is None
    assert second.bare is not None
    page = await store.rank(NAMESPACE, search(vector=unit(1)))
    assert {hit.memory.id: hit.parts.similarity > 0.9 for hit in page.hits} == {"a": False, "b": True}
    if not np.isnan(vector).any():
        assert len((await store.rank(NAMESPACE, search(vector=vector))).hits) == 2


def spoken(name: str, term: str) -> Record:
    return Record(memory=memory(name), index=IndexFields(text=impacts([term])))


async def test_terms_of_any_spelling_are_kept_apart(store: MemoryStore) -> None:
    terms = [
        "a.b",
        "a%2Eb",
        "a%b",
        "a",
        "a.b.c",
        "*",
        "a*",
        "_",
        "^",
        "茶.壶",
        "ａ",
        "\u00e9",
        "e\u0301",
        "\u0000",
        "-1",
        "x:y",
    ]
    await store.commit(NAMESPACE, puts(*(spoken(f"{n:02}", term) for n, term in enumerate(terms))))
    for number, term in enumerate(terms):
        page = await store.rank(NAMESPACE, search([term], by=BY_WORDS, limit=1))
        assert page.hits[0].memory.id == f"{number:02}", term
        second = await store.rank(NAMESPACE, search([term], by=BY_WORDS, limit=2))
        assert second.hits[1].parts.lexical == 0.0, term


async def test_long_keys_of_requests_and_long_ids_of_events_are_kept_apart(store: MemoryStore) -> None:
    long = "k" * 5000
    for number, end in enumerate("ab"):
        changes = puts(record(memory(end)), run_id=f"{long}{end}")
        receipt = Receipt(key=f"{long}{end}", fingerprint=end, answer=b"{}")
        changes = replace(changes, receipt=receipt, events=(event(f"{long}{end}", end, f"{long}{end}"),))
        assert await store.commit(NAMESPACE, changes) == number + 1
    found = await store.receipt(NAMESPACE, f"{long}b")
    assert found is not None
    assert found.fingerprint == "b"
    assert [len(e.id) for e in await store.read(NAMESPACE, "events")] == [5001, 5001]


async def test_values_that_begin_alike_are_told_apart_by_conditions(store: MemoryStore) -> None:
    long = "v" * 5000
    held = [memory(end, metadata={"m": long + end, long: end}) for end in "ab"]
    await store.commit(NAMESPACE, puts(*(record(of) for of in held)))

    async def ids(where: Where) -> list[str]:
        return [r.memory.id for r in await store.scan(NAMESPACE, where, after=None, limit=9)]

    assert await ids(Where(metadata={"m": (long + "b",)})) == ["b"]
    assert await ids(Where(metadata={long: ("a",)})) == ["a"]
    assert await ids(EVERYTHING) == ["a", "b"]


@pytest.mark.parametrize("impact", [0.0039, 0.5, 0.52734375, 0.6180339, 0.999, 1.0])
def test_a_kept_impact_is_near_and_stays_what_it_is(impact: float) -> None:
    assert kept_impact(impact) == pytest.approx(impact, rel=1 / 512)
    assert kept_impact(kept_impact(impact)) == kept_impact(impact)
    assert np.float32(kept_impact(impact)).view(np.uint32) & 0x7FFF == 0


async def test_documents_of_an_earlier_schema_are_written_anew_once(opensearch_place: OpenSearchPlace) -> None:
    opensearch_place.empty()
    before = open_store(opensearch_place.store_url)
    await before.prepare("model-a")
    two = replace(record(memory("two", "茶壶"), unit(1)), bare=unit(2))
    await before.commit(NAMESPACE, puts(record(memory("none")), record(memory("one"), unit(1)), two))
    held = await before.scan(NAMESPACE, Where(), after=None, limit=5)
    await before.aclose()
    opensearch_place.as_before_schema_3()
    after = open_store(opensearch_place.store_url)
    try:
        await after.prepare("model-a")
        for found in (
            await after.scan(NAMESPACE, Where(), after=None, limit=5),
            await after.get(NAMESPACE, ["none", "one", "two"]),
        ):
            assert [(one.memory, one.index) for one in found] == [(one.memory, one.index) for one in held]
            for one, other in zip(found, held, strict=True):
                assert np.array_equal(one.bare, other.bare)
                assert np.array_equal(one.mixed, other.mixed)
        page = await after.rank(NAMESPACE, search(vector=unit(1)))
        assert {hit.memory.id: round(hit.parts.similarity, 3) for hit in page.hits} == {"none": 0, "one": 1, "two": 1}
        changed = replace(two.memory, version=2, content="The kettle.")
        assert await after.commit(NAMESPACE, puts(replace(two, memory=changed), run_id="later")) == 2
    finally:
        await after.aclose()


async def test_what_a_process_of_an_earlier_version_still_writes_is_read_changed_and_erased(
    opensearch_place: OpenSearchPlace, store: MemoryStore
) -> None:
    two = replace(record(memory("two", "茶壶"), unit(1)), bare=unit(2))
    await store.commit(NAMESPACE, puts(record(memory("none")), record(memory("one", "A lamp."), unit(1)), two))

    async def everything() -> list[Any]:
        records = await store.scan(NAMESPACE, Where(), after=None, limit=5)
        records += await store.get(NAMESPACE, ["none", "one", "two"])
        near = await store.neighbours(NAMESPACE, unit(1)[None, :], Where(), 3)
        records += [one.record for found in near for one in found]
        ranked = [await store.rank(NAMESPACE, search(vector=unit(1))), await store.rank(NAMESPACE, search(["lamp"]))]
        of_records = [(one.memory, one.index, _listed(one.bare), _listed(one.mixed)) for one in records]
        return [of_records, [(hit.memory, hit.parts) for page in ranked for hit in page.hits]]

    before = await everything()
    opensearch_place.as_before_schema_3(schema=SCHEMA)
    assert len(opensearch_place.of_before_schema_3()) == 3
    assert await everything() == before
    assert await store.remains(["A lamp."])
    changed = replace(two.memory, version=2, content="The kettle.")
    assert await store.commit(NAMESPACE, puts(replace(two, memory=changed), run_id="later")) == 2
    gone = event("e", "one", "gone", reason="of: A lamp.")
    await store.commit(NAMESPACE, ChangeSet(run=run("gone"), erases=("one",), events=(gone,)))
    assert opensearch_place.holding("A lamp.") == []
    found = await store.scan(NAMESPACE, Where(), after=None, limit=5)
    assert [one.memory.content for one in found] == [before[0][0][0].content, "The kettle."]
    assert len(opensearch_place.of_before_schema_3()) == 1


def _listed(vector: Vector | None) -> list[float] | None:
    return None if vector is None else vector.tolist()


def test_a_column_is_read_with_and_without_what_fills_up_its_end() -> None:
    for length in range(9):
        held = bytes(range(247, 247 + length))
        column = b64encode(held).decode()
        assert unpacked(column) == unpacked(column.rstrip("=")) == held


class Late(Connection):
    """A connection over which access counters arrive no sooner than something has happened."""

    def __init__(self, url: str, before: asyncio.Event) -> None:
        super().__init__(parse(url))
        self.before = before

    async def _send(self, method: str, path: str, body: Any, params: Any, within: float) -> Any:
        if path.endswith("/_mget") and "/access/" in body["ids"][0]:
            await asyncio.wait_for(self.before.wait(), 5)
        return await super()._send(method, path, body, params, within)


async def test_counters_are_on_their_way_while_memories_are_decoded(
    opensearch_place: OpenSearchPlace, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"m{number:02}" for number in range(20)]
    await store.commit(NAMESPACE, puts(*(record(memory(name), unit(n)) for n, name in enumerate(names))))
    await store.log(NAMESPACE, accesses=[Access(memory_id=name, at=START_MS, count=7) for name in names])
    decoded = asyncio.Event()

    def read(columns: Columns) -> Kept:
        decoded.set()
        return kept_in(columns)

    monkeypatch.setattr(hits, "kept_in", read)
    late = OpenSearchStore(Late(opensearch_place.store_url, decoded))
    try:
        found = await late.neighbours(NAMESPACE, np.stack([unit(3), unit(5)]), EVERYTHING, 50)
    finally:
        await late.aclose()
    assert [page[0].record.memory.id for page in found] == ["m03", "m05"]
    for page in found:
        assert {one.record.memory.id: one.record.memory.access_count for one in page} == dict.fromkeys(names, 7)
