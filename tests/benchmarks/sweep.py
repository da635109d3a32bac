"""Sweeps over a large store: how long they take, how much memory, and what a search beside them costs.

    python tests/benchmarks/sweep.py [--memories 1000000] [--store opensearch://HOST:9200/bench] [--page sweep.html]

A store is filled with random unit vectors and synthetic terms, and of its memories ever more expire. Each time a
process of its own, as the scheduler is one, archives what has expired, while this one goes on searching. Printed and
plotted are the time of each sweep over the number of memories it touched, the resident memory of the sweeping process,
and the 95th percentile of a search during a sweep over that of the searches right before and right after it, together,
since on a shared machine other work comes and goes. A search is what the service asks of the store for one: the head
of the namespace and the best memories. The vectors are short (`--dimension`), which saves room and changes nothing
about sweeps.

The sweeping process changes as many memories a second as `HINDSIGHT_SWEEP_RATE` says, 1 000 where nothing is said;
`--rate 0` lifts that.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import store as filling
from plots import page, plot

from hindsight_core.caller import Caller
from hindsight_core.config import load
from hindsight_core.ids import new_id
from hindsight_core.requests import SweepRequest
from hindsight_core.service import MemoryService
from hindsight_core.stores import MemoryStore, open_store
from hindsight_scheduler.__main__ import give_way

NAMESPACE = "bench"
SHARES = (0.0025, 0.005, 0.01, 0.02)
_PAUSE = 0.02


class Row(NamedTuple):
    """One sweep."""

    touched: int
    seconds: float
    rss_before: float
    rss_peak: float
    alone: float
    beside: float


def expiring(count: int) -> tuple[Callable[[int], Any], list[int]]:
    """When the memory of a number expires (None: never), spread over the ids; and how many do in each round."""
    rounds = [max(1, int(count * share)) for share in SHARES]
    order = np.random.default_rng(5).permutation(count)[: sum(rounds)]
    when: dict[int, int] = {}
    start = 0
    for number, size in enumerate(rounds):
        when.update(dict.fromkeys(order[start : start + size].tolist(), number))
        start += size

    def expires(number: int) -> Any:
        found = when.get(number)
        return None if found is None else filling.NOW + timedelta(days=found + 1)

    return expires, rounds


async def fill(store: MemoryStore, count: int) -> None:
    """`count` memories as the store's own benchmark makes them, some of which expire."""
    rng = np.random.default_rng(0)
    expires, _ = expiring(count)
    for first in range(0, count, 1000):
        some = filling.records(rng, NAMESPACE, first, min(1000, count - first), contexts=False)
        dated = [
            msgspec.structs.replace(
                one, memory=msgspec.structs.replace(one.memory, expires_at=expires(first + number), confidence=1.0)
            )
            for number, one in enumerate(some)
        ]
        await store.commit(NAMESPACE, filling.changes(f"fill-{first}", NAMESPACE, dated))
        if first % 100_000 == 0:
            print(f"\rfilling: {first:,}", end="", file=sys.stderr, flush=True)


async def sweeping(url: str, day: int, rate: int) -> None:
    """The other process: sweep once, and print what it took as JSON."""
    give_way()
    store = open_store(url, cache_bytes=16 << 20)
    await store.prepare(None)
    service = MemoryService(store, None, msgspec.structs.replace(load({}, data_dir=Path()), sweep_rate=rate))
    now = filling.NOW + timedelta(days=day + 1)
    caller = Caller(now=now, new_id=new_id, namespace=NAMESPACE, actor="bench")
    before = peak = filling.resident_mb()
    print(json.dumps("begin"), flush=True)
    start = time.perf_counter()
    touched = 0
    request = SweepRequest(policies=("expire",))
    while True:
        report = await service.sweep(msgspec.structs.replace(request, budget_seconds=1.0), caller)
        touched += report.count
        peak = max(peak, filling.resident_mb())
        if report.cursor is None:
            break
        request = msgspec.structs.replace(request, cursor=report.cursor)
    seconds = time.perf_counter() - start
    await store.aclose()
    print(json.dumps({"touched": touched, "seconds": seconds, "before": before, "peak": peak}), flush=True)


async def searched(store: MemoryStore, rng: np.random.Generator, until: Callable[[], bool], least: int) -> list[float]:
    """What searches took, one after the other with short pauses, in milliseconds."""
    took: list[float] = []
    while len(took) < least or not until():
        query = filling.query(rng)
        start = time.perf_counter()
        await store.head(NAMESPACE, waiting=False)
        await store.rank(NAMESPACE, query)
        took.append(1000 * (time.perf_counter() - start))
        await asyncio.sleep(_PAUSE)
    return took


