"""The score of `hindsight_core.ranking` as the body of one OpenSearch search.

Two bodies, both with the formula's own scores:

* `exact` scores every memory that satisfies the filters.
* `approximate` scores the nearest by k-NN, those that share a term and the recent ones, and scores the best of these
  again by the exact body's formula. Its page is the exact one unless a better memory is among none of them.

How a body says it
* Every clause of a `should` adds its score; a `script_score` clips and scales what it wraps. Scores must not be
  negative, so a negative weight becomes its opposite on the memories that do not hold it, and a constant to subtract.
* A memory's terms are `rank_features`: term -> BM25 impact. A linear `rank_feature` boosted by the namespace's idf
  adds up to BM25. Such a feature keeps 8 bits of its mantissa; `as_feature` says which number that is.
* `parts` names the parts in a clause that matches nothing: named queries are evaluated for the returned hits alone,
  on their own and unweighted, so they cost nothing while searching. (A named `knn` would be searched once more.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, assert_never

import numpy as np

from hindsight_core.ranking import DAY_MS, NEUTRAL_RECENCY, Decay, Field, Formula, Lexical, Similarity, Weight

Json = dict[str, Any]
NOTHING: Json = {"bool": {"must_not": [{"match_all": {}}]}}
EVERYTHING: Json = {"match_all": {"boost": 0}}


def mapping(dimension: int) -> Json:
    """Settings and fields of an index; a memory is routed by its namespace."""
    vector = {
        "type": "knn_vector",
        "dimension": dimension,
        "method": {
            "name": "hnsw",
            "engine": "lucene",
            "space_type": "cosinesimil",
            "parameters": {"m": 16, "ef_construction": 100},
        },
    }
    return {
        "settings": {"index": {"knn": True, "number_of_shards": 3, "number_of_replicas": 0, "refresh_interval": "-1"}},
        "mappings": {
            "dynamic": "strict",
            "_routing": {"required": True},
            "properties": {
                "id": {"type": "keyword"},
                "namespace": {"type": "keyword"},
                "memory_type": {"type": "keyword"},
                "speaker": {"type": "keyword"},
                "days": {"type": "keyword"},
                "question": {"type": "keyword"},
                "confidence": {"type": "float"},
                "half_life_days": {"type": "float"},
                # Unix milliseconds; absent when it is unknown or known only to the month. A number is read faster than
                # a date, which becomes an object per memory.
                "moment": {"type": "long"},
                "text": {"type": "rank_features"},
                "context": {"type": "rank_features"},
                "mixed": vector,
            },
        },
    }


def as_feature(impact: float) -> float:
    """The number that a `rank_features` field keeps of `impact`: the upper 17 of the 32 bits of its float."""
    return float((np.float32(impact).view(np.uint32) & np.uint32(0xFFFF8000)).view(np.float32))


def script(query: Json, source: str, params: Json, boost: float = 1.0) -> Json:
    """`query` with its score replaced. Constants go into `params`: a source that changes is compiled every time."""
    return {"script_score": {"query": query, "script": {"source": source, "params": params}, "boost": boost}}


def named(name: str, query: Json) -> Json:
    """The same query with a name, which is a field of its one kind."""
    ((kind, fields),) = query.items()
    return {kind: {**fields, "_name": name}}


def similarity(signal: Similarity, cosine: Json, boost: float = 1.0) -> Json:
    """`cosine` is a query whose score is (1 + cosine) / 2, and 0 for a memory without a vector."""
    source = "Math.min(1.0, Math.max(0.0, (2.0 * _score - 1.0 - params.lo) / params.width))"
    return script(cosine, source, {"lo": signal.lo, "width": signal.hi - signal.lo}, boost)


def exact_cosine(vector: Sequence[float]) -> Json:
    knn = {"field": "mixed", "query_value": vector, "space_type": "cosinesimil"}
    return {
        "script_score": {"query": {"match_all": {}}, "script": {"lang": "knn", "source": "knn_score", "params": knn}}
    }


def nearest(vector: Sequence[float], k: int, where: Sequence[Json]) -> Json:
    return {"knn": {"mixed": {"vector": vector, "k": k, "filter": {"bool": {"filter": where}}}}}


def lexical(signal: Lexical, weights: Mapping[str, float], boost: float = 1.0) -> Json:
    """`weights` are the idf of the query's terms in the namespace."""
    fields: list[Json] = [
        {
            "bool": {
                "should": [
                    {"rank_feature": {"field": f"{field}.{term}", "linear": {}, "boost": weight}}
                    for term, weight in weights.items()
                ]
            }
        }
        for field in ("text", "context")
    ]
    source = "Math.min(1.0, params.gain * _score / (_score + params.saturation))"
    better: Json = {"dis_max": {"queries": fields, "tie_breaker": 0.0}}
    return script(better, source, {"gain": signal.gain, "saturation": signal.saturation}, boost)


