"""Another model's vectors come while a store is used: nothing is lost, nothing is mixed, and a kill costs nothing."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from hindsight_core.errors import ConfigurationError, StoreUnavailable
from hindsight_core.indexing import index_fields, mix
from hindsight_core.lexical import tokens
from hindsight_core.models import Memory
from hindsight_core.stores import ChangeSet, MemoryStore, Record, Vector, open_store
from opensearch_place import OpenSearchPlace
from samples import EVERYTHING, LATER, NAMESPACE, memory, puts, random_records, run, search, successor

OLD, NEW = "old@1/16", "new@1/24"
NEW_DIMENSION = 24


def vector(text: str, dimension: int) -> Vector:
    """A model: one direction for each text."""
    seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
    found = np.random.default_rng([seed, dimension]).standard_normal(dimension).astype(np.float32)
    return (found / np.linalg.norm(found)).astype(np.float32)


def record_of(of: Memory, dimension: int, model: str) -> Record:
    """A memory as a model of this dimension stores it."""
    if of.memory_type == "working":
        return Record(memory=of, index=index_fields(of))
    bare = vector(of.embedded_text, dimension)
    mixed = mix(bare, [vector(of.context, dimension)]) if of.context else bare
    return Record(memory=replace(of, embedding_model=model), index=index_fields(of), bare=bare, mixed=mixed)


def old(of: Memory) -> Record:
    return record_of(of, 16, OLD)


def new(of: Memory) -> Record:
    return record_of(of, NEW_DIMENSION, NEW)


class Embeds:
    """The new model; `between` happens before it embeds its `nth` batch, and `asked` is all it was given."""

    def __init__(self, between: Callable[[], Awaitable[object]] | None = None, nth: int = 1) -> None:
        self.between, self.nth, self.batches = between, nth, 0
        self.asked: list[str] = []

    async def __call__(self, memories: Sequence[Memory]) -> list[Record]:
        self.batches += 1
        if self.batches == self.nth and self.between is not None:
            await self.between()
        self.asked += [of.id for of in memories]
        return [new(of) for of in memories]


class Killed(BaseException):
    """The process is gone."""


async def dies() -> None:
    raise Killed


Open = Callable[[str | None], Awaitable[MemoryStore]]
MEMORIES = [one.memory for one in random_records(11, 60)]
RANKED = [of for of in MEMORIES if of.memory_type != "working"]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hindsight_core.stores.sqlite._AT_ONCE", 7)
    monkeypatch.setattr("hindsight_core.stores.opensearch.reembedding._AT_ONCE", 7)
    monkeypatch.setattr("hindsight_core.stores.opensearch.moments.PAGE", 20)


@pytest.fixture(params=["sqlite", "opensearch"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    """A place of its own: afterwards it is not what other tests take it for."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'hindsight.db'}"
        return
    with OpenSearchPlace(request.getfixturevalue("opensearch_url")) as place:
        yield place.store_url


@pytest.fixture
async def open_it(store_url: str) -> AsyncGenerator[Open]:
    """Opens the place as another process would, prepared for a model."""
    async with AsyncExitStack() as stack:

        async def opened(identity: str | None) -> MemoryStore:
            store = open_store(store_url)
            stack.push_async_callback(store.aclose)
            await store.prepare(identity)
            return store

        yield opened


@pytest.fixture
async def using(open_it: Open) -> MemoryStore:
    """A process that works with the old model."""
    store = await open_it(OLD)
    await store.commit(NAMESPACE, puts(*map(old, MEMORIES)))
    await store.commit("other", puts(*(replace(old(of), memory=replace(of, namespace="other")) for of in RANKED[:3])))
    return store


def silent(_done: int, _total: int) -> None:
    """Nobody looks on."""


async def reembed(open_it: Open, embed: Embeds, **options: bool) -> int:
    """What the command does."""
    store = await open_it(None)
    return await store.reembed(NEW, embed, silent, **options)


