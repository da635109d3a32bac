"""What the embedded store holds in memory: bounded, as fresh as the file, and the same however it grew."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hindsight_core.errors import Conflict
from hindsight_core.ranking import Weights, formula
from hindsight_core.stores import ChangeSet, Record, Where, exact, near
from hindsight_core.stores.bare import BareVectors, Rows
from hindsight_core.stores.columns import Columns
from hindsight_core.stores.matrix import Matrix, Vectors
from hindsight_core.stores.postings import Postings
from hindsight_core.stores.resident import Resident
from hindsight_core.stores.residents import Residents
from hindsight_core.stores.rows import TERM
from hindsight_core.stores.sqlite import SqliteStore
from reference import cosine, ranked
from samples import EVERYTHING, NAMESPACE, memory, puts, random_records, record, run, search, unit

WORDS = ["kettl", "tea", "harbour", "北京", "花园"]


async def filled(path: Path, namespaces: int, count: int) -> SqliteStore:
    store = SqliteStore(path)
    for number in range(namespaces):
        namespace = f"n{number}"
        put = [record(memory(str(n), namespace=namespace), unit(n, 64)) for n in range(count)]
        await store.commit(namespace, puts(*put))
    await store.aclose()
    return SqliteStore(path)


def connection(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


# -- columns ---------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.integers(0, 90), st.lists(st.sampled_from([0.0, 1.5, float("nan")]), min_size=1, max_size=3)),
        max_size=8,
    ),
    st.booleans(),
)
def test_columns_hold_what_was_put_whether_it_is_all_the_same_or_not(
    growth: list[tuple[int, list[float]]], again: bool
) -> None:
    columns = Columns({"number": np.dtype(np.float64), "name": np.dtype("S1")})
    numbers, names = np.zeros(0), np.zeros(0, "S8")
    for count, values in growth:
        slots = columns.extend(count)
        fresh = np.resize(np.array(values), count)
        numbers, names = np.append(numbers, fresh), np.append(names, np.array([b"x" * len(values)] * count, "S8"))
        columns.put("number", slots, fresh)
        columns.put("name", slots, [b"x" * len(values)] * count)
        if again and columns.size:
            at = np.arange(0, columns.size, 3)
            numbers[at] = values[-1]
            columns.put("number", at, values[-1])
        np.testing.assert_array_equal(columns["number"], numbers)
        assert columns["name"].tolist() == names.tolist()


def test_a_column_that_is_all_the_same_takes_no_memory() -> None:
    columns = Columns({"number": np.dtype(np.float64)})
    for value in (float("nan"), float("nan"), 2.0):
        assert columns.nbytes == 8
        columns.put("number", columns.extend(1000), value)
    assert columns.nbytes >= 3000 * 8


# -- namespaces in memory ---------------------------------------------------------------------------------------------


async def test_the_least_recently_used_namespaces_go_when_all_are_too_large(tmp_path: Path) -> None:
    await (await filled(tmp_path / "a.db", 4, 100)).aclose()
    file = connection(tmp_path / "a.db")
    alone = Resident("n0")
    alone.catch_up(file)
    residents = Residents(limit=int(alone.nbytes * 2.5))
    held: dict[str, Resident] = {}
    for namespace in ("n0", "n1", "n0", "n2"):
        with residents.caught_up(file, namespace) as resident:
            assert resident.size == 100
            if namespace in held:
                assert resident is held[namespace]
            held[namespace] = resident
    with residents.caught_up(file, "n0") as resident:
        assert resident is held["n0"]
    with residents.caught_up(file, "n1") as resident:
        assert resident is not held["n1"]
    file.close()


async def test_a_namespace_in_use_is_not_evicted_nor_is_one_that_is_larger_than_the_cache(tmp_path: Path) -> None:
    await (await filled(tmp_path / "a.db", 2, 100)).aclose()
    file, other = connection(tmp_path / "a.db"), connection(tmp_path / "a.db")
    residents = Residents(limit=1)
    with residents.caught_up(file, "n0") as first:
        with residents.caught_up(other, "n1") as second:
            assert (first.size, second.size) == (100, 100)
        with residents.caught_up(other, "n1") as again:
            assert again.size == 100
    with residents.caught_up(file, "n0") as resident:
        assert resident is first
    file.close()
    other.close()


async def test_what_is_let_go_while_it_is_waited_for_does_not_count_any_more(tmp_path: Path) -> None:
    store = await filled(tmp_path / "a.db", 2, 20)
    file, other = connection(tmp_path / "a.db"), connection(tmp_path / "a.db")
    residents = Residents(limit=1)
    with residents.caught_up(file, "n0") as first:
        pass
    await store.commit("n0", puts(record(memory("late", namespace="n0"), unit(3, 64)), run_id="late"))
    await store.aclose()

    class Overtaken:
        """The lock of a namespace that makes room for another between being found and being locked."""

        def __init__(self, lock: threading.Lock) -> None:
            self._lock = lock
            self.release, self.locked = lock.release, lock.locked

        def acquire(self, blocking: bool = True) -> bool:
            with residents.caught_up(other, "n1"):
                pass
            return self._lock.acquire(blocking)

    first.lock = Overtaken(first.lock)  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
    residents.follow(file, "n0")
    assert first.size == 21
    assert residents._sizes.keys() == residents._held.keys() == {"n1"}


async def test_a_store_with_a_tiny_cache_answers_as_one_with_a_large_one(tmp_path: Path) -> None:
    await (await filled(tmp_path / "a.db", 3, 50)).aclose()
    large, tiny = SqliteStore(tmp_path / "a.db"), SqliteStore(tmp_path / "a.db", cache_bytes=0)
    for number in (0, 1, 0, 2, 1):
        query = search(["kettl"], unit(number, 64))
        assert await large.rank(f"n{number}", query) == await tiny.rank(f"n{number}", query)
    await large.aclose()
    await tiny.aclose()


async def test_rows_that_died_are_dropped_when_they_are_many(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    ids = [f"{n:05}" for n in range(1600)]
    await store.commit(NAMESPACE, puts(*(record(memory(i), unit(n)) for n, i in enumerate(ids))))
    file = connection(tmp_path / "a.db")
    resident = Resident(NAMESPACE)
    resident.catch_up(file)
    await store.commit(NAMESPACE, ChangeSet(run=run("2"), erases=tuple(ids[:1200])))
    resident.catch_up(file)
    assert (resident.size, resident.alive) == (1600, 400)
    await store.commit(NAMESPACE, puts(record(memory("new"), unit(9999))))
    assert resident.catch_up(file)
    assert (resident.size, resident.alive) == (401, 401)
    assert not resident.catch_up(file)
    file.close()
    await store.aclose()


async def test_a_read_that_fails_halfway_leaves_nothing_half_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "a.db")
    query = search(["kettl"], unit(3))
    await store.commit(NAMESPACE, puts(*(record(memory(str(n)), unit(n)) for n in range(20))))
    expected = await store.rank(NAMESPACE, query)
    await store.commit(NAMESPACE, puts(record(memory("zz", status="archived"), unit(99))))

    def fails(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(Postings, "add", fails)
        with pytest.raises(MemoryError):
            await store.rank(NAMESPACE, query)
    fresh = SqliteStore(tmp_path / "a.db")
    for asked in (query, replace(query, where=Where(statuses=("archived",)))):
        assert await store.rank(NAMESPACE, asked) == await fresh.rank(NAMESPACE, asked)
    assert expected.hits[0].parts.lexical > 0
    await fresh.aclose()
    await store.aclose()


# -- the parts of it --------------------------------------------------------------------------------------------------


@given(
    batches=st.lists(
        st.lists(st.dictionaries(st.integers(0, 12), st.integers(1, 65535), max_size=4), max_size=5), max_size=9
    ),
    dead=st.sets(st.integers(0, 40)),
)
def test_postings_find_every_living_holder_however_they_were_merged(
    batches: list[list[dict[int, int]]], dead: set[int]
) -> None:
    postings, expected = Postings(), dict[tuple[int, int], int]()
    live = np.ones(64, np.bool_)
    live[list(dead)] = False
    first = 0
    for batch in batches:
        terms = np.array([item for row in batch for item in row.items()], TERM)
        postings.add(terms, np.array([len(row) for row in batch], np.int64), first, live)
        for slot, row in enumerate(batch, first):
            expected.update({(term, slot): impact for term, impact in row.items() if slot not in dead})
        first += len(batch)
    found: dict[tuple[int, int], int] = {}
    for position, slots, impacts in postings.find(range(14)):
        for slot, impact in zip(slots.tolist(), impacts.tolist(), strict=True):
            if slot not in dead:
                assert (position, slot) not in found
                found[position, slot] = impact
    assert found == expected


def test_postings_of_many_small_additions_stay_few_segments() -> None:
    postings, live = Postings(), np.ones(3000, np.bool_)
    for slot in range(3000):
        postings.add(np.array([(7, 1), (slot + 100, 2)], TERM), np.array([2]), slot, live)
    pieces = [slots for _, slots, _ in postings.find([7])]
    assert sum(len(slots) for slots in pieces) == 3000
    assert len(pieces) <= 13


def test_merging_postings_leaves_out_what_died() -> None:
    postings, live = Postings(), np.ones(100, np.bool_)
    postings.add(np.array([(7, 1)] * 60, TERM), np.ones(60, np.int64), 0, live)
    live[:50] = False
    postings.add(np.array([(7, 2)] * 40, TERM), np.ones(40, np.int64), 60, live)
    ((_, slots, impacts),) = postings.find([7])
    assert sorted(zip(slots.tolist(), impacts.tolist(), strict=True)) == [
        *((slot, 1) for slot in range(50, 60)),
        *((slot, 2) for slot in range(60, 100)),
    ]
    live[:] = False
    postings.add(np.array([(8, 1)] * 40, TERM), np.ones(40, np.int64), 100, np.zeros(140, np.bool_))
    assert list(postings.find([7, 8])) == []


@pytest.mark.parametrize("count", [1, 511, 1300])
def test_products_are_those_of_the_rows_asked_for_whether_few_or_many(count: int) -> None:
    rng = np.random.default_rng(count)
    vectors = rng.standard_normal((count, 384)).astype(np.float32)
    matrix = Matrix(384)
    for start in range(0, count, 100):
        matrix.put(start, vectors[start : start + 100])
    query = rng.standard_normal((384, 3)).astype(np.float32)
    for share in (1.0, 0.7, 0.2):
        slots = np.flatnonzero(rng.random(count) <= share)
        np.testing.assert_allclose(
            matrix.products(query[:, 0], slots), vectors[slots] @ query[:, 0], rtol=1e-3, atol=1e-3
        )
        np.testing.assert_allclose(matrix.products(query, slots), vectors[slots] @ query, rtol=1e-3, atol=1e-3)
        wide = vectors[slots].astype(np.float64) @ query[:, 0].astype(np.float64)
        np.testing.assert_allclose(matrix.exact(query[:, 0], slots), wide, rtol=1e-12)
    assert matrix.exact(query[:, 0], np.array([10_000])) == [0.0]


# -- exactness beyond what fits into one look -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    """More memories than are scored without a bound, most of them in the way."""
    path = tmp_path_factory.mktemp("large") / "large.db"
    rng = random.Random(1)
    records = []
    for n, base in enumerate(random_records(21, 3000)):
        of = replace(base.memory, id=f"{n:05}", status="active", memory_type=rng.choice(["episodic", "semantic"]))
        records.append(record(of, unit(n)))
    records += [record(memory(f"{n:05}", confidence=rng.choice([0.2, 1.0])), unit(n)) for n in range(3000, 6000)]

    async def fill() -> None:
        store = SqliteStore(path)
        await store.commit(NAMESPACE, puts(*records))
        await store.aclose()

    asyncio.run(fill())
    return path, records


@pytest.mark.parametrize("min_score", [0.0, 0.45])
@pytest.mark.parametrize("where", [EVERYTHING, Where(kinds=("fact",)), Where(kinds=("event",))])
def test_bounds_that_spare_vectors_lose_no_hit_and_no_count(
    large: tuple[Path, list[Record]], where: Where, min_score: float
) -> None:
    path, records = large
    file = connection(path)
    resident = Resident(NAMESPACE)
    resident.catch_up(file)
    for seed, weights in enumerate([Weights(), Weights(alpha=0.9), Weights(offset=0.0), Weights(alpha=0.0)]):
        by = formula(calibration=(0.0, 0.6), weights=weights)
        query = search(WORDS[: seed + 1], unit(seed * 77), where=where, by=by, min_score=min_score, limit=20)
        page = exact.rank(resident, file, query)
        everyone = [score for _, score, _ in ranked(records, replace(query, min_score=-1.0))]
        reached = [score for score in everyone if score >= min_score]
        assert [hit.score for hit in page.hits] == pytest.approx(reached[:20], abs=2e-3)
        # Only memories within the rounding of what is stored may stand on the other side of the minimum.
        edge = sum(abs(score - min_score) < 2e-3 for score in everyone)
        assert page.below == pytest.approx(page.eligible - len(reached), abs=edge)
    file.close()


def test_vectors_that_cannot_matter_are_not_read(
    large: tuple[Path, list[Record]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = large
    file = connection(path)
    resident = Resident(NAMESPACE)
    resident.catch_up(file)
    read = []
    products = Matrix.products

    def counting(self: Matrix, vectors: np.ndarray, slots: np.ndarray) -> np.ndarray:
        read.append(len(slots))
        return products(self, vectors, slots)

    monkeypatch.setattr(Matrix, "products", counting)
    by = formula(calibration=(0.0, 0.6), weights=Weights())
    exact.rank(resident, file, search(["kettl"], unit(5), by=by, limit=3))
    assert sum(read) < resident.size * 0.8
    file.close()


async def test_a_score_does_not_depend_on_where_its_memory_lies(tmp_path: Path) -> None:
    records = [record(memory(f"{n:05}"), unit(n, 384)) for n in range(1501)]
    by = formula(calibration=(-0.2, 0.6), weights=Weights(offset=0.0))
    query = search([], unit(77_777, 384), by=by, limit=100)
    pages = []
    for number in range(3):
        random.Random(number).shuffle(records)
        store = SqliteStore(tmp_path / f"{number}.db")
        await store.commit(NAMESPACE, puts(*records[number:]))
        page = (await store.rank(NAMESPACE, query)).hits
        pages.append({hit.memory.id: hit for hit in page})
        for start in range(0, 100, 7):
            few = page[start : start + 7 - number]
            alone = replace(query, where=Where(ids=tuple(hit.memory.id for hit in few)))
            assert (await store.rank(NAMESPACE, alone)).hits == few
        await store.aclose()
    for page in pages[1:]:
        common = pages[0].keys() & page.keys()
        assert len(common) > 90
        assert all(pages[0][memory_id] == page[memory_id] for memory_id in common)


async def test_neighbours_are_found_through_mixed_vectors_even_where_context_pulls_them_apart(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    records = [
        record(memory(f"{n:05}"), unit(n, 64), [unit(20_000 + n % 40, 64), unit(30_000 + n % 7, 64)])
        for n in range(6000)
    ]
    for start in range(0, 6000, 2000):
        await store.commit(NAMESPACE, puts(*records[start : start + 2000], run_id=str(start)))
    rng = np.random.default_rng(5)
    questions = []
    for n in rng.integers(0, 6000, 40):
        bare = records[n].bare
        assert bare is not None
        vector = bare + rng.standard_normal(64).astype(np.float32) * rng.choice([0.02, 0.08, 0.2])
        questions.append(vector / np.linalg.norm(vector))
    found = missed = 0
    for vector, near_by in zip(
        questions, await store.neighbours(NAMESPACE, np.stack(questions), EVERYTHING, 10), strict=True
    ):
        cosines = {r.memory.id: c for r in records if (c := cosine(vector, r.bare)) is not None}
        best = sorted(cosines, key=lambda i: cosines[i], reverse=True)[:10]
        got = {n.record.memory.id for n in near_by}
        assert {i for i in best if cosines[i] >= near.SURE + 1e-3} <= got
        found += len(got & set(best))
        missed += len(set(best) - got)
    assert found / (found + missed) >= 0.99
    await store.aclose()


async def test_a_duplicate_is_found_even_where_hundreds_look_nearer_through_their_context(tmp_path: Path) -> None:
    question = unit(1, 64)
    across = unit(2, 64) - (unit(2, 64) @ question) * question
    across /= np.linalg.norm(across)
    pulled = record(memory("duplicate"), question, [across, across])
    decoys = []
    for n in range(2000):
        side = unit(100 + n, 64) - (unit(100 + n, 64) @ question) * question
        side /= np.linalg.norm(side)
        decoys.append(record(memory(f"d{n}"), (0.85 * question + 0.5268 * side).astype(np.float32)))
    store = SqliteStore(tmp_path / "a.db")
    await store.commit(NAMESPACE, puts(pulled, *decoys))
    ((nearest,),) = await store.neighbours(NAMESPACE, np.stack([question]), EVERYTHING, 1)
    assert nearest.record.memory.id == "duplicate"
    await store.aclose()


async def test_a_file_that_is_put_back_while_it_is_open_gives_its_own_vectors(tmp_path: Path) -> None:
    store, earlier = SqliteStore(tmp_path / "a.db"), sqlite3.connect(tmp_path / "earlier.db")
    turn = [unit(9, 64)]
    await store.commit(NAMESPACE, puts(record(memory("kept"), unit(1, 64), turn), run_id="1"))
    file = connection(tmp_path / "a.db")
    file.backup(earlier)
    for run_id, seed in (("2", 2), ("3", 3)):
        # The same row each time, with another vector beside the same context.
        await store.commit(NAMESPACE, puts(record(memory(run_id), unit(seed, 64), turn), run_id=run_id))
        (near,) = await store.neighbours(NAMESPACE, np.stack([unit(seed, 64)]), EVERYTHING, 1)
        assert (near[0].record.memory.id, near[0].cosine) == (run_id, pytest.approx(1.0, abs=1e-3))
        earlier.backup(file)
        (near,) = await store.neighbours(NAMESPACE, np.stack([unit(seed, 64)]), EVERYTHING, 2)
        assert [found.record.memory.id for found in near] == ["kept"]
    earlier.close()
    file.close()
    await store.aclose()


async def test_vectors_that_are_known_are_not_read_again_and_are_the_same(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    records = [record(memory(f"{n:04}"), unit(n, 64), [unit(9000 + n, 64)]) for n in range(200)]
    await store.commit(NAMESPACE, puts(*records))
    await store.aclose()
    file, bare = connection(tmp_path / "a.db"), BareVectors()
    statements: list[str] = []
    file.set_trace_callback(statements.append)
    rows = np.arange(1, 201)
    first = bare.read(file, rows, 64)
    assert len(statements) == 1
    assert np.array_equal(bare.read(file, rows[::7], 64), first[::7])
    assert len(statements) == 1
    bare.clear()
    assert np.array_equal(bare.read(file, rows, 64), first)
    assert len(statements) == 2
    file.close()


def test_vectors_that_share_their_place_are_told_apart(tmp_path: Path) -> None:
    file, bare = connection(tmp_path / "a.db"), BareVectors()
    file.execute("CREATE TABLE vectors (row INTEGER PRIMARY KEY, bare BLOB)")
    rows = np.concatenate([np.arange(1, 5), np.arange(1, 5) + 4096, np.arange(1, 3) + 8192])
    vectors = np.stack([unit(n, 8) for n in range(len(rows))]).astype(np.float16)
    file.executemany("INSERT INTO vectors VALUES (?, ?)", zip(rows.tolist(), map(bytes, vectors), strict=True))
    for some in ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [0, 4, 8], [3, 7], [1, 9], [0, 1, 2, 3]):
        assert np.array_equal(bare.read(file, rows[some], 8), vectors[some].astype(np.float32))
    file.close()


async def test_a_namespace_in_memory_follows_a_commit_by_itself(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    await store.commit(NAMESPACE, puts(record(memory("a"), unit(1, 64))))
    await store.rank(NAMESPACE, search(vector=unit(1, 64)))  # now it is in memory
    put = puts(record(memory("b"), unit(2, 64)))
    sequence = await store.commit(NAMESPACE, put)
    with pytest.raises(Conflict):
        await store.commit(NAMESPACE, put)  # the writer is done with what came before
    residents: Residents = store._residents
    assert residents._held[NAMESPACE].sequence == sequence
    await store.aclose()


async def test_many_vectors_are_not_read_from_the_file_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question, other = unit(1, 64), unit(2, 64)
    # Their context says nothing of them, so that each may be the nearest.
    records = [record(memory(f"{n:04}"), unit(10 + n, 64), [other, other]) for n in range(1000)]
    store = SqliteStore(tmp_path / "a.db")
    await store.commit(NAMESPACE, puts(*records))
    await store.rank(NAMESPACE, search(vector=question))  # now it is in memory
    where: list[str] = []
    read = BareVectors.read

    def told(self: BareVectors, file: sqlite3.Connection, rows: Rows, dimension: int) -> Vectors:
        where.append(threading.current_thread().name)
        return read(self, file, rows, dimension)

    monkeypatch.setattr(BareVectors, "read", told)
    first = await store.neighbours(NAMESPACE, np.stack([question]), EVERYTHING, 5)
    assert where
    assert threading.current_thread().name not in where
    where.clear()
    again = await store.neighbours(NAMESPACE, np.stack([question]), EVERYTHING, 5)
    assert {*where} == {threading.current_thread().name}  # now they are known
    assert [n.cosine for n in again[0]] == [n.cosine for n in first[0]]
    await store.aclose()