def constant(signal: Weight) -> Json:
    """What a weight adds, `lift(signal)` more than it says so that it is never negative."""
    held: Json = {"terms": {signal.field: list(signal.values)}}
    query = held if signal.weight > 0 else {"bool": {"must_not": [held]}}
    return {"constant_score": {"filter": query, "boost": abs(signal.weight)}}


def lift(signals: Sequence[object]) -> float:
    return sum(-signal.weight for signal in signals if isinstance(signal, Weight) and signal.weight < 0)


def decay(signal: Decay, now: int, boost: float = 1.0) -> Json:
    source = """
        double half = doc['half_life_days'].size() > 0
            ? doc['half_life_days'].value : params.half_lives.getOrDefault(doc['memory_type'].value, -1.0);
        if (half < 0) { return 1.0; }
        if (doc['moment'].size() == 0) { return params.neutral; }
        return Math.pow(0.5, Math.max(0L, params.now - doc['moment'].value) / params.day / Math.max(half, 1.0E-30));
    """
    half_lives = {name: days for name, days in signal.half_lives.items() if days is not None}
    params = {"half_lives": half_lives, "now": now, "day": float(DAY_MS), "neutral": NEUTRAL_RECENCY}
    return script({"match_all": {}}, " ".join(source.split()), params, boost)


def field_value(signal: Field, weight: float) -> Json:
    function = {"field_value_factor": {"field": signal.field, "missing": 0}, "weight": weight}
    return {"function_score": {"query": EVERYTHING, "functions": [function], "boost_mode": "sum"}}


class Search(NamedTuple):
    """One search; `vector` may be None (no embedder), `weights` may be empty (no terms)."""

    formula: Formula
    vector: Sequence[float] | None
    weights: Mapping[str, float]
    where: Sequence[Json]
    now: int

    @property
    def lift(self) -> float:
        """How much more than the score the engine says."""
        return lift(self.formula.rest)


def relevance(search: Search, cosine: Json | None, candidates: Sequence[Json] | None, boost: float) -> Json:
    """The clipped sum of the evidence.

    Without `candidates` for every memory; else for those that `cosine`, the terms or one of `candidates` finds.
    """
    finding: list[Json] = []
    adding: list[Json] = []
    for signal in search.formula.relevance:
        match signal:
            case Similarity():
                if cosine is not None and signal.weight > 0:
                    finding.append(similarity(signal, cosine, signal.weight))
            case Lexical():
                if search.weights and signal.weight > 0:
                    finding.append(lexical(signal, search.weights, signal.weight))
            case Weight():
                if signal.weight:
                    adding.append(constant(signal))
            case _:
                assert_never(signal)
    if candidates is None:
        total = {"bool": {"must": [EVERYTHING], "should": [*finding, *adding]}}
    else:
        total = {"bool": {"must": [{"bool": {"should": [*finding, *candidates]}}], "should": adding}}
    source = "Math.min(1.0, Math.max(0.0, (_score - params.offset) / params.span))"
    offset = search.formula.offset + lift(search.formula.relevance)
    return script(total, source, {"offset": offset, "span": search.formula.span}, boost)


