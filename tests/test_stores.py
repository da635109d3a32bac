"""The promises of `MemoryStore`, for every store."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from hindsight_core.errors import ConfigurationError, Conflict
from hindsight_core.lexical import tokens
from hindsight_core.models import Contest, Memory
from hindsight_core.ranking import Weights, formula
from hindsight_core.scoring import bm25
from hindsight_core.stores import Access, ChangeSet, Head, MemoryStore, Query, Receipt, Record, Where
from reference import cosine, eligible, idfs, ranked, satisfies
from samples import (
    DAY,
    DAY_MS,
    EVERYTHING,
    NAMESPACE,
    START,
    START_MS,
    OpenStore,
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

LATER = START + DAY
BY_WORDS = formula(calibration=(0.0, 0.6), weights=Weights(alpha=0.0, offset=0.0))


def successor(of: Record, **changes: object) -> Record:
    return replace(of, memory=replace(of.memory, version=of.memory.version + 1, **changes))


async def found(store: MemoryStore, query: Query, namespace: str = NAMESPACE) -> list[str]:
    return [hit.memory.id for hit in (await store.rank(namespace, query)).hits]


async def scanned(store: MemoryStore, where: Where, namespace: str = NAMESPACE) -> list[str]:
    return [r.memory.id for r in await store.scan(namespace, where, after=None, limit=1000)]


# -- identity ---------------------------------------------------------------------------------------------------------


async def test_the_first_identity_is_kept_and_another_one_is_refused(opened: OpenStore) -> None:
    store = await opened()
    await store.prepare("model-a")
    with pytest.raises(ConfigurationError, match="model-a"):
        await store.prepare("model-b")
    await store.prepare(None)


async def test_a_vector_of_another_dimension_is_refused_and_nothing_is_stored(store: MemoryStore) -> None:
    await store.commit(NAMESPACE, puts(record(memory("a"), unit(1))))
    with pytest.raises(ConfigurationError):
        await store.commit(NAMESPACE, puts(record(memory("b"), unit(2, 24))))
    assert await scanned(store, EVERYTHING) == ["a"]


async def test_a_store_that_answers_is_ok(store: MemoryStore) -> None:
    assert (await store.check()).status == "ok"


# -- commit and get ---------------------------------------------------------------------------------------------------


async def test_a_namespace_never_written_is_empty_in_every_way(store: MemoryStore) -> None:
    assert await store.head("nobody") == Head(sequence=0, memories=0)
    assert await store.get("nobody", ["a"]) == []
    assert await store.scan("nobody", EVERYTHING, after=None, limit=10) == []
    page = await store.rank("nobody", search(["tea"], unit(1)))
    assert (page.hits, page.in_scope, page.eligible, page.below) == ((), 0, 0, 0)
    assert await store.neighbours("nobody", np.stack([unit(1)]), EVERYTHING, 3) == [[]]
    assert await store.read("nobody", "events") == []
    assert await store.receipt("nobody", "key") is None
    sizes = await store.count("nobody")
    assert (sizes["status"], sizes["log"]) == ({}, {"events": 0, "runs": 0})


FULL = memory(
    "full",
    "Meet at 7 p.m.\u0000 茶 🫖 ‏שלום",
    user_id="ann%&=",
    agent_id="planner",
    session_id="s-1",
    task_id="t'1\"",
    visibility="private",
    memory_type="episodic",
    kind="event",
    key="user.tea",
    summary="A meeting.",
    context="When?",
    speaker="Ann  Lee",
    source="tool",
    confidence=0.625,
    precision="day",
    valid_to=LATER,
    last_accessed_at=LATER,
    access_count=3,
    expires_at=LATER,
    half_life_days=2.5,
    status="pending",
    status_reason="hedged",
    pinned=True,
    supersedes=("x",),
    superseded_by="y",
    contested_by=(Contest("z", 0.5, "newer"),),
    derived_from=("w",),
    tags=("red", "蓝"),
    metadata={"n": [1, 1.5, True, "x"], "none": None, "s": "1", "large": 10**30},
    embedding_model="model-a",
)


async def test_a_record_comes_back_as_it_was_put(opened: OpenStore) -> None:
    store = await opened()
    put = record(FULL, unit(1), [unit(2)])
    await store.commit(NAMESPACE, puts(put))
    for reader in (store, await opened()):
        (got,) = await reader.get(NAMESPACE, ["full"])
        assert got.memory == FULL
        assert got.index == put.index
        assert put.bare is not None
        assert put.mixed is not None
        np.testing.assert_allclose(got.bare, put.bare, atol=1e-3)
        np.testing.assert_allclose(got.mixed, put.mixed, atol=1e-3)


async def test_what_was_read_can_be_put_again_without_any_drift(store: MemoryStore) -> None:
    await store.commit(NAMESPACE, puts(record(memory("a"), unit(1), [unit(2)]), record(memory("b"))))
    before = await store.get(NAMESPACE, ["a", "b"])
    query = search(["kettl"], unit(3))
    scores = [hit.score for hit in (await store.rank(NAMESPACE, query)).hits]
    await store.commit(NAMESPACE, puts(*(successor(r) for r in before)))
    after = await store.get(NAMESPACE, ["a", "b"])
    assert before[1].bare is after[1].bare is None
    np.testing.assert_array_equal(before[0].bare, after[0].bare)
    np.testing.assert_array_equal(before[0].mixed, after[0].mixed)
    assert [hit.score for hit in (await store.rank(NAMESPACE, query)).hits] == scores


async def test_get_keeps_the_order_of_the_ids_and_leaves_missing_ones_out(store: MemoryStore) -> None:
    await store.commit(NAMESPACE, puts(*(record(memory(name)) for name in "abc")))
    assert [r.memory.id for r in await store.get(NAMESPACE, ["c", "nosuch", "a"])] == ["c", "a"]
    assert await store.get(NAMESPACE, []) == []


async def test_get_answers_more_ids_than_fit_into_one_statement(store: MemoryStore) -> None:
    records = [record(memory(f"{n:05}")) for n in range(1200)]
    await store.commit(NAMESPACE, puts(*records))
    ids = [r.memory.id for r in reversed(records)]
    assert [r.memory.id for r in await store.get(NAMESPACE, ids)] == ids


async def test_every_commit_raises_the_sequence_by_one_and_head_tells_size_and_speakers(opened: OpenStore) -> None:
    store, other = await opened(), await opened()
    assert await store.commit(NAMESPACE, puts(record(memory("a", speaker="Ann  LEE")), record(memory("b")))) == 1
    assert await other.head(NAMESPACE) == Head(sequence=1, memories=2, speakers=frozenset({"ann lee"}))
    (a,) = await other.get(NAMESPACE, ["a"])
    changed = replace(record(memory("a", "New.", speaker="Bo")), memory=memory("a", "New.", speaker="Bo", version=2))
    assert a.memory.version == 1
    assert await other.commit(NAMESPACE, puts(changed, run_id="2")) == 2
    assert await store.head(NAMESPACE) == Head(sequence=2, memories=2, speakers=frozenset({"bo"}))
    await store.commit(NAMESPACE, ChangeSet(run=run("3"), erases=("a",)))
    assert await other.head(NAMESPACE) == Head(sequence=3, memories=1)


async def test_a_commit_for_an_older_state_conflicts_and_changes_nothing(store: MemoryStore) -> None:
    await store.commit(NAMESPACE, puts(record(memory("a"))), expected=0)
    with pytest.raises(Conflict):
        await store.commit(NAMESPACE, puts(record(memory("b")), run_id="2"), expected=0)
    assert (await store.head(NAMESPACE)).sequence == 1
    assert await store.read(NAMESPACE, "runs", ids=["2"]) == []
    assert await store.commit(NAMESPACE, puts(record(memory("b"))), expected=1) == 2


@pytest.mark.parametrize("version", [1, 2, 4])
async def test_only_the_successor_of_the_stored_version_may_be_put(store: MemoryStore, version: int) -> None:
    first = record(memory("a"))
    await store.commit(NAMESPACE, puts(first))
    await store.commit(NAMESPACE, puts(successor(first, confidence=0.5)))
    changes = ChangeSet(
        run=run("3"),
        puts=(record(memory("new")), record(memory("a", version=version))),
        events=(event("e", "a"),),
        receipt=Receipt(key="k", fingerprint="f", answer=b"{}"),
    )
    with pytest.raises(Conflict):
        await store.commit(NAMESPACE, changes)
    assert await scanned(store, EVERYTHING) == ["a"]
    assert (await store.get(NAMESPACE, ["a"]))[0].memory.version == 2
    assert await store.read(NAMESPACE, "events") == []
    assert await store.receipt(NAMESPACE, "k") is None
    assert (await store.head(NAMESPACE)).sequence == 2


async def test_a_memory_that_does_not_exist_starts_at_version_one(store: MemoryStore) -> None:
    with pytest.raises(Conflict):
        await store.commit(NAMESPACE, puts(record(memory("a", version=2))))
    assert (await store.head(NAMESPACE)).memories == 0


async def test_of_writers_with_the_same_expectation_exactly_one_wins(opened: OpenStore) -> None:
    stores = [await opened() for _ in range(4)]

    async def write(number: int) -> bool:
        try:
            await stores[number % 4].commit(
                NAMESPACE, puts(record(memory(str(number))), run_id=str(number)), expected=0
            )
        except Conflict:
            return False
        return True

    assert sum(await asyncio.gather(*(write(number) for number in range(8)))) == 1
    assert await stores[0].head(NAMESPACE) == Head(sequence=1, memories=1)


async def test_namespaces_share_nothing(store: MemoryStore) -> None:
    for namespace, content in (("one", "The kettle is blue."), ("two", "The ferry is late.")):
        of = memory("a", content, namespace=namespace)
        await store.commit(
            namespace,
            ChangeSet(
                run=run("r", namespace=namespace),
                puts=(record(of, unit(1)),),
                events=(event("e", "a", namespace=namespace, after=of),),
                receipt=Receipt(key="k", fingerprint=namespace, answer=b"{}"),
            ),
        )
    assert (await store.get("one", ["a"]))[0].memory.content == "The kettle is blue."
    assert len(await found(store, search(tokens("ferry"), unit(1)), "two")) == 1
    await store.commit("one", ChangeSet(run=run("r2"), erases=("a",)))
    assert await store.get("one", ["a"]) == []
    assert (await store.get("two", ["a"]))[0].memory.content == "The ferry is late."
    (kept,) = await store.read("two", "events")
    assert kept.after is not None
    answer = await store.receipt("two", "k")
    assert answer is not None
    assert answer.fingerprint == "two"


async def test_statistics_of_terms_never_cross_namespaces(store: MemoryStore) -> None:
    await store.commit("one", puts(record(memory("a", "tea", namespace="one"))))
    before = (await store.rank("one", search(["tea"]))).hits[0].score
    others = [record(memory(str(n), "tea tea", namespace="two")) for n in range(50)]
    await store.commit("two", puts(*others))
    assert (await store.rank("one", search(["tea"]))).hits[0].score == before


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
    Where(valid_at=START_MS),
    Where(valid_at=START_MS - 9 * DAY_MS),
    Where(alive_at=START_MS),
    Where(alive_at=START_MS + DAY_MS),
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
    ],
    ids=["any tag", "all tags", "repeated tags and values", "repeated statuses"],
)
async def test_no_filter_is_too_long(filled: tuple[MemoryStore, list[Record]], where: Where) -> None:
    store, records = filled
    chosen = [r.memory.id for r in records if satisfies(where, r)]
    assert await scanned(store, where) == sorted(chosen)
    page = await store.rank(NAMESPACE, search(["tea"], unit(1), where=where, limit=200))
    assert {hit.memory.id for hit in page.hits} == {r.memory.id for r in eligible(records, where)}


async def test_intervals_are_half_open(store: MemoryStore) -> None:
    of = memory("a", valid_from=START, valid_to=LATER, expires_at=LATER, observed_at=START)
    await store.commit(NAMESPACE, puts(record(of, unit(1))))
    end = START_MS + DAY_MS

    async def seen(where: Where) -> bool:
        names = await scanned(store, where)
        assert await found(store, search(where=where)) == names
        return names == ["a"]

    assert [await seen(Where(valid_at=at)) for at in (START_MS - 1, START_MS, end - 1, end)] == [
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


# -- scan -------------------------------------------------------------------------------------------------------------


async def test_a_scan_goes_by_id_and_continues_after_the_last_one_whatever_was_written_meanwhile(
    store: MemoryStore,
) -> None:
    await store.commit(NAMESPACE, puts(*(record(memory(name)) for name in ("b", "d", "f", "Z", "é"))))
    first = await store.scan(NAMESPACE, EVERYTHING, after=None, limit=2)
    assert [r.memory.id for r in first] == ["Z", "b"]
    await store.commit(NAMESPACE, puts(*(record(memory(name)) for name in ("a", "c"))))
    rest = await store.scan(NAMESPACE, EVERYTHING, after="b", limit=10)
    assert [r.memory.id for r in rest] == ["c", "d", "f", "é"]
    assert await store.scan(NAMESPACE, EVERYTHING, after="é", limit=10) == []


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


# -- read your writes -------------------------------------------------------------------------------------------------


async def test_every_change_is_seen_at_once_by_every_other_reader(opened: OpenStore) -> None:
    writer, reader = await opened(), await opened()
    query = search(tokens("kettle ferry"), unit(1), where=Where(statuses=("active",)))
    first = record(memory("a"), unit(1))
    await writer.commit(NAMESPACE, puts(first))
    assert await found(reader, query) == ["a"]
    await writer.commit(NAMESPACE, puts(record(memory("b", "The ferry is late."), unit(2))))
    assert set(await found(reader, query)) == {"a", "b"}
    second = successor(first, status="archived")
    await writer.commit(NAMESPACE, puts(second))
    assert await found(reader, query) == ["b"]
    third = successor(second, status="active", content="A lamp.")
    third = record(third.memory, unit(9))
    await writer.commit(NAMESPACE, puts(third))
    page = await reader.rank(NAMESPACE, query)
    assert {hit.memory.content: hit.parts.lexical > 0 for hit in page.hits} == {
        "The ferry is late.": True,
        "A lamp.": False,
    }
    await writer.commit(NAMESPACE, ChangeSet(run=run("e"), erases=("b",)))
    assert await found(reader, query) == ["a"]
    assert [r.memory.content for r in await reader.scan(NAMESPACE, EVERYTHING, after=None, limit=9)] == ["A lamp."]


async def test_a_namespace_built_by_many_changes_ranks_as_one_read_afresh(opened: OpenStore) -> None:
    store = await opened()
    rng = random.Random(11)
    records = {r.memory.id: r for r in random_records(11, 90)}
    ids = sorted(records)
    query = search(tokens("tea harbour 北京"), unit(4), limit=200)
    for start in range(0, 90, 9):
        await store.commit(NAMESPACE, puts(*(records[i] for i in ids[start : start + 9])))
        await store.rank(NAMESPACE, query)
        changed = rng.choice(ids[: start + 9])
        if changed in records:
            of = records[changed].memory
            newer = replace(
                of, version=of.version + 1, content=rng.choice([of.content, "harbour 茶壶"]), confidence=0.3
            )
            records[changed] = record(newer, records[changed].bare)
            await store.commit(NAMESPACE, puts(records[changed]))
        erased = rng.choice([i for i in ids[: start + 9] if i in records])
        del records[erased]
        await store.commit(NAMESPACE, ChangeSet(run=run("e"), erases=(erased,)))
    grown, fresh = await store.rank(NAMESPACE, query), await (await opened()).rank(NAMESPACE, query)
    assert grown == fresh
    expected = ranked(list(records.values()), query)
    assert len(grown.hits) == len(expected)
    assert [hit.score for hit in grown.hits] == pytest.approx([score for _, score, _ in expected], abs=2e-3)


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
            assert n.cosine == pytest.approx(cosine(vector, n.record.bare), abs=1e-4)


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


# -- erase ------------------------------------------------------------------------------------------------------------


async def test_erasing_takes_the_text_out_of_every_log(store: MemoryStore) -> None:
    secret = memory("secret", "My locker code is kumquat.", context="Which locker?")
    await store.commit(
        NAMESPACE,
        ChangeSet(
            run=run("1"),
            puts=(record(secret, unit(1)), record(memory("other"), unit(2))),
            events=(event("e1", "secret", after=secret), event("e2", "other", after=memory("other"))),
            receipt=Receipt(key="k1", fingerprint="f", answer=b'{"memory":{"id":"secret","content":"kumquat"}}'),
        ),
    )
    again = b'{"results":[{"decision":"duplicate","memory_id":"secret"}]}'
    await store.commit(NAMESPACE, ChangeSet(run=run("2"), receipt=Receipt(key="k2", fingerprint="f", answer=again)))
    await store.commit(
        NAMESPACE, ChangeSet(run=run("3"), receipt=Receipt(key="k3", fingerprint="f", answer=b'{"id":"other"}'))
    )
    await store.log(
        NAMESPACE, retrievals=[retrieval("r1", ["secret", "other"], "kumquat?"), retrieval("r2", ["other"])]
    )
    await store.commit(
        NAMESPACE,
        ChangeSet(
            run=run("4"),
            erases=("secret",),
            events=(event("e3", "secret", action="erase", reason="My locker code is kumquat.", before=secret),),
        ),
    )
    assert await store.get(NAMESPACE, ["secret"]) == []
    assert await found(store, search(tokens("kumquat"))) == ["other"]
    events = await store.read(NAMESPACE, "events")
    assert [(e.id, e.before, e.after is None) for e in events] == [
        ("e1", None, True),
        ("e2", None, False),
        ("e3", None, True),
    ]
    assert b"kumquat" not in msgspec.json.encode(events)
    assert [await store.receipt(NAMESPACE, key) is None for key in ("k1", "k2", "k3")] == [True, True, False]
    assert [r.id for r in await store.read(NAMESPACE, "retrievals")] == ["r2"]


async def test_a_receipt_of_a_memory_with_an_unusual_id_goes_with_it(store: MemoryStore) -> None:
    for memory_id in ('a"b', "a\\b", "é🫖"):
        answer = msgspec.json.encode({"memory_id": memory_id, "content": "The kettle is blue."})
        changes = puts(record(memory(memory_id)), run_id=memory_id)
        receipt = Receipt(key=memory_id, fingerprint="f", answer=answer)
        await store.commit(NAMESPACE, replace(changes, receipt=receipt))
        await store.commit(NAMESPACE, ChangeSet(run=run("e"), erases=(memory_id,)))
        assert await store.receipt(NAMESPACE, memory_id) is None


async def test_erasing_what_is_not_there_is_no_error(store: MemoryStore) -> None:
    await store.commit(NAMESPACE, puts(record(memory("a"))))
    await store.commit(NAMESPACE, ChangeSet(run=run("2"), erases=("nosuch",)))
    assert await store.head(NAMESPACE) == Head(sequence=2, memories=1)


async def test_an_erased_id_may_be_learned_anew(store: MemoryStore) -> None:
    await store.commit(NAMESPACE, puts(record(memory("a"))))
    await store.log(NAMESPACE, accesses=[Access(memory_id="a", at=START_MS)])
    await store.commit(NAMESPACE, ChangeSet(run=run("2"), erases=("a",)))
    await store.commit(NAMESPACE, puts(record(memory("a", "Fresh."))))
    (got,) = await store.get(NAMESPACE, ["a"])
    assert (got.memory.content, got.memory.access_count) == ("Fresh.", 0)


async def test_a_search_logged_after_its_hit_was_erased_leaves_no_entry(store: MemoryStore) -> None:
    await store.commit(NAMESPACE, puts(record(memory("a")), record(memory("b"))))
    await store.commit(NAMESPACE, ChangeSet(run=run("2"), erases=("a",)))
    await store.log(NAMESPACE, retrievals=[retrieval("r1", ["a", "b"]), retrieval("r2", ["b"]), retrieval("r3", [])])
    assert [r.id for r in await store.read(NAMESPACE, "retrievals")] == ["r2", "r3"]


# -- logs -------------------------------------------------------------------------------------------------------------


async def test_accesses_add_up_and_change_neither_version_nor_clocks(store: MemoryStore) -> None:
    await store.commit(NAMESPACE, puts(record(memory("a")), record(memory("b"))))
    sequence = (await store.head(NAMESPACE)).sequence
    await store.log(
        NAMESPACE, accesses=[Access(memory_id="a", at=START_MS + DAY_MS, count=2), Access(memory_id="x", at=1)]
    )
    await store.log(NAMESPACE, accesses=[Access(memory_id="a", at=START_MS)])
    expected = replace(memory("a"), access_count=3, last_accessed_at=LATER)
    (got, untouched) = await store.get(NAMESPACE, ["a", "b"])
    assert got.memory == expected
    assert untouched.memory == memory("b")
    assert (await store.scan(NAMESPACE, EVERYTHING, after=None, limit=1))[0].memory == expected
    assert {hit.memory.id: hit.memory for hit in (await store.rank(NAMESPACE, search())).hits}["a"] == expected
    assert await store.get(NAMESPACE, ["x"]) == []
    assert (await store.head(NAMESPACE)).sequence == sequence


async def test_a_change_keeps_the_accesses_counted_meanwhile(store: MemoryStore) -> None:
    await store.commit(NAMESPACE, puts(record(memory("a"))))
    (read,) = await store.get(NAMESPACE, ["a"])
    await store.log(NAMESPACE, accesses=[Access(memory_id="a", at=START_MS, count=5)])
    await store.commit(NAMESPACE, puts(successor(read, confidence=0.5)))
    (kept,) = await store.get(NAMESPACE, ["a"])
    assert kept.memory.access_count == 5
    (read,) = await store.get(NAMESPACE, ["a"])
    await store.log(NAMESPACE, accesses=[Access(memory_id="a", at=START_MS + DAY_MS, count=2)])
    await store.commit(NAMESPACE, puts(successor(read, confidence=0.25)))
    (kept,) = await store.get(NAMESPACE, ["a"])
    assert (kept.memory.access_count, kept.memory.last_accessed_at) == (7, LATER)
    other = memory("a", "Another text.", version=4)
    await store.commit(NAMESPACE, puts(record(other, unit(1))))
    (moved,) = await store.get(NAMESPACE, ["a"])
    assert moved.memory == replace(other, access_count=7, last_accessed_at=LATER)


async def test_logs_are_read_by_id_with_every_filter(store: MemoryStore) -> None:
    await store.commit(
        NAMESPACE,
        ChangeSet(
            run=run("run-1"),
            puts=(record(memory("a")), record(memory("b"))),
            events=(event("e2", "b", "run-1", at=LATER), event("e1", "a", "run-1", reason="said so")),
        ),
    )
    await store.commit(NAMESPACE, ChangeSet(run=run("run-2", at=LATER), events=(event("e3", "a", "run-2", at=LATER),)))
    await store.log(NAMESPACE, retrievals=[retrieval("q2", ["b"], at=LATER), retrieval("q1", ["a", "b"])])

    async def ids(log: str, **filters: object) -> list[str]:
        entries = await store.read(NAMESPACE, log, **filters)
        return [e.run_id if log == "runs" else e.id for e in entries]

    after_start = START_MS + 1
    assert await ids("events") == ["e1", "e2", "e3"]
    assert await ids("events", memory_id="a") == ["e1", "e3"]
    assert await ids("events", run_id="run-1") == ["e1", "e2"]
    assert await ids("events", ids=["e3", "e1", "nosuch"]) == ["e1", "e3"]
    assert await ids("events", since=after_start) == ["e2", "e3"]
    assert await ids("events", since=START_MS + DAY_MS) == ["e2", "e3"]
    assert await ids("events", after="e1", limit=1) == ["e2"]
    assert await ids("runs") == ["run-1", "run-2"]
    assert await ids("runs", run_id="run-2") == ["run-2"]
    assert await ids("runs", ids=["run-1"]) == ["run-1"]
    assert await ids("runs", memory_id="b") == ["run-1"]
    assert await ids("runs", since=after_start) == ["run-2"]
    assert await ids("retrievals") == ["q1", "q2"]
    assert await ids("retrievals", memory_id="a") == ["q1"]
    assert await ids("retrievals", since=after_start, after="q1") == ["q2"]
    assert (await store.read(NAMESPACE, "events", ids=["e1"]))[0] == event("e1", "a", "run-1", reason="said so")
    assert (await store.read(NAMESPACE, "retrievals", ids=["q1"]))[0] == retrieval("q1", ["a", "b"])


async def test_a_retrieval_logged_twice_is_kept_once(store: MemoryStore) -> None:
    for _ in range(2):
        await store.log(NAMESPACE, retrievals=[retrieval("q", [])])
    assert len(await store.read(NAMESPACE, "retrievals")) == 1


async def test_an_undone_run_says_by_which(store: MemoryStore) -> None:
    await store.commit(NAMESPACE, puts(record(memory("a")), run_id="run-1"))
    await store.commit(NAMESPACE, ChangeSet(run=run("run-2", undoes="run-1"), undone="run-1"))
    first, second = await store.read(NAMESPACE, "runs")
    assert (first.undone_by, second.undoes) == ("run-2", "run-1")


async def test_a_run_of_several_change_sets_is_one_run_with_its_latest_figures(store: MemoryStore) -> None:
    for count in (1, 2):
        changes = ChangeSet(run=run("run-1", count=count), puts=(record(memory(str(count))),))
        await store.commit(NAMESPACE, changes)
    (one,) = await store.read(NAMESPACE, "runs")
    assert one.count == 2
    assert await scanned(store, EVERYTHING) == ["1", "2"]


async def test_a_receipt_is_kept_once_and_its_key_cannot_be_used_again(store: MemoryStore) -> None:
    receipt = Receipt(key="k", fingerprint="f", answer=b'{"run_id":"1"}')
    await store.commit(NAMESPACE, ChangeSet(run=run("1"), puts=(record(memory("a")),), receipt=receipt))
    assert await store.receipt(NAMESPACE, "k") == receipt
    assert await store.receipt(NAMESPACE, "nosuch") is None
    with pytest.raises(Conflict):
        await store.commit(NAMESPACE, ChangeSet(run=run("2"), puts=(record(memory("b")),), receipt=receipt))
    assert await scanned(store, EVERYTHING) == ["a"]


async def test_sizes_are_counted_by_status_type_and_kind(store: MemoryStore) -> None:
    await store.commit(
        NAMESPACE,
        ChangeSet(
            run=run("1"),
            puts=(
                record(memory("a", kind="event", memory_type="episodic")),
                record(memory("b", status="archived")),
                record(memory("c", memory_type="working")),
            ),
            events=(event("e1", "a"), event("e2", "b")),
        ),
    )
    assert await store.count(NAMESPACE) == {
        "status": {"active": 2, "archived": 1},
        "memory_type": {"episodic": 1, "semantic": 1, "working": 1},
        "kind": {"event": 1, "fact": 2},
        "log": {"events": 2, "runs": 1},
    }


async def test_ids_of_any_kind_are_kept_apart(store: MemoryStore) -> None:
    ids = ["a", "A", "a%", "a_", "a&b=c", "a'", 'a"', "a\\", "🫖", "שלום", "a b", "01HX", "-"]
    await store.commit(
        NAMESPACE,
        ChangeSet(run=run("1"), puts=tuple(record(memory(i, f"text of {i}")) for i in ids)),
    )
    for memory_id in ids:
        (got,) = await store.get(NAMESPACE, [memory_id])
        assert got.memory.content == f"text of {memory_id}"
    assert await scanned(store, EVERYTHING) == sorted(ids)
    assert await scanned(store, Where(ids=("a%",))) == ["a%"]
    assert isinstance(got.memory, Memory)
