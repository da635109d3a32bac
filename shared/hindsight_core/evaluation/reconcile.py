"""Pairs of an old and a new memory, and what a careful reviewer would decide about them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from hindsight_core.evaluation.report import Line, Measure, share
from hindsight_core.evaluation.task import Memories
from hindsight_core.models import Source
from hindsight_core.relations import Relation
from hindsight_core.requests import WriteRequest
from hindsight_core.responses import WriteResponse


class Side(msgspec.Struct, frozen=True):
    """One of the two memories."""

    content: str
    source: Source
    confidence: float
    at: datetime


class Pair(msgspec.Struct, frozen=True):
    """A line of the file; `expect` calls what touches nothing `unrelated`."""

    id: str
    lang: str
    old: Side
    new: Side
    expect: Relation


async def judge(memories: Memories, namespace: str, pair: Pair) -> list[Line]:
    """Write both, past the gate: what is measured is what the second does to the first."""
    await _write(memories, namespace, pair.old)
    (found,) = (await _write(memories, namespace, pair.new)).results
    decided = "unrelated" if found.decision == "add" else found.decision
    reason = " ".join([found.reason, *(f"{link.why} ({link.probability:.2f})" for link in found.contests)])
    return [
        Line(
            id=pair.id,
            lang=pair.lang,
            expected=pair.expect,
            predicted=decided,
            right=decided == pair.expect,
            reason=reason,
        )
    ]


async def _write(memories: Memories, namespace: str, side: Side) -> WriteResponse:
    return await memories.write(
        WriteRequest(
            namespace=namespace,
            now=side.at,
            content=side.content,
            source=side.source,
            confidence=side.confidence,
            observed_at=side.at,
            force=True,
        )
    )


def measures(lines: Sequence[Line]) -> tuple[Measure, ...]:
    """What counts in decisions about pairs.

    `wrong supersession`: superseded though the old one still holds, of all. `missed supersession`: neither made nor
    contested, of the true ones. `settled accuracy`: accuracy with every contested pair settled rightly.
    """
    clear = [line for line in lines if line.predicted != "contest"]
    return (
        share("accuracy of what was decided", [line.right for line in clear]),
        share("settled accuracy", [line.right or line.predicted == "contest" for line in lines]),
        share("wrong supersession", [line.predicted == "supersede" != line.expected for line in lines]),
        share(
            "missed supersession",
            [line.predicted not in {"supersede", "contest"} for line in lines if line.expected == "supersede"],
        ),
        share("contested", [line.predicted == "contest" for line in lines]),
        share("contested unrelated", [line.predicted == "contest" for line in lines if line.expected == "unrelated"]),
    )
