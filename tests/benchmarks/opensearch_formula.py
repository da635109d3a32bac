"""The score of `hindsight_core.ranking`, as one OpenSearch request: is it the same number, and what does it cost?

    python tests/benchmarks/opensearch_formula.py [--docs 1000 10000] [--url http://127.0.0.1:9200]

Without `--url` a real node is started (see localstack/README.md). Random memories of three namespaces go into an index
of three shards; every score and part of the bodies of `opensearch_body` is held against `scoring.evaluate`. Ends with
1 when one differs by more than 1e-4, or 2e-3 where terms take part.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
from opensearch_body import (
    Json,
    Search,
    approximate,
    counts,
    exact,
    exact_cosine,
    frequencies,
    mapping,
    nearest,
)
from opensearch_corpus import DIMENSION, NOW, Corpus, corpus, expected, question

from hindsight_core.lexical import idf
from hindsight_core.ranking import Weight, Weights, formula
from hindsight_core.scoring import Scored

NAMESPACE = "tenant.a"
PARTS = ("similarity", "lexical", "relevance", "recency", "confidence", "bias")


class Index:
    """An index on a node: `search` returns the answer, `latency` the median milliseconds of several."""

    def __init__(self, client: httpx.Client, name: str) -> None:
        self.client, self.name = client, name

    def call(self, method: str, path: str, **options: Any) -> Json:
        answer = self.client.request(method, path, **options)
        if answer.is_error:
            raise SystemExit(f"{method} {path}: {answer.status_code}\n{answer.text[:2000]}")
        return answer.json()  # type: ignore[no-any-return]

    def fill(self, corpora: Sequence[Corpus]) -> None:
        self.client.delete(f"/{self.name}")
        self.call("PUT", f"/{self.name}", json=mapping(DIMENSION))
        documents = [document for each in corpora for document in each.documents]
        for start in range(0, len(documents), 500):
            lines: list[str] = []
            for document in documents[start : start + 500]:
                action = {"index": {"_id": document["id"], "routing": document["namespace"]}}
                lines += [json.dumps(action), json.dumps(document)]
            body = "\n".join(lines) + "\n"
            said = self.call(
                "POST", f"/{self.name}/_bulk", content=body, headers={"Content-Type": "application/x-ndjson"}
            )
            if said["errors"]:
                raise SystemExit(f"not indexed: {said['items'][0]}")
        self.call("POST", f"/{self.name}/_refresh")

    def search(self, body: Json, *, size: int = 10) -> Json:
        return self.call(
            "POST",
            f"/{self.name}/_search",
            params={"routing": NAMESPACE, "include_named_queries_score": "true", "request_cache": "false"},
            json={"_source": False, "size": size, **body},
        )

    def latency(self, bodies: Mapping[str, Json], rounds: int) -> dict[str, tuple[float, float, float]]:
        """Milliseconds: the median of the wall time, the median and the least of the time inside the engine.

        The bodies take turns, so that what else the machine does hits all alike.
        """
        spent: dict[str, list[tuple[float, float]]] = {name: [] for name in bodies}
        for turn in range(rounds + rounds // 3):
            for name, body in bodies.items():
                began = time.perf_counter()
                took = self.search(body)["took"]
                if turn >= rounds // 3:  # the first ones warm it up
                    spent[name].append((1000 * (time.perf_counter() - began), took))
        return {
            name: (
                statistics.median(w for w, _ in each),
                statistics.median(t for _, t in each),
                min(t for _, t in each),
            )
            for name, each in spent.items()
        }


def score_difference(hits: Sequence[Json], scored: Scored, rows: Mapping[str, int], search: Search) -> float:
    """The largest difference of a hit's score from Python's."""
    return max(abs(float(hit["_score"]) - search.lift - float(scored.score[rows[hit["_id"]]])) for hit in hits)


def part_difference(hits: Sequence[Json], scored: Scored, rows: Mapping[str, int], search: Search) -> float:
    """The largest difference of a named part from Python's; infinite when a hit names none."""
    worst = 0.0
    for hit in hits:
        named: dict[str, float] = hit.get("matched_queries") or {"relevance": math.inf}
        for part in PARTS:
            said = named.get(part, 0.0) - (search.lift if part == "bias" else 0.0)
            worst = max(worst, abs(said - float(getattr(scored, part)[rows[hit["_id"]]])))
    return worst


