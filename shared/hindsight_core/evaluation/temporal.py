"""Time expressions with the range that they name, and texts that name no time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from hindsight_core.evaluation.report import Line, Measure, share
from hindsight_core.evaluation.task import Memories
from hindsight_core.temporal import find_range

_NONE = "no range"


class Bounds(msgspec.Struct, frozen=True):
    """A half-open range; a missing bound is unlimited."""

    start: datetime | None = None
    end: datetime | None = None


class Expression(msgspec.Struct, frozen=True):
    """A line of the file; no `expect` means that the text names no time."""

    id: str
    lang: str
    text: str
    now: datetime
    expect: Bounds | None = None


async def judge(memories: Memories, namespace: str, item: Expression) -> list[Line]:
    """Read the text as the service reads questions and memories."""
    del memories, namespace
    found = find_range(item.text, item.now)
    bounds = None if found is None else Bounds(found.start, found.end)
    return [
        Line(
            id=item.id,
            lang=item.lang,
            expected=_shown(item.expect),
            predicted=_shown(bounds),
            right=bounds == item.expect,
            reason=item.text if found is None else f"{item.text} [{found.text}: {found.kind}, {found.certainty}]",
            group="trap" if item.expect is None else "range",
            outcome=_NONE if found is None else "exact range" if bounds == item.expect else "another range",
        )
    ]


def measures(lines: Sequence[Line]) -> tuple[Measure, ...]:
    """The share of ranges read exactly, and of traps into which one was read."""
    return (
        share("exact range", [line.right for line in lines if line.group == "range"]),
        share("false range on traps", [not line.right for line in lines if line.group == "trap"]),
    )


def _shown(bounds: Bounds | None) -> str:
    if bounds is None:
        return _NONE
    start, end = (None if bound is None else bound.isoformat() for bound in (bounds.start, bounds.end))
    return f"{start or '…'} – {end or '…'}"
