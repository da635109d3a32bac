"""A formula, evaluated: for one memory in plain Python, and for many at once with numpy. Both give the same numbers.

`ranking` says what the score is made of; this module is what a store without its own query language computes it with,
and what the tests hold every store against.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, assert_never

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.caller import millis
from hindsight_core.indexing import IndexFields
from hindsight_core.models import Memory, MemoryType, Parts
from hindsight_core.ranking import DAY_MS, NEUTRAL_RECENCY, Decay, Field, Formula, Lexical, Similarity, Weight

Floats: TypeAlias = NDArray[np.floating]
Mask: TypeAlias = NDArray[np.bool_]

MEMORY_TYPES: tuple[MemoryType, ...] = ("working", "episodic", "semantic")
UNDATED = np.iinfo(np.int64).min


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What a formula reads of n memories; every array has n rows.

    `cosine` is None when nothing has a vector, and -inf where one memory has none. `bm25` is the better of text and
    context. `moment` is `observed_at` in Unix milliseconds, `UNDATED` where it is missing or known only to the month
    or year. `half_life` is the memory's own in days, NaN where its type's counts. `memory_type` indexes
    `MEMORY_TYPES`. `holding` tells which memories a weight applies to.
    """

    cosine: Floats | None
    bm25: Floats
    moment: NDArray[np.int64]
    half_life: Floats
    memory_type: NDArray[np.int8]
    confidence: Floats
    holding: Callable[[Weight], Mask]


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """The scores of n memories and the parts they are made of, each of n rows.

    `support` is what `relevance` is clipped from.
    """

    score: Floats
    support: Floats
    similarity: Floats
    lexical: Floats
    relevance: Floats
    recency: Floats
    confidence: Floats
    bias: Floats

    def take(self, rows: NDArray[np.intp]) -> Scored:
        """The scores of some, by row."""
        return Scored(**{name: getattr(self, name)[rows] for name in self.__struct_fields__})

    def parts(self) -> list[Parts]:
        """The parts of each memory."""
        columns: list[list[float]] = [getattr(self, name).tolist() for name in Parts.__struct_fields__]
        return [
            Parts(similarity=s, lexical=w, relevance=r, recency=a, confidence=c, bias=b)
            for s, w, r, a, c, b in zip(*columns, strict=True)
        ]


def evaluate(formula: Formula, evidence: Evidence, now: int) -> Scored:
    """The scores of many memories; `now` in Unix milliseconds. Row i depends on row i of the evidence alone.

    Computed in the precision of `evidence.bm25`.
    """
    zero = np.zeros(len(evidence.bm25), evidence.bm25.dtype)
    similarity = lexical = zero
    total = zero - formula.offset
    for signal in formula.relevance:
        match signal:
            case Similarity():
                if evidence.cosine is not None:
                    similarity = calibrated(signal, evidence.cosine)
                    total += signal.weight * similarity
            case Lexical():
                lexical = clipped(signal.gain * evidence.bm25 / (evidence.bm25 + signal.saturation))
                total += signal.weight * lexical
            case Weight():
                total += _held(signal, evidence)
            case _:
                assert_never(signal)
    support = total / formula.span
    relevance = clipped(support.copy())
    score = formula.relevance_weight * relevance
    recency = confidence = bias = zero
    for other in formula.rest:
        match other:
            case Decay():
                recency = _recency(other, evidence, now)
                score += other.weight * recency
            case Field():
                confidence = evidence.confidence
                score += other.weight * confidence
            case Weight():
                bias = bias + _held(other, evidence)
            case _:
                assert_never(other)
    if bias is not zero:
        score += bias
    return Scored(
        score=score,
        support=support,
        similarity=similarity,
        lexical=lexical,
        relevance=relevance,
        recency=recency,
        confidence=confidence,
        bias=bias,
    )


def calibrated(signal: Similarity, cosine: Floats) -> Floats:
    """Similarity in [0, 1]; 0 where there is no vector."""
    return clipped((cosine - signal.lo) / (signal.hi - signal.lo))


def clipped(values: Floats) -> Floats:
    """The values, put into [0, 1] where they are."""
    # Twice as fast as `np.clip` on the short arrays of a small namespace.
    np.maximum(values, 0.0, out=values)
    return np.minimum(values, 1.0, out=values)


