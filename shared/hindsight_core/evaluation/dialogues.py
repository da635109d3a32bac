"""Stories of several sessions, and questions that memory must answer with what holds at that time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, TypeAlias

import msgspec

from hindsight_core.evaluation.report import Line, Measure, share
from hindsight_core.evaluation.task import Memories
from hindsight_core.models import Hit
from hindsight_core.requests import Message, Role, SearchRequest, WriteRequest

QuestionKind: TypeAlias = Literal["now", "past", "pending", "forgotten", "preference", "never-said"]
_KINDS: tuple[QuestionKind, ...] = ("now", "past", "pending", "forgotten", "preference")
_SHOWN = 3


class Turn(msgspec.Struct, frozen=True):
    """What was said, and by whom."""

    role: Role
    text: str


class Session(msgspec.Struct, frozen=True):
    """One sitting; all of it is written at `at`."""

    at: datetime
    turns: tuple[Turn, ...]


class Question(msgspec.Struct, frozen=True):
    """What the answer must hold, and what must not be passed off as true."""

    at: datetime
    q: str
    kind: QuestionKind
    expect_contains: tuple[str, ...] = ()
    expect_absent: tuple[str, ...] = ()


class Story(msgspec.Struct, frozen=True):
    """A line of the file."""

    id: str
    lang: str
    sessions: tuple[Session, ...]
    questions: tuple[Question, ...]


async def judge(memories: Memories, namespace: str, story: Story) -> list[Line]:
    """Write the sessions in order, then ask each question; what was never said has no answer to check."""
    for number, session in enumerate(story.sessions):
        messages = tuple(Message(role=turn.role, text=turn.text, at=session.at) for turn in session.turns)
        await memories.write(
            WriteRequest(namespace=namespace, session_id=str(number), now=session.at, messages=messages)
        )
    lines: list[Line] = []
    for number, question in enumerate(story.questions, 1):
        if question.kind == "never-said":
            continue
        zone = _zone(question.at)
        answer = await memories.search(
            SearchRequest(namespace=namespace, now=question.at, query=question.q, timezone=zone)
        )
        fault = _fault(question, answer.hits)
        lines.append(
            Line(
                id=f"{story.id}/{number}",
                lang=story.lang,
                expected=_wanted(question),
                predicted=fault or "right",
                right=not fault,
                reason=f"{question.q} → {_shown(answer.hits)}",
                group=question.kind,
            )
        )
    return lines


def measures(lines: Sequence[Line]) -> tuple[Measure, ...]:
    """The share of right answers to each kind of question."""
    return tuple(share(kind, [line.right for line in lines if line.group == kind]) for kind in _KINDS)


def _fault(question: Question, hits: Sequence[Hit]) -> str:
    """What is wrong with the answer, "" for nothing.

    `now` and `preference`: what holds is among the unmarked hits, and nothing outdated is. `pending`: a maybe is found
    and displaces nothing that holds. `past`: what held then is found. `forgotten`: it is found nowhere, marked or not.
    """
    plain = [hit.memory.content for hit in hits if hit.marked is None]
    every = [hit.memory.content for hit in hits]
    given = plain if question.kind in {"now", "preference"} else every
    if any(_holds(text, absent) for absent in question.expect_absent for text in _forbidden(question, plain, every)):
        return "forgotten shown" if question.kind == "forgotten" else "outdated shown"
    if not all(any(_holds(text, wanted) for text in given) for wanted in question.expect_contains):
        marked = all(any(_holds(text, wanted) for text in every) for wanted in question.expect_contains)
        return "marked" if marked else "missing"
    return ""


def _forbidden(question: Question, plain: list[str], every: list[str]) -> list[str]:
    return every if question.kind == "forgotten" else plain


def _holds(text: str, part: str) -> bool:
    return part.casefold() in text.casefold()


def _wanted(question: Question) -> str:
    return " ".join([*question.expect_contains, *(f"not {absent!r}" for absent in question.expect_absent)])


def _shown(hits: Sequence[Hit]) -> str:
    return " | ".join(f"{hit.memory.content} ({hit.marked or hit.memory.status})" for hit in hits[:_SHOWN])


def _zone(at: datetime) -> str:
    """The fixed zone of an instant's offset, as the IANA database names it."""
    offset = at.utcoffset()
    hours = 0 if offset is None else round(offset.total_seconds() / 3600)
    return "UTC" if not hours else f"Etc/GMT{-hours:+d}"
