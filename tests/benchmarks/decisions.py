"""How long decisions about a text take, beyond its embedding and the neighbour search; a table with the machine.

CPU time is of the deciding thread, so it depends less on what else the machine does. Texts are reconciled among the 16
nearest of the others; "gate + reconcile" is all that is decided about a text that is written.

``python tests/benchmarks/decisions.py``
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hindsight_core.embedding import Embedder, open_embedder
from hindsight_core.extraction import Candidate, extract
from hindsight_core.gate import judge
from hindsight_core.indexing import index_fields
from hindsight_core.learned import shipped
from hindsight_core.models import Memory
from hindsight_core.pair_reader import joined, open_reader
from hindsight_core.recall import recall_needed
from hindsight_core.reconciliation import reconcile
from hindsight_core.requests import Message
from hindsight_core.stores import Neighbour, Record

DATA = Path(__file__).parents[1] / "data" / "gate_everyday.jsonl"
ROUNDS = 10
NEIGHBOURS = 16
NOW = datetime(2025, 6, 1, tzinfo=UTC)


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


async def reading(embedder: Embedder, unread: list[tuple[str, list[Memory]]]) -> None:
    """What a reader adds: the pairs of one text at once, beside the embedding of the same texts, by the clock."""
    reader = open_reader()
    if reader is None:
        print("\nNo reader: its weights are not installed.")
        return
    asked = [[(old.content, text) for old in olds] for text, olds in unread if olds]
    counts = [len(pairs) for pairs in asked]
    print(f"\n{len(asked)} of {len(unread)} texts are read with others, with {np.mean(counts):.1f} each")
    took: dict[str, list[float]] = {"reading": [], "embedding": []}
    for pairs in asked:
        start = time.perf_counter()
        await reader.read(pairs)
        took["reading"].append((time.perf_counter() - start) * 1000)
        start = time.perf_counter()
        await embedder.embed([joined(*pair) for pair in pairs], "passage")
        took["embedding"].append((time.perf_counter() - start) * 1000)
    for name, values in took.items():
        p50, p95 = np.percentile(values, [50, 95])
        print(f"{name} the pairs of a text: {p50:.1f} ms at p50, {p95:.1f} at p95")


def memories(texts: list[str], vectors: NDArray[np.float32], model: str) -> list[Record]:
    found: list[Record] = []
    for i, text in enumerate(texts):
        memory = Memory(
            id=f"{i:04}",
            namespace="bench",
            content=text,
            valid_from=NOW,
            created_at=NOW,
            updated_at=NOW,
            embedding_model=model,
        )
        found.append(Record(memory=memory, index=index_fields(memory), bare=vectors[i], mixed=vectors[i]))
    return found


def around(records: list[Record], vectors: NDArray[np.float32], i: int) -> list[Neighbour]:
    cosines = vectors @ vectors[i]
    order: list[int] = np.argsort(-cosines, kind="stable").tolist()
    others = [j for j in order if j != i][:NEIGHBOURS]
    return [Neighbour(record=records[j], cosine=float(cosines[j])) for j in others]


async def main() -> None:
    texts = [json.loads(line)["text"] for line in DATA.read_text("utf-8").splitlines()]
    embedder = open_embedder()
    vectors = await embedder.embed(texts, "passage")
    model = embedder.identity.name
    candidates = [Candidate(index=0, text=text) for text in texts]
    records = memories(texts, vectors, model)
    near = [around(records, vectors, i) for i in range(len(texts))]

    def gate(i: int) -> None:
        judge(candidates[i], vector=vectors[i], embedding_model=model)

    def compare(i: int) -> None:
        reconcile(records[i].memory, vectors[i], near[i], embedding_model=model)

    def decide(i: int) -> None:
        gate(i)
        compare(i)

    compare(0)  # reads its weights, once in a process's life
    for name in ("gate", "recall"):
        shipped(name)  # read once in a process's life
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; ms a decision\n")
    print("| decision | clock | p50 | p95 | p99 |\n|---|---|---|---|---|")
    measured("extraction", lambda i: extract([Message(role="user", text=texts[i])]), len(texts))
    measured("gate", gate, len(texts))
    measured("reconcile", compare, len(texts))
    measured("gate + reconcile", decide, len(texts))
    measured(
        "recall",
        lambda i: recall_needed(texts[i], recent=texts[i - 2 : i], vector=vectors[i], embedding_model=model),
        len(texts),
    )
    unread: list[tuple[str, list[Memory]]] = []
    for i, text in enumerate(texts):
        asked = reconcile(records[i].memory, vectors[i], near[i], embedding_model=model).unread
        unread.append((text, [found.record.memory for found in near[i] if found.record.memory.id in asked]))
    await reading(embedder, unread)
    await embedder.aclose()


if __name__ == "__main__":
    asyncio.run(main())
