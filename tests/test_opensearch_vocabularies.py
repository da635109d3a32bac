"""Words of questions that are not counted any more, since the process holds a vocabulary: they weigh the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from msgspec.structs import replace

from hindsight_core.errors import StoreUnavailable
from hindsight_core.indexing import index_fields
from hindsight_core.ranking import Weights, formula
from hindsight_core.stores import ChangeSet, Query, Record
from hindsight_core.stores.opensearch import vocabularies
from hindsight_core.stores.opensearch.address import parse
from hindsight_core.stores.opensearch.connection import Connection
from hindsight_core.stores.opensearch.store import OpenSearchStore
from hindsight_core.stores.opensearch.vocabularies import Vocabularies, Vocabulary
from opensearch_place import OpenSearchPlace
from samples import LATER, NAMESPACE, WORDS, memory, puts, random_records, record, run, search, successor

BY_WORDS = formula(calibration=(0.0, 0.6), weights=Weights(alpha=0.0, offset=0.0))


class Watched(Connection):
    """A connection that tells what was asked over it, and fails where it is told to."""

    def __init__(self, url: str) -> None:
        super().__init__(parse(url))
        self.sent: list[bytes] = []
        self.failing = self.holding = b"nothing"

    async def _send(self, method: str, path: str, body: Any, params: Any, within: float) -> Any:
        written = body if isinstance(body, bytes) else repr(body).encode()
        self.sent.append(written)
        if self.failing in written:
            raise StoreUnavailable("OpenSearch is gone.", remedy="Look for it.")
        if self.holding in written:
            await asyncio.Event().wait()
        return await super()._send(method, path, body, params, within)

    def counted(self) -> int:
        """How often terms were counted since the last time."""
        sent, self.sent = self.sent, []
        return sum(b"'filters': {'filters'" in one for one in sent)


class Opened:
    """A store on the place, with questions that nobody has asked it before."""

    def __init__(self, url: str) -> None:
        self.connection = Watched(url)
        self.store = OpenSearchStore(self.connection)
        self.asked = 0

    @property
    def vocabularies(self) -> Vocabularies:
        return self.store.vocabularies

    async def ask(self, *terms: str) -> dict[str, float]:
        """The score of each memory by the words of a question, among them one that is new to the store."""
        self.asked += 1
        query: Query = search([*terms, f"unheard{self.asked}"], by=BY_WORDS, limit=100)
        return {hit.memory.id: hit.score for hit in (await self.store.rank(NAMESPACE, query)).hits}

    async def learn(self) -> None:
        """Ask until the namespace is being read, and wait for the end of that."""
        for _ in range(3):
            await self.ask(*WORDS)
            await self.vocabularies.settle()
        self.connection.counted()

    async def commit(self, changes: ChangeSet) -> None:
        await self.store.commit(NAMESPACE, changes)


@pytest.fixture
async def stack() -> AsyncGenerator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def two(
    opensearch_place: OpenSearchPlace, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> tuple[Opened, Opened]:
    """Two processes on the same place, which is empty; the first one writes. None takes a head for granted."""
    opensearch_place.empty()
    monkeypatch.setattr("hindsight_core.stores.opensearch.store.FRESH", -1.0)
    opened: list[Opened] = []
    for _ in range(2):
        one = Opened(opensearch_place.store_url)
        stack.push_async_callback(one.store.aclose)
        await one.store.prepare("model-a")
        opened.append(one)
    return opened[0], opened[1]


async def fresh(url: str, *terms: str) -> dict[str, float]:
    """What a process says that counts."""
    one = Opened(url)
    try:
        found = await one.ask(*terms)
        assert one.connection.counted() == 1
        return found
    finally:
        await one.store.aclose()


def changed(of: Record, text: str) -> Record:
    put = successor(of, content=text)
    return replace(put, index=index_fields(put.memory))


RECORDS = random_records(7, 40)
RANKED = [one for one in RECORDS if one.memory.memory_type != "working"]
CHANGES: dict[str, ChangeSet] = {
    "a new memory": puts(record(memory("new", "A violin and another violin.")), run_id="1"),
    "working memory": puts(record(memory("working", "The violin.", memory_type="working")), run_id="2"),
    "another text": puts(changed(RANKED[0], "The harbour lamp."), run_id="3"),
    "the same text": puts(successor(RANKED[1], confidence=0.25), run_id="4"),
    "archived": puts(successor(RANKED[2], status="archived", forgotten_at=LATER), run_id="5"),
    "no longer ranked": puts(successor(RANKED[3], memory_type="working"), run_id="6"),
    "erased": ChangeSet(run=run("7"), erases=(RANKED[4].memory.id, RANKED[5].memory.id)),
    "written and erased at once": ChangeSet(
        run=run("8"), puts=(successor(RANKED[6], confidence=0.75),), erases=(RANKED[6].memory.id,)
    ),
}


async def test_once_a_namespace_is_read_its_words_are_not_counted_and_weigh_the_same(
    two: tuple[Opened, Opened], opensearch_place: OpenSearchPlace
) -> None:
    one, _ = two
    await one.commit(puts(*RECORDS))
    await one.ask(*WORDS)
    await one.ask(*WORDS)
    assert one.connection.counted() == 2
    await one.vocabularies.settle()
    for question in (WORDS, WORDS[:3], ["kettle"], []):
        assert await one.ask(*question) == await fresh(opensearch_place.store_url, *question)
    assert one.connection.counted() == 0


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_a_vocabulary_follows_the_changes_of_its_own_process_without_asking(
    two: tuple[Opened, Opened], opensearch_place: OpenSearchPlace, change: ChangeSet
) -> None:
    one, _ = two
    await one.commit(puts(*RECORDS))
    await one.learn()
    await one.commit(change)
    one.connection.counted()
    found = await one.ask(*WORDS)
    assert not any(b"changed" in sent for sent in one.connection.sent)
    assert one.connection.counted() == 0
    assert found == await fresh(opensearch_place.store_url, *WORDS)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_a_vocabulary_follows_the_changes_of_other_processes(
    two: tuple[Opened, Opened], opensearch_place: OpenSearchPlace, change: ChangeSet
) -> None:
    one, other = two
    await one.commit(puts(*RECORDS))
    await other.learn()
    await one.commit(change)
    known = other.vocabularies.has(NAMESPACE)
    found = await other.ask(*WORDS)
    # What has gone out of sight is not told by what is there: the words are counted, and the namespace read anew.
    gone = bool(change.erases) or change is CHANGES["no longer ranked"]
    assert (known, other.vocabularies.has(NAMESPACE)) == (True, not gone)
    assert other.connection.counted() == gone
    assert found == await fresh(opensearch_place.store_url, *WORDS)
    await other.learn()
    assert await other.ask(*WORDS) == found
    assert other.connection.counted() == 0


async def test_changes_of_several_processes_in_turn_leave_the_same_weights(
    two: tuple[Opened, Opened], opensearch_place: OpenSearchPlace
) -> None:
    one, other = two
    await one.commit(puts(*RECORDS))
    await one.learn()
    await other.learn()
    for number in range(6):
        writer = (one, other)[number % 2]
        await writer.commit(puts(record(memory(f"n{number}", f"{WORDS[number]} {WORDS[-number]}")), run_id=f"{number}"))
        expected = await fresh(opensearch_place.store_url, *WORDS)
        assert await one.ask(*WORDS) == expected
        assert await other.ask(*WORDS) == expected
    assert one.connection.counted() == other.connection.counted() == 0


async def test_after_many_changes_of_others_words_are_counted_and_the_namespace_is_read_anew(
    two: tuple[Opened, Opened], opensearch_place: OpenSearchPlace
) -> None:
    one, other = two
    await one.commit(puts(*RECORDS))
    await other.learn()
    for amount, counts in ((vocabularies.AT_ONCE, 0), (vocabularies.AT_ONCE + 1, 1)):
        await one.commit(
            puts(*(record(memory(f"{amount}-{n}", WORDS[n % 9])) for n in range(amount)), run_id=f"{amount}")
        )
        assert await other.ask(*WORDS) == await fresh(opensearch_place.store_url, *WORDS)
        assert other.connection.counted() == counts
    await other.learn()
    assert other.vocabularies.has(NAMESPACE)
    assert await other.ask(*WORDS) == await fresh(opensearch_place.store_url, *WORDS)


async def test_what_changes_while_a_namespace_is_read_is_known_afterwards(
    two: tuple[Opened, Opened], opensearch_place: OpenSearchPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vocabularies, "_PAGE", 5)
    one, other = two
    await one.commit(puts(*RECORDS))
    for name in ("a new memory", "another text", "the same text"):
        await other.ask(*WORDS)
        await other.ask(*WORDS)
        await one.commit(CHANGES[name])
    await other.vocabularies.settle()
    assert other.vocabularies.has(NAMESPACE)
    assert await other.ask(*WORDS) == await fresh(opensearch_place.store_url, *WORDS)


async def test_a_reading_that_fails_costs_nothing_and_is_tried_again(two: tuple[Opened, Opened]) -> None:
    one, _ = two
    await one.commit(puts(*RECORDS))
    expected = await one.ask(*WORDS)
    one.connection.failing = b"'size': 1000"
    await one.learn()
    assert not one.vocabularies.has(NAMESPACE)
    one.connection.failing = b"nothing"
    await one.learn()
    assert await one.ask(*WORDS) == expected
    assert one.connection.counted() == 0


async def test_documents_of_an_earlier_version_are_counted(
    two: tuple[Opened, Opened], opensearch_place: OpenSearchPlace
) -> None:
    one, other = two
    await one.commit(puts(*RECORDS))
    opensearch_place.as_before_schema_3(schema=2)
    await other.learn()
    assert not other.vocabularies.has(NAMESPACE)
    assert await other.ask(*WORDS) == await fresh(opensearch_place.store_url, *WORDS)


async def test_a_process_holds_so_many_memories_and_no_more(
    two: tuple[Opened, Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = two
    monkeypatch.setattr(vocabularies, "_MEMORIES", 45)
    await one.commit(puts(*RECORDS))
    await one.learn()
    assert one.vocabularies.has(NAMESPACE)
    await one.commit(puts(*(record(memory(f"more-{n}")) for n in range(20)), run_id="more"))
    assert not one.vocabularies.has(NAMESPACE)
    await one.learn()
    assert not one.vocabularies.has(NAMESPACE)


async def test_a_store_that_is_closed_reads_no_further(two: tuple[Opened, Opened]) -> None:
    one, _ = two
    await one.commit(puts(*RECORDS))
    one.connection.holding = b"'size': 1000"
    await one.ask(*WORDS)
    await one.ask(*WORDS)
    await one.store.aclose()
    await one.vocabularies.settle()
    assert not one.vocabularies.has(NAMESPACE)


def test_a_vocabulary_counts_each_memory_once_for_each_of_its_terms() -> None:
    of = Vocabulary(1, 1)
    of.put("a", ["tea", "kettle"])
    of.put("b", ["tea", ""])
    of.put("a", ["tea", "lamp"])
    of.drop("nobody")
    assert (len(of), of.holding("tea"), of.holding("kettle"), of.holding("lamp"), of.holding("")) == (2, 2, 0, 1, 0)
    of.drop("a")
    assert (len(of), of.holding("tea"), of.holding("lamp")) == (1, 1, 0)