class Case:
    """A filled index of `n` memories of one namespace, and the searches that are tried on it."""

    def __init__(self, client: httpx.Client, n: int) -> None:
        self.n = n
        self.index = Index(client, f"formula-{n}")
        self.corpus = corpus(n, NAMESPACE, 2)
        self.rows = {document["id"]: row for row, document in enumerate(self.corpus.documents)}
        self.index.fill([self.corpus, corpus(n // 4, "tenant.b", 3), corpus(n // 4, "tenant.c", 4)])
        self.where: list[Json] = [
            {"term": {"namespace": NAMESPACE}},
            {"terms": {"memory_type": ["episodic", "semantic"]}},
        ]
        self.vector, self.terms = question(5)
        found = self.index.search(frequencies(NAMESPACE, self.terms))
        texts, containing = found["hits"]["total"]["value"], found["aggregations"]["terms"]["buckets"]
        self.weights = {term: idf(texts, containing[term]["doc_count"]) for term in self.terms}
        days = tuple(time.strftime("%Y-%m-%d", time.gmtime(NOW / 1000 - day * 86_400)) for day in range(5, 12))
        asked = formula(calibration=(0.0, 0.6), weights=Weights(), intent="recap", speakers=("ann", "小明"), days=days)
        # A bias below zero as well, which no intent has but the formula allows.
        against = Weight(name="bias", field="memory_type", values=("semantic",), weight=-0.03)
        asked = msgspec.structs.replace(asked, rest=(*asked.rest, against))
        self.by_vector = Search(asked, self.vector, {}, self.where, NOW)
        self.by_terms = Search(asked, None, self.weights, self.where, NOW)
        self.by_both = Search(asked, self.vector, self.weights, self.where, NOW)


def check_scores(case: Case) -> bool:
    """Print how far the engine's scores and parts are from Python's; whether that is near enough."""
    agreed = True
    print(
        f"  {'difference from scoring.evaluate':34} {'hits':>6} {'score':>9} {'parts':>9} {'score, stored impacts':>23}"
    )
    for name, search in (("vector", case.by_vector), ("terms", case.by_terms), ("both", case.by_both)):
        scored, stored = expected(search, case.corpus), expected(search, case.corpus, stored=True)
        bound = 2e-3 if search.weights else 1e-4
        for kind, body, size in (
            ("exact", exact(search), min(case.n, 1000)),
            ("exact without parts", exact(search, with_parts=False), min(case.n, 10_000)),
            ("approximate", approximate(search), 100),
        ):
            answer = case.index.search(body, size=size)
            hits = answer["hits"]["hits"]
            score = score_difference(hits, scored, case.rows, search)
            as_stored = score_difference(hits, stored, case.rows, search)
            part = 0.0 if kind == "exact without parts" else part_difference(hits, scored, case.rows, search)
            agreed &= len(hits) == size and score < bound and part < bound
            agreed &= kind == "approximate" or answer["hits"]["total"]["value"] == case.n
            print(f"  {f'{kind}, {name}':34} {len(hits):6} {score:9.1e} {part:9.1e} {as_stored:23.1e}")
        ranking = sorted(case.rows, key=lambda i: (-float(stored.score[case.rows[i]]), i))
        agreed &= {hit["_id"] for hit in case.index.search(exact(search))["hits"]["hits"]} == set(ranking[:10])
    return agreed


def check_counts(case: Case) -> bool:
    """Print the three counts of a page, by the engine and by Python; whether they are the same."""
    scored = expected(case.by_both, case.corpus, stored=True)
    limit = float(np.median(scored.score)) + 1e-6
    narrowed = case.by_both._replace(where=[*case.where, {"terms": {"question": ["0"]}}])
    answer = case.index.search({**exact(narrowed), "aggs": counts(case.where, limit + narrowed.lift)})
    told = (
        answer["aggregations"]["in_scope"]["n"]["doc_count"],
        answer["hits"]["total"]["value"],
        answer["aggregations"]["below"]["buckets"][0]["doc_count"],
    )
    eligible = np.array([document["question"] == "0" for document in case.corpus.documents])
    counted = (case.n, int(eligible.sum()), int((scored.score[eligible] < limit).sum()))
    print(f"  in scope, eligible, below a score: the engine says {told}, Python {counted}")
    return told == counted


def print_recall(case: Case) -> None:
    """How much of the exact best ten the approximate body finds, over ten vectors."""
    print(f"  {'of the exact best ten, found by':34} {'vector':>9} {'both':>9}")
    for k in (100, 1000):
        found = [0, 0]
        for seed in range(10, 20):
            vector, _ = question(seed)
            for column, search in enumerate((case.by_vector, case.by_both)):
                asked = search._replace(vector=vector)
                best, near = (
                    {hit["_id"] for hit in case.index.search(body)["hits"]["hits"]}
                    for body in (exact(asked, with_parts=False), approximate(asked, k, with_parts=False))
                )
                found[column] += len(best & near)
        print(f"  {f'approximate, k = {k}':34} {found[0]:8}% {found[1]:8}%")


def print_latency(case: Case, rounds: int) -> None:
    """Milliseconds of each body beside a bare k-NN query."""
    vector, both, only = case.vector, case.by_both, case.by_vector
    bodies: dict[str, Json] = {
        "bare k-NN, k = 10": {"query": nearest(vector, 10, case.where)},
        "bare k-NN, k = 100": {"query": nearest(vector, 100, case.where)},
        "bare k-NN, k = 1000": {"query": nearest(vector, 1000, case.where)},
        "bare exact cosine": {"query": {"bool": {"filter": case.where, "must": [exact_cosine(vector)]}}},
        "document frequencies of six terms": frequencies(NAMESPACE, case.terms),
        "exact, vector": exact(only, with_parts=False),
        "exact, both": exact(both, with_parts=False),
        "exact, both, parts": exact(both),
        "exact, both, parts and counts": {**exact(both), "aggs": counts(case.where, 0.5 + both.lift)},
        "approximate, k = 100, vector": approximate(only, 100, with_parts=False),
        "approximate, k = 1000, vector": approximate(only, with_parts=False),
        "approximate, k = 1000, both": approximate(both, with_parts=False),
        "approximate, k = 1000, both, parts": approximate(both),
    }
    print(f"  {f'median of {rounds} requests, 10 hits':34} {'wall':>9} {'engine':>9} {'fastest':>9}  ms")
    for name, (wall, took, fastest) in case.index.latency(bodies, rounds).items():
        print(f"  {name:34} {wall:9.1f} {took:9.1f} {fastest:9.1f}")


def measure(client: httpx.Client, n: int, rounds: int) -> bool:
    """Everything about one size; whether the engine and Python agree."""
    print(f"\n{n} memories in the namespace, {n // 4} in each of two others; {DIMENSION} dimensions, 3 shards")
    case = Case(client, n)
    agreed = check_scores(case)
    agreed &= check_counts(case)
    print_recall(case)
    print_latency(case, rounds)
    client.delete(f"/{case.index.name}")
    return agreed


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
        process = ServiceProcess(opensearch(free_port(), Path(data)))
        process.start(seconds=180)
        try:
            yield process.url
        finally:
            process.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description="Hold OpenSearch's scores against Python's, and time them.")
    parser.add_argument("--docs", type=int, nargs="+", default=[1000, 10_000], help="sizes of the namespace")
    parser.add_argument("--rounds", type=int, default=30, help="requests of each kind that are timed")
    parser.add_argument("--url", help="a node that runs already (default: start one)")
    options = parser.parse_args()
    with node(options.url) as url, httpx.Client(base_url=url, timeout=120) as client:
        version = client.get("/").json()["version"]
        print(f"OpenSearch {version['number']}, {os.cpu_count()} processors, {platform.system()} {platform.machine()}")
        agreed = True
        for n in options.docs:
            agreed &= measure(client, n, options.rounds)
    print("\nAll scores agree." if agreed else "\nSome scores DIFFER.")
    return 0 if agreed else 1


if __name__ == "__main__":
    sys.exit(main())
