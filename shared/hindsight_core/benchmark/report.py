"""What a benchmark found, in a form that can be printed, drawn and stored."""

from __future__ import annotations

import os
import platform
import resource
import sys
from collections.abc import Sequence

import msgspec
import numpy as np

from hindsight_core.benchmark.configuration import Configuration
from hindsight_core.benchmark.measures import Difference, Floats, Summary, differences, measured, summary
from hindsight_core.benchmark.running import Asked
from hindsight_core.release import release

ALL = "all kinds"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of question of a data set, in one configuration."""

    kind: str
    summary: Summary
    against_first: dict[str, Difference] | None = None
    """By measure: how much better than the first configuration; None for that one itself."""


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds: median and 95th percentile."""

    p50: float
    p95: float


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One data set in one configuration; `search` is without the question's embedding, which is `embedding`."""

    data: str
    memories: int
    configuration: str
    embedder: str
    rows: tuple[Row, ...]
    search: Times
    embedding: Times | None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a benchmark prints. `memory_mib` is the most that the process held, model included."""

    machine: str
    version: str
    store: str
    asked: str
    seed: int
    memory_mib: float
    configurations: tuple[Configuration, ...]
    results: tuple[Result, ...]


def report(asked: Sequence[Asked], *, store: str, when: str, seed: int) -> Report:
    """The measures of all runs, with intervals and, from the second configuration on, paired differences.

    `store` and `when` say in words where the memories were and when the questions were asked. Intervals and tests
    draw from `seed`.
    """
    first: dict[str, Asked] = {}
    results: list[Result] = []
    for one in asked:
        base = first.setdefault(one.data.name, one)
        rows: list[Row] = []
        values, their = _values(one), _values(base)
        for kind, places in _kinds(one).items():
            against = None if one is base else differences(values[places], their[places], seed)
            rows.append(Row(kind=kind, summary=summary(values[places], seed), against_first=against))
        results.append(
            Result(
                data=one.data.name,
                memories=one.memories,
                configuration=one.configuration.name,
                embedder="none" if one.configuration.signals == "lexical" else one.embedder,
                rows=tuple(rows),
                search=_times([outcome.ms for outcome in one.outcomes]),
                embedding=_times(one.embedding_ms) if one.embedding_ms else None,
            )
        )
    configurations = {one.configuration.name: one.configuration for one in asked}
    return Report(
        machine=machine(),
        version=release(),
        store=store,
        asked=when,
        seed=seed,
        memory_mib=_peak_mib(),
        configurations=tuple(configurations.values()),
        results=tuple(results),
    )


def machine() -> str:
    """Processor count, system and versions: what figures of time depend on."""
    return f"{os.cpu_count()} × {platform.machine()}, {platform.system()}, Python {platform.python_version()}"


def _values(asked: Asked) -> Floats:
    return np.array([measured(outcome.ranks, outcome.gold) for outcome in asked.outcomes])


def _kinds(asked: Asked) -> dict[str, list[int]]:
    """Which outcomes belong to each row of a table: all, those that have an answer in the data, and each kind."""
    kinds: dict[str, list[int]] = {}
    for place, outcome in enumerate(asked.outcomes):
        kinds.setdefault(outcome.kind, []).append(place)
    every = list(range(len(asked.outcomes)))
    found = {ALL: every}
    if len(kinds) == 1:
        return found
    without = sorted(asked.data.unanswerable & kinds.keys())
    if without:
        out = {place for kind in without for place in kinds[kind]}
        found[f"without {', '.join(without)}"] = [place for place in every if place not in out]
    return found | dict(sorted(kinds.items()))


def _times(ms: Sequence[float]) -> Times:
    return Times(p50=float(np.quantile(ms, 0.5)), p95=float(np.quantile(ms, 0.95)))


def _peak_mib() -> float:
    # Linux counts in KiB, macOS in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1 << 20)
