"""How good a ranking is, how sure that is, and whether one is better than another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

DEPTH = 10
NAMES = ("recall_at_5", "recall_at_10", "ndcg_at_10", "mrr_at_10")
RESAMPLES = 2000
FLIPS = 10_000
Floats: TypeAlias = NDArray[np.float64]


class Estimate(msgspec.Struct, frozen=True):
    """A mean with the bounds of its 95 % interval."""

    value: float
    low: float
    high: float


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The means over some questions."""

    questions: int
    recall_at_5: Estimate
    recall_at_10: Estimate
    ndcg_at_10: Estimate
    mrr_at_10: Estimate


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A measure of one configuration less that of another, over the same questions, and how likely by chance."""

    estimate: Estimate
    p: float


def measured(ranks: Sequence[int], gold: int) -> tuple[float, float, float, float]:
    """The measures of one question, in the order of `NAMES`.

    `ranks` are the places (from 1) of the answers that were found, `gold` is how many there are. Gains of nDCG are 0
    or 1 (Järvelin and Kekäläinen, 2002).
    """
    within = sorted(rank for rank in ranks if rank <= DEPTH)
    ideal = sum(1.0 / math.log2(1 + place) for place in range(1, min(gold, DEPTH) + 1))
    return (
        sum(rank <= 5 for rank in within) / gold,
        len(within) / gold,
        sum(1.0 / math.log2(1 + rank) for rank in within) / ideal,
        1.0 / within[0] if within else 0.0,
    )


def summary(values: Floats, seed: int) -> Summary:
    """The means of an array of shape (questions, 4), with percentile intervals of a bootstrap over the questions."""
    count = len(values)
    means = _resampled(values, seed)
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    middle = values.mean(axis=0)
    found = [Estimate(float(middle[i]), float(low[i]), float(high[i])) for i in range(len(NAMES))]
    return Summary(
        questions=count,
        recall_at_5=found[0],
        recall_at_10=found[1],
        ndcg_at_10=found[2],
        mrr_at_10=found[3],
    )


def differences(ours: Floats, theirs: Floats, seed: int) -> dict[str, Difference]:
    """By measure: how much better `ours` is, both of shape (questions, 4) with the same questions in the same order.

    The interval is a paired bootstrap's. `p` is that of a paired randomisation test, two-sided: how often flipping
    the sign of each question's difference at random makes the mean as large (Smucker, Allan and Carterette, 2007).
    """
    gap = ours - theirs
    low, high = np.quantile(_resampled(gap, seed), [0.025, 0.975], axis=0)
    middle = gap.mean(axis=0)
    rng = np.random.default_rng(seed)
    hits = np.zeros(len(NAMES))
    for _ in range(0, FLIPS, 1000):
        signs = rng.integers(0, 2, (1000, len(gap))) * 2.0 - 1.0
        hits += (np.abs(signs @ gap / len(gap)) >= np.abs(middle) - 1e-12).sum(axis=0)
    return {
        name: Difference(
            estimate=Estimate(float(middle[i]), float(low[i]), float(high[i])), p=float((hits[i] + 1) / (FLIPS + 1))
        )
        for i, name in enumerate(NAMES)
    }


def _resampled(values: Floats, seed: int) -> Floats:
    """The means of `RESAMPLES` samples with replacement."""
    rng = np.random.default_rng(seed)
    count = len(values)
    rows = [values[rng.integers(0, count, count)].mean(axis=0) for _ in range(RESAMPLES)]
    return np.asarray(rows)
