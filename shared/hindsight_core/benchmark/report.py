"""What a benchmark found, in a form that can be printed, drawn and stored."""

from __future__ import annotations

import resource
import sys
from collections.abc import Sequence

import msgspec
import numpy as np

from hindsight_core.benchmark.configuration import Configuration
from hindsight_core.benchmark.measures import Difference, Floats, Summary, differences, measured, summary
from hindsight_core.benchmark.running import Asked
from hindsight_core.benchmark.storing import Dropped
from hindsight_core.benchmark.wording import counted, described, machine
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


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What of a data set was measured.

    `unanswered` questions have no answer and were not asked; `unknown` answers are no document of their bank and count
    as missed; `dropped` documents are no memories.
    """

    name: str
    memories: int
    questions: int
    unanswered: int
    unknown: int
    dropped: tuple[Dropped, ...]

    def lines(self, most: int) -> list[str]:
        """It in words, with at most so many of the dropped documents."""
        said = [counted(self.memories, "memory"), counted(self.questions, "question")]
        if self.unanswered:
            said.append(f"{counted(self.unanswered, 'question')} without an answer left out")
        if self.unknown:
            said.append(f"{counted(self.unknown, 'answer')} in no document, counted as missed")
        if self.dropped:
            said.append(f"{counted(len(self.dropped), 'document')} not stored")
        lines = [f"{self.name}: {'; '.join(said)}"]
        lines += [f"  not stored: {one.document} of {one.bank}: {one.reason}" for one in self.dropped[:most]]
        if len(self.dropped) > most:
            lines.append(f"  and {len(self.dropped) - most:,} more")
        return lines


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a benchmark prints.

    `memory_mib` is the most that the process held: the model, all data and all configurations together. `described`
    says in words what each configuration is.
    """

    machine: str
    version: str
    store: str
    asked: str
    seed: int
    memory_mib: float
    configurations: tuple[Configuration, ...]
    described: dict[str, str]
    sets: tuple[Measured, ...]
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
                memories=one.stored.memories,
                configuration=one.configuration.name,
                embedder=_embedder(one),
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
        described={one.configuration.name: described(one.configuration, _embedder(one), one.note) for one in asked},
        sets=tuple(_measured(one) for one in first.values()),
        results=tuple(results),
    )


def _embedder(asked: Asked) -> str:
    return "none" if asked.configuration.signals == "lexical" else asked.embedder


def _measured(asked: Asked) -> Measured:
    return Measured(
        name=asked.data.name,
        memories=asked.stored.memories,
        questions=asked.data.questions,
        unanswered=asked.data.unanswered,
        unknown=asked.data.unknown,
        dropped=asked.stored.dropped,
    )


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
