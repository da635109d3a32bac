"""Messages, which of them a careful reviewer would keep, as what, and how sure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from hindsight_core.evaluation.report import Line, Measure, f1, share
from hindsight_core.evaluation.task import Memories
from hindsight_core.models import Decision, Kind
from hindsight_core.requests import Message, Role, WriteRequest

_SKIP = "skip"


class Expected(msgspec.Struct, frozen=True):
    """What should become of it; `kind` is `none` for what is skipped."""

    keep: bool
    kind: Kind | Literal["none"]
    status: Literal["skip", "active", "pending"]


class Utterance(msgspec.Struct, frozen=True):
    """A line of the file."""

    id: str
    lang: str
    text: str
    expect: Expected
    role: Role = "user"
    task: str | None = None


async def judge(memories: Memories, namespace: str, item: Utterance) -> list[Line]:
    """Write the message by itself; of several statements in it the longest one that is kept speaks for all."""
    message = Message(role=item.role, text=item.text)
    answer = await memories.write(WriteRequest(namespace=namespace, messages=(message,), task=item.task))
    stored = [found for found in answer.results if found.memory is not None]
    chosen = max(stored or answer.results, key=lambda found: len(found.text), default=None)
    expected = _shown(item.expect.kind, item.expect.status) if item.expect.keep else _SKIP
    predicted = _SKIP if chosen is None else _told(chosen)
    return [
        Line(
            id=item.id,
            lang=item.lang,
            expected=expected,
            predicted=predicted,
            right=predicted == expected,
            reason="" if chosen is None else f"{chosen.text} → {chosen.reason}",
            group=_kind(expected),
            outcome=_kind(predicted),
        )
    ]


def measures(lines: Sequence[Line]) -> tuple[Measure, ...]:
    """F1 of keeping, the kind of what was rightly kept, and the status (skip, active, pending) of everything."""
    pairs = [(line.expected != _SKIP, line.predicted != _SKIP) for line in lines]
    both = [line for line, (wanted, kept) in zip(lines, pairs, strict=True) if wanted and kept]
    return (
        f1("keep/skip F1", pairs),
        share("kind of what was rightly kept", [line.group == line.outcome for line in both]),
        share("status", [line.expected.split()[-1] == line.predicted.split()[-1] for line in lines]),
    )


def _told(found: Decision) -> str:
    if found.memory is None:
        return _SKIP
    return _shown(found.memory.kind, "pending" if found.memory.status == "pending" else "active")


def _shown(kind: str, status: str) -> str:
    return f"keep {kind} {status}"


def _kind(shown: str) -> str:
    return _SKIP if shown == _SKIP else shown.split()[1]
