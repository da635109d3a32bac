"""Speed, memory and loading of a store, on random unit vectors and synthetic terms; prints a table with the machine.

    python tests/benchmarks/store.py [--sizes 1000 10000 100000] [--many 100] [--rounds 200]

The question's own embedding is not part of any figure. Times are of the awaited call, event loop included.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sqlite3
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from hindsight_core.indexing import IndexFields
from hindsight_core.lexical import impacts
from hindsight_core.models import AuditEvent, Memory, Run
from hindsight_core.ranking import Weights, formula
from hindsight_core.stores import ChangeSet, MemoryStore, Query, Record, Where, open_store
from hindsight_core.stores.matrix import Matrix

NOW = datetime(2025, 1, 1, tzinfo=UTC)
NOW_MS = 1_735_689_600_000
DIMENSION = 384
VOCABULARY = 20_000
SHAPE = formula(calibration=(0.0, 0.6), weights=Weights(), speakers=("ann",), days=("2024-12-24",))


FREQUENCIES = (np.arange(VOCABULARY) + 20.0) ** -1.1
TOTALS = np.cumsum(FREQUENCIES / FREQUENCIES.sum())


def words(rng: np.random.Generator, count: int) -> list[str]:
    """Terms as frequent as those of a language without its stop words (Zipf and Mandelbrot); the first is in 15 %."""
    return [f"w{rank}" for rank in np.searchsorted(TOTALS, rng.random(count)).tolist()]


def records(rng: np.random.Generator, namespace: str, first: int, count: int, *, contexts: bool) -> list[Record]:
    vectors = rng.standard_normal((2, count, DIMENSION), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    found: list[Record] = []
    for number in range(count):
        observed = NOW - timedelta(days=float(rng.integers(0, 200)))
        text = words(rng, 16)
        of = Memory(
            id=f"{first + number:026}",
            namespace=namespace,
            user_id=f"user-{number % 7}",
            session_id=f"session-{(first + number) // 40}",
            memory_type="episodic" if number % 3 else "semantic",
            content=" ".join(text),
            context=" ".join(words(rng, 16)) if contexts else None,
            speaker=["Ann", "Bo", "李雷"][number % 3],
            confidence=[1.0, 0.8, 0.5][number % 3],
            observed_at=observed,
            valid_from=observed,
            created_at=observed,
            updated_at=observed,
            tags=("imported",),
            metadata={"channel": number % 5},
        )
        index = IndexFields(
            text=impacts(text),
            context=impacts(of.context.split()) if of.context else {},
            speaker=["ann", "bo", "李雷"][number % 3],
            days=(observed.date().isoformat(), observed.strftime("%m-%d")),
        )
        bare = vectors[0, number]
        mixed = bare
        if contexts:
            mixed = bare + np.float32(0.3) * vectors[1, number]
            mixed = mixed / np.linalg.norm(mixed)
        found.append(Record(memory=of, index=index, bare=bare, mixed=mixed))
    return found


def changes(run_id: str, namespace: str, puts: list[Record]) -> ChangeSet:
    events = tuple(
        AuditEvent(
            id=f"{run_id}-{n}",
            namespace=namespace,
            memory_id=r.memory.id,
            run_id=run_id,
            at=NOW,
            actor="bench",
            action="add",
            after=r.memory,
        )
        for n, r in enumerate(puts)
    )
    run = Run(run_id=run_id, namespace=namespace, at=NOW, operation="write", count=len(puts))
    return ChangeSet(run=run, puts=tuple(puts), events=events)


async def fill(
    store: MemoryStore,
    namespace: str,
    count: int,
    *,
    contexts: bool,
    seed: int = 0,
    tell: Callable[[int], None] = lambda _done: None,
) -> None:
    """Write so many memories, searchable when all are written; `tell` hears how many there are after each page."""
    rng = np.random.default_rng(seed)
    for first in range(0, count, 1000):
        some = records(rng, namespace, first, min(1000, count - first), contexts=contexts)
        done = first + len(some)
        await store.commit(namespace, changes(f"fill-{first}", namespace, some), searchable=done == count)
        tell(done)


def query(rng: np.random.Generator) -> Query:
    vector = rng.standard_normal(DIMENSION, dtype=np.float32)
    return Query(
        vector=vector / np.linalg.norm(vector),
        terms=tuple(dict.fromkeys(words(rng, 8))),
        formula=SHAPE,
        scope=Where(alive_at=NOW_MS),
        where=Where(statuses=("active",), begun_at=NOW_MS, lasting_at=NOW_MS, alive_at=NOW_MS),
        now=NOW_MS,
        limit=8,
    )


async def timed(rounds: int, call: Callable[[int], Awaitable[object]]) -> tuple[float, float]:
    """Median and 95th percentile in milliseconds."""
    took: list[float] = []
    for number in range(rounds):
        start = time.perf_counter()
        await call(number)
        took.append((time.perf_counter() - start) * 1000)
    cuts = statistics.quantiles(took, n=20)
    return statistics.median(took), cuts[-1]


def once(size: int) -> float:
    """Milliseconds that this machine takes to multiply all vectors of a namespace with one: what a full scan costs."""
    matrix = Matrix(DIMENSION)
    matrix.put(0, np.ones((size, DIMENSION), np.float32))
    vector, slots = np.ones(DIMENSION, np.float32), np.arange(size)
    took: list[float] = []
    for _ in range(20):
        start = time.perf_counter()
        matrix.products(vector, slots)
        took.append((time.perf_counter() - start) * 1000)
    return statistics.median(took)


def resident_mb() -> float:
    """Resident memory of this process in MB (10^6 bytes)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def measure(path: Path, name: str, spaces: list[str], size: int, rounds: int) -> None:
    """One row: load, rank, neighbours, commit, and the memory that the loaded index takes."""
    rng = np.random.default_rng(99)
    store = open_store(str(path))
    await store.prepare("bench")
    # What the process takes for itself, such as the buffers of the BLAS, is not the index's.
    await store.rank("nobody", query(rng))
    once(1000)
    before = resident_mb()
    start = time.perf_counter()
    for namespace in spaces:
        await store.rank(namespace, query(rng))
    load = time.perf_counter() - start
    grown = resident_mb() - before
    ready = [query(rng) for _ in range(rounds)]
    rank = await timed(rounds, lambda n: store.rank(spaces[n % len(spaces)], ready[n]))
    vectors = rng.standard_normal((rounds, 1, DIMENSION), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    near = await timed(rounds, lambda n: store.neighbours(spaces[n % len(spaces)], vectors[n], Where(), 10))
    first = 10_000_000 + (await store.head(spaces[0])).memories
    fresh = records(rng, spaces[0], first, rounds, contexts=True)

    async def commit(number: int) -> None:
        await store.commit(spaces[0], changes(f"commit-{first + number}", spaces[0], [fresh[number]]))

    write = await timed(rounds, commit)
    total = size * len(spaces)
    cells = [f"{a:.2f} / {b:.2f}" for a, b in (rank, near, write)]
    print(
        f"| {name} | {cells[0]} | {cells[1]} | {cells[2]} | {once(size):.2f} | {load:.2f} | {grown:.0f}"
        f" | {grown / total * 1e5:.0f} |"
    )
    sys.stdout.flush()
    await store.aclose()


async def prepare(path: Path, spaces: list[str], size: int, *, contexts: bool) -> None:
    store = open_store(str(path))
    await store.prepare("bench")
    for number, namespace in enumerate(spaces):
        await fill(store, namespace, size, contexts=contexts, seed=number)
    await store.aclose()


def in_child(work: Callable[[], None]) -> None:
    """Run in a fresh process, so that its memory is its own."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    if os.waitpid(child, 0)[1]:
        sys.exit(1)


def machine() -> str:
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    cpu = names[0].partition(":")[2].strip() if names else platform.processor()
    versions = f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, numpy {np.__version__}"
    return f"{cpu}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {platform.system()}; {versions}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[1000, 10_000, 100_000])
    parser.add_argument("--many", type=int, default=100, help="namespaces of 1 000 memories in one file; 0 for none")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--no-contexts", action="store_true", help="memories without the turn before")
    parser.add_argument("--keep", type=Path, help="directory in which filled files are kept and found again")
    given = parser.parse_args()
    print(machine())
    print(
        "p50 / p95 in ms; load in s; MB of 10^6 bytes; 384 dimensions, 16 terms"
        + ("" if given.no_contexts else " + 16")
    )
    print()
    print("| memories | rank | neighbours | commit | all vectors once | load | MB | MB per 100 000 |")
    print("|---|---|---|---|---|---|---|---|")
    sys.stdout.flush()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.keep or Path(scratch)
        folder.mkdir(exist_ok=True)
        plans = [(f"{size}", ["bench"], size) for size in given.sizes]
        if given.many:
            plans.append((f"{given.many} × 1000", [f"bench-{n}" for n in range(given.many)], 1000))
        for name, spaces, size in plans:
            path = folder / f"{len(spaces)}-{size}-{given.no_contexts}.db"
            if not path.exists():
                in_child(lambda p=path, s=spaces, n=size: asyncio.run(prepare(p, s, n, contexts=not given.no_contexts)))
            in_child(lambda p=path, m=name, s=spaces, n=size: asyncio.run(measure(p, m, s, n, given.rounds)))


if __name__ == "__main__":
    main()
