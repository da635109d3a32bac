"""Both stores on the same memories and questions, beside the bare k-NN query that OpenSearch takes for itself.

    python tests/benchmarks/stores_side_by_side.py [--sizes 1000 10000] [--rounds 100] [--url http://127.0.0.1:9200]

Without `--url` a real node is started (see localstack). 100 000 memories take about ten minutes to index on a small
machine, so they are measured only when asked for: `make bench-stores` does. The question's own embedding is no part of
any figure; calls take turns, so that what else the machine does hits all alike.

Ends with 1 when something is not so that docs/opensearch.md promises: that the scores of the two stores are the same,
and that questions with words find the exact best where only candidates are scored. What a search costs over the bare
query is held against the aim, and what questions without words find is told; neither is promised.

The bare query is the k-NN query for eight with the same filters, whole memories in its answer. "Of a hundred" is what
the service asks for, which compares the hits with each other and gives the best of them: it is held against the bare
query for eight, as a page of eight is, and against the one for as many.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec
import numpy as np
from store import DIMENSION, changes, fill, machine, query, records

from hindsight_core.stores import MemoryStore, Query, Where, open_store
from hindsight_core.stores.opensearch.address import parse
from hindsight_core.stores.opensearch.conditions import filters
from hindsight_core.stores.opensearch.connection import Connection, Json
from hindsight_core.stores.opensearch.documents import MEMORY
from hindsight_core.stores.opensearch.formula import Question, nearest, scored
from hindsight_core.stores.opensearch.indices import Indices

NAMESPACE = "bench"
# What docs/opensearch.md promises: how far scores of the two stores may be apart, and what the approximate path finds.
APART = 2e-3
RECALL = 0.99


class Figures(NamedTuple):
    """Milliseconds."""

    p50: float
    p95: float

    def __str__(self) -> str:
        return f"{self.p50:7.1f} /{self.p95:7.1f}"


async def take_turns(calls: dict[str, Callable[[int], Awaitable[object]]], rounds: int) -> dict[str, Figures]:
    """Each call once a round; the first fifth warms up and is not counted."""
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + rounds // 4):
        for name, call in calls.items():
            began = time.perf_counter()
            await call(turn)
            if turn >= rounds // 4:
                spent[name].append(1000 * (time.perf_counter() - began))
    return {
        name: Figures(statistics.median(each), statistics.quantiles(each, n=20)[-1]) for name, each in spent.items()
    }


class Progress:
    """Says how far a long filling is, ten times."""

    def __init__(self, size: int, name: str) -> None:
        self._size, self._name, self._began = size, name, time.perf_counter()

    def tell(self, done: int) -> None:
        if self._size >= 50_000 and done % (self._size // 10) == 0:
            print(f"  {done} memories are in {self._name} after {self.seconds:.0f} s", flush=True)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began


class Bare:
    """What anybody would send to the same index, without a memory's rules around it."""

    def __init__(self, url: str) -> None:
        self._connection = Connection(parse(url))
        self._indices = Indices(self._connection)

    async def nearest(self, asked: Query) -> object:
        """The k-NN query with the same filters, as many hits, whole memories."""
        assert asked.vector is not None
        where = filters(NAMESPACE, asked.where, rankable=True)
        query = nearest("mixed", asked.vector, asked.limit, where, 64).query
        return await self._indices.search("memories", NAMESPACE, {"query": query, "size": asked.limit, **MEMORY})

    async def formula(self, asked: Query, *, named: bool = False) -> object:
        """The formula alone, over all memories, in one request; `named`, with what each part of it adds to each hit."""
        question = Question(
            formula=asked.formula,
            vector=asked.vector,
            weights=dict.fromkeys(asked.terms, 5.0),
            where=filters(NAMESPACE, asked.where, rankable=True),
            now=asked.now,
        )
        query = scored(question)
        body = {"query": with_names(query) if named else query, "size": asked.limit, **MEMORY}
        path = f"/{self._indices.name('memories')}/_search"
        params = {"routing": NAMESPACE, "include_named_queries_score": "true" if named else "false"}
        answer = await self._connection.request("POST", path, body, params=params)
        assert named == ("matched_queries" in answer["hits"]["hits"][0])
        return answer

    async def settled(self) -> None:
        """Wait until what was written is merged, which would hold up whatever is measured."""
        while await self._merges():  # noqa: ASYNC110 (nothing tells of it)
            await asyncio.sleep(1)

    async def _merges(self) -> int:
        path = f"/{self._indices.name('memories')}/_stats/merge"
        merges: int = (await self._connection.request("GET", path))["_all"]["total"]["merges"]["current"]
        return merges

    async def aclose(self) -> None:
        await self._connection.aclose()