def rest(search: Search) -> list[Json]:
    clauses: list[Json] = []
    for signal in search.formula.rest:
        match signal:
            case Decay():
                clauses.append(decay(signal, search.now, signal.weight))
            case Field():
                clauses.append(field_value(signal, signal.weight))
            case Weight():
                clauses.append(constant(signal))
            case _:
                assert_never(signal)
    return clauses


def parts(search: Search) -> Json:
    """A clause that matches nothing and names the parts, each unweighted; `bias` is lifted as the score is."""
    cosine = None if search.vector is None else exact_cosine(search.vector)
    clauses = [named("relevance", relevance(search, cosine, None, 1.0))]
    for signal in (*search.formula.relevance, *search.formula.rest):
        match signal:
            case Similarity():
                if cosine is not None:
                    clauses.append(named("similarity", similarity(signal, cosine)))
            case Lexical():
                if search.weights:
                    clauses.append(named("lexical", lexical(signal, search.weights)))
            case Decay():
                clauses.append(named("recency", decay(signal, search.now)))
            case Field():
                clauses.append(named("confidence", field_value(signal, 1.0)))
            case Weight():
                pass
    bias = [constant(signal) for signal in search.formula.rest if isinstance(signal, Weight)]
    clauses.append(named("bias", {"bool": {"must": [EVERYTHING], "should": bias}}))
    return {"bool": {"filter": [NOTHING], "should": clauses}}


def exact(search: Search, *, with_parts: bool = True) -> Json:
    """Every memory that satisfies `where`, by its score (lifted) and then by newer id."""
    cosine = None if search.vector is None else exact_cosine(search.vector)
    should = [relevance(search, cosine, None, search.formula.relevance_weight), *rest(search)]
    should += [parts(search)] if with_parts else []
    return {
        "query": {"bool": {"filter": list(search.where), "should": should}},
        "sort": [{"_score": "desc"}, {"id": "desc"}],
        "track_total_hits": True,
    }


def approximate(
    search: Search, k: int = 1000, window: int = 3000, recent_ms: int = DAY_MS, *, with_parts: bool = True
) -> Json:
    """The best of those that k-NN or a term finds or that are at most `recent_ms` old; ties come in any order.

    Only the first `window` of them per shard are scored again. `hits.total` counts the candidates.
    """
    cosine = None if search.vector is None else nearest(search.vector, k, search.where)
    recent = {"constant_score": {"filter": {"range": {"moment": {"gte": search.now - recent_ms}}}, "boost": 0}}
    again: Json = exact(search, with_parts=False)["query"]
    return {
        "query": {
            "bool": {
                "filter": list(search.where),
                "must": [relevance(search, cosine, [recent], search.formula.relevance_weight)],
                "should": [*rest(search), *([parts(search)] if with_parts else [])],
            }
        },
        "rescore": {
            "window_size": window,
            "query": {"rescore_query": again, "query_weight": 0, "rescore_query_weight": 1},
        },
        "track_total_hits": True,
    }


def counts(scope: Sequence[Json], below: float) -> Json:
    """Aggregations for the exact body: memories in `scope` (which the filters narrow), and hits under a score.

    `below` is the score plus the search's lift. A global aggregation sees the whole shard, so `scope` names the tenant.
    """
    return {
        "in_scope": {"global": {}, "aggs": {"n": {"filter": {"bool": {"filter": list(scope)}}}}},
        "below": {"range": {"script": {"source": "_score"}, "ranges": [{"to": below}]}},
    }


def frequencies(namespace: str, terms: Sequence[str]) -> Json:
    """How many memories of a namespace have a text (`hits.total`), and how many have each term."""
    containing: Json = {term: {"rank_feature": {"field": f"text.{term}", "linear": {}}} for term in terms}
    return {
        "size": 0,
        "track_total_hits": True,
        "query": {"bool": {"filter": [{"term": {"namespace": namespace}}]}},
        "aggs": {"terms": {"filters": {"filters": containing}}},
    }
