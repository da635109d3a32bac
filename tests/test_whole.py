"""Readings from end to end: nothing twice, nothing left out, nothing that was erased meanwhile."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from msgspec.structs import replace

from hindsight_core.caller import Caller
from hindsight_core.indexing import index_fields
from hindsight_core.requests import ExportRequest
from hindsight_core.stores import ChangeSet, MemoryStore, Record, Where
from hindsight_core.transfer import Transfer
from samples import EVERYTHING, NAMESPACE, event, memory, puts, random_records, record, run, successor, unit

PAGE = 5


@pytest.fixture(autouse=True)
def short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hindsight_core.stores.sqlite._PAGE", PAGE)
    monkeypatch.setattr("hindsight_core.stores.opensearch.moments.PAGE", PAGE)


def numbered(count: int, context: str | None = None) -> list[Record]:
    return [record(memory(f"m{n:02}", context=context), unit(n)) for n in range(count)]


async def test_all_that_satisfy_the_conditions_come_in_order_of_id(store: MemoryStore) -> None:
    records = sorted(random_records(3, 23), key=lambda one: one.memory.id)
    await store.commit(NAMESPACE, puts(*records))
    active = Where(statuses=("active",))
    for where in (EVERYTHING, active):
        expected = await store.scan(NAMESPACE, where, after=None, limit=100)
        pages = [page async for page in store.whole(NAMESPACE, where)]
        read = [one for page in pages for one in page]
        assert [(one.memory, one.index) for one in read] == [(one.memory, one.index) for one in expected]
        assert [one.mixed is None for one in read] == [one.mixed is None for one in expected]
        assert all(0 < len(page) <= PAGE for page in pages)
    bare = [one async for page in store.whole(NAMESPACE, EVERYTHING, vectors=False) for one in page]
    assert [one.memory for one in bare] == [one.memory for one in records]
    assert all(one.mixed is one.bare is None for one in bare)
    assert [page async for page in store.whole("nobody", EVERYTHING)] == []


async def after_a_page(store: MemoryStore, changes: ChangeSet) -> list[Record]:
    """What is read when a change happens after the first page."""
    found: list[Record] = []
    async with aclosing(store.whole(NAMESPACE, EVERYTHING)) as pages:
        async for page in pages:
            if not found:
                await store.commit(NAMESPACE, changes)
            found += page
    return found


async def test_what_was_there_all_the_while_is_read_once_whatever_changes_meanwhile(store: MemoryStore) -> None:
    records = numbered(18)
    await store.commit(NAMESPACE, puts(*records))
    changed = [successor(one, confidence=0.5) for one in (records[1], records[9], records[17])]
    new = [record(memory(name)) for name in ("a", "m07b", "z")]
    read = [one.memory.id for one in await after_a_page(store, puts(*changed, *new, run_id="meanwhile"))]
    assert read == sorted(set(read))
    assert {one.memory.id for one in records} <= set(read)


async def test_what_is_erased_between_two_pages_is_not_in_the_next_nor_is_its_text_beside_others(
    store: MemoryStore,
) -> None:
    records = numbered(16, "The safe opens with 4711.")
    await store.commit(NAMESPACE, puts(*records, record(memory("m11b", "The safe opens with 4711."))))
    cleared = [successor(one, context=None) for one in records]
    cleared = [replace(one, index=index_fields(one.memory)) for one in cleared]
    erasing = ChangeSet(run=run("e"), puts=tuple(cleared), erases=("m11b", "m15"))
    erasing = replace(erasing, puts=tuple(one for one in cleared if one.memory.id != "m15"))
    read = await after_a_page(store, erasing)
    assert [one.memory.id for one in read] == [f"m{n:02}" for n in range(15)]
    assert all(one.memory.context is None for one in read[PAGE:])


async def test_an_export_holds_each_memory_with_the_history_that_made_it(store: MemoryStore, caller: Caller) -> None:
    """An event of a later version would tell of a memory that the export does not hold."""

    async def exported() -> AsyncGenerator[bytes]:
        async for line in Transfer(store, None).export(ExportRequest(history=True, namespace=NAMESPACE), caller):
            yield line

    records = numbered(12)
    made = tuple(event(f"e{n:02}", one.memory.id, after=one.memory) for n, one in enumerate(records))
    await store.commit(NAMESPACE, replace(puts(*records), events=made))
    lines: list[bytes] = []
    async for line in exported():
        lines.append(line)
        if len(lines) == 2:
            later = [successor(one, confidence=0.5) for one in records]
            told = tuple(event(f"f{n:02}", one.memory.id, "later", after=one.memory) for n, one in enumerate(later))
            await store.commit(NAMESPACE, replace(puts(*later, run_id="later"), events=told))
    for line in lines:
        if line.startswith(b'{"memory"'):
            versions = line.count(b'"version":2')
            # Either as it was, with one event, or as it is by now, with both.
            assert (versions, line.count(b'"action":"add"')) in {(0, 1), (2, 2)}
    assert sum(line.startswith(b'{"memory"') for line in lines) == 12
