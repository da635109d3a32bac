"""Exact search over a resident namespace: the best by a formula.

Reading the vectors is what a large namespace costs. So everything but the similarity is evaluated for all memories
first, and vectors are read only of those that a perfect similarity could bring onto the page. The cosines of the
contenders are then computed in double precision, row by row, so that a score does not depend on where a memory lies.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from hindsight_core.ranking import Formula, Similarity
from hindsight_core.scoring import Evidence, Floats, Mask, Scored, evaluate
from hindsight_core.stores import Query, Ranked, RankedPage
from hindsight_core.stores.evidence import gather, subset
from hindsight_core.stores.resident import Resident, Slots
from hindsight_core.stores.rows import unpack_memory
from hindsight_core.stores.selection import Selection

# More than single precision can lose in the product of two unit vectors.
_ROUNDING = 1e-5
# Below this many memories, reading all vectors is faster than finding out which ones matter.
_FEW = 4096


def rank(resident: Resident, connection: sqlite3.Connection, query: Query) -> RankedPage:
    """See `MemoryStore.rank`; the resident holds the state that the connection's transaction sees."""
    selection = Selection(resident, connection)
    in_scope = selection.matching(query.scope, resident.rankable)
    counted = selection.matching(query.where, resident.rankable)
    eligible = int(np.count_nonzero(counted))
    # Picking the eligible out of every column costs more than evaluating some others along with them.
    if 2 * eligible < resident.size:
        slots, picked = np.flatnonzero(counted), True
        counted = np.ones(eligible, np.bool_)
    else:
        slots, picked = np.arange(resident.size), False
    evidence = gather(resident, query, slots if picked else None)
    scores = _scores(resident, query, slots, counted, evidence)
    reached = counted & (scores >= query.min_score)
    best = _best(scores, resident["id"], slots, np.flatnonzero(reached), query.limit)
    final = evaluate(query.formula, _compared(resident, query, slots, evidence, best), query.now)
    return RankedPage(
        hits=_hits(connection, resident["row"][slots[best]].tolist(), final),
        in_scope=int(np.count_nonzero(in_scope)),
        eligible=eligible,
        below=eligible - int(np.count_nonzero(reached)),
    )


def _scores(resident: Resident, query: Query, slots: Slots, counted: Mask, evidence: Evidence) -> Floats:
    """Scores that are exact for the best `limit` and on the right side of `min_score` for all that are counted."""
    base = evaluate(query.formula, evidence, query.now)
    if query.vector is None or resident.matrix is None:
        return base.score
    formula, least = query.formula, query.min_score
    highest = sum(max(0.0, signal.weight) for signal in _similarities(formula)) / formula.span
    upper = _lifted(formula, base, slice(None), highest)
    if len(slots) <= _FEW:
        candidates = np.flatnonzero(counted)
    else:
        entry = _entry(resident, query, slots, base, np.where(counted, upper, -np.inf))
        undecided = (base.score < least) & (upper >= least)
        candidates = np.flatnonzero(counted & ((upper >= entry - _ROUNDING) | undecided))
    scores = base.score.copy()
    gain = _gain(formula, resident.cosines(query.vector, slots[candidates]))
    scores[candidates] = lifted = _lifted(formula, base, candidates, gain)
    # Where the support stays below 0, the cosine made no difference and there is nothing to be exact about.
    close = (_close(lifted, query)) & (base.support[candidates] + gain > -_ROUNDING)
    contenders = candidates[close]
    scores[contenders] = evaluate(formula, _compared(resident, query, slots, evidence, contenders), query.now).score
    return scores


def _similarities(formula: Formula) -> list[Similarity]:
    return [signal for signal in formula.relevance if isinstance(signal, Similarity)]


def _gain(formula: Formula, cosines: NDArray[np.floating]) -> Floats:
    """What these cosines add to the support of relevance."""
    total = np.zeros(len(cosines))
    for signal in _similarities(formula):
        total += signal.weight * np.clip((cosines - signal.lo) / (signal.hi - signal.lo), 0.0, 1.0)
    return total / formula.span


def _lifted(formula: Formula, base: Scored, at: Slots | slice, gain: Floats | float) -> Floats:
    """The scores at these positions when their support is higher by `gain`."""
    relevance = np.clip(base.support[at] + gain, 0.0, 1.0)
    return base.score[at] + formula.relevance_weight * (relevance - base.relevance[at])


def _entry(resident: Resident, query: Query, slots: Slots, base: Scored, upper: Floats) -> float:
    """A score that the page's last hit has at least: that of the most promising ones."""
    assert query.vector is not None
    count = min(len(upper), 4 * query.limit + 64)
    first = np.sort(np.argpartition(upper, len(upper) - count)[len(upper) - count :])
    gain = _gain(query.formula, resident.cosines(query.vector, slots[first]))
    scores = np.where(np.isfinite(upper[first]), _lifted(query.formula, base, first, gain), -np.inf)
    return float(np.sort(scores)[-query.limit]) if query.limit <= len(scores) else -np.inf


def _close(scores: Floats, query: Query) -> Mask:
    """Which scores single precision does not tell apart from the page's last or from the least one wanted."""
    slope = sum(abs(s.weight) / (s.hi - s.lo) for s in _similarities(query.formula)) / query.formula.span
    margin = _ROUNDING * max(1.0, query.formula.relevance_weight * slope)
    last = -np.inf
    if query.limit < len(scores):
        last = np.partition(scores, len(scores) - query.limit)[len(scores) - query.limit]
    return (scores >= last - margin) | (np.abs(scores - query.min_score) <= margin)


def _compared(resident: Resident, query: Query, slots: Slots, evidence: Evidence, at: Slots) -> Evidence:
    """The evidence of some, with their exact cosines."""
    cosine = None
    if query.vector is not None and resident.matrix is not None:
        cosine = resident.exact_cosines(query.vector, slots[at])
    return replace(subset(evidence, at), cosine=cosine)


def _best(scores: Floats, ids: NDArray[Any], slots: Slots, among: Slots, limit: int) -> Slots:
    """Positions of the best: by score descending, then id descending."""
    if limit < len(among):
        last = np.partition(scores[among], len(among) - limit)[len(among) - limit]
        among = among[scores[among] >= last]
    order = np.lexsort((ids[slots[among]], scores[among]))[::-1]
    return among[order[:limit]]


def _hits(connection: sqlite3.Connection, rows: list[int], scored: Scored) -> tuple[Ranked, ...]:
    found = {
        row: unpack_memory(body, count, at)
        for row, body, count, at in connection.execute(
            "SELECT b.row, b.memory, a.count, a.at FROM bodies b LEFT JOIN access a ON a.row = b.row"  # noqa: S608 - question marks
            f" WHERE b.row IN ({','.join('?' * len(rows))})",
            rows,
        )
    }
    return tuple(
        Ranked(memory=found[row], score=float(scored.score[at]), parts=scored.parts(at)) for at, row in enumerate(rows)
    )
