"""The tables of a report, as cells of text: what is printed and what docs hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from hindsight_core.benchmark.measures import NAMES, Estimate, Summary
from hindsight_core.benchmark.report import Result
from hindsight_core.benchmark.wording import probability

LABELS = dict(zip(NAMES, ("R@5", "R@10", "nDCG@10", "MRR@10"), strict=True))
"""What each measure is called."""
BAR = "\\|"
Table: TypeAlias = tuple[list[str], list[list[str]]]
"""The head, and the rows."""


def measures(results: Sequence[Result]) -> Table:
    """The means with their intervals, by kind of question and configuration."""
    rows: list[list[str]] = []
    for number, row in enumerate(results[0].rows):
        for result in results:
            found = result.rows[number].summary
            cells: list[str] = []
            for name in NAMES:
                value = estimate(found, name)
                cells.append(f"{value.value * 100:.1f} ({value.low * 100:.1f}–{value.high * 100:.1f})")
            rows.append([row.kind, result.configuration, f"{found.questions:,}", *cells])
    return ["kind", "configuration", "questions", *LABELS.values()], rows


def differences(results: Sequence[Result]) -> Table:
    """How much better the later configurations are than the first, and how likely by chance; no rows where one is."""
    rows: list[list[str]] = []
    for number, row in enumerate(results[0].rows):
        for result in results[1:]:
            against = result.rows[number].against_first or {}
            cells = [f"{against[name].estimate.value * 100:+.1f} ({probability(against[name].p)})" for name in NAMES]
            rows.append([row.kind, result.configuration, *cells])
    return ["kind", f"less {results[0].configuration}", *LABELS.values()], rows


def times(results: Sequence[Result]) -> Table:
    """Milliseconds: a search without the question's embedding, and that embedding."""
    rows: list[list[str]] = []
    for result in results:
        embedding = result.embedding
        made = ["", ""] if embedding is None else [f"{embedding.p50:.1f}", f"{embedding.p95:.1f}"]
        search = result.search
        rows.append(
            [result.data, result.configuration, f"{result.memories:,}", f"{search.p50:.2f}", f"{search.p95:.2f}", *made]
        )
    return ["data", "configuration", "memories", "search p50", "p95", "embedding p50", "p95"], rows


def estimate(summary: Summary, name: str) -> Estimate:
    """A measure of a summary, by its name."""
    found: Estimate = getattr(summary, name)
    return found


def markdown(table: Table) -> str:
    """The table as docs hold it."""
    head, rows = table
    lines = [f"| {' | '.join(cell.replace('|', BAR) for cell in line)} |" for line in (head, *rows)]
    lines.insert(1, "|---" * len(head) + "|")
    return "\n".join(lines)
