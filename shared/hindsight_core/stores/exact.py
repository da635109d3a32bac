"""Exact search over a resident namespace: the best by a formula.

Reading the vectors is what a large namespace costs. So everything but the similarity is evaluated for all memories
first, and vectors are read only of those that a perfect similarity could bring onto the page. A large
namespace is evaluated in single precision; the contenders that it does not tell apart are evaluated once more in
double precision, row by row, so that a score does not depend on where a memory lies.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from hindsight_core.ranking import Similarity
from hindsight_core.scoring import Floats, Mask, Scored, calibrated, clipped, evaluate
from hindsight_core.stores import Query, Ranked, RankedPage
from hindsight_core.stores.columns import Slots
from hindsight_core.stores.evidence import Reader
from hindsight_core.stores.resident import Resident
from hindsight_core.stores.selection import Selection

# More than single precision can lose in the product of two unit vectors, or in a score.
_ROUNDING = 1e-5
# Below this many memories, reading all vectors is faster than finding out which ones matter.
_FEW = 4096
_BLOCK = 16384
# One in so many is looked at for where the most promising ones begin.
_SAMPLED = 16
# Added to a score, it is out of the race.
_OUT = -1e9


def rank(resident: Resident, connection: sqlite3.Connection, query: Query) -> RankedPage:
    """See `MemoryStore.rank`; the resident holds the state that the connection's transaction sees."""
    selection = Selection(resident, connection)
    in_scope = selection.matching(query.scope, resident.rankable)
    eligible = selection.matching(query.where, resident.rankable)
    count, everything = int(np.count_nonzero(eligible)), int(np.count_nonzero(in_scope))
    if not count:
        return RankedPage(hits=(), in_scope=everything, eligible=0, below=0)
    slots, scored, reached = _Race(resident, query, eligible).finish()
    rows: list[int] = resident["row"][slots].tolist()
    found = resident.bodies.read(connection, rows)
    hits = tuple(
        Ranked(memory=found[row], score=score, parts=parts)
        for row, score, parts in zip(rows, scored.score.tolist(), scored.parts(), strict=True)
    )
    return RankedPage(hits=hits, in_scope=everything, eligible=count, below=count - reached)


