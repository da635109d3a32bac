"""What a person sees of the answers: tables and lines on a terminal, without colours anywhere else."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hindsight_core.models import AuditEvent, Decision, Hit, Memory, Run
from hindsight_core.responses import Affected, SearchResponse, Stats, SweepReport

if TYPE_CHECKING:
    # Asking a server must not load what judges.
    from hindsight_core.evaluation.report import Report

WIDE = 160
_GOOD, _DOUBTFUL, _BAD, _DIM = "green", "yellow", "red", "bright_black"
_DECISION_STYLES = {
    "add": _GOOD,
    "coexist": _GOOD,
    "refine": _GOOD,
    "supersede": _GOOD,
    "contest": _DOUBTFUL,
    "pending": _DOUBTFUL,
    "duplicate": _DIM,
    "skip": _DIM,
    "refuse": _BAD,
}
_STATUS_STYLES = {"active": _GOOD, "pending": _DOUBTFUL, "suppressed": _BAD, "erased": _BAD}
_PART_NAMES = ("similarity", "lexical", "relevance", "recency", "confidence", "bias")


def console(*, error: bool = False) -> Console:
    """A console for standard output, or for standard error.

    A pipe gets no colours, and lines that are not cut at the 80 columns of a terminal that is not there.
    """
    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() else WIDE
    return Console(file=stream, width=width, highlight=False, emoji=False, markup=False)


def say_json(answer: object) -> None:
    """The answer as the HTTP interface gives it."""
    print(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())


def decisions(found: Sequence[Decision]) -> Table:
    """What became of each candidate of a write, and why."""
    table = _table("decision", "text", "score", "why", "id")
    for decision in found:
        scores = decision.scores
        score = "" if scores is None else f"{scores.total:.2f}/{scores.threshold:.2f}"
        why = [decision.reason]
        why += [f"replaces {old}" for old in decision.superseded]
        why += [f"{contest.ask} ({contest.id}, {contest.probability:.0%})" for contest in decision.contests]
        table.add_row(
            Text(decision.decision, _DECISION_STYLES[decision.decision]),
            Text(decision.text),
            score,
            Text("\n".join(line for line in why if line)),
            decision.memory_id or "",
        )
    return table


def hits(answer: SearchResponse) -> Table:
    """The hits with their scores; with explanations, why each stands where it stands."""
    table = _table("score", "memory", "said", "kind", "id")
    for hit in answer.hits:
        table.add_row(f"{hit.score:.3f}", _hit_text(hit), day(hit.memory), hit.memory.kind, hit.memory.id)
    return table


def hits_summary(answer: SearchResponse) -> Text:
    """One line: how many could answer, and what kept the others out."""
    counts = answer.counts
    if answer.query.recall.needed:
        said = [f"{len(answer.hits)} of {counts.eligible} memories"]
    else:
        said = [f"Not searched: {answer.query.recall.why}"]
    if counts.below_min_score:
        said.append(f"{counts.below_min_score} below the minimum score")
    if counts.filtered:
        by = ", ".join(f"{name} {count}" for name, count in counts.filtered_by.items())
        said.append(f"{counts.filtered} filtered out" + (f" ({by})" if by else ""))
    if answer.query.time_range is not None:
        said.append(f"read “{answer.query.time_range.text}” as a time, preferred")
    if answer.degraded:
        said.append(answer.degraded)
    said.append(f"{answer.took_ms:.0f} ms")
    return Text("; ".join(said), _DIM)


def memories(found: Iterable[Memory]) -> Table:
    """Memories, one a row."""
    table = _table("id", "memory", "said", "type", "kind", "status")
    for memory in found:
        status = Text(memory.status, _STATUS_STYLES.get(memory.status, _DIM))
        table.add_row(memory.id, Text(memory.content), day(memory), memory.memory_type, memory.kind, status)
    return table


def one_memory(memory: Memory) -> Table:
    """Every field of a memory that is not empty."""
    table = _table("", "")
    table.show_header = False
    for name in Memory.__struct_fields__:
        value = getattr(memory, name)
        if value not in (None, "", (), {}, False):
            table.add_row(Text(name, _DIM), Text(_plain(value)))
    return table


def history(events: Iterable[AuditEvent]) -> Table:
    """The changes of a memory or a namespace: when, what, who, why, and the fields that differ."""
    table = _table("when", "what", "who", "why", "changed")
    for event in events:
        table.add_row(instant(event.at), event.action, event.actor, Text(event.reason), Text(_changed(event)))
    return table


def affected(found: Iterable[Affected]) -> Table:
    """What a run does to each memory."""
    table = _table("id", "memory", "was", "is")
    for one in found:
        table.add_row(one.id, Text(one.excerpt), one.before, Text(one.after, _STATUS_STYLES.get(one.after, _DIM)))
    return table


def swept(found: Iterable[Affected]) -> Table:
    """What a sweep does to each memory, and why."""
    table = _table("id", "memory", "is", "why")
    for one in found:
        table.add_row(one.id, Text(one.excerpt), Text(one.after, _STATUS_STYLES.get(one.after, _DIM)), Text(one.reason))
    return table


def policies(reports: Iterable[SweepReport]) -> Table:
    """What each policy did to how many memories."""
    table = _table("policy", "looked at", "did", "ms")
    examined, took = Counter[str](), Counter[str]()
    actions: dict[str, Counter[str]] = {}
    for done in (one for report in reports for one in report.policies):
        examined[done.policy] += done.examined
        took[done.policy] += round(done.took_ms)
        actions.setdefault(done.policy, Counter()).update(done.actions)
    for policy, did in actions.items():
        said = ", ".join(f"{n} {action}" for action, n in did.items()) or "nothing"
        table.add_row(policy, str(examined[policy]), said, str(took[policy]))
    return table


def runs(found: Iterable[Run]) -> Table:
    """The calls that changed memories."""
    table = _table("run", "when", "what", "memories", "why")
    for run in found:
        why = f"{run.reason} (undone)".lstrip() if run.undone_by else run.reason
        table.add_row(run.run_id, instant(run.at), run.operation, str(run.count), Text(why))
    return table


def stats(found: Stats) -> Table:
    """Sizes of a namespace."""
    table = _table("", "")
    table.show_header = False
    groups = {"status": found.by_status, "type": found.by_type, "kind": found.by_kind}
    rows: list[tuple[str, object]] = [("namespace", found.namespace), ("memories", found.memories)]
    rows += [(name, ", ".join(f"{n} {value}" for value, n in group.items())) for name, group in groups.items() if group]
    rows += [("changes", found.events), ("runs", found.runs), ("embedding model", found.embedding_model or "none")]
    for name, value in rows:
        table.add_row(Text(name, _DIM), Text(str(value)))
    return table


def evaluation(report: Report) -> None:
    """One line an item, then what was measured, and what was taken for what: of all and, of several, each language."""
    for line in report.lines:
        sign = "✓" if line.right else "✗"
        print(f"{sign} {line.id}  expected: {line.expected}  predicted: {line.predicted}  {_one_line(line.reason)}")
    shown = console()
    languages = list(report.measures)
    measured = _table("measure", *languages)
    for row in zip(*report.measures.values(), strict=True):
        measured.add_row(row[0].name, *(f"{m.value:.1%} [{m.low:.1%}, {m.high:.1%}] of {m.of}" for m in row))
    shown.print(measured)
    every = report.confusion["all"]
    columns = sorted({name for counts in every.values() for name in counts})
    # What comes of one language alone is what comes of all.
    for language in languages if len(languages) > 2 else ["all"]:
        taken = _table(f"{language}: expected / predicted", *columns)
        for name, counts in sorted(report.confusion[language].items()):
            taken.add_row(name, *(str(counts.get(column, "")) for column in columns))
        shown.print()
        shown.print(taken)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def instant(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S")


def day(memory: Memory) -> str:
    """When it was said, as exactly as that is known."""
    if memory.observed_at is None:
        return ""
    width = {"year": 4, "month": 7}.get(memory.precision, 10)
    return memory.observed_at.date().isoformat()[:width]


def _hit_text(hit: Hit) -> Text:
    speaker = f"{hit.memory.speaker}: " if hit.memory.speaker else ""
    text = Text(speaker + hit.memory.content)
    if hit.marked is not None:
        note = hit.note or (f"newer: {hit.newer}" if hit.newer else "")
        text.append(f"\n[{hit.marked}] {note}".rstrip(), _DOUBTFUL)
    if hit.explain is not None:
        parts = ", ".join(f"{name} {getattr(hit.parts, name):.2f}" for name in _PART_NAMES)
        text.append(f"\n{hit.explain.sentence}\n{parts}", _DIM)
    return text


def _changed(event: AuditEvent) -> str:
    if event.before is None or event.after is None:
        return "" if event.after is None else event.after.content
    differing = [
        name
        for name in Memory.__struct_fields__
        if name not in {"version", "updated_at"} and getattr(event.before, name) != getattr(event.after, name)
    ]
    return "\n".join(
        f"{name}: {_plain(getattr(event.before, name))} → {_plain(getattr(event.after, name))}" for name in differing
    )


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return instant(value)
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        wraps = column in {"text", "memory", "why", "changed", ""}
        table.add_column(
            column,
            overflow="fold",
            no_wrap=not wraps,
            min_width=20 if column in {"text", "memory"} else None,
            justify="right" if column == "score" else "left",
        )
    return table
