"""Both stores mean the same: thousands of random memories, random questions and random changes, held side by side.

The OpenSearch side has three shards, of which a namespace has two: a score depends on no statistics of a shard, since
the weights of terms are sent with each search.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from hindsight_core.indexing import MOST_SPANS
from hindsight_core.lexical import tokens
from hindsight_core.ranking import INTENTS, Weights, formula
from hindsight_core.stores import Access, ChangeSet, MemoryStore, Query, RankedPage, Record, Where, open_store
from hindsight_core.stores.opensearch import OpenSearchStore
from opensearch_place import OpenSearchPlace
from samples import (
    DAY,
    DAY_MS,
    EVERYTHING,
    NAMESPACE,
    START,
    START_MS,
    WORDS,
    event,
    memory,
    puts,
    random_records,
    record,
    retrieval,
    run,
    search,
    unit,
)

COUNT = 3000
DIMENSION = 32
EXACT, LEXICAL = 1e-4, 2e-3
# As many as a question may ask for.
MONTH = tuple((START_MS + 2 * n * DAY_MS, START_MS + (2 * n + 1) * DAY_MS) for n in range(MOST_SPANS))


class Pair(NamedTuple):
    """The same place for memories, twice."""

    sqlite: MemoryStore
    opensearch: MemoryStore


async def _open(stack: AsyncExitStack, *urls: str) -> list[MemoryStore]:
    stores: list[MemoryStore] = []
    for url in urls:
        store = open_store(url)
        stack.push_async_callback(store.aclose)
        await store.prepare("model-a")
        stores.append(store)
    return stores


@pytest.fixture(scope="module")
def filled(opensearch_url: str, tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[str, str]]:
    """The addresses of both stores, with the same memories of two namespaces."""
    with OpenSearchPlace(opensearch_url, "shards=3&spread=2") as place:
        urls = f"sqlite:///{tmp_path_factory.mktemp('congruence') / 'hindsight.db'}", place.store_url

        async def fill() -> None:
            async with AsyncExitStack() as stack:
                for store in await _open(stack, *urls):
                    for namespace, seed, count in ((NAMESPACE, 1, COUNT), ("other", 2, 200)):
                        records = random_records(seed, count, dimension=DIMENSION)
                        for start in range(0, count, 1000):
                            await store.commit(namespace, puts(*records[start : start + 1000], run_id=str(start)))

        asyncio.run(fill())
        yield urls


@pytest.fixture
async def pair(filled: tuple[str, str]) -> AsyncGenerator[Pair]:
    async with AsyncExitStack() as stack:
        yield Pair(*await _open(stack, *filled))


def random_where(rng: random.Random) -> Where:
    """Conditions of every kind, a few at a time."""
    at = START_MS + rng.randint(-40, 10) * DAY_MS
    choices: dict[str, list[object]] = {
        "user_id": ["ann", "安", "nobody"],
        "no_user": [True],
        "reader": [None, "planner", "coder"],
        "session_id": ["s1"],
        "task_id": ["t1"],
        "statuses": [("active",), ("active", "superseded"), ("pending", "archived")],
        "memory_types": [("episodic",), ("semantic", "working")],
        "kinds": [("fact", "event"), ("preference",)],
        "sources": [("user",), ("agent", "tool")],
        "key": ["user.city"],
        "ids": [tuple(f"{letter}{n:05}" for letter in "abc" for n in range(0, COUNT, 3))],
        "derived_from": [tuple(f"{letter}{n:05}" for letter in "ab" for n in range(0, COUNT, 2))],
        "tags_all": [("red",), ("red", "蓝")],
        "tags_any": [("green", "蓝")],
        "metadata": [{"n": (1,)}, {"n": (True, "x")}, {"n": (1.5,), "m": ("y",)}],
        "observed_from": [at],
        "observed_to": [at + 20 * DAY_MS],
        "begun_at": [at],
        "lasting_at": [at],
        "alive_at": [START_MS + rng.randint(-3, 3) * DAY_MS],
        "expired_at": [START_MS + rng.randint(-3, 3) * DAY_MS],
    }
    names = rng.sample(sorted(choices), rng.choice([0, 1, 1, 2, 3]))
    return Where(**{name: rng.choice(choices[name]) for name in names})  # type: ignore[arg-type]


def random_query(rng: random.Random, *, lexical: bool) -> Query:
    scope = random_where(rng) if rng.random() < 0.3 else EVERYTHING
    narrowed = random_where(rng)
    where = scope
    for name in Where.__struct_fields__:
        # A search looks nowhere but in its scope.
        if getattr(narrowed, name) != getattr(EVERYTHING, name) == getattr(scope, name):
            where = replace(where, **{name: getattr(narrowed, name)})
    terms = tokens(" ".join(rng.sample([*WORDS, "nosuchword"], rng.randint(1, 6)))) if lexical else []
    return search(
        list(dict.fromkeys(terms)),
        rng.choice([None, unit(rng.randint(0, 10**6), DIMENSION), unit(1000 + rng.randint(0, COUNT - 1), DIMENSION)]),
        scope=scope,
        where=where,
        by=formula(
            calibration=rng.choice([(0.0, 0.6), (0.2, 0.9)]),
            weights=Weights(alpha=rng.choice([0.0, 0.3, 0.5, 1.0]), offset=rng.choice([0.0, 0.25])),
            profile=rng.choice(["task", "default", "companion"]),
            intent=rng.choice([None, *sorted(INTENTS)]),
            speakers=rng.choice([(), ("ann",), ("ann", "李雷")]),
            days=rng.choice([(), ("05-01", "2024-04-20")]),
            spans=rng.choice([(), ((START_MS, START_MS + 3 * DAY_MS), (START_MS + 5 * DAY_MS, START_MS + 9 * DAY_MS))]),
        ),
        now=START_MS + rng.randint(-20, 60) * DAY_MS + rng.randint(0, DAY_MS),
        limit=rng.choice([1, 10, 10, 100]),
        min_score=rng.choice([0.0, 0.0, 0.27183, 0.40361]),
    )


def assert_same(one: RankedPage, other: RankedPage, tolerance: float) -> None:
    """Equal counts; equal scores by place; equal ids but for memories whose scores are within the tolerance."""
    assert (one.in_scope, one.eligible) == (other.in_scope, other.eligible)
    assert abs(one.below - other.below) <= (0 if tolerance == EXACT else 3)
    assert [hit.score for hit in one.hits] == pytest.approx([hit.score for hit in other.hits], abs=tolerance)
    for page, against in ((one, other), (other, one)):
        scores = {hit.memory.id: hit for hit in against.hits}
        for hit in page.hits:
            same = scores.get(hit.memory.id)
            if same is None:
                assert hit.score - page.hits[-1].score <= 2 * tolerance, hit
                continue
            assert hit.memory == same.memory
            assert hit.score == pytest.approx(same.score, abs=tolerance)
            for name in hit.parts.__struct_fields__:
                # A part is not weighted yet, so it may differ by more than the score that it goes into.
                assert getattr(hit.parts, name) == pytest.approx(getattr(same.parts, name), abs=3 * tolerance), name


@pytest.mark.parametrize("seed", range(4))
async def test_without_words_hits_scores_and_counts_are_the_same(pair: Pair, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(25):
        query = random_query(rng, lexical=False)
        one, other = [await store.rank(NAMESPACE, query) for store in pair]
        assert_same(one, other, EXACT)


async def test_with_words_scores_are_the_same_within_what_a_stored_impact_loses(pair: Pair) -> None:
    rng = random.Random(100)
    shared, wanted = 0, 0
    for _ in range(100):
        query = random_query(rng, lexical=True)
        one, other = [await store.rank(NAMESPACE, query) for store in pair]
        assert_same(one, other, LEXICAL)
        best = [{hit.memory.id for hit in page.hits[:10]} for page in (one, other)]
        shared, wanted = shared + len(best[0] & best[1]), wanted + len(best[0])
    assert wanted > 400
    assert shared / wanted >= 0.98


async def test_terms_weigh_the_same_in_both_and_in_every_namespace(pair: Pair) -> None:
    by = formula(calibration=(0.0, 0.6), weights=Weights(alpha=0.0, offset=0.0))
    for namespace, word in itertools.product((NAMESPACE, "other"), WORDS):
        query = search(tokens(word), by=by)
        one, other = [await store.rank(namespace, query) for store in pair]
        assert one.hits[0].parts.lexical == pytest.approx(other.hits[0].parts.lexical, abs=LEXICAL)


async def test_a_word_that_only_the_turn_before_holds_weighs_as_much_as_none_does(
    tmp_path: Path, opensearch_place: OpenSearchPlace
) -> None:
    opensearch_place.empty()
    by = formula(calibration=(0.0, 0.6), weights=Weights(alpha=0.0, offset=0.0))
    async with AsyncExitStack() as stack:
        pair = Pair(*await _open(stack, f"sqlite:///{tmp_path / 'words.db'}", opensearch_place.store_url))
        records = [
            record(memory(str(n), "The kettle is blue.", context="A lighthouse?" if n == 3 else None)) for n in range(9)
        ]
        pages = []
        for store in pair:
            await store.commit(NAMESPACE, puts(*records))
            pages.append(await store.rank(NAMESPACE, search(tokens("lighthouse"), by=by)))
        assert_same(pages[0], pages[1], LEXICAL)
        assert pages[1].hits[0].memory.id == "3"
        assert pages[1].hits[0].parts.lexical > 0


async def test_a_long_question_with_every_filter_is_the_same_in_both(
    tmp_path: Path, opensearch_place: OpenSearchPlace
) -> None:
    """However many words memories hold up to 400, and whatever else is asked; beyond, the rarest of them decide."""
    opensearch_place.empty()
    rng = random.Random(7)
    words = [f"word{n}" for n in range(600)]
    tags, metadata = tuple(f"tag {n}" for n in range(20)), {f"k{n}": n for n in range(20)}
    fields = {"user_id": "ann", "session_id": "s", "task_id": "t", "key": "k", "tags": tags, "metadata": metadata}
    records = [
        record(memory(f"{n:03}", " ".join(rng.sample(words[n % 50 :: 2], 15)), **fields), unit(n, DIMENSION))
        for n in range(200)
    ]
    where = Where(
        user_id="ann",
        session_id="s",
        task_id="t",
        key="k",
        reader="planner",
        statuses=("active", "pending"),
        memory_types=("episodic", "semantic"),
        kinds=("fact",),
        sources=("user",),
        tags_all=tags,
        tags_any=tags,
        metadata={name: (value,) for name, value in metadata.items()},
        observed_from=START_MS - DAY_MS,
        observed_to=START_MS + DAY_MS,
        begun_at=START_MS + DAY_MS,
        lasting_at=START_MS + DAY_MS,
        alive_at=START_MS + DAY_MS,
        ids=tuple(f"{n:03}" for n in range(200)),
    )
    by = formula(
        calibration=(0.0, 0.6), weights=Weights(), speakers=("ann",), days=("05-01", "2024-05-01"), spans=MONTH
    )
    url = opensearch_place.store_url
    async with AsyncExitStack() as stack:
        stores = await _open(stack, f"sqlite:///{tmp_path / 'long.db'}", url, f"{url}?exact_below=0")
        for store in stores[:2]:
            await store.commit(NAMESPACE, puts(*records))
        for held, others in ((380, 0), (380, 2000), (600, 2000)):
            asked = [*(f"nosuchword{n}" for n in range(others)), *words[:held]]
            query = search(asked, unit(3, DIMENSION), where=where, by=by, limit=20)
            embedded, exact, approximate = [await store.rank(NAMESPACE, query) for store in stores]
            assert embedded.eligible == exact.eligible == approximate.eligible == 200
            assert_same(exact, approximate, EXACT)
            if held <= 400:
                assert_same(embedded, exact, LEXICAL)
                assert exact.hits[0].parts.lexical > 0.2


async def test_what_is_counted_once_is_counted_again_when_time_or_a_change_turns_it(
    tmp_path: Path, opensearch_place: OpenSearchPlace
) -> None:
    opensearch_place.empty()
    hour = timedelta(hours=1)
    records = [
        record(memory("always"), unit(0)),
        record(memory("expires", expires_at=START + hour), unit(1)),
        record(memory("begins", valid_from=START + 2 * hour), unit(2)),
        record(memory("ends", valid_to=START + 3 * hour), unit(3)),
        record(memory("pinned", expires_at=START + hour, pinned=True), unit(4)),
    ]
    async with AsyncExitStack() as stack:
        urls = f"sqlite:///{tmp_path / 'turns.db'}", f"{opensearch_place.store_url}?exact_below=0"
        pair = Pair(*await _open(stack, *urls))

        async def pages(now: int, at: int) -> list[RankedPage]:
            scope, where = Where(alive_at=now), Where(alive_at=now, begun_at=at, lasting_at=at)
            query = search(tokens("kettle"), unit(9), scope=scope, where=where, now=now)
            return [await store.rank(NAMESPACE, query) for store in pair]

        for number, one in enumerate(records):
            for store in pair:
                await store.commit(NAMESPACE, puts(one, run_id=str(number)))
            for _ in range(3):  # so often that nothing is asked twice that is known
                embedded, managed = await pages(START_MS, START_MS)
                assert_same(embedded, managed, LEXICAL)
                assert managed.in_scope == number + 1
        counts = []
        half = DAY_MS // 48
        for at in (0, half, 2 * half - 1, 2 * half, 4 * half - 1, 4 * half, 6 * half - 1, 6 * half, 0):
            embedded, managed = await pages(START_MS + at, START_MS + at)
            assert_same(embedded, managed, LEXICAL)
            counts.append((managed.in_scope, managed.eligible))
            embedded, managed = await pages(START_MS + at, START_MS)
            assert_same(embedded, managed, LEXICAL)
        assert counts == [(5, 4), (5, 4), (5, 4), (4, 3), (4, 3), (4, 4), (4, 4), (4, 3), (5, 4)]


@pytest.mark.parametrize("seed", range(2))
async def test_the_best_of_many_are_those_of_all(filled: tuple[str, str], seed: int) -> None:
    """Beyond `exact_below`, hits are as good as the exact ones, and all counts are exact."""
    async with AsyncExitStack() as stack:
        exact, approximate = await _open(stack, filled[1], f"{filled[1]}&exact_below=100")
        rng = random.Random(200 + seed)
        shared, wanted = 0, 0
        for number in range(30):
            query = replace(random_query(rng, lexical=number % 2 > 0), limit=10, formula=search().formula)
            if query.vector is None:
                query = replace(query, vector=unit(number, DIMENSION))
            best, found = [await store.rank(NAMESPACE, query) for store in (exact, approximate)]
            assert (found.in_scope, found.eligible, found.below) == (best.in_scope, best.eligible, best.below)
            assert len(found.hits) == len(best.hits)
            if best.hits:
                shared += sum(hit.score >= best.hits[-1].score - 1e-6 for hit in found.hits)
                wanted += len(best.hits)
            assert all(
                (one.score, one.memory.id) > (other.score, other.memory.id) for one, other in pairwise(found.hits)
            )
        assert shared / wanted >= 0.99
        vectors = np.stack([unit(1000 + n, DIMENSION) for n in range(5)])
        near, nearly = [await store.neighbours(NAMESPACE, vectors, EVERYTHING, 8) for store in (exact, approximate)]
        for one, other in zip(near, nearly, strict=True):
            assert len({n.record.memory.id for n in one} & {n.record.memory.id for n in other}) >= 7


async def test_neighbours_are_the_same(pair: Pair) -> None:
    rng = random.Random(7)
    for _ in range(10):
        where = random_where(rng)
        vectors = np.stack([unit(1000 + rng.randint(0, COUNT - 1), DIMENSION) for _ in range(3)])
        one, other = [await store.neighbours(NAMESPACE, vectors, where, 8) for store in pair]
        for near, same in zip(one, other, strict=True):
            assert [n.cosine for n in near] == pytest.approx([n.cosine for n in same], abs=1e-3)
            assert [n.record.memory for n in near if n.cosine > near[-1].cosine + 1e-3] == [
                n.record.memory for n in same if n.cosine > near[-1].cosine + 1e-3
            ]


async def test_a_namespace_lies_on_as_many_shards_as_its_spread(filled: tuple[str, str]) -> None:
    async with AsyncExitStack() as stack:
        (store,) = await _open(stack, filled[1])
        assert isinstance(store, OpenSearchStore)
        answer = await store._indices.search("memories", "other", {"size": 0})
        assert answer["_shards"]["total"] == 2


async def test_scans_and_sizes_are_the_same(pair: Pair) -> None:
    rng = random.Random(8)
    assert await pair.sqlite.head(NAMESPACE) == await pair.opensearch.head(NAMESPACE)
    assert await pair.sqlite.count(NAMESPACE) == await pair.opensearch.count(NAMESPACE)
    for _ in range(10):
        where, after = random_where(rng), rng.choice([None, "a01500", "b"])
        one, other = [await store.scan(NAMESPACE, where, after=after, limit=50) for store in pair]
        assert [(r.memory, r.index) for r in one] == [(r.memory, r.index) for r in other]


def _change(rng: random.Random, held: dict[str, Record], number: int) -> ChangeSet:
    """Some new memories, some changed ones, some that are erased; with their events."""
    changed = rng.sample(sorted(held), min(3, len(held)))
    erased = changed[:1] if rng.random() < 0.3 else []
    new = [
        record(replace(r.memory, id=f"n{number}-{r.memory.id}"), r.bare)
        for r in random_records(number, 2, dimension=16)
    ]
    put: list[Record] = list(new)
    for memory_id in changed[len(erased) :]:
        old = held[memory_id]
        memory = replace(
            old.memory,
            version=old.memory.version + 1,
            content=rng.choice([old.memory.content, f"{rng.choice(WORDS)} {number}"]),
            status=rng.choice(["active", "superseded"]),
            speaker=rng.choice([old.memory.speaker, "Bo"]),
        )
        put.append(record(memory, old.bare))
    events = [
        event(f"e{number:03}-{r.memory.id}", r.memory.id, f"run-{number:03}", after=r.memory, reason=r.memory.content)
        for r in put
    ]
    held.update({r.memory.id: r for r in put})
    for memory_id in erased:
        del held[memory_id]
        events.append(event(f"e{number:03}-{memory_id}", memory_id, f"run-{number:03}", action="erased"))
    return ChangeSet(
        run=run(f"run-{number:03}", at=START + number * DAY),
        puts=tuple(put),
        erases=tuple(erased),
        events=tuple(events),
    )


async def test_a_life_of_changes_leaves_the_same_in_both(tmp_path: Path, opensearch_place: OpenSearchPlace) -> None:
    opensearch_place.empty()
    async with AsyncExitStack() as stack:
        pair = Pair(*await _open(stack, f"sqlite:///{tmp_path / 'life.db'}", opensearch_place.store_url))
        rng, held = random.Random(3), dict[str, Record]()
        for number in range(25):
            changes = _change(rng, held, number)
            hits = rng.sample(sorted(held), 2)
            for store in pair:
                assert await store.commit(NAMESPACE, changes, searchable=number % 3 > 0) == number + 1
                await store.log(
                    NAMESPACE,
                    accesses=[Access(memory_id=hits[0], at=START_MS + number)],
                    retrievals=[retrieval(f"q{number:03}", hits)],
                )
        await _assert_same_content(pair, sorted(held))


async def _assert_same_content(pair: Pair, ids: Sequence[str]) -> None:
    async def content(store: MemoryStore) -> list[object]:
        query = search(tokens("tea harbour 北京"), unit(4), limit=5)
        return [
            await store.head(NAMESPACE),
            await store.count(NAMESPACE),
            [(r.memory, r.index) for r in await store.get(NAMESPACE, [*ids, "nosuch"])],
            [r.memory for r in await store.scan(NAMESPACE, EVERYTHING, after=None, limit=500)],
            *[await store.read(NAMESPACE, log, limit=1000) for log in ("events", "runs", "retrievals")],
            [hit.memory.id for hit in (await store.rank(NAMESPACE, query)).hits],
        ]

    one, other = [await content(store) for store in pair]
    for left, right in zip(one, other, strict=True):
        assert msgspec.to_builtins(left, str_keys=True) == msgspec.to_builtins(right, str_keys=True)
