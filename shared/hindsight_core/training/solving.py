"""The kernel machine and the logistic regressions behind the pair judge, solved in closed form or by Newton."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.learned import Link, softmax
from hindsight_core.pair_model import (
    CLIP,
    STEPS,
    Floats,
    Gate,
    Kernel,
    Points,
    kernel,
    packed,
    project,
    standard,
    unpacked,
)
from hindsight_core.relations import RELATIONS
from hindsight_core.training.pairs import Corpus

SHAPE = Kernel(
    likeness=0.45,
    likeness_wide=0.25,
    way=0.15,
    place=1.5,
    w_likeness=0.3,
    w_way=0.15,
    w_both=0.1,
    w_product=0.4,
    w_place=2.0,
    w_new_place=0.3,
    w_new=0.1,
    w_old=0.1,
)
SHRINK = 0.1
RELEVANCE_SHRINK = 20.0
RELEVANCE = 0.75
# Reading what the features of all training pairs are is a tenth of a decision's time: the weakest third says nothing.
FEATURES = 112
DIMENSIONS = 128
DAMPING = 0.075


class Base(msgspec.Struct, frozen=True, eq=False):
    """What is common to all folds: standardised, projected and rounded pairs."""

    centre: Floats
    scale: Floats
    middle: Floats
    projection: Floats
    rows: Floats
    old: Floats
    new: Floats


class Weighed(msgspec.Struct, frozen=True, eq=False):
    """The pairs with features that count as much as they tell, and their kernel matrix.

    `norm` was the mean of its diagonal before it became 1.
    """

    weigh: Floats
    points: Points
    spread: dict[str, float]
    norm: float
    gram: Floats


def base(data: Corpus) -> Base:
    centre, scale = data.rows.mean(0), data.rows.std(0) + np.float32(1e-6)
    texts = np.vstack([data.old, data.new])
    middle = texts.mean(0)
    spans, axes = np.linalg.eigh((texts - middle).T @ (texts - middle))
    spans, axes = spans[::-1][:DIMENSIONS], axes[:, ::-1][:, :DIMENSIONS]
    # A little less of the widest directions: they tell topics apart, not what is said about them.
    projection = (axes * (spans / spans[0]) ** -DAMPING).astype(np.float16).astype(np.float32)
    return Base(
        centre,
        scale,
        middle,
        projection,
        standard(data.rows, centre, scale),
        unpacked(*packed(project(data.old, middle, projection))),
        unpacked(*packed(project(data.new, middle, projection))),
    )


def weighed(common: Base, weigh: Floats) -> Weighed:
    """The kernel matrix where the features count so much."""
    likeness = np.round(common.rows * weigh * (STEPS / CLIP)).astype(np.float32) * (CLIP / STEPS)
    points = Points(likeness, common.old, common.new)
    spread = {
        "likeness": float(points.likeness.var(0).sum()),
        "step": float(points.step.var(0).sum()),
        "product": float(points.product.var(0).sum()),
    }
    gram = kernel(points, points, SHAPE, spread)
    norm = float(np.diag(gram).mean())
    gram /= np.float32(norm)
    return Weighed(weigh, points, spread, norm, gram)


def relevance(rows: Floats, labels: NDArray[np.int64]) -> Floats:
    """How much each standardised feature tells the classes apart: the most telling one 1, all but `FEATURES` nothing.

    By the length of its coefficients in a logistic regression, so that of two that say the same neither counts in full.
    """
    coefficients, _ = link(np.asarray(rows, dtype=np.float64), labels, shrink=RELEVANCE_SHRINK)
    length = np.sqrt((coefficients**2).sum(axis=1)) ** RELEVANCE
    length[np.argsort(-length, kind="stable")[FEATURES:]] = 0.0
    return np.asarray(length / length.max(), dtype=np.float32)


def solve(
    gram: Floats, labels: NDArray[np.int64], ridge: NDArray[np.float64], prior: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Kernel ridge regression on one-hot labels less their prior: weights of shape (n, 6)."""
    targets = np.eye(len(RELATIONS))[labels] - prior
    return np.asarray(np.linalg.solve(gram + np.diag(ridge), targets), dtype=np.float64)


