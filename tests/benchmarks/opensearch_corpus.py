"""Random memories of one namespace as documents of an index, and the scores that Python gives them."""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from opensearch_body import Json, Search, as_feature

from hindsight_core.lexical import impacts
from hindsight_core.ranking import DAY_MS, Weight
from hindsight_core.scoring import MEMORY_TYPES, UNDATED, Evidence, Scored, evaluate

NOW = 1_800_000_000_000
VOCABULARY = [*(f"word{i}" for i in range(2000)), *(chr(0x4E00 + i) + chr(0x5E00 + i) for i in range(1000))]
SPEAKERS = ("ann", "bob", "小明", None)
DIMENSION = 384


class Corpus(NamedTuple):
    """Memories of one namespace as arrays of n rows, with the documents that say the same."""

    vectors: NDArray[np.float32]
    documents: list[Json]


def corpus(n: int, namespace: str, seed: int) -> Corpus:
    """Vectors in twenty clumps, terms by Zipf's law; some lack a vector, a date or a context."""
    random = np.random.default_rng(seed)
    clumps = np.random.default_rng(0).normal(size=(20, DIMENSION))
    vectors = clumps[random.integers(0, 20, n)] + 0.9 * random.normal(size=(n, DIMENSION))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    vectors[random.random(n) < 0.02] = 0.0
    odds = 1 / np.arange(1, len(VOCABULARY) + 1) ** 0.9
    order = np.random.default_rng(1).permutation(len(VOCABULARY))
    odds = (odds / odds.sum())[order]

    def terms() -> dict[str, float]:
        drawn = random.choice(len(VOCABULARY), random.integers(3, 40), p=odds)
        return impacts([VOCABULARY[i] for i in drawn])

    documents: list[Json] = []
    for i in range(n):
        age = random.exponential(20.0) if random.random() > 0.05 else -random.exponential(5.0)
        moment = NOW - int(age * DAY_MS)
        document = {
            "id": f"{namespace}-{i:08d}",
            "namespace": namespace,
            "memory_type": str(random.choice(["episodic", "semantic"], p=[0.7, 0.3])),
            "speaker": SPEAKERS[random.integers(0, len(SPEAKERS))],
            "days": [time.strftime("%Y-%m-%d", time.gmtime(moment / 1000))],
            "question": str(int(random.random() < 0.2)),
            "confidence": round(float(random.random()), 3),
            "half_life_days": float(random.choice([0.5, 30.0, 365.0])) if random.random() < 0.1 else None,
            "moment": moment if random.random() > 0.1 else None,
            "text": terms(),
            "context": terms() if random.random() > 0.3 else None,
            "mixed": vectors[i].tolist() if vectors[i].any() else None,
        }
        documents.append({name: value for name, value in document.items() if value is not None})
    return Corpus(vectors, documents)


def expected(search: Search, of: Corpus, *, stored: bool = False) -> Scored:
    """The scores that Python gives; `stored` with the impacts as OpenSearch keeps them."""
    documents = of.documents

    def bm25(field: str) -> NDArray[np.float64]:
        keep = as_feature if stored else float
        return np.array(
            [sum(w * keep(d.get(field, {}).get(t, 0.0)) for t, w in search.weights.items()) for d in documents],
            dtype=np.float64,
        )

    def holding(weight: Weight) -> NDArray[np.bool_]:
        values = [d.get(weight.field, ()) for d in documents]
        return np.array([bool(set(weight.values) & ({v} if isinstance(v, str) else set(v))) for v in values])

    cosine = None
    if search.vector is not None:
        cosine = np.where(of.vectors.any(axis=1), of.vectors.astype(float) @ np.array(search.vector), -np.inf)
    return evaluate(
        search.formula,
        Evidence(
            cosine=cosine,
            bm25=np.maximum(bm25("text"), bm25("context")),
            moment=np.array([d.get("moment", UNDATED) for d in documents], dtype=np.int64),
            half_life=np.array([d.get("half_life_days", math.nan) for d in documents]),
            memory_type=np.array([MEMORY_TYPES.index(d["memory_type"]) for d in documents], dtype=np.int8),
            confidence=np.array([d["confidence"] for d in documents]),
            holding=holding,
        ),
        search.now,
    )


def question(seed: int) -> tuple[list[float], list[str]]:
    """A vector near one of the clumps, and six terms from frequent to rare."""
    random = np.random.default_rng(seed)
    clumps = np.random.default_rng(0).normal(size=(20, DIMENSION))
    vector = clumps[random.integers(0, 20)] + 0.9 * random.normal(size=DIMENSION)
    rank = np.argsort(np.random.default_rng(1).permutation(len(VOCABULARY)))
    terms = [VOCABULARY[int(rank[r])] for r in (3, 20, 60, 200, 600, 1500)]
    return (vector / np.linalg.norm(vector)).astype(np.float32).tolist(), terms