class _Race:
    """The eligible memories of one query. Arrays are by position; `_slots` leads from there to the resident."""

    def __init__(self, resident: Resident, query: Query, eligible: Mask) -> None:
        count = int(np.count_nonzero(eligible))
        # Picking the eligible out of every column costs more than evaluating some others along with them.
        picked = np.flatnonzero(eligible) if 2 * count < resident.size else None
        self._picked: Slots | None = picked
        self._counted = eligible if picked is None else np.ones(count, np.bool_)
        self._resident = resident
        self._query = query
        self._formula = query.formula
        self._vector = None if resident.matrix is None else query.vector
        self._similarities = [signal for signal in query.formula.relevance if isinstance(signal, Similarity)]
        self._reader = Reader(resident, query)
        size = len(self._counted)
        self._precision = np.float64 if size <= _FEW else np.float32
        self._score, self._support, self._relevance = np.empty((3, size), self._precision)
        # Where all was evaluated in double precision, in one block.
        self._whole: Scored | None = None
        # Block by block, so that what comes up on the way is small and stays in the processor's cache.
        for start in range(0, size, _BLOCK):
            block = slice(start, min(start + _BLOCK, size))
            base = self._evaluated(block if picked is None else picked[block])
            self._score[block], self._support[block], self._relevance[block] = base.score, base.support, base.relevance
            if self._precision is np.float64:
                self._whole = base

    def _slots(self, at: Slots) -> Slots:
        return at if self._picked is None else self._picked[at]

    def _evaluated(self, slots: Slots | slice, precision: type[np.floating] | None = None) -> Scored:
        """Everything but the similarity."""
        return evaluate(self._formula, self._reader.evidence(slots, precision or self._precision), self._query.now)

    def finish(self) -> tuple[Slots, Scored, int]:
        """The slots of the best, their scores in the same order, and how many reached the minimum score."""
        query = self._query
        candidates = self._candidates()
        cosines = self._cosines(candidates)
        gain = self._gain(cosines)
        scores = self._lifted(candidates, gain)
        near = np.flatnonzero(self._undecided(scores))
        contenders = candidates[near]
        slots = self._slots(contenders)
        # A support that stays below 0 is a relevance of 0, whatever the cosine is exactly.
        matters: Mask = self._support[contenders] + gain[near] > -_ROUNDING
        if len(near) <= 2 * query.limit:
            matters[:] = True  # most of them will be on the page, where the exact cosine is shown
        exact = cosines[near].astype(np.float64)
        exact[matters] = self._exact(slots[matters])
        scored = self._compared(contenders, exact)

        reached = self._counted & (self._score >= query.min_score)
        reached[candidates] = scores >= query.min_score
        reached[contenders] = fit = scored.score >= query.min_score
        best = _best(scored.score, self._resident["id"][slots], np.flatnonzero(fit), query.limit)
        slots, exact, unread = slots[best], exact[best], ~matters[best]
        if np.any(unread):
            exact[unread] = self._exact(slots[unread])
        final = scored.take(best)
        for signal in self._similarities:
            final = replace(final, similarity=calibrated(signal, exact))
        return slots, final, int(np.count_nonzero(reached))

    def _candidates(self) -> Slots:
        """Positions, ascending, of all that may be on the page or on either side of the minimum score."""
        if self._whole is not None or any(signal.weight < 0.0 for signal in self._similarities):
            return np.flatnonzero(self._counted)
        lower, upper = self._score, self._lifted(slice(None), self._gain(np.array([np.inf], np.float32)))
        upper[~self._counted] = _OUT
        # Some of the most promising ones give a score that the page's last hit has at least; a sample tells where they
        # begin, in a quarter of the time that it takes to tell exactly.
        size = 4 * self._query.limit + 64
        first = np.flatnonzero(upper >= _last(upper[::_SAMPLED], size // _SAMPLED))[:size]
        first = first[self._counted[first]]
        scores = self._lifted(first, self._gain(self._cosines(first)))
        entry = _last(scores, self._query.limit)
        wanted = self._query.min_score
        enters = upper >= max(entry, 0.5 * _OUT) - _ROUNDING
        if np.min(lower) < wanted + _ROUNDING:
            enters |= (lower < wanted + _ROUNDING) & (upper >= wanted - _ROUNDING)
        return np.flatnonzero(enters)

    def _undecided(self, scores: Floats) -> Mask:
        """Which scores single precision does not tell apart from the page's last or from the least one wanted."""
        slope = sum(abs(s.weight) / (s.hi - s.lo) for s in self._similarities) / self._formula.span
        margin = _ROUNDING * (1.0 + self._formula.relevance_weight * slope)
        last = _last(scores, self._query.limit)
        undecided: Mask = (scores >= last - margin) | (np.abs(scores - self._query.min_score) <= margin)
        return undecided

    def _lifted(self, at: Slots | slice, gain: Floats) -> Floats:
        """The scores at these positions when the support of their relevance is higher by `gain`."""
        lifted = clipped(self._support[at] + gain)
        lifted -= self._relevance[at]
        lifted *= self._formula.relevance_weight
        lifted += self._score[at]
        return lifted

    def _gain(self, cosines: Floats) -> Floats:
        """What these cosines add to the support of relevance."""
        total = np.zeros_like(cosines)
        for signal in self._similarities:
            total += signal.weight * calibrated(signal, cosines)
        total /= self._formula.span
        return total

    def _cosines(self, at: Slots) -> NDArray[np.float32]:
        if self._vector is None:
            return np.full(len(at), -np.inf, np.float32)
        return self._resident.cosines(self._vector, self._slots(at))

    def _exact(self, slots: Slots) -> Floats:
        if self._vector is None:
            return np.full(len(slots), -np.inf)
        return self._resident.exact_cosines(self._vector, slots)

    def _compared(self, at: Slots, cosines: Floats) -> Scored:
        """The scores at these positions in double precision, with these cosines."""
        base = self._evaluated(self._slots(at), np.float64) if self._whole is None else self._whole.take(at)
        support = base.support + self._gain(cosines)
        relevance = clipped(support.copy())
        score = base.score + self._formula.relevance_weight * (relevance - base.relevance)
        return replace(base, score=score, support=support, relevance=relevance)


def _last(scores: Floats, limit: int) -> float:
    """The score of the last one on a page of the best."""
    if not 0 < limit <= len(scores):
        return -np.inf
    return float(np.partition(scores, len(scores) - limit)[len(scores) - limit])


def _best(scores: Floats, ids: NDArray[Any], among: Slots, limit: int) -> Slots:
    """Positions of the best: by score descending, then id descending."""
    among = among[scores[among] >= _last(scores[among], limit)]
    order = np.lexsort((ids[among], scores[among]))[::-1]
    return among[order[:limit]]
