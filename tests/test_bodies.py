"""Memories kept decoded, and searches that need no thread: as fresh as the file, and nothing of what is gone."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace

from hindsight_core.models import Memory
from hindsight_core.stores import Access, ChangeSet, Record
from hindsight_core.stores.bodies import LASTING, Bodies
from hindsight_core.stores.connections import Connections
from hindsight_core.stores.residents import SMALL, Residents
from hindsight_core.stores.sqlite import SqliteStore
from samples import NAMESPACE, event, memory, puts, record, run, search, successor, unit

NOW_MS = 1_700_000_000_000
QUERY = search(["kettl"], unit(1))


def connection(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


async def opened(path: Path, count: int = 3) -> tuple[SqliteStore, list[Record]]:
    store = SqliteStore(path)
    records = [record(memory(f"{n:03}"), unit(n)) for n in range(count)]
    await store.commit(NAMESPACE, puts(*records))
    await answered(store)
    return store, records


def residents(store: SqliteStore) -> Residents:
    return store._residents  # pyright: ignore[reportPrivateUsage] - nothing else tells what is in memory


async def answered(store: SqliteStore) -> dict[str, Memory]:
    return {hit.memory.id: hit.memory for hit in (await store.rank(NAMESPACE, QUERY)).hits}


def erasing(memory_id: str) -> ChangeSet:
    return ChangeSet(run=run("gone"), erases=(memory_id,), events=(event("gone", memory_id),))


@pytest.mark.parametrize("here", [True, False])
async def test_a_search_answers_what_was_changed_counted_and_erased_since_whoever_did_it(
    tmp_path: Path, here: bool
) -> None:
    store, records = await opened(tmp_path / "a.db")
    other = store if here else SqliteStore(tmp_path / "a.db")
    assert await answered(store) == {each.memory.id: each.memory for each in records}
    await other.log(NAMESPACE, accesses=[Access(memory_id="000", at=NOW_MS, count=2)])
    found = await answered(store)
    assert [found[name].access_count for name in ("000", "001")] == [2, 0]
    await other.commit(NAMESPACE, puts(successor(records[0], confidence=0.25), run_id="2"))
    found = await answered(store)
    assert (found["000"].confidence, found["000"].access_count, found["000"].version) == (0.25, 2, 2)
    await other.log(NAMESPACE, accesses=[Access(memory_id="000", at=NOW_MS + 1)])
    assert (await answered(store))["000"].access_count == 3
    await other.commit(NAMESPACE, erasing("000"))
    if here:  # where it was erased by another process, the next search is what tells of it
        assert not residents(store).bodies.size
    assert set(await answered(store)) == {"001", "002"}
    await store.aclose()
    await other.aclose()


async def test_what_was_read_long_ago_is_not_held_though_nobody_searches_its_namespace_again(tmp_path: Path) -> None:
    store, _ = await opened(tmp_path / "a.db")
    await store.aclose()
    rows = list(rows_of(tmp_path / "a.db").values())
    at = 0.0
    bodies = Bodies(clock=lambda: at)
    file = connection(tmp_path / "a.db")
    bodies.read(file, rows[:2])
    held = bodies.size
    at = LASTING / 2
    bodies.read(file, rows[:1])
    assert bodies.size == held
    at = LASTING + 1
    bodies.read(file, rows[2:])
    assert 0 < bodies.size < held
    file.close()


def rows_of(path: Path) -> dict[str, int]:
    file = connection(path)
    found = {name: row for row, name in file.execute("SELECT row, id FROM memories")}
    file.close()
    return found


async def test_what_is_known_is_not_read_again_and_the_oldest_go_when_all_are_too_many(tmp_path: Path) -> None:
    store, records = await opened(tmp_path / "a.db", 40)
    await store.aclose()
    rows = list(rows_of(tmp_path / "a.db").values())
    file, bodies = connection(tmp_path / "a.db"), Bodies(limit=30_000)
    read: list[str] = []
    file.set_trace_callback(lambda text: read.append(text) if "FROM bodies" in text else None)
    assert list(bodies.read(file, rows[:4]).values()) == [each.memory for each in records[:4]]
    assert bodies.read(file, rows[:4])[rows[3]] == records[3].memory
    assert len(read) == 1
    assert len(bodies.read(file, rows)) == 40
    assert len(read) == 2
    bodies.read(file, rows[-3:])
    assert len(read) == 2
    bodies.read(file, rows[:3])
    assert len(read) == 3
    bodies.drop(rows[-1:])
    bodies.read(file, rows[-1:])
    assert len(read) == 4
    file.close()


async def test_what_is_being_read_while_all_is_forgotten_is_not_kept(tmp_path: Path) -> None:
    store, _ = await opened(tmp_path / "a.db")
    await store.aclose()
    rows = list(rows_of(tmp_path / "a.db").values())
    file, bodies = connection(tmp_path / "a.db"), Bodies()
    read: list[str] = []

    def erase_meanwhile(text: str) -> None:
        if "FROM bodies" in text:
            read.append(text)
            if len(read) == 1:
                bodies.clear()

    file.set_trace_callback(erase_meanwhile)
    assert len(bodies.read(file, rows)) == 3
    bodies.read(file, rows)
    assert len(read) == 2
    bodies.read(file, rows)
    assert len(read) == 2
    file.close()


async def test_a_namespace_is_at_hand_unless_it_is_in_use_large_much_changed_or_not_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, records = await opened(tmp_path / "a.db")
    file, held = connection(tmp_path / "a.db"), Residents(limit=1 << 20)

    def at_hand() -> bool:
        with held.at_hand(file, NAMESPACE) as resident:
            return resident is not None

    assert not at_hand()
    with held.caught_up(file, NAMESPACE):
        assert not at_hand()
    assert at_hand()
    monkeypatch.setattr("hindsight_core.stores.residents.SMALL", 2)
    assert not at_hand()
    monkeypatch.setattr("hindsight_core.stores.residents.SMALL", SMALL)
    await store.commit(NAMESPACE, puts(successor(records[0], confidence=0.5), run_id="2"))
    with held.at_hand(file, NAMESPACE) as resident:
        assert resident is not None
        assert resident["confidence"].tolist().count(0.5) == 1
    more = [record(memory(f"more-{n}"), unit(n)) for n in range(9)]
    await store.commit(NAMESPACE, puts(*more, run_id="3"))
    assert not at_hand()
    with held.caught_up(file, NAMESPACE):
        pass
    assert at_hand()
    await store.commit(NAMESPACE, ChangeSet(run=run("4"), erases=tuple(each.memory.id for each in more)))
    assert not at_hand()
    file.close()
    await store.aclose()


async def test_a_search_that_meets_a_lock_waits_for_it_elsewhere_than_on_the_event_loop(tmp_path: Path) -> None:
    store, _ = await opened(tmp_path / "a.db")
    before = await store.head(NAMESPACE)
    await store.aclose()
    store = SqliteStore(tmp_path / "a.db")
    await store.rank(NAMESPACE, QUERY)
    with residents(store).caught_up(connection(tmp_path / "a.db"), NAMESPACE):
        search = asyncio.ensure_future(store.rank(NAMESPACE, QUERY))
        # The loop goes on meanwhile: this call is answered although that one is not.
        assert await store.head(NAMESPACE) == before
        assert not search.done()
    assert len((await search).hits) == 3
    await store.aclose()


def test_what_would_wait_for_a_lock_is_not_done_at_once(tmp_path: Path) -> None:
    def create(file: sqlite3.Connection) -> None:
        file.execute("CREATE TABLE t (n)")

    connections = Connections(tmp_path / "a.db", timeout=30.0, create=create)

    def count(file: sqlite3.Connection) -> int:
        (found,) = file.execute("SELECT count(*) FROM t").fetchone()
        return int(found)

    assert connections.read_at_once(count) is None
    assert connections.read(count) == 0
    assert connections.read_at_once(count) == 0
    other = connection(tmp_path / "a.db")
    other.execute("BEGIN EXCLUSIVE")
    assert connections.read_at_once(count) is None
    other.execute("ROLLBACK")
    other.close()
    assert connections.read_at_once(count) == 0
    connections.close()
    assert connections.read_at_once(count) is None


async def test_a_head_tells_of_every_commit_before_it(tmp_path: Path) -> None:
    store, records = await opened(tmp_path / "a.db")
    other = SqliteStore(tmp_path / "a.db")
    for n in range(3):
        head = await store.head(NAMESPACE)
        assert head == await store.head(NAMESPACE) == await other.head(NAMESPACE)
        assert (head.sequence, head.memories) == (1 + n, 3 + n)
        assert head.speakers == frozenset(f"speaker {i}" for i in range(n))
        await answered(store)
        new = replace(records[0].memory, id=f"9{n}", speaker=f"Speaker {n}")
        await other.commit(NAMESPACE, puts(record(new, unit(n)), run_id=f"r{n}"))
    await store.aclose()
    await other.aclose()