def _held(signal: Weight, evidence: Evidence) -> Floats:
    """The weight where it applies, 0 elsewhere."""
    # Several times as fast as numpy's `where=` arguments.
    return evidence.holding(signal) * evidence.bm25.dtype.type(signal.weight)


def _recency(signal: Decay, evidence: Evidence, now: int) -> Floats:
    precision = evidence.bm25.dtype.type
    half_lives = [signal.half_lives.get(name) for name in MEMORY_TYPES]
    typical = np.isnan(evidence.half_life)
    alike = bool(np.all(typical))
    if alike and not any(half_lives):
        return np.ones_like(evidence.bm25)
    rate = np.array([1.0 / max(days, 1e-30) if days else 0.0 for days in half_lives], precision)[evidence.memory_type]
    if not alike:
        # The floor keeps an age of ever so many half-lives from overflowing; its recency is 0 all the same.
        rate = np.where(typical, rate, 1.0 / np.maximum(evidence.half_life, 1e-30))
    age = np.subtract(now, evidence.moment).astype(precision)
    np.maximum(age, 0.0, out=age)
    age /= -DAY_MS
    recency = np.exp2(age * rate)
    undated = evidence.moment == UNDATED
    if np.any(undated):
        recency = np.where(undated & (rate > 0.0), precision(NEUTRAL_RECENCY), recency)
    return recency


def evaluate_one(
    formula: Formula, memory: Memory, index: IndexFields, *, cosine: float | None, bm25: float, now: int
) -> tuple[float, Parts]:
    """The score of one memory, in plain Python: the definition that every store is held against.

    `cosine` is that of the query's vector and the memory's `mixed` one (None when either is missing), `bm25` the
    better of the memory's text and context, `now` in Unix milliseconds.
    """
    similarity = lexical = recency = confidence = bias = 0.0
    total = -formula.offset
    for signal in formula.relevance:
        match signal:
            case Similarity():
                if cosine is not None:
                    similarity = _clip((cosine - signal.lo) / (signal.hi - signal.lo))
                total += signal.weight * similarity
            case Lexical():
                lexical = min(1.0, signal.gain * bm25 / (bm25 + signal.saturation))
                total += signal.weight * lexical
            case Weight():
                total += signal.weight * holds(signal, memory, index)
            case _:
                assert_never(signal)
    relevance = _clip(total / formula.span)
    score = formula.relevance_weight * relevance
    for other in formula.rest:
        match other:
            case Decay():
                recency = _recency_of(other, memory, now)
                score += other.weight * recency
            case Field():
                confidence = memory.confidence
                score += other.weight * confidence
            case Weight():
                bias += other.weight * holds(other, memory, index)
            case _:
                assert_never(other)
    parts = Parts(
        similarity=similarity,
        lexical=lexical,
        relevance=relevance,
        recency=recency,
        confidence=confidence,
        bias=bias,
    )
    return score + bias, parts


def bm25(terms: Sequence[str], weights: Mapping[str, float], index: IndexFields) -> float:
    """BM25 of the better field; `weights` are the idf of the query's terms in the namespace."""
    text = sum(weights[term] * index.text.get(term, 0.0) for term in terms)
    context = sum(weights[term] * index.context.get(term, 0.0) for term in terms)
    return max(text, context)


def moment(memory: Memory) -> int:
    """`observed_at` in Unix milliseconds, `UNDATED` where recency cannot tell its age."""
    if memory.observed_at is None or memory.precision in {"month", "year"}:
        return UNDATED
    return millis(memory.observed_at)


def holds(signal: Weight, memory: Memory, index: IndexFields) -> bool:
    """Whether a weight applies to a memory."""
    match signal.field:
        case "speaker":
            return index.speaker in signal.values
        case "days":
            if any(day in signal.values for day in index.days):
                return True
            at = moment(memory)
            return any(start <= at < end for start, end in signal.spans)
        case "question":
            return str(int(index.question)) in signal.values
        case "memory_type":
            return memory.memory_type in signal.values
        case _:
            assert_never(signal.field)


def _recency_of(signal: Decay, memory: Memory, now: int) -> float:
    half_life = memory.half_life_days or signal.half_lives.get(memory.memory_type)
    if half_life is None:
        return 1.0
    at = moment(memory)
    if at == UNDATED:
        return NEUTRAL_RECENCY
    return float(0.5 ** (max(0, now - at) / DAY_MS / half_life))


def _clip(value: float) -> float:
    return min(1.0, max(0.0, value))
