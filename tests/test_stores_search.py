"""The promises of `MemoryStore`, for every store: conditions, ranking and neighbours."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from msgspec.structs import replace

from hindsight_core.errors import ConfigurationError
from hindsight_core.lexical import tokens
from hindsight_core.ranking import Weights, formula
from hindsight_core.scoring import bm25
from hindsight_core.stores import ChangeSet, MemoryStore, Record, Where
from reference import cosine, eligible, idfs, ranked, satisfies
from samples import (
    DAY_MS,
    EVERYTHING,
    LATER,
    NAMESPACE,
    START,
    START_MS,
    found,
    memory,
    puts,
    random_records,
    record,
    run,
    scanned,
    search,
    unit,
)

BY_WORDS = formula(calibration=(0.0, 0.6), weights=Weights(alpha=0.0, offset=0.0))


# -- conditions -------------------------------------------------------------------------------------------------------

CONDITIONS = [
    Where(user_id="ann"),
    Where(user_id="ann "),
    Where(user_id="安"),
    Where(user_id="' OR 1=1 --"),
    Where(no_user=True),
    Where(reader=None),
    Where(reader="planner"),
    Where(reader="nobody"),
    Where(session_id="s1"),
    Where(task_id="t1"),
    Where(statuses=("active", "pending")),
    Where(statuses=()),
    Where(memory_types=("episodic",)),
    Where(kinds=("fact", "event")),
    Where(sources=("user",)),
    Where(key="user.city"),
    Where(key="user"),
    Where(ids=()),
    Where(ids=("a00001", "b00002", "c00003", "nosuch", *(f"a{n:05}" for n in range(1100)))),
    Where(tags_all=("red", "blue")),
    Where(tags_all=("re",)),
    Where(tags_any=("green", "蓝")),
    Where(metadata={"n": (1,)}),
    Where(metadata={"n": (True,)}),
    Where(metadata={"n": ("1", "x")}),
    Where(metadata={"n": (1.0, 1.5)}),
    Where(metadata={"n": ()}),
    Where(metadata={"m": (1,), "n": (1.5,)}),
    Where(observed_from=START_MS - 20 * DAY_MS),
    Where(observed_to=START_MS),
    Where(observed_from=START_MS, observed_to=START_MS + DAY_MS),
    Where(begun_at=START_MS),
    Where(lasting_at=START_MS),
    Where(begun_at=START_MS - 9 * DAY_MS, lasting_at=START_MS - 9 * DAY_MS),
    Where(alive_at=START_MS),
    Where(alive_at=START_MS + DAY_MS),
    Where(derived_from=()),
    Where(derived_from=("a00001", "b00002", "b00007", "nosuch", *(f"a{n:05}" for n in range(40, 1100)))),
    Where(derived_from=("b00017",), statuses=("active", "pending")),
    Where(expired_at=START_MS),
    Where(expired_at=START_MS + DAY_MS, statuses=("active", "pending")),
    Where(statuses=("active",), tags_any=("red",), alive_at=START_MS, reader="coder", metadata={"n": (1, "1")}),
]


async def test_a_question_of_another_dimension_is_refused(store: MemoryStore) -> None:
    await store.commit(NAMESPACE, puts(record(memory("a"), unit(1))))
    with pytest.raises(ConfigurationError):
        await store.rank(NAMESPACE, search(["tea"], unit(2, 24)))
    with pytest.raises(ConfigurationError):
        await store.neighbours(NAMESPACE, np.stack([unit(2, 24)]), EVERYTHING, 3)


@pytest.fixture
async def filled(store: MemoryStore) -> tuple[MemoryStore, list[Record]]:
    records = random_records(5, 120)
    await store.commit(NAMESPACE, puts(*records))
    return store, records


async def test_every_condition_selects_the_same_in_scans_searches_counts_and_neighbours(
    filled: tuple[MemoryStore, list[Record]],
) -> None:
    store, records = filled
    for where in CONDITIONS:
        chosen = [r.memory.id for r in records if satisfies(where, r)]
        assert await scanned(store, where) == sorted(chosen), where
        page = await store.rank(NAMESPACE, search(["tea"], unit(1), scope=EVERYTHING, where=where, limit=200))
        expected = {r.memory.id for r in eligible(records, where)}
        assert {hit.memory.id for hit in page.hits} == expected, where
        assert page.eligible == len(expected)
        assert page.in_scope == len(eligible(records, EVERYTHING))
        (near,) = await store.neighbours(NAMESPACE, np.stack([unit(1)]), where, 200)
        assert {n.record.memory.id for n in near} == {
            r.memory.id for r in records if r.bare is not None and satisfies(where, r)
        }, where


@pytest.mark.parametrize(
    "where",
    [
        Where(tags_any=("red", *(f"tag {n}" for n in range(3000)))),
        Where(tags_all=tuple(f"tag {n}" for n in range(3000))),
        Where(tags_all=("red",) * 3000, metadata={"n": (1, *(f"x {n}" for n in range(3000)))}),
        Where(statuses=("active", "pending") * 20_000),
        Where(metadata={f"k{n}": (n,) for n in range(1500)}),
        Where(metadata={"n": (1, *range(2, 40_000))}),
        Where(metadata={"n": ()} | {f"k{n}": (n,) for n in range(20)}),
    ],
    ids=[
        "any tag",
        "all tags",
        "repeated tags and values",
        "repeated statuses",
        "many keys",
        "many values of a key",
        "a key without values",
    ],
)
async def test_no_filter_is_too_long(filled: tuple[MemoryStore, list[Record]], where: Where) -> None:
    store, records = filled
    chosen = [r.memory.id for r in records if satisfies(where, r)]
    assert await scanned(store, where) == sorted(chosen)
    page = await store.rank(NAMESPACE, search(["tea"], unit(1), where=where, limit=200))
    assert {hit.memory.id for hit in page.hits} == {r.memory.id for r in eligible(records, where)}


async def test_many_tags_and_keys_at_once_must_all_hold(store: MemoryStore) -> None:
    tags, metadata = tuple(f"tag {n}" for n in range(20)), {f"k{n}": [n, str(n)] for n in range(20)}
    await store.commit(NAMESPACE, puts(record(memory("a", tags=tags, metadata=metadata), unit(1))))
    wanted = {name: (*values, "other") for name, values in metadata.items()}
    assert await scanned(store, Where(tags_all=tags, metadata=wanted)) == ["a"]
    for n in range(20):
        assert await scanned(store, Where(tags_all=(*tags[:n], "other", *tags[n + 1 :]))) == []
        assert await scanned(store, Where(metadata=wanted | {f"k{n}": ("other",)})) == []


async def test_a_long_question_still_finds_by_the_words_that_something_holds(store: MemoryStore) -> None:
    by = formula(calibration=(0.0, 0.6), weights=Weights(alpha=0.0, offset=0.0))
    talk = memory("a", "The harbour is closed.", context="The lighthouse burns.")
    await store.commit(NAMESPACE, puts(record(talk), record(memory("b", "A kettle."))))
    for word in ("harbour", "lighthouse"):
        alone = await store.rank(NAMESPACE, search(tokens(word), by=by))
        assert alone.hits[0].parts.lexical > 0.03
        for many in (49, 60, 2000):
            asked = [*(f"nosuchword{n}" for n in range(many)), *tokens(word)]
            page = await store.rank(NAMESPACE, search(asked, by=by))
            assert [hit.memory.id for hit in page.hits] == ["a", "b"]
            assert [hit.parts for hit in page.hits] == [hit.parts for hit in alone.hits]


async def test_intervals_are_half_open(store: MemoryStore) -> None:
    of = memory("a", valid_from=START, valid_to=LATER, expires_at=LATER, observed_at=START)
    await store.commit(NAMESPACE, puts(record(of, unit(1))))
    end = START_MS + DAY_MS

    async def seen(where: Where) -> bool:
        names = await scanned(store, where)
        assert await found(store, search(where=where)) == names
        return names == ["a"]

    assert [await seen(Where(begun_at=at, lasting_at=at)) for at in (START_MS - 1, START_MS, end - 1, end)] == [
        False,
        True,
        True,
        False,
    ]
    assert [await seen(Where(alive_at=at)) for at in (end - 1, end)] == [True, False]
    assert [await seen(Where(observed_from=at)) for at in (START_MS, START_MS + 1)] == [True, False]
    assert [await seen(Where(observed_to=at)) for at in (START_MS, START_MS + 1)] == [False, True]


async def test_in_scope_counts_the_scope_and_eligible_the_filters(filled: tuple[MemoryStore, list[Record]]) -> None:
    store, records = filled
    scope = Where(reader="planner", alive_at=START_MS)
    where = replace(scope, kinds=("fact",))
    page = await store.rank(NAMESPACE, search(["tea"], scope=scope, where=where, limit=3))
    assert page.in_scope == len(eligible(records, scope))
    assert page.eligible == len(eligible(records, where))
    assert 0 < page.eligible < page.in_scope


# -- rank -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
async def test_hits_scores_parts_and_counts_are_those_of_the_plain_definition(store: MemoryStore, seed: int) -> None:
    rng = random.Random(seed)
    records = random_records(seed, 150)
    for start in range(0, 150, 30):
        await store.commit(NAMESPACE, puts(*records[start : start + 30]))
    for _ in range(12):
        by = formula(
            calibration=(0.0, 0.6),
            weights=Weights(alpha=rng.choice([0.0, 0.5, 1.0])),
            profile=rng.choice(["task", "default", "companion"]),
            intent=rng.choice([None, "history", "recommend"]),
            speakers=rng.choice([(), ("ann",), ("ann", "李雷")]),
            days=rng.choice([(), ("05-01", "2024-04-20")]),
        )
        query = search(
            rng.choice([[], ["kettl"], tokens("tea harbour 北京 花园 nosuchword")]),
            rng.choice([None, unit(seed), unit(seed + 50)]),
            where=Where(reader=rng.choice(["*", None, "planner"]), statuses=("active", "pending")),
            by=by,
            now=START_MS + rng.randint(-10, 40) * DAY_MS,
            limit=rng.choice([1, 5, 200]),
            min_score=rng.choice([0.0, 0.3]),
        )
        page = await store.rank(NAMESPACE, query)
        expected = ranked(records, query)
        scores = {memory_id: score for memory_id, score, _ in expected}
        assert len(page.hits) == min(query.limit, len(expected))
        assert page.below == page.eligible - len(expected)
        for hit, (_, score, _) in zip(page.hits, expected, strict=False):
            assert hit.score == pytest.approx(score, abs=2e-3)
            assert hit.score == pytest.approx(scores[hit.memory.id], abs=2e-3)
        parts = {memory_id: parts for memory_id, _, parts in expected}
        for hit in page.hits:
            for name in hit.parts.__struct_fields__:
                assert getattr(hit.parts, name) == pytest.approx(getattr(parts[hit.memory.id], name), abs=2e-3), name


async def test_equal_scores_go_by_id_newest_first_and_the_limit_cuts_there(store: MemoryStore) -> None:
    names = [f"{n:04}" for n in range(300)]
    await store.commit(NAMESPACE, puts(*(record(memory(name)) for name in names)))
    assert await found(store, search(limit=5)) == ["0299", "0298", "0297", "0296", "0295"]
    assert await found(store, search(["kettl"], limit=300)) == names[::-1]


async def test_scores_fall_along_a_page(filled: tuple[MemoryStore, list[Record]]) -> None:
    store, _ = filled
    page = await store.rank(NAMESPACE, search(["tea", "kettl"], unit(3), limit=50))
    assert all((one.score, one.memory.id) > (other.score, other.memory.id) for one, other in pairwise(page.hits))


async def test_below_counts_eligible_memories_under_the_minimum(store: MemoryStore) -> None:
    await store.commit(NAMESPACE, puts(*(record(memory(str(n), confidence=n / 10)) for n in range(11))))
    page = await store.rank(NAMESPACE, search(min_score=0.3, limit=2))
    assert (len(page.hits), page.eligible, page.below) == (2, 11, 5)


async def test_a_memory_without_a_vector_is_found_by_its_words(store: MemoryStore) -> None:
    await store.commit(
        NAMESPACE,
        puts(record(memory("a", "The ferry leaves at noon.")), record(memory("b", "茶壶是蓝色的。"), unit(1))),
    )
    best = (await store.rank(NAMESPACE, search(tokens("When does the ferry leave?"), unit(2), by=BY_WORDS))).hits[0]
    assert best.memory.id == "a"
    assert best.parts.similarity == 0.0
    assert best.parts.lexical > 0
    assert (await found(store, search(tokens("蓝色"), by=BY_WORDS)))[0] == "b"


async def test_without_any_vector_similarity_is_zero_and_nothing_fails(store: MemoryStore) -> None:
    await store.commit(NAMESPACE, puts(record(memory("a", "tea")), record(memory("b", "ferry"))))
    page = await store.rank(NAMESPACE, search(["tea"], unit(1), by=BY_WORDS))
    assert [hit.parts.similarity for hit in page.hits] == [0.0, 0.0]
    assert page.hits[0].memory.id == "a"


async def test_working_memory_is_never_ranked_nor_counted_in_the_statistics_of_terms(store: MemoryStore) -> None:
    await store.commit(NAMESPACE, puts(record(memory("a", "tea")), record(memory("b", "ferry"))))
    before = await store.rank(NAMESPACE, search(["tea"]))
    await store.commit(NAMESPACE, puts(*(record(memory(f"w{n}", "tea", memory_type="working")) for n in range(9))))
    after = await store.rank(NAMESPACE, search(["tea"]))
    assert after == before


async def test_statistics_of_terms_count_every_status_and_forget_what_was_erased(store: MemoryStore) -> None:
    records = [record(memory(str(n), "tea", status="archived")) for n in range(20)]
    records.append(record(memory("a", "tea ferry")))
    await store.commit(NAMESPACE, puts(*records))
    query = search(["tea"], where=Where(statuses=("active",)))

    async def lexical() -> float:
        return (await store.rank(NAMESPACE, query)).hits[0].parts.lexical

    def expected(of: list[Record]) -> float:
        s = bm25(["tea"], idfs(of, ["tea"]), records[-1].index)
        return 1.7 * s / (s + 20.0)

    assert await lexical() == pytest.approx(expected(records), abs=1e-3)
    await store.commit(NAMESPACE, ChangeSet(run=run("2"), erases=tuple(str(n) for n in range(19))))
    assert await lexical() == pytest.approx(expected(records[19:]), abs=1e-3)
    assert expected(records) < expected(records[19:]) / 2


async def test_words_of_the_turn_before_find_a_memory_too(store: MemoryStore) -> None:
    await store.commit(
        NAMESPACE,
        puts(
            record(memory("a", "Yes, on Friday.", context="Shall we take the ferry?")),
            record(memory("b", "The ferry is late.")),
            record(memory("c", "Nothing of it.")),
        ),
    )
    page = await store.rank(NAMESPACE, search(tokens("ferry")))
    lexical = {hit.memory.id: hit.parts.lexical for hit in page.hits}
    assert lexical["a"] > 0 < lexical["b"]
    assert lexical["c"] == 0.0


# -- neighbours -------------------------------------------------------------------------------------------------------


async def test_neighbours_are_the_nearest_by_bare_cosine_best_first(filled: tuple[MemoryStore, list[Record]]) -> None:
    store, records = filled
    vectors = np.stack([unit(5000 + n) for n in range(7)])
    answers = await store.neighbours(NAMESPACE, vectors, EVERYTHING, 6)
    assert len(answers) == 7
    for vector, near in zip(vectors, answers, strict=True):
        cosines = sorted((c for r in records if (c := cosine(vector, r.bare)) is not None), reverse=True)
        assert [n.cosine for n in near] == pytest.approx(cosines[:6], abs=2e-3)
        for n in near:
            assert n.record.bare is not None
            assert n.cosine == pytest.approx(cosine(vector, n.record.bare), abs=1e-3)


async def test_the_same_text_is_its_own_nearest_neighbour_whatever_was_said_before_it(store: MemoryStore) -> None:
    records = [record(memory(f"{n:03}"), unit(n), [unit(900 + n), unit(800 + n)]) for n in range(60)]
    await store.commit(NAMESPACE, puts(*records))
    vectors = np.stack([r.bare for r in records if r.bare is not None])
    for r, near in zip(records, await store.neighbours(NAMESPACE, vectors, EVERYTHING, 1), strict=True):
        assert near[0].record.memory.id == r.memory.id
        assert near[0].cosine == pytest.approx(1.0, abs=1e-3)
        assert near[0].cosine <= 1.0


async def test_memories_without_a_vector_have_no_neighbours_and_are_none(store: MemoryStore) -> None:
    await store.commit(NAMESPACE, puts(record(memory("a")), record(memory("b"), unit(1))))
    (near,) = await store.neighbours(NAMESPACE, np.stack([unit(1)]), EVERYTHING, 5)
    assert [n.record.memory.id for n in near] == ["b"]
    assert await store.neighbours(NAMESPACE, np.zeros((0, 16), np.float32), EVERYTHING, 5) == []