def with_names(score: Json) -> Json:
    """The same score, its clauses named: in a clause that matches nothing, so that they are computed for hits alone."""
    total = score["script_score"] if "script_score" in score else score["bool"]["must"][0]["script_score"]
    evidence = total["query"]["bool"]
    parts = [{"script_score": total | {"query": {"match_all": {}}}}, *evidence["must"], *evidence["should"]]
    named = [{kind: {**of, "_name": str(number)}} for number, part in enumerate(parts) for kind, of in part.items()]
    never: Json = {"bool": {"must_not": {"match_all": {}}}}
    return {"bool": {"must": [score], "should": [{"bool": {"filter": [never], "should": named}}]}}


async def recall(approximate: MemoryStore, exact: MemoryStore, asked: list[Query]) -> float:
    """The share of the approximate hits that are among the exact best; one of two equals is as good as the other."""
    shared = wanted = 0
    for one in asked:
        best, found = [[hit.score for hit in (await store.rank(NAMESPACE, one)).hits] for store in (exact, approximate)]
        shared += sum(score >= best[-1] - 1e-6 for score in found)
        wanted += len(best)
    return shared / wanted


def broken(apart: float, share: float) -> list[str]:
    """What is promised and does not hold, with how far the two stores' scores are apart and the recall with words."""
    found: list[str] = []
    if apart >= APART:
        found.append(f"scores of the two stores differ by {apart:.1e}, and by less than {APART:.0e} is promised")
    if share < RECALL:
        found.append(f"the approximate path finds {share:.1%} of the exact best, and {RECALL:.0%} is promised")
    return found


