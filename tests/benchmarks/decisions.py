"""How long the gate and the recall trigger take for a text, beyond its embedding; prints a table with the machine.

CPU time is of the deciding thread, so it hardly depends on what else the machine does.

``python tests/benchmarks/decisions.py``
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hindsight_core.embedding import open_embedder
from hindsight_core.extraction import Candidate, extract
from hindsight_core.gate import judge
from hindsight_core.learned import shipped
from hindsight_core.recall import recall_needed
from hindsight_core.requests import Message

DATA = Path(__file__).parents[1] / "data" / "gate_everyday.jsonl"
ROUNDS = 10


def measured(name: str, decide: Callable[[int], object], n: int) -> None:
    wall: list[float] = []
    cpu: list[float] = []
    for _ in range(ROUNDS):
        for i in range(n):
            start, busy = time.perf_counter(), time.thread_time()
            decide(i)
            cpu.append((time.thread_time() - busy) * 1000)
            wall.append((time.perf_counter() - start) * 1000)
    for clock, took in (("wall", wall), ("CPU", cpu)):
        p50, p95, p99 = np.percentile(took, [50, 95, 99])
        print(f"| {name} | {clock} | {p50:.2f} | {p95:.2f} | {p99:.2f} |")


async def main() -> None:
    texts = [json.loads(line)["text"] for line in DATA.read_text("utf-8").splitlines()]
    embedder = open_embedder()
    vectors = await embedder.embed(texts, "passage")
    model = embedder.identity.name
    await embedder.aclose()
    candidates = [Candidate(index=0, text=text) for text in texts]
    for name in ("gate", "recall"):
        shipped(name)  # read once in a process's life
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; ms a decision\n")
    print("| decision | clock | p50 | p95 | p99 |\n|---|---|---|---|---|")
    measured("extraction", lambda i: extract([Message(role="user", text=texts[i])]), len(texts))
    measured("gate", lambda i: judge(candidates[i], vector=vectors[i], embedding_model=model), len(texts))
    measured(
        "recall",
        lambda i: recall_needed(texts[i], recent=texts[i - 2 : i], vector=vectors[i], embedding_model=model),
        len(texts),
    )


if __name__ == "__main__":
    asyncio.run(main())
