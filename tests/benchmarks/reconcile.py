"""What a decision about a new memory among 16 neighbours costs, and how often one without a counterpart changes others.

    python tests/benchmarks/reconcile.py [--pairs 400] FILE...

Each file of pairs (the shape of `hindsight eval reconcile`) is one writer: the old texts are the memories, the new
ones are written among the 16 nearest, once with the text that they are about and once without it. Times are of
`reconcile` alone: neither embedding nor the neighbour search. "Contested without" counts new texts that put some other
memory in doubt though theirs is not there; one writer's texts share their subjects, so that is the hard case.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np

from hindsight_core.embedding import open_embedder
from hindsight_core.indexing import index_fields
from hindsight_core.models import Memory
from hindsight_core.reconciliation import reconcile
from hindsight_core.stores import Neighbour, Record
from hindsight_core.training.pairs import Pair, Side

NEIGHBOURS = 16
NOW = datetime(2025, 6, 1, tzinfo=UTC)


def memory(side: Side, memory_id: str) -> Memory:
    return msgspec.structs.replace(side.memory(memory_id), valid_from=NOW, created_at=NOW, updated_at=NOW)


async def measure(files: list[Path], most: int) -> None:
    embedder = open_embedder()
    taken: list[float] = []
    worked: list[float] = []
    found: dict[str, Counter[str]] = {"with": Counter(), "without": Counter()}
    kept = missed = 0
    for file in files:
        pairs = [msgspec.json.decode(line, type=Pair) for line in file.read_bytes().splitlines()][:most]
        texts = list(dict.fromkeys(pair.old.content for pair in pairs))
        olds = {pair.old.content: pair.old for pair in pairs}
        vectors = await embedder.embed(texts, "passage")
        news = await embedder.embed([pair.new.content for pair in pairs], "passage")
        records: list[Record] = []
        for i, text in enumerate(texts):
            stored = msgspec.structs.replace(memory(olds[text], f"old-{i}"), embedding_model=embedder.identity.name)
            records.append(Record(memory=stored, index=index_fields(stored), bare=vectors[i], mixed=vectors[i]))
        for pair, vector in zip(pairs, news, strict=True):
            cosines = vectors @ vector
            order = np.argsort(-cosines, kind="stable").tolist()
            new = memory(pair.new, "new")
            for case, places in (("with", order), ("without", [i for i in order if texts[i] != pair.old.content])):
                near = [Neighbour(record=records[i], cosine=float(cosines[i])) for i in places[:NEIGHBOURS]]
                began, busy = time.perf_counter(), time.process_time()
                outcome = reconcile(new, vector, near, embedding_model=embedder.identity.name)
                taken.append((time.perf_counter() - began) * 1e3)
                worked.append((time.process_time() - busy) * 1e3)
                found[case][outcome.decision] += 1
                if case == "with" and pair.expect == "supersede":
                    kept += 1
                    touched = {*outcome.targets, *(contender.id for contender in outcome.contests)}
                    missed += f"old-{texts.index(pair.old.content)}" not in touched
    await embedder.aclose()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; {embedder.identity}")
    print(f"{len(taken)} decisions among {NEIGHBOURS} neighbours")
    for name, times in (("wall clock", taken), ("processor", worked)):
        p50, p95 = np.percentile(times, [50, 95])
        print(f"{name}: {p50:.2f} ms at p50, {p95:.2f} ms at p95")
    print(f"true supersessions neither made nor contested among all: {missed / max(1, kept):.1%} of {kept}")
    for case, counts in found.items():
        total = sum(counts.values())
        shares = ", ".join(f"{name} {count / total:.1%}" for name, count in counts.most_common())
        print(f"{case} the counterpart: {shares}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--pairs", type=int, default=400, help="at most this many of a file")
    chosen = parser.parse_args()
    asyncio.run(measure(chosen.files, chosen.pairs))


main()