async def measured(url: str, given: argparse.Namespace) -> list[Row]:
    store = open_store(url, cache_bytes=4 << 30)
    await store.prepare(None)
    if (await store.head(NAMESPACE)).memories == 0:
        await fill(store, given.memories)
    rng = np.random.default_rng(9)
    await store.rank(NAMESPACE, filling.query(rng))
    rows: list[Row] = []
    before = await searched(store, rng, lambda: True, given.rounds)
    for day in range(len(SHARES)):
        command = [sys.executable, __file__, "--sweep", url, "--day", str(day), "--rate", str(given.rate)]
        environment = {**os.environ, "HINDSIGHT_BENCH_DIMENSION": str(given.dimension)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as other:  # noqa: ASYNC220 (itself)
            assert other.stdout is not None
            await asyncio.to_thread(other.stdout.readline)
            beside = await searched(store, rng, lambda one=other: one.poll() is not None, 20)
            told = json.loads(other.stdout.read())
        after = await searched(store, rng, lambda: True, given.rounds)
        alone, slow = (statistics.quantiles(took, n=20)[-1] for took in ([*before, *after], beside))
        rows.append(Row(told["touched"], told["seconds"], told["before"], told["peak"], alone, slow))
        _tell(rows[-1])
        before = after
    await store.aclose()
    return rows


def _tell(row: Row) -> None:
    print(
        f"| {row.touched:,} | {row.seconds:.1f} | {1e6 * row.seconds / max(1, row.touched):,.0f}"
        f" | {row.rss_before:.0f} → {row.rss_peak:.0f} | {row.alone:.1f} | {row.beside:.1f}"
        f" | {row.beside / row.alone:.2f} |"
    )
    sys.stdout.flush()


def _page(rows: list[Row], given: argparse.Namespace) -> str:
    at = [float(row.touched) for row in rows]
    plots = [
        plot("Time of a sweep", "memories touched", at, {"seconds": [row.seconds for row in rows]}),
        plot(
            "Resident memory of the sweeping process, MB",
            "memories touched",
            at,
            {"before": [row.rss_before for row in rows], "at its highest": [row.rss_peak for row in rows]},
        ),
        plot(
            "95th percentile of a search, ms",
            "memories touched",
            at,
            {"alone": [row.alone for row in rows], "beside a sweep": [row.beside for row in rows]},
        ),
    ]
    return page("Sweeps", [f"{given.memories:,} memories; rate {given.rate or 'unlimited'}.", filling.machine()], plots)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memories", type=int, default=1_000_000)
    parser.add_argument("--store", help="where they are put; a new file by default")
    parser.add_argument("--dimension", type=int, default=32)
    parser.add_argument("--rate", type=int, default=1000, help="memories a sweep changes a second; 0: no limit")
    parser.add_argument("--rounds", type=int, default=200, help="searches before and after each sweep")
    parser.add_argument("--page", type=Path, default=Path("sweep.html"))
    parser.add_argument("--sweep", help=argparse.SUPPRESS)
    parser.add_argument("--day", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    filling.DIMENSION = int(os.environ.get("HINDSIGHT_BENCH_DIMENSION", given.dimension))
    if given.sweep:
        asyncio.run(sweeping(given.sweep, given.day, given.rate))
        return
    print(filling.machine())
    print(f"{given.memories:,} memories; p95 of a search in ms; resident memory of the sweeping process in MB")
    print()
    print("| touched | s | µs each | MB | p95 alone | p95 beside | ratio |")
    print("|---|---|---|---|---|---|---|")
    sys.stdout.flush()
    folder = Path(tempfile.mkdtemp())
    try:
        rows = asyncio.run(measured(given.store or str(folder / "sweep.db"), given))
    finally:
        shutil.rmtree(folder)
    given.page.write_text(_page(rows, given), encoding="utf-8")
    each = [row.seconds / max(1, row.touched) for row in rows]
    print()
    print(f"time a memory, most over least: {max(each) / min(each):.2f}")
    print(f"memory of the sweeping process grew by {max(row.rss_peak - row.rss_before for row in rows):.0f} MB at most")
    print(f"p95 of a search beside a sweep: {max(row.beside / row.alone for row in rows):.2f} times at most")


if __name__ == "__main__":
    main()
