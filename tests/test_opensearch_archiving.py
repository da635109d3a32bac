"""Searches beside changes that only archive memories: neither waited for nor surveyed anew, and right all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from msgspec.structs import replace

from hindsight_core.indexing import index_fields
from hindsight_core.stores import ChangeSet, Query, RankedPage, Record, Where
from hindsight_core.stores.opensearch.address import parse
from hindsight_core.stores.opensearch.connection import Connection
from hindsight_core.stores.opensearch.heads import Heads, State
from hindsight_core.stores.opensearch.indices import Indices
from hindsight_core.stores.opensearch.store import OpenSearchStore
from opensearch_place import OpenSearchPlace
from reference import eligible, ranked
from samples import DAY, EVERYTHING, LATER, NAMESPACE, START, memory, puts, record, run, search, successor, unit

ACTIVE = Where(statuses=("active",))
ARCHIVED = Where(statuses=("archived",))
# More than a survey names as promising.
MANY = 200


class Watched(Connection):
    """A connection that keeps what is sent over it, and holds documents of memories back until it is `let_go`."""

    def __init__(self, url: str) -> None:
        super().__init__(parse(url))
        self.sent: list[tuple[str, bytes]] = []
        self.writing = self.at_once = 0
        self.before_counts: Callable[[], Awaitable[object]] | None = None
        self.arrived = asyncio.Event()
        self.let_go = asyncio.Event()
        self.let_go.set()

    async def _send(self, method: str, path: str, body: Any, params: Any, within: float) -> Any:
        written = body if isinstance(body, bytes) else repr(body).encode()
        self.sent.append((path, written))
        if path == "/_bulk" and b'-memories"' in written:
            self.arrived.set()
            await self.let_go.wait()
        if path == "/_msearch" and self.before_counts is not None:
            happens, self.before_counts = self.before_counts, None
            await happens()
        self.writing += path == "/_bulk"
        self.at_once = max(self.at_once, self.writing)
        try:
            return await super()._send(method, path, body, params, within)
        finally:
            self.writing -= path == "/_bulk"

    def took(self) -> list[tuple[str, bytes]]:
        """What was sent since the last time."""
        sent, self.sent = self.sent, []
        return sent


Open = Callable[..., Awaitable[tuple[OpenSearchStore, Watched]]]


@pytest.fixture
async def opened(opensearch_place: OpenSearchPlace) -> AsyncGenerator[Open]:
    """Opens the one place once more; the first one finds it empty."""
    opensearch_place.empty()
    async with AsyncExitStack() as stack:

        async def open_it(options: str = "", *, patience: float = 30.0) -> tuple[OpenSearchStore, Watched]:
            connection = Watched(opensearch_place.store_url + options)
            stack.push_async_callback(connection.aclose)
            store = OpenSearchStore(connection, patience=patience)
            await store.prepare("model-a")
            return store, connection

        yield open_it


def archived(of: Record) -> Record:
    return successor(of, status="archived", status_reason="expired", forgotten_at=LATER)


def many(count: int) -> list[Record]:
    """Memories without vectors, the later ones the newer."""
    return [record(memory(f"{n:04}", observed_at=START - DAY * (count - n))) for n in range(count)]


def right(page: RankedPage, records: Iterable[Record], query: Query) -> bool:
    """Whether a page is what the plain definition says of these memories."""
    of = list(records)
    hits = [memory_id for memory_id, _, _ in ranked(of, query)][: query.limit]
    counts = (len(eligible(of, query.scope)), len(eligible(of, query.where)))
    return [hit.memory.id for hit in page.hits] == hits and (page.in_scope, page.eligible) == counts


async def head_of(connection: Connection) -> State:
    return await Heads(Indices(connection)).read(NAMESPACE)


HOME = record(memory("home", "I live in Leeds."), unit(1))
PET = record(memory("pet", "My cat is called Biscuit.", expires_at=LATER), unit(2))
PLACE = replace(archived(HOME), memory=replace(archived(HOME).memory, content="I live in York."))
OTHERS = {
    "another text": puts(replace(PLACE, index=index_fields(PLACE.memory))),
    "another life": puts(replace(archived(HOME), memory=replace(archived(HOME).memory, confidence=0.5))),
    "other terms": puts(replace(archived(HOME), index=PET.index)),
    "a new one": puts(archived(HOME), record(memory("new", status="archived"))),
    "one that stays": puts(archived(HOME), successor(PET, confidence=0.5)),
    "one that is erased": ChangeSet(run=run("run"), puts=(archived(HOME),), erases=("pet",)),
    "one erased elsewhere": ChangeSet(run=run("run"), puts=(archived(HOME),), tombstones=("pet",)),
}


async def test_a_search_goes_on_beside_a_change_that_only_archives(opened: Open) -> None:
    """Nothing waits for it but who plans a change, and everything acknowledged before it is found."""
    (writer, held), (reader, watched) = await opened(), await opened()
    await writer.commit(NAMESPACE, puts(HOME, PET, run_id="first"), searchable=False)
    held.let_go.clear()
    archiving = asyncio.create_task(writer.commit(NAMESPACE, puts(archived(HOME), archived(PET))))
    held.arrived.clear()
    await held.arrived.wait()
    watched.took()
    for _ in range(3):
        page = await reader.rank(NAMESPACE, search(["live"], unit(1), where=ACTIVE))
        assert {hit.memory.id for hit in page.hits} == {"home", "pet"}
        assert (await reader.head(NAMESPACE, waiting=False)).sequence == 1
        (pet,) = await reader.get(NAMESPACE, ["pet"], waiting=False)
        assert pet.memory.id == "pet"
    assert not [path for path, _ in watched.took() if path == "/_bulk"]
    planning = asyncio.create_task(reader.head(NAMESPACE))
    held.let_go.set()
    assert await archiving == 2
    assert (await planning).sequence == 2
    page = await reader.rank(NAMESPACE, search(["live"], unit(1), where=ACTIVE))
    assert (page.hits, page.in_scope, page.eligible) == ((), 2, 0)


async def test_a_search_finishes_what_was_left_behind(opened: Open) -> None:
    (writer, held), (reader, _) = await opened(), await opened(patience=0.0)
    await writer.commit(NAMESPACE, puts(HOME, PET, run_id="first"))
    held.let_go.clear()
    archiving = asyncio.create_task(writer.commit(NAMESPACE, puts(archived(HOME), run_id="second")))
    held.arrived.clear()
    await held.arrived.wait()
    page = await reader.rank(NAMESPACE, search(where=ACTIVE))
    assert [hit.memory.id for hit in page.hits] == ["pet"]
    held.let_go.set()
    assert await archiving == 2


@pytest.mark.parametrize("changes", OTHERS.values(), ids=OTHERS)
async def test_no_search_goes_on_beside_a_change_that_does_more(opened: Open, changes: ChangeSet) -> None:
    (writer, held), (reader, _) = await opened(), await opened(patience=0.0)
    await writer.commit(NAMESPACE, puts(HOME, PET, run_id="first"))
    held.let_go.clear()
    held.arrived.clear()
    writing = asyncio.create_task(writer.commit(NAMESPACE, changes))
    await held.arrived.wait()
    state = await head_of(held)
    assert state.intent is not None
    assert not state.intent.piecemeal
    assert (await reader.head(NAMESPACE, waiting=False)).sequence == 2
    held.let_go.set()
    await writing
    assert (await head_of(held)).footing == (await head_of(held)).version


async def test_a_large_change_that_only_archives_leaves_processors_to_searches(opened: Open) -> None:
    store, connection = await opened()
    large = [record(memory(f"{n:04}", f"{n} " + "The kettle is blue. " * 300)) for n in range(200)]
    await store.commit(NAMESPACE, puts(*large))
    assert connection.at_once > 1
    connection.at_once = 0
    await store.commit(NAMESPACE, puts(*(archived(r) for r in large), run_id="second"))
    assert connection.at_once == 1


async def test_archiving_leaves_the_footing_and_an_earlier_version_knows_of_none(opened: Open) -> None:
    store, connection = await opened()
    await store.commit(NAMESPACE, puts(HOME, PET))
    first = await head_of(connection)
    assert first.footing == first.version
    await store.commit(NAMESPACE, puts(archived(HOME)))
    second = await head_of(connection)
    assert (second.footing, second.version) == (first.footing, first.version + 1)
    written_earlier = replace(second, basis=None)
    assert written_earlier.footing == written_earlier.version


async def test_what_another_process_archives_changes_counts_and_neither_terms_nor_candidates(opened: Open) -> None:
    """The next page is right at once, and takes no second look at the namespace; one of another length neither."""
    (writer, _), (reader, watched) = await opened(), await opened("?exact_below=0")
    records = {r.memory.id: r for r in many(MANY)}
    await writer.commit(NAMESPACE, puts(*records.values()))
    queries = [search(["kettl"], unit(1), where=ACTIVE, limit=limit) for limit in (3, 5)]
    for query in queries * 2:
        assert right(await reader.rank(NAMESPACE, query), records.values(), query)
    for newest in ("0199", "0198"):
        records[newest] = archived(records[newest])
        await writer.commit(NAMESPACE, puts(records[newest], run_id=newest))
        watched.took()
        for query in queries:
            assert right(await reader.rank(NAMESPACE, query), records.values(), query)
        sent = b"".join(body for _, body in watched.took())
        assert b'"moment"' not in sent
        assert b"'aggs'" not in sent


async def test_no_count_is_below_what_was_found_when_more_is_archived_before_it_is_counted(opened: Open) -> None:
    (writer, _), (reader, watched) = await opened(), await opened("?exact_below=0")
    await writer.commit(NAMESPACE, puts(HOME, PET))
    query = search(["violin"], unit(1), scope=ACTIVE)
    for _ in range(3):
        await reader.rank(NAMESPACE, query)
    await writer.commit(NAMESPACE, puts(archived(HOME), run_id="second"))
    watched.before_counts = lambda: writer.commit(NAMESPACE, puts(archived(PET), run_id="third"))
    page = await reader.rank(NAMESPACE, query)
    assert watched.before_counts is None
    assert [hit.memory.id for hit in page.hits] == ["pet"]
    assert page.in_scope >= page.eligible >= 1


@pytest.mark.parametrize("at_once", [5, 15, 130])
async def test_when_too_many_candidates_are_archived_others_take_their_places(opened: Open, at_once: int) -> None:
    (writer, _), (reader, _) = await opened(), await opened("?exact_below=0")
    records = {r.memory.id: r for r in many(MANY)}
    await writer.commit(NAMESPACE, puts(*records.values()))
    queries = [search(["violin"], unit(1), where=ACTIVE, limit=limit) for limit in (3, 5)]
    for query in queries * 2:
        await reader.rank(NAMESPACE, query)
    newest = sorted(records, reverse=True)[:130]
    for start in range(0, len(newest), at_once):
        gone = [archived(records[name]) for name in newest[start : start + at_once]]
        records.update((r.memory.id, r) for r in gone)
        await writer.commit(NAMESPACE, puts(*gone, run_id=str(start)))
        for query in queries:
            assert right(await reader.rank(NAMESPACE, query), records.values(), query)


async def test_who_looks_for_archived_memories_finds_the_newest_of_them(opened: Open) -> None:
    (writer, _), (reader, _) = await opened(), await opened("?exact_below=0")
    records = {r.memory.id: r if r.memory.id > "0150" else archived(r) for r in many(MANY)}
    await writer.commit(NAMESPACE, puts(*(replace(r, memory=replace(r.memory, version=1)) for r in records.values())))
    query = search(["violin"], unit(1), scope=EVERYTHING, where=ARCHIVED, limit=3)
    for _ in range(3):
        await reader.rank(NAMESPACE, query)
    records["0199"] = archived(records["0199"])
    await writer.commit(NAMESPACE, puts(records["0199"], run_id="second"))
    assert right(await reader.rank(NAMESPACE, query), records.values(), query)


async def test_a_change_after_archived_memories_is_surveyed(opened: Open) -> None:
    (writer, _), (reader, _) = await opened(), await opened("?exact_below=0")
    records = {r.memory.id: r for r in many(MANY)}
    await writer.commit(NAMESPACE, puts(*records.values()))
    query = search(["violin"], unit(1), where=ACTIVE, limit=3)
    for _ in range(3):
        await reader.rank(NAMESPACE, query)
    records["0199"] = archived(records["0199"])
    await writer.commit(NAMESPACE, puts(records["0199"], run_id="second"))
    records["9999"] = record(memory("9999"))
    await writer.commit(NAMESPACE, puts(records["9999"], run_id="third"))
    assert right(await reader.rank(NAMESPACE, query), records.values(), query)