def link(
    scores: NDArray[np.float64], labels: NDArray[np.int64], classes: int = len(RELATIONS), shrink: float = SHRINK
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Multinomial logistic regression from scores to classes (Newton): (d, classes) coefficients, (classes,) offsets.

    Minimises the negative log-likelihood plus half of `shrink` times the sum of squared coefficients.
    """
    inputs = np.hstack([scores, np.ones((len(scores), 1))])
    n, d, k = len(inputs), inputs.shape[1], classes
    theta = np.zeros((d, k))
    penalty = np.full((d, k), shrink)
    penalty[-1] = 1e-3
    for _ in range(50):
        odds = softmax(inputs, theta, np.zeros(k))
        slope = inputs.T @ (odds - np.eye(k)[labels]) + penalty * theta
        curve = np.zeros((d * k, d * k))
        for i in range(k):
            for j in range(k):
                weight = odds[:, i] * (float(i == j) - odds[:, j])
                curve[i * d : (i + 1) * d, j * d : (j + 1) * d] = (inputs * weight[:, None]).T @ inputs
        curve += np.diag(penalty.T.ravel())
        step = np.linalg.solve(curve, slope.T.ravel()).reshape(k, d).T
        theta -= step
        if np.abs(step).max() < 1e-8 * n:
            break
    return theta[:-1], theta[-1]


def left_out(data: Corpus, common: Base, prior: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores of every pair by a model without its writer, who has no say in how much features count, either."""
    scores = np.zeros((len(data.pairs), len(RELATIONS)))
    for group in sorted(set(data.groups)):
        test, train = np.flatnonzero(data.groups == group), np.flatnonzero(data.groups != group)
        gram = weighed(common, relevance(common.rows[train], data.labels[train])).gram
        weights = solve(gram[np.ix_(train, train)], data.labels[train], data.ridge[train], prior)
        scores[test] = gram[np.ix_(test, train)] @ weights
    return scores


def gate(
    names: Sequence[str],
    rows: NDArray[np.float64],
    concerned: NDArray[np.int64],
    shrink: float = SHRINK,
    meant: tuple[Floats, Floats] | None = None,
) -> Gate:
    """A logistic regression on the standardised values of features, as weights of the features as they come.

    `meant` are the projected vectors of the old and of the new texts, as further columns.
    """
    columns = np.hstack([rows, *(meant or ())])
    centre, scale = columns.mean(0), columns.std(0) + 1e-6
    coefficients, offset = _logistic((columns - centre) / scale, concerned, shrink)
    weights = coefficients / scale
    start = float(offset - weights @ centre)
    told, *others = np.split(weights, np.cumsum([rows.shape[1], *(each.shape[1] for each in (meant or ())[:1])]))
    directions = [tuple(round(float(w), 4) for w in each) for each in others if len(each)]
    return Gate({name: float(w) for name, w in zip(names, told, strict=True)}, start, *directions)


def _logistic(rows: NDArray[np.float64], yes: NDArray[np.int64], shrink: float) -> tuple[NDArray[np.float64], float]:
    """`link` for two classes, as coefficients and offset of the log-odds: a fourth of the arithmetic."""
    inputs = np.hstack([rows, np.ones((len(rows), 1))])
    theta = np.zeros(inputs.shape[1])
    penalty = np.full(len(theta), shrink / 2)
    penalty[-1] = 1e-3 / 2
    for _ in range(50):
        odds = 1 / (1 + np.exp(-(inputs @ theta)))
        curve = (inputs * (odds * (1 - odds))[:, None]).T @ inputs + np.diag(penalty)
        step = np.linalg.solve(curve, inputs.T @ (odds - yes) + penalty * theta)
        theta -= step
        if np.abs(step).max() < 1e-6:
            break
    return theta[:-1], float(theta[-1])


def linkage(found: tuple[NDArray[np.float64], NDArray[np.float64]]) -> Link:
    """What `link` found, as a card keeps it."""
    coefficients, offsets = found
    return Link(
        tuple(tuple(round(float(x), 6) for x in row) for row in coefficients),
        tuple(round(float(x), 6) for x in offsets),
    )