async def measure(size: int, rounds: int, place: str, path: Path, *, contexts: bool) -> list[str]:
    """Prints the rows of one size; what of it breaks a promise."""
    url = f"{place}/bench-{secrets.token_hex(3)}?timeout=300"
    sqlite, opensearch = open_store(str(path)), open_store(url)
    exact, approximate = open_store(f"{url}&exact_below=1000000000"), open_store(f"{url}&exact_below=0")
    bare = Bare(url)
    rng = np.random.default_rng(99)
    asked = [query(rng) for _ in range(rounds + rounds // 4)]
    try:
        for name, store in (("SQLite", sqlite), ("OpenSearch", opensearch)):
            await store.prepare("bench")
            print()
            progress = Progress(size, name)
            await fill(store, NAMESPACE, size, contexts=contexts, tell=progress.tell)
            print(f"{size} memories into {name}: {size / progress.seconds:.0f} a second", flush=True)
        await bare.settled()
        pages = [[await store.rank(NAMESPACE, one) for one in asked[:20]] for store in (sqlite, exact)]
        apart = max(
            abs(a.score - b.score)
            for one, other in zip(*pages, strict=True)
            for a, b in zip(one.hits, other.hits, strict=True)
        )
        print(f"scores of the two stores differ by at most {apart:.1e}")

        new = [
            [records(rng, NAMESPACE, start, 1, contexts=contexts)[0] for start in range(first, first + len(asked))]
            for first in (20_000_000, 30_000_000)
        ]
        vectors = rng.standard_normal((len(asked), 1, DIMENSION), dtype=np.float32)
        vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
        hundred = [msgspec.structs.replace(query(rng), limit=100) for _ in asked]
        figures = await take_turns(
            {
                "search, SQLite": lambda n: sqlite.rank(NAMESPACE, asked[n]),
                "search, OpenSearch": lambda n: opensearch.rank(NAMESPACE, asked[n]),
                "search again, OpenSearch": lambda n: opensearch.rank(NAMESPACE, asked[n]),
                "search of a hundred, OpenSearch": lambda n: opensearch.rank(NAMESPACE, hundred[n]),
                "search, OpenSearch, exact": lambda n: exact.rank(NAMESPACE, asked[n]),
                "search, OpenSearch, approximate": lambda n: approximate.rank(NAMESPACE, asked[n]),
                "bare k-NN query": lambda n: bare.nearest(asked[n]),
                "bare k-NN query of a hundred": lambda n: bare.nearest(hundred[n]),
                "bare formula over all": lambda n: bare.formula(asked[n]),
                "bare formula of a hundred": lambda n: bare.formula(hundred[n]),
                "bare formula of a hundred, named": lambda n: bare.formula(hundred[n], named=True),
                "neighbours, SQLite": lambda n: sqlite.neighbours(NAMESPACE, vectors[n], Where(), 10),
                "neighbours, OpenSearch": lambda n: opensearch.neighbours(NAMESPACE, vectors[n], Where(), 10),
            },
            rounds,
        )
        figures |= await take_turns(
            {
                "commit, SQLite": lambda n: sqlite.commit(NAMESPACE, changes(f"c{n}", NAMESPACE, [new[0][n]])),
                "commit, OpenSearch": lambda n: opensearch.commit(NAMESPACE, changes(f"c{n}", NAMESPACE, [new[1][n]])),
            },
            min(rounds, 40),
        )
        for name, figure in figures.items():
            print(f"  {name:34} {figure}")
        for name, basis in (
            ("search, OpenSearch", "bare k-NN query"),
            ("search of a hundred, OpenSearch", "bare k-NN query"),
            ("search of a hundred, OpenSearch", "bare k-NN query of a hundred"),
        ):
            allowed = 1.2 * figures[basis].p50 + 2.0
            over = figures[name].p50 - figures[basis].p50
            missed = "" if over <= allowed else ": the aim is missed"
            print(f"  {name}: {over:.1f} ms over the {basis} of {allowed:.1f} aimed at{missed}")
        share = await recall(approximate, exact, asked[:50])
        wordless = await recall(approximate, exact, [msgspec.structs.replace(one, terms=()) for one in asked[:50]])
        print(f"  of the exact best {asked[0].limit}, the approximate finds {share:.1%}; without words {wordless:.1%}")
        return broken(apart, share)
    finally:
        for each in (sqlite, opensearch, exact, approximate, bare):
            await each.aclose()
        await remove(url)


async def remove(url: str) -> None:
    address = parse(url)
    connection = Connection(address)
    await connection.request("DELETE", f"/{address.prefix}-*")
    await connection.aclose()


@contextlib.contextmanager
def node(url: str | None) -> Generator[str]:
    """The address of a node: the given one, or one that runs as long as this does."""
    if url:
        yield url
        return
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from localstack.node import opensearch
    from localstack.service import ServiceProcess, free_port

    with tempfile.TemporaryDirectory() as data:
        process = ServiceProcess(opensearch(free_port(), Path(data), heap="1g"))
        process.start(seconds=180)
        try:
            yield process.url
        finally:
            process.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--no-contexts", action="store_true", help="memories without the turn before: one vector each")
    parser.add_argument("--url", help="a node that runs already (default: start one)")
    given = parser.parse_args()
    print(machine())
    print(f"milliseconds, p50 / p95; {DIMENSION} dimensions, 16 terms + 16 of the turn before")
    lost: list[str] = []
    with node(given.url) as url, tempfile.TemporaryDirectory() as scratch:
        parts = urlsplit(url)
        place = f"{'opensearchs' if parts.scheme == 'https' else 'opensearch'}://{parts.netloc}"
        for size in given.sizes:
            path = Path(scratch) / f"{size}.db"
            of_size = asyncio.run(measure(size, given.rounds, place, path, contexts=not given.no_contexts))
            lost += [f"{size} memories: {one}" for one in of_size]
    print("\nA promise is BROKEN:\n  " + "\n  ".join(lost) if lost else "\nEvery promise is kept.")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
