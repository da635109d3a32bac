"""A formula as clauses of a query: every number that `scoring` computes, computed by OpenSearch.

* Every clause of a `should` adds its score; a `script_score` clips and scales what it wraps. Scores must not be
  negative, so a negative weight becomes its opposite on the memories that do not hold it, and a constant that the
  answer's scores are too high by (`lift`).
* A memory's terms are `rank_features`: term -> BM25 impact. A linear `rank_feature`, boosted by the term's idf in the
  namespace, adds up to BM25; so nothing is counted per shard, and scores of several shards compare. A feature keeps 8
  bits of an impact's mantissa, which moves a score by less than 0.0005.
* Everything that changes from search to search is a parameter: a script whose source changes is compiled anew. Scripts
  name the types of all they read, and a clause that every memory satisfies is a `must`: each saves a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, assert_never

import msgspec
import numpy as np

from hindsight_core.ranking import DAY_MS, NEUTRAL_RECENCY, Decay, Field, Formula, Lexical, Similarity, Weight
from hindsight_core.scoring import MEMORY_TYPES
from hindsight_core.stores import Vector
from hindsight_core.stores.opensearch.connection import Json
from hindsight_core.stores.opensearch.documents import feature
from hindsight_core.stores.opensearch.mapping import vector_field

# What `cosine_field` says where there is nothing to compare.
NO_COSINE = -2.0
# Finer than single precision can tell apart in a unit vector's numbers.
_DECIMALS = 9
# OpenSearch counts two clauses a range, in each of the places where it stands: of more, one script asks.
_RANGES = 2
_WITHIN = """
ScriptDocValues.Longs moment = (ScriptDocValues.Longs) doc['moment'];
if (moment.size() == 0) return false;
long at = moment.getValue();
for (int i = 0; i < params.starts.length; i++) {
  if (at >= ((Number) params.starts[i]).longValue() && at < ((Number) params.ends[i]).longValue()) return true;
}
return false;
"""

# What a signal adds to `score`; # is its number.
_DECAY = """
ScriptDocValues.Doubles own# = (ScriptDocValues.Doubles) doc['half_life_days'];
double half# = own#.size() > 0 ? own#.getValue()
  : (double) params.half_lives#[(int) ((ScriptDocValues.Longs) doc['type']).getValue()];
