"""What an evaluation found: a line for each question asked, and measures with their intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

_Z = 1.96
_RESAMPLES = 2000


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One question: what was expected, what came, and why.

    `group` is its kind where a file holds several; `outcome` names what came in one word where `predicted` is longer.
    `bystanders` is how many memories stood by that it does not concern, `disturbed` what those said that were touched.
    """

    id: str
    lang: str
    expected: str
    predicted: str
    right: bool
    reason: str = ""
    group: str = ""
    outcome: str = ""
    bystanders: int | None = None
    disturbed: tuple[str, ...] = ()


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure in [0, 1] over `of` cases, with the bounds of its 95 % interval."""

    name: str
    value: float
    low: float
    high: float
    of: int


Confusion: TypeAlias = dict[str, dict[str, int]]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Measures and confusion over `all` and by language; confusion counts what was expected, and of that what came."""

    task: str
    items: int
    measures: dict[str, tuple[Measure, ...]]
    confusion: dict[str, Confusion]
    lines: tuple[Line, ...]


def share(name: str, hits: Sequence[bool]) -> Measure:
    """The share of true ones with Wilson's interval (Wilson, 1927); 0 with the interval [0, 1] for none at all."""
    n, count = len(hits), sum(hits)
    if not n:
        return Measure(name=name, value=0.0, low=0.0, high=1.0, of=0)
    value, spread = count / n, _Z * _Z / n
    middle = (value + spread / 2) / (1 + spread)
    half = _Z / (1 + spread) * math.sqrt(value * (1 - value) / n + spread / (4 * n))
    return Measure(
        name=name,
        value=round(value, 4),
        low=round(max(0.0, middle - half), 4),
        high=round(min(1.0, middle + half), 4),
        of=n,
    )


def f1(name: str, pairs: Sequence[tuple[bool, bool]]) -> Measure:
    """F1 over (expected, predicted), with the percentiles of resamples (Efron, 1979; the same ones every time)."""
    n = len(pairs)
    if not n:
        return Measure(name=name, value=0.0, low=0.0, high=1.0, of=0)
    wanted, said = np.array(pairs, dtype=bool).T
    picks = np.random.default_rng(0).integers(0, n, (_RESAMPLES, n))
    low, high = np.percentile(_f1(wanted[picks], said[picks]), [2.5, 97.5]).tolist()
    value = float(_f1(wanted[None], said[None])[0])
    return Measure(name=name, value=round(value, 4), low=round(low, 4), high=round(high, 4), of=n)


def _f1(wanted: NDArray[np.bool_], said: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Twice what both say over all that either says, row by row; 0 where nobody says anything."""
    every = wanted.sum(axis=1) + said.sum(axis=1)
    return np.asarray(2 * (wanted & said).sum(axis=1) / np.maximum(every, 1), dtype=np.float64)


def summed_up(
    task: str, items: int, lines: Sequence[Line], measure: Callable[[Sequence[Line]], tuple[Measure, ...]]
) -> Report:
    """The measures and the confusion of all lines and of each language's."""
    groups = {"all": list(lines)}
    for language in sorted({line.lang for line in lines}):
        groups[language] = [line for line in lines if line.lang == language]
    return Report(
        task=task,
        items=items,
        measures={name: measure(group) for name, group in groups.items()},
        confusion={name: confused(group) for name, group in groups.items()},
        lines=tuple(lines),
    )


def confused(lines: Sequence[Line]) -> Confusion:
    """How often what came (the inner name) came where something was expected (the outer one)."""
    found: Confusion = {}
    for line in lines:
        row, column = found.setdefault(line.group or line.expected, {}), line.outcome or line.predicted
        row[column] = row.get(column, 0) + 1
    return found
