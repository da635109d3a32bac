"""Pairs of an old and a new memory, and what a careful reviewer would decide about them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime

import msgspec

from hindsight_core.evaluation.report import Line, Measure, share
from hindsight_core.evaluation.task import Memories
from hindsight_core.models import Decision, Source
from hindsight_core.relations import Relation
from hindsight_core.requests import Reconcile, WriteRequest
from hindsight_core.responses import WriteResponse


class Side(msgspec.Struct, frozen=True):
    """One of the two memories."""

    content: str
    source: Source
    confidence: float
    at: datetime


class Pair(msgspec.Struct, frozen=True):
    """A line of the file; `expect` calls what touches nothing `unrelated`.

    `slot` names what both are about, `beside` what else is remembered that the new one does not concern.
    """

    id: str
    lang: str
    old: Side
    new: Side
    expect: Relation
    slot: str | None = None
    beside: tuple[Side, ...] | None = None


def among(pairs: Sequence[Pair], count: int) -> list[Pair]:
    """The pairs, each beside the old texts of `count` others of its language; the same ones every time.

    None is of the same slot or says what one of the pair says, nor is it said later than the old one. Where a file has
    too few others, all of them.
    """
    placed: list[Pair] = []
    for pair in pairs:
        known = {pair.old.content, pair.new.content}
        others = {
            other.old.content: other.old
            for other in pairs
            if other.lang == pair.lang
            and other.old.content not in known
            and (pair.slot is None or other.slot != pair.slot)
        }
        drawn = random.Random(pair.id).sample(list(others.values()), min(count, len(others)))  # noqa: S311 - bystanders
        beside = [msgspec.structs.replace(side, at=min(side.at, pair.old.at)) for side in drawn]
        placed.append(msgspec.structs.replace(pair, beside=tuple(beside)))
    return placed


async def judge(memories: Memories, namespace: str, pair: Pair) -> list[Line]:
    """Write both, past the gate: what is measured is what the second does to the first, and to what is beside it."""
    bystanders: dict[str, str] = {}
    for side in pair.beside or ():
        (stored,) = (await _write(memories, namespace, side, "none")).results
        if stored.memory_id is not None:
            bystanders[stored.memory_id] = side.content
    (old,) = (await _write(memories, namespace, pair.old, "none")).results
    (found,) = (await _write(memories, namespace, pair.new)).results
    decided = _done_to(old.memory_id, found)
    touched = {*found.superseded, *(link.id for link in found.contests)}
    if found.decision == "pending":
        touched.update(found.related)  # what a guess contradicts is in doubt
    disturbed = tuple(text for memory_id, text in bystanders.items() if memory_id in touched)
    reason = " ".join(
        [
            found.reason,
            *(f"{link.why} ({link.probability:.2f})" for link in found.contests),
            *(f"disturbed: {text}" for text in disturbed),
        ]
    )
    return [
        Line(
            id=pair.id,
            lang=pair.lang,
            expected=pair.expect,
            predicted=decided,
            right=decided == pair.expect,
            reason=reason,
            bystanders=None if pair.beside is None else len(bystanders),
            disturbed=disturbed,
        )
    ]


def _done_to(old: str | None, found: Decision) -> str:
    """What a decision means for one memory, of all that it names; nothing stored (`refuse`) is said as it is."""
    if old in found.superseded:
        return "refine" if found.decision == "refine" else "supersede"
    if any(link.id == old for link in found.contests):
        return "contest"
    if found.memory_id is None or (old in found.related and found.decision != "add"):
        return found.decision
    return "unrelated"


async def _write(memories: Memories, namespace: str, side: Side, reconcile: Reconcile = "auto") -> WriteResponse:
    return await memories.write(
        WriteRequest(
            namespace=namespace,
            now=side.at,
            content=side.content,
            source=side.source,
            confidence=side.confidence,
            observed_at=side.at,
            force=True,
            reconcile=reconcile,
        )
    )


def measures(lines: Sequence[Line]) -> tuple[Measure, ...]:
    """What counts in decisions about pairs.

    `wrong supersession`: superseded though the old one still holds, of all. `missed supersession`: neither made nor
    contested, of the true ones. `settled accuracy`: accuracy with every contested pair settled rightly. `bystanders
    disturbed`: superseded or contested, of those of all pairs, where there were any.
    """
    clear = [line for line in lines if line.predicted != "contest"]
    beside = [line for line in lines if line.bystanders is not None]
    disturbed = [i < len(line.disturbed) for line in beside for i in range(line.bystanders or 0)]
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
        *([share("bystanders disturbed", disturbed)] if beside else []),
    )