double recency# = 1.0;
if (half# > 0) {
  ScriptDocValues.Longs moment# = (ScriptDocValues.Longs) doc['moment'];
  recency# = moment#.size() == 0 ? (double) params.neutral
    : Math.pow(0.5, Math.max(0L, (long) params.now - moment#.getValue()) / (double) params.day / half#);
}
score += (double) params.weight# * recency#;
"""
_FIELD = "score += (double) params.weight# * ((ScriptDocValues.Doubles) doc['FIELD']).getValue();\n"
_CLIPPED = "Math.min(1.0, Math.max(0.0, (VALUE - (double) params.from) / (double) params.width))"
_SATURATED = "Math.min(1.0, (double) params.gain * _score / (_score + (double) params.saturation))"


class Cosines(msgspec.Struct, frozen=True):
    """A query that compares vectors, and how its `_score` tells the cosine; without a vector `_score` is 0."""

    query: Json
    cosine: str

    def of(self, score: float) -> float:
        """The cosine that a score of the query means."""
        if self.cosine == _OF_NEAREST:
            return 2.0 * score - 1.0
        return score - 1.0 if score >= 1.0 else 1.0 - 1.0 / score


_OF_NEAREST = "2.0 * _score - 1.0"
_OF_PRODUCT = "_score >= 1.0 ? _score - 1.0 : 1.0 - 1.0 / _score"


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What one search asks of every memory that satisfies the conditions `where`.

    `vector` is None without an embedder, `weights` holds the idf of the terms. `now` in Unix milliseconds.
    """

    formula: Formula
    vector: Vector | None
    weights: Mapping[str, float]
    where: Sequence[Json]
    now: int

    @property
    def lift(self) -> float:
        """How much more than the score the answer says."""
        return _lift(self.formula.rest)


def scored(question: Question, *among: Json) -> Json:
    """The memories that satisfy the conditions, and those in `among`, with their scores."""
    cosines = None if question.vector is None else compared("mixed", question.vector)
    found: Json = {
        "filter": [*question.where, *among],
        "must": _similarities(question, cosines),
        "should": [*_lexicals(question), *_constants(question)],
    }
    return _total(question, {"bool": found})


def promising(question: Question, cosines: Cosines | None, ids: Sequence[str], terms: Sequence[str]) -> Json:
    """A condition: whom `cosines` finds, who holds one of the terms or a day of the question, or has one of the ids."""
    found: list[Json] = [{"terms": {"id": list(ids)}}]
    if cosines is not None:
        found.append(cosines.query)
    for signal in question.formula.relevance:
        match signal:
            case Lexical():
                found.extend(_holding(field, term) for field in ("text", "context") for term in terms)
            case Weight() if signal.field == "days" and signal.weight > 0:
                found.extend(_held(signal))
            case Similarity() | Weight():
                pass
            case _:
                assert_never(signal)
    return {"bool": {"should": found}}


def compared(which: Literal["mixed", "bare"], vector: Vector) -> Cosines:
    """The exact cosine of every memory; both vectors are unit vectors, so that their product is one."""
    params = {"field": vector_field(which, len(vector)), "query_value": _numbers(vector), "space_type": "innerproduct"}
    script = {"lang": "knn", "source": "knn_score", "params": params}
    return Cosines({"script_score": {"query": {"match_all": {}}, "script": script}}, _OF_PRODUCT)


def nearest(which: Literal["mixed", "bare"], vector: Vector, k: int, where: Sequence[Json], ef_search: int) -> Cosines:
    """About the `k` nearest of those that satisfy `where`; looked for among `ef_search`, and no fewer than `k`."""
    search = {
        "vector": _numbers(vector),
        "k": k,
        "method_parameters": {"ef_search": max(ef_search, k)},
        "filter": {"bool": {"filter": list(where)}},
    }
    return Cosines({"knn": {vector_field(which, len(vector)): search}}, _OF_NEAREST)


def cosine_field(vector: Vector) -> Json:
    """What makes each hit of a search say its cosine with the vector, `NO_COSINE` where it has none."""
    field = vector_field("mixed", len(vector))
    source = f"doc[params.field].size() == 0 ? {NO_COSINE} : innerProduct(params.vector, doc[params.field])"
    script = {"source": source, "params": {"field": field, "vector": _numbers(vector)}}
    return {"script_fields": {"cosine": {"script": script}}}


def _numbers(vector: Vector) -> list[float]:
    """The vector for a request: so many decimals tell its numbers apart, and are half as long as all of them."""
    rounded: list[float] = np.round(vector.astype(np.float64), _DECIMALS).tolist()
    return rounded


def _total(question: Question, support: Json) -> Json:
    """The score, from memories whose `_score` is the evidence on them.

    One script computes all that is not a constant: a second one would cost as much again.
    """
    formula = question.formula
    source = f"double score = (double) params.relevance * {_CLIPPED.replace('VALUE', '_score')};\n"
    params: Json = {
        "relevance": formula.relevance_weight,
        "from": formula.offset + _lift(formula.relevance),
        "width": formula.span,
        "now": question.now,
        "day": float(DAY_MS),
        "neutral": NEUTRAL_RECENCY,
    }
    constants: list[Json] = []
    for number, signal in enumerate(formula.rest):
        params[f"weight{number}"] = signal.weight
        match signal:
            case Decay():
                params[f"half_lives{number}"] = [signal.half_lives.get(name) or 0.0 for name in MEMORY_TYPES]
                source += _DECAY.replace("#", str(number))
            case Field():
                source += _FIELD.replace("#", str(number)).replace("FIELD", signal.field)
            case Weight():
                constants.append(_constant(signal))
            case _:
                assert_never(signal)
    computed = _script(support, f"{source}return score;", params, 1.0)
    return {"bool": {"must": [computed], "should": constants}} if constants else computed


def _similarities(question: Question, cosines: Cosines | None) -> list[Json]:
    """What similarity adds to the relevance of each memory; of one without a vector, nothing."""
    found: list[Json] = []
    for signal in question.formula.relevance:
        if isinstance(signal, Similarity) and signal.weight > 0 and cosines is not None:
            params = {"from": signal.lo, "width": signal.hi - signal.lo}
            source = _CLIPPED.replace("VALUE", f"({cosines.cosine})")
            found.append(_script(cosines.query, source, params, signal.weight))
    return found


def _lexicals(question: Question) -> list[Json]:
    """What the words that a memory shares with the question add to its relevance."""
    return [
        _lexical(signal, question.weights)
        for signal in question.formula.relevance
        if isinstance(signal, Lexical) and signal.weight > 0 and question.weights
    ]


def _constants(question: Question) -> list[Json]:
    """What each weight adds to the relevance of the memories that hold it."""
    return [_constant(signal) for signal in question.formula.relevance if isinstance(signal, Weight) and signal.weight]


def _lexical(signal: Lexical, weights: Mapping[str, float]) -> Json:
    fields: list[Json] = [
        {"bool": {"should": [_holding(field, term, boost=weight) for term, weight in weights.items()]}}
        for field in ("text", "context")
    ]
    params = {"gain": signal.gain, "saturation": signal.saturation}
    return _script({"dis_max": {"queries": fields, "tie_breaker": 0.0}}, _SATURATED, params, signal.weight)


def _holding(field: str, term: str, *, boost: float = 1.0) -> Json:
    return {"rank_feature": {"field": f"{field}.{feature(term)}", "linear": {}, "boost": boost}}


def _constant(signal: Weight) -> Json:
    held = _held(signal) or [{"match_none": {}}]
    query: Json = {"bool": {"must_not" if signal.weight < 0 else "should": held}}
    if signal.weight > 0 and len(held) == 1:
        query = held[0]
    return {"constant_score": {"filter": query, "boost": abs(signal.weight)}}


def _held(signal: Weight) -> list[Json]:
    """The conditions of which a memory that a weight applies to satisfies at least one."""
    found: list[Json] = [{"terms": {signal.field: list(signal.values)}}] if signal.values else []
    if len(signal.spans) <= _RANGES:
        found.extend({"range": {"moment": {"gte": start, "lt": end}}} for start, end in signal.spans)
    else:
        params = {"starts": [start for start, _ in signal.spans], "ends": [end for _, end in signal.spans]}
        found.append({"script": {"script": {"source": _WITHIN, "params": params}}})
    return found


def _lift(signals: Sequence[object]) -> float:
    return sum(-signal.weight for signal in signals if isinstance(signal, Weight) and signal.weight < 0)


def _script(query: Json, source: str, params: Json, boost: float) -> Json:
    return {"script_score": {"query": query, "script": {"source": source, "params": params}, "boost": boost}}
