"""LoCoMo's published shape (Maharana et al., 2024): long conversations of two people, and questions about them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import msgspec

from hindsight_core.cli.chats import Conversation, split
from hindsight_core.decoding import convert, decode
from hindsight_core.errors import InvalidInput
from hindsight_core.requests import Message

ANSWERED = frozenset({1, 2, 3, 4})
_SESSION = re.compile(r"session_(\d+)")
_DIA_ID = re.compile(r"D\d+:\d+")
_WHEN = "%I:%M %p on %d %B, %Y"


class Question(msgspec.Struct, frozen=True):
    """A question with the turns that answer it; kind 5 asks for what was never said."""

    question: str
    evidence: tuple[str, ...]
    kind: int


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation with its sessions in order."""

    name: str
    sessions: list[Conversation]
    questions: list[Question]


class _Turn(msgspec.Struct, frozen=True):
    speaker: str
    dia_id: str
    text: str
    blip_caption: str = ""


class _Asked(msgspec.Struct, frozen=True):
    question: str
    evidence: list[str] = []
    category: int = 0


class _Published(msgspec.Struct, frozen=True):
    conversation: dict[str, Any]
    qa: list[_Asked] = []
    sample_id: str | int | None = None


def is_locomo(data: bytes) -> bool:
    """Whether the file has this shape, judged by its names."""
    return data.lstrip()[:1] in (b"[", b"{") and b'"conversation"' in data and b'"dia_id"' in data


def read_locomo(data: bytes) -> list[Sample]:
    """The samples of a file, which holds one or a list of them; a shared image counts by its caption.

    A turn's time is its session's, read as UTC. Raises `InvalidInput` naming the place that has another shape.
    """
    several = data.lstrip()[:1] == b"["
    published = decode(data, list[_Published]) if several else [decode(data, _Published)]
    return [
        Sample(
            name=str(found.sample_id or f"conversation-{number}"),
            sessions=_sessions(found.conversation, f"[{number - 1}].conversation"),
            questions=[_question(asked) for asked in found.qa],
        )
        for number, found in enumerate(published, start=1)
    ]


def _sessions(conversation: dict[str, Any], path: str) -> list[Conversation]:
    numbers = sorted(int(match[1]) for name in conversation if (match := _SESSION.fullmatch(name)))
    found: list[Conversation] = []
    for number in numbers:
        name = f"session_{number}"
        at = _when(conversation.get(f"{name}_date_time"), f"{path}.{name}_date_time")
        try:
            turns = convert(conversation[name], list[_Turn])
        except InvalidInput as exc:
            place = exc.errors[0].field.removeprefix("body")  # what is wrong as a whole
            raise InvalidInput.of(f"{path}.{name}{place}", exc.errors[0].message) from None
        messages: list[Message] = []
        for turn in turns:
            text = f"{turn.text} [image: {turn.blip_caption}]" if turn.blip_caption else turn.text
            messages += [
                Message(role="user", text=piece, speaker=turn.speaker, at=at, metadata={"dia_id": turn.dia_id})
                for piece in split(text)
                if piece
            ]
        found.append(Conversation(messages=messages, session=name))
    if not found:
        raise InvalidInput.of(path, "has no session_1")
    return found


def _question(asked: _Asked) -> Question:
    # A few published questions name several turns in one text.
    evidence = [turn for named in asked.evidence for turn in _DIA_ID.findall(named)]
    return Question(question=asked.question, evidence=tuple(dict.fromkeys(evidence)), kind=asked.category)


def _when(value: object, place: str) -> datetime | None:
    if value is None:
        return None
    try:
        return datetime.strptime(str(value), _WHEN).replace(tzinfo=UTC)
    except ValueError:
        raise InvalidInput.of(place, f"{value!r} is no time such as '1:56 pm on 8 May, 2023'") from None
