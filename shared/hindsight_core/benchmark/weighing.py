"""The weights of the second stage, chosen on some banks and measured on others: what to expect of unseen ones.

The weights are those of a linear ranking of the compared hits that makes the answers most likely: hit i of a question
is taken with probability exp(w·x_i) / Σ exp(w·x_j) (ListNet's top-one probability, Cao et al., 2007), found by Newton's
method with a small ridge. In `x` stand the relevance, the recency and each kind of evidence of a hit.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.ranking import LARGEST, Weights
from hindsight_core.reranking import EVIDENCE
from hindsight_core.responses import SearchResponse

Floats = NDArray[np.float64]
RIDGE = 1e-3
STEPS = 25
_NEGATIVE = frozenset({"remark"})


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """The compared hits of one question: `hits` of shape (n, 2 + kinds of evidence), and which of them answer it."""

    bank: str
    hits: Floats
    answers: NDArray[np.bool_]


def example(bank: str, response: SearchResponse, answers: Sequence[bool], weights: Weights) -> Example:
    """What an explained search says of its hits; `weights` are those it was made with, none of the evidence's 0."""
    scale = weights.relevance * (1.0 + weights.contrast)
    rows: list[list[float]] = []
    for hit in response.hits:
        assert hit.explain is not None
        given = hit.explain.contributions
        support = sum(given.get(name, 0.0) for name in ("similarity", "lexical", "offset"))
        relevance = support + sum(given.get(name, 0.0) for name in ("speaker", "date", "question", "clipped"))
        evidence = [hit.explain.evidence.get(name, 0.0) / (scale * getattr(weights, name)) for name in EVIDENCE]
        support = relevance if relevance > 1e-6 else min(0.0, support)
        rows.append([support / weights.relevance, hit.parts.recency, *evidence])
    return Example(bank=bank, hits=np.array(rows), answers=np.array(answers, np.bool_))


def weighed(examples: Sequence[Example], weights: Weights) -> Weights:
    """The weights of the evidence that suit these examples best, all others as they are.

    No kind of evidence counts against a hit but the one that is meant to, and none for more than a setting may say.
    Examples that prefer nothing change nothing.
    """
    telling = [one for one in examples if one.answers.any() and not one.answers.all()]
    fitted = _fitted(telling) if telling else np.zeros(2 + len(EVIDENCE))
    if fitted[0] <= 0.0:
        return weights
    names = dict(zip(EVIDENCE, (fitted[2:] / fitted[0]).tolist(), strict=True))
    chosen = {
        name: round(max(-LARGEST, min(0.0, value)) if name in _NEGATIVE else min(LARGEST, max(0.0, value)), 3)
        for name, value in names.items()
    }
    return msgspec.structs.replace(weights, **chosen)


def _fitted(examples: Sequence[Example]) -> Floats:
    spread = np.concatenate([one.hits for one in examples]).std(axis=0)
    spread[spread < 1e-6] = 1.0
    rows = [one.hits / spread for one in examples]
    wanted: list[Floats] = [one.answers / one.answers.sum() for one in examples]
    ridge = RIDGE * len(rows)
    found = np.zeros(len(spread))
    loss = _loss(found, rows, wanted, ridge)
    for _ in range(STEPS):
        slope = 2.0 * ridge * found
        bend = 2.0 * ridge * np.eye(len(found))
        for x, y in zip(rows, wanted, strict=True):
            share = _share(x @ found)
            middle: Floats = share @ x
            slope += middle - y @ x
            bend += (x * share[:, None]).T @ x - np.outer(middle, middle)
        step = np.linalg.solve(bend, slope)
        while (shorter := _loss(found - step, rows, wanted, ridge)) > loss:
            step /= 2.0
        found, gain, loss = found - step, loss - shorter, shorter
        if gain < 1e-6 * len(rows):
            break
    return np.asarray(found / spread)


def _share(odds: Floats) -> Floats:
    share = np.exp(odds - odds.max())
    return np.asarray(share / share.sum())


def _loss(found: Floats, rows: Sequence[Floats], wanted: Sequence[Floats], ridge: float) -> float:
    total = ridge * float(found @ found)
    for x, y in zip(rows, wanted, strict=True):
        odds = x @ found
        top = odds.max()
        total += float(top + np.log(np.exp(odds - top).sum()) - y @ odds)
    return total
