"""Messages, and whether memory should be searched before they are answered."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hindsight_core.evaluation.report import Line, Measure, f1, share
from hindsight_core.evaluation.task import Memories
from hindsight_core.requests import RecallRequest

_SEARCH = "search"


class Turn(msgspec.Struct, frozen=True):
    """What was said before the message; who said it does not matter."""

    text: str


class Asked(msgspec.Struct, frozen=True):
    """A line of the file; `recent` are the turns before it, oldest first."""

    id: str
    lang: str
    text: str
    expect: bool
    recent: tuple[str | Turn, ...] = ()
    task: str | None = None
    previous_task: str | None = None


async def judge(memories: Memories, namespace: str, item: Asked) -> list[Line]:
    """Ask whether the message needs memory."""
    answer = await memories.recall(
        RecallRequest(
            namespace=namespace,
            text=item.text,
            recent=tuple(turn if isinstance(turn, str) else turn.text for turn in item.recent),
            task=item.task,
            previous_task=item.previous_task,
        )
    )
    return [
        Line(
            id=item.id,
            lang=item.lang,
            expected=_shown(item.expect),
            predicted=_shown(answer.needed),
            right=answer.needed is item.expect,
            reason=f"{item.text} → {answer.why}",
        )
    ]


def measures(lines: Sequence[Line]) -> tuple[Measure, ...]:
    """F1 of searching, and accuracy."""
    pairs = [(line.expected == _SEARCH, line.predicted == _SEARCH) for line in lines]
    return (f1("recall F1", pairs), share("accuracy", [line.right for line in lines]))


def _shown(needed: bool) -> str:
    return _SEARCH if needed else f"no {_SEARCH}"