async def expect(store: MemoryStore, memories: Sequence[Memory], fresh: MemoryStore) -> None:
    """The store is one that these memories were imported into with the new model."""
    await fresh.prepare(NEW)
    await fresh.commit(NAMESPACE, replace(puts(*map(new, memories)), imported=()))
    found, wanted = [
        [one async for page in each.whole(NAMESPACE, EVERYTHING) for one in page] for each in (store, fresh)
    ]
    assert [one.memory for one in found] == [one.memory for one in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert (one.bare is None) == (other.bare is None)
        assert one.bare is None or other.bare is None or np.array_equal(one.bare, other.bare)
        assert one.mixed is None or other.mixed is None or np.array_equal(one.mixed, other.mixed)
    for text in ("kettle tea", "北京 茶壶", ""):
        query = search(tokens(text), vector(text, NEW_DIMENSION), limit=20)
        pages = [await each.rank(NAMESPACE, query) for each in (store, fresh)]
        hits, expected = [[(hit.memory.id, hit.score, hit.parts) for hit in page.hits] for page in pages]
        assert hits == expected
        near = [
            await each.neighbours(NAMESPACE, vector(text, NEW_DIMENSION)[None, :], EVERYTHING, 5)
            for each in (store, fresh)
        ]
        ids, wanted_ids = [[(one.record.memory.id, one.cosine) for one in each[0]] for each in near]
        assert ids == wanted_ids


@pytest.fixture
async def fresh(request: pytest.FixtureRequest, store_url: str, tmp_path: Path) -> AsyncGenerator[MemoryStore]:
    """An empty store of the same kind."""
    if store_url.startswith("sqlite"):
        store = open_store(f"{tmp_path}/fresh.db")
        yield store
        await store.aclose()
        return
    with OpenSearchPlace(request.getfixturevalue("opensearch_url")) as place:
        store = open_store(place.store_url)
        yield store
        await store.aclose()


async def test_searches_afterwards_are_those_of_a_fresh_import(
    using: MemoryStore, open_it: Open, fresh: MemoryStore
) -> None:
    embed = Embeds()
    assert await reembed(open_it, embed) == len(RANKED) + 3
    assert sorted(embed.asked) == sorted([of.id for of in RANKED] + [of.id for of in RANKED[:3]])
    store = await open_it(NEW)
    await expect(store, MEMORIES, fresh)
    assert len(await store.scan("other", EVERYTHING, after=None, limit=9)) == 3
    again = Embeds()
    assert await reembed(open_it, again) == 0
    assert again.asked == []
    with pytest.raises(ConfigurationError, match=NEW):
        await open_it(OLD)


async def test_a_kill_costs_no_more_than_the_batch_that_was_under_way(
    using: MemoryStore, open_it: Open, fresh: MemoryStore
) -> None:
    asked: list[str] = []
    for nth in (3, 4):
        embed = Embeds(dies, nth)
        with pytest.raises(Killed):
            await reembed(open_it, embed)
        asked += embed.asked
        # Whoever uses the store has noticed nothing.
        assert (await using.rank(NAMESPACE, search(["kettle"], vector("kettle", 16)))).hits
    rest = Embeds()
    await reembed(open_it, rest)
    assert len(asked) > 10
    assert sorted([*asked, *rest.asked]) == sorted([*(of.id for of in RANKED), *(of.id for of in RANKED[:3])])
    await expect(await open_it(NEW), MEMORIES, fresh)


async def test_another_model_than_the_one_that_was_begun_for_begins_anew(
    using: MemoryStore, open_it: Open, fresh: MemoryStore
) -> None:
    async def other(memories: Sequence[Memory]) -> list[Record]:
        if other_batches:
            raise Killed
        other_batches.append(1)
        return [record_of(of, 20, "third") for of in memories]

    other_batches: list[int] = []
    store = await open_it(None)
    with pytest.raises(Killed):
        await store.reembed("third", other, silent)
    assert await reembed(open_it, Embeds()) == len(RANKED) + 3
    await expect(await open_it(NEW), MEMORIES, fresh)


async def test_what_is_written_meanwhile_is_there_afterwards(
    using: MemoryStore, open_it: Open, fresh: MemoryStore
) -> None:
    first, second, third, fourth = sorted(RANKED, key=lambda of: of.id)[:4]
    added = memory("a00000-new", "A new ferry ticket.")
    told = successor(old(first), content="Another text altogether.")
    archived = successor(old(second), status="archived", forgotten_at=LATER)
    moment = replace(memory("w", "Now.", memory_type="working"), task_id="t1")

    async def writes() -> None:
        await using.commit(NAMESPACE, puts(old(added), old(told.memory), old(archived.memory), run_id="1"))
        await using.commit(NAMESPACE, ChangeSet(run=run("2"), puts=(old(moment),), erases=(third.id, fourth.id)))
        await using.commit("late", puts(replace(old(added), memory=replace(added, namespace="late"))))

    await reembed(open_it, Embeds(writes, nth=6))
    store = await open_it(NEW)
    gone = {first.id, second.id, third.id, fourth.id}
    kept = [of for of in MEMORIES if of.id not in gone]
    await expect(store, [*kept, added, told.memory, archived.memory, moment], fresh)
    assert [one.memory.id for one in await store.scan("late", EVERYTHING, after=None, limit=9)] == [added.id]
    assert await store.erased(NAMESPACE, [third.id]) == {third.id}


async def test_whoever_works_with_the_old_model_is_refused_from_then_on(using: MemoryStore, open_it: Open) -> None:
    without_a_model = await open_it(None)
    read = await without_a_model.scan(NAMESPACE, EVERYTHING, after=None, limit=100)
    await reembed(open_it, Embeds())
    store = await open_it(NEW)
    before = await store.head(NAMESPACE)
    for attempt in (
        using.rank(NAMESPACE, search(["kettle"], vector("kettle", 16))),
        using.neighbours(NAMESPACE, vector("kettle", 16)[None, :], EVERYTHING, 3),
        using.commit(NAMESPACE, puts(old(memory("late")), run_id="late")),
        using.commit("unheard", puts(old(memory("late")), run_id="late")),
        # Vectors that were read before are old ones, whoever puts them back.
        without_a_model.commit(NAMESPACE, puts(successor(read[0], confidence=0.5), run_id="late")),
    ):
        with pytest.raises(StoreUnavailable, match=NEW) as caught:
            await attempt
        assert OLD in caught.value.detail
        assert "Restart" in caught.value.remedy
    assert await store.head(NAMESPACE) == before
    assert (await store.head("unheard")).sequence == 0
    await store.commit(NAMESPACE, puts(new(memory("late")), run_id="late"))


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_whoever_held_the_old_models_vectors_is_told_so_after_writes_with_the_new_one(
    using: MemoryStore, open_it: Open
) -> None:
    old_query = search(["kettle"], vector("kettle", 16))
    assert (await using.rank(NAMESPACE, old_query)).hits  # now it is in memory
    await reembed(open_it, Embeds())
    store = await open_it(NEW)
    written = await store.commit(NAMESPACE, puts(new(memory("late")), run_id="late"))
    for attempt in (
        using.rank(NAMESPACE, old_query),
        using.neighbours(NAMESPACE, vector("kettle", 16)[None, :], EVERYTHING, 3),
        using.neighbours(NAMESPACE, vector("kettle tea", 16)[None, :].repeat(2, axis=0), EVERYTHING, 3),
    ):
        with pytest.raises(StoreUnavailable, match=NEW) as caught:
            await attempt
        assert "Restart" in caught.value.remedy
    # What needs no vector is still answered.
    assert (await using.head(NAMESPACE)).sequence == written
    assert len(await using.scan(NAMESPACE, EVERYTHING, after=None, limit=1)) == 1
