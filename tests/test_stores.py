"""The promises of `MemoryStore`, for every store: what is put is there, in the right order, and for all to see."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import numpy as np
import pytest
from msgspec.structs import replace

from hindsight_core.errors import ConfigurationError, Conflict
from hindsight_core.lexical import tokens
from hindsight_core.models import Contest
from hindsight_core.stores import ChangeSet, Head, MemoryStore, Note, Receipt, Where, reading
from reference import ranked, satisfies
from samples import (
    DAY,
    DAY_MS,
    EVERYTHING,
    LATER,
    NAMESPACE,
    START,
    START_MS,
    OpenStore,
    event,
    found,
    memory,
    puts,
    random_records,
    record,
    run,
    scanned,
    search,
    successor,
    unit,
)

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


# -- notes ------------------------------------------------------------------------------------------------------------


async def test_a_note_is_kept_for_every_process_and_replaced_only_by_who_knows_it(opened: OpenStore) -> None:
    store, other = await opened(), await opened()
    assert await store.note("tokens") == Note()
    first = await store.keep("tokens", "one: 一", expected=0)
    assert first == Note(text="one: 一", version=1)
    assert await other.note("tokens") == first
    assert await other.note("else") == Note()
    with pytest.raises(Conflict):
        await other.keep("tokens", "too late", expected=0)
    assert await other.keep("tokens", "", expected=1) == Note(version=2)
    with pytest.raises(Conflict):
        await store.keep("tokens", "too late", expected=1)
    assert await store.note("tokens") == Note(version=2)


async def test_of_many_that_replace_a_note_at_once_one_succeeds(opened: OpenStore) -> None:
    stores = [await opened() for _ in range(3)]
    tried = [store.keep("tokens", str(n), expected=0) for n, store in enumerate(stores * 2)]
    done = await asyncio.gather(*tried, return_exceptions=True)
    (kept,) = [one for one in done if isinstance(one, Note)]
    assert sum(isinstance(one, Conflict) for one in done) == 5
    assert await stores[0].note("tokens") == kept


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


async def test_what_was_erased_is_known_as_erased_and_nothing_else_is(opened: OpenStore) -> None:
    store = await opened()
    await store.commit(NAMESPACE, puts(*(record(memory(name), unit(1)) for name in "abc")))
    changed = successor(record(memory("b"), unit(1)), content="The kettle is red.")
    await store.commit(NAMESPACE, ChangeSet(run=run("two"), puts=(changed,), erases=("a",)))
    other = await opened()
    assert await other.erased(NAMESPACE, ["a", "b", "c", "d", *(f"e{n}" for n in range(600))]) == {"a"}
    assert await other.erased("elsewhere", ["a"]) == set()


async def test_a_memory_is_found_by_what_it_is_derived_from_now(store: MemoryStore) -> None:
    first = record(memory("d", derived_from=("a", "b")), unit(1))
    await store.commit(NAMESPACE, puts(first))
    await store.commit("elsewhere", puts(record(memory("d", namespace="elsewhere", derived_from=("a",)), unit(1))))
    assert await scanned(store, Where(derived_from=("a", "x"))) == ["d"]
    second = successor(first, derived_from=("b",))
    await store.commit(NAMESPACE, puts(second, run_id="two"))
    third = successor(second, derived_from=("b", "c"), content="The kettle is red.")
    assert await scanned(store, Where(derived_from=("a",))) == []
    await store.commit(NAMESPACE, puts(third, run_id="three"))
    assert [await scanned(store, Where(derived_from=(one,))) for one in "abc"] == [[], ["d"], ["d"]]


async def test_get_answers_more_ids_than_fit_into_one_statement(store: MemoryStore) -> None:
    records = [record(memory(f"{n:05}")) for n in range(1200)]
    await store.commit(NAMESPACE, puts(*records))
    ids = [r.memory.id for r in reversed(records)]
    assert [r.memory.id for r in await store.get(NAMESPACE, ids)] == ids


async def test_every_commit_raises_the_sequence_by_one_and_head_tells_size_and_speakers(opened: OpenStore) -> None:
    store, other = await opened(), await opened()
    assert await store.commit(NAMESPACE, puts(record(memory("a", speaker="Ann  LEE")), record(memory("b")))) == 1
    assert await other.head(NAMESPACE) == Head(sequence=1, latest=START_MS, memories=2, speakers=frozenset({"ann lee"}))
    (a,) = await other.get(NAMESPACE, ["a"])
    changed = replace(record(memory("a", "New.", speaker="Bo")), memory=memory("a", "New.", speaker="Bo", version=2))
    assert a.memory.version == 1
    assert await other.commit(NAMESPACE, puts(changed, run_id="2")) == 2
    assert await store.head(NAMESPACE) == Head(sequence=2, latest=START_MS, memories=2, speakers=frozenset({"bo"}))
    await store.commit(NAMESPACE, ChangeSet(run=run("3"), erases=("a",)))
    assert await other.head(NAMESPACE) == Head(sequence=3, latest=START_MS, memories=1)


async def test_the_head_knows_the_latest_clock_by_which_a_change_was_made(opened: OpenStore) -> None:
    store, other = await opened(), await opened()
    for number, days, latest in (("2", 2, 2), ("1", 3, 3), ("3", 1, 3)):
        changes = puts(record(memory(number)), run_id=number)
        await store.commit(NAMESPACE, replace(changes, run=run(number, at=START + days * DAY)))
        found = (await other.head(NAMESPACE)).latest
        assert found == (await store.head(NAMESPACE)).latest == START_MS + latest * DAY_MS


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
    assert await stores[0].head(NAMESPACE) == Head(sequence=1, latest=START_MS, memories=1)


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


# -- read your writes -------------------------------------------------------------------------------------------------


async def test_a_scan_without_vectors_differs_in_nothing_else(store: MemoryStore) -> None:
    records = random_records(3, 20)
    await store.commit(NAMESPACE, puts(*records))
    whole = await store.scan(NAMESPACE, EVERYTHING, after=None, limit=50)
    light = await store.scan(NAMESPACE, EVERYTHING, after=None, limit=50, vectors=False)
    assert len(whole) == 20
    assert any(r.bare is not None for r in whole)
    assert [(r.memory, r.index) for r in light] == [(r.memory, r.index) for r in whole]
    assert all(r.bare is None and r.mixed is None for r in light)


async def test_pages_of_what_has_expired_are_the_same_few_or_many(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = random_records(4, 60)
    await store.commit(NAMESPACE, puts(*records))
    where = Where(statuses=("active", "pending"), expired_at=START_MS)
    expected = sorted(r.memory.id for r in records if satisfies(where, r))
    assert len(expected) > 3
    for most in (0, 5000):
        monkeypatch.setattr(reading, "_SORTED_AT_MOST", most)
        seen: list[str] = []
        while page := await store.scan(NAMESPACE, where, after=seen[-1] if seen else None, limit=2):
            seen += [r.memory.id for r in page]
        assert seen == expected


async def test_a_census_counts_by_user_and_type_and_namespaces_are_those_with_memories(store: MemoryStore) -> None:
    records = random_records(6, 80)
    await store.commit(NAMESPACE, puts(*records))
    await store.commit("other", puts(record(memory("a", namespace="other")), run_id="2"))
    statuses = ("active", "superseded")
    expected = Counter((r.memory.user_id, r.memory.memory_type) for r in records if r.memory.status in statuses)
    assert await store.census(NAMESPACE, statuses) == expected
    assert await store.census("nobody", statuses) == {}
    assert await store.namespaces() == [NAMESPACE, "other"]
    assert await store.namespaces(after=NAMESPACE, limit=5) == ["other"]
    assert await store.namespaces(limit=1) == [NAMESPACE]


async def test_what_stands_after_a_text_is_found_by_it_word_for_word(store: MemoryStore) -> None:
    said = {
        "a": "I moved. My flat is in Leeds now.",
        "b": 'He said: "My flat is in Leeds"',
        "c": "我换了车，新车是蓝色的",
        "d": "ok, and?",
        "e": None,
        "f": "my flat is in leeds",
    }
    await store.commit(NAMESPACE, puts(*(record(memory(name, context=said[name])) for name in said)))
    await store.commit("other", puts(record(memory("a", namespace="other", context=said["a"])), run_id="2"))
    for texts, standing in (
        (["My flat is in Leeds"], ["a", "b"]),
        (["", "新车是蓝色的", 'said: "My'], ["b", "c"]),
        (["ok, and?", "nobody says this"], ["d"]),
        ([""], []),
        ([], []),
    ):
        assert sorted(await store.following(NAMESPACE, texts)) == standing
    await store.commit(NAMESPACE, puts(record(memory("a", version=2, context=None)), run_id="3"))
    await store.commit(NAMESPACE, ChangeSet(run=run("4"), erases=("b",)))
    assert await store.following(NAMESPACE, ["My flat is in Leeds"]) == []
    assert await store.following("nobody", ["ok"]) == []


async def test_what_was_erased_here_or_elsewhere_is_known_page_by_page(store: MemoryStore) -> None:
    await store.commit(NAMESPACE, puts(record(memory("a")), record(memory("b")), record(memory("d"))))
    await store.commit(NAMESPACE, ChangeSet(run=run("2"), erases=("b",)))
    await store.commit(NAMESPACE, ChangeSet(run=run("3"), tombstones=("c", "é", "a", "b")))
    await store.commit(NAMESPACE, ChangeSet(run=run("4"), tombstones=("c", "Z")))
    await store.commit("other", ChangeSet(run=run("1", namespace="other"), tombstones=("x",)))
    assert await store.erased(NAMESPACE, ["a", "b", "c", "d", "x", "Z", "é"]) == {"b", "c", "Z", "é"}
    assert await store.erasures(NAMESPACE, after=None, limit=10) == ["Z", "b", "c", "é"]
    assert await store.erasures(NAMESPACE, after=None, limit=2) == ["Z", "b"]
    assert await store.erasures(NAMESPACE, after="b", limit=2) == ["c", "é"]
    assert await store.erasures("nobody", after=None, limit=2) == []
    # What is held is not touched, and new memories take their places beside it.
    await store.commit(NAMESPACE, puts(record(memory("e")), run_id="5"))
    assert [r.memory.id for r in await store.get(NAMESPACE, ["a", "d", "e"])] == ["a", "d", "e"]
    assert (await store.head(NAMESPACE)).memories == 3


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
