"""The kernel machine and the logistic regressions behind the pair judge, solved in closed form or by Newton."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.pair_model import (
    CLIP,
    STEPS,
    Floats,
    Kernel,
    Points,
    kernel,
    linked,
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
DIMENSIONS = 128
DAMPING = 0.075


class Base(msgspec.Struct, frozen=True, eq=False):
    """What is common to all folds: standardised, projected and rounded pairs, and their kernel matrix."""

    centre: Floats
    scale: Floats
    middle: Floats
    projection: Floats
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
    points = Points(
        np.round(standard(data.rows, centre, scale) * (STEPS / CLIP)).astype(np.float32) * (CLIP / STEPS),
        unpacked(*packed(project(data.old, middle, projection))),
        unpacked(*packed(project(data.new, middle, projection))),
    )
    spread = {
        "likeness": float(points.likeness.var(0).sum()),
        "step": float(np.abs(points.old - points.new).var(0).sum()),
        "product": float((points.old * points.new).var(0).sum()),
    }
    gram = kernel(points, points, SHAPE, spread)
    norm = float(np.diag(gram).mean())
    return Base(centre, scale, middle, projection, points, spread, norm, gram / np.float32(norm))


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
        odds = linked(inputs, theta, np.zeros(k))
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
    """Scores of every pair by a model without its writer."""
    scores = np.zeros((len(data.pairs), len(RELATIONS)))
    for group in sorted(set(data.groups)):
        test, train = np.flatnonzero(data.groups == group), np.flatnonzero(data.groups != group)
        weights = solve(common.gram[np.ix_(train, train)], data.labels[train], data.ridge[train], prior)
        scores[test] = common.gram[np.ix_(test, train)] @ weights
    return scores
