"""Chat logs to conversations: JSON or JSON Lines of turns, in the shapes that chat programs and data sets write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, cast, get_args

import msgspec

from hindsight_core.cli.moments import SHAPE, read_moment
from hindsight_core.decoding import Json
from hindsight_core.errors import InvalidInput
from hindsight_core.models import MetadataValue
from hindsight_core.requests import Message, Role

LONGEST = 8000
_TURNS = ("messages", "conversation", "conversations", "turns", "dialogue", "dialog", "history")
_TEXT = ("text", "content", "message", "value", "body")
_WHO = ("role", "from", "speaker", "author", "sender", "name")
_WHEN = ("timestamp", "at", "date", "time", "created_at", "create_time", "ts")
_NAME = ("session_id", "conversation_id", "id", "session", "title")
_KEPT = ("dia_id", "id", "message_id", "uuid")
_ROLES: dict[str, Role] = {
    "human": "user",
    "ai": "assistant",
    "bot": "assistant",
    "gpt": "assistant",
    "model": "assistant",
    "agent": "assistant",
    "function": "tool",
    "developer": "system",
}
_MILLISECONDS_FROM = 1e11


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """Turns in order. `session` is its name in the file, where it has one."""

    messages: list[Message]
    session: str | None = None


def read_chat(data: bytes) -> list[Conversation]:
    """The conversations of a chat log; turns without text are left out, long ones become several.

    A turn is an object with a text (`text`, `content`, …), who (`role`, `speaker`, …) and, if known, when
    (`timestamp`, `at`, `date`, …). The file is a list of turns, a list of conversations that hold them, one
    conversation, or JSON Lines of either. Raises `InvalidInput` naming the place that is none of these.
    """
    top = _values(data)
    if isinstance(top, dict) and top:
        return [Conversation(messages=_messages([top], ""))] if _is_turn(top) else [_conversation(top, "")]
    if not isinstance(top, list) or not top:
        raise InvalidInput.of("file", "is no chat log: a list of turns or conversations is expected")
    if all(_is_turn(item) for item in top):
        return [Conversation(messages=_messages(top, ""))]
    return [_conversation(item, f"[{i}]") for i, item in enumerate(top)]


def split(text: str) -> Iterator[str]:
    """A text in pieces that fit a memory, cut at line ends, sentences or spaces where there are any."""
    while len(text) > LONGEST:
        head = text[:LONGEST]
        cut = max(head.rfind(mark) + len(mark) for mark in ("\n", ". ", "。", " "))
        cut = cut if cut > LONGEST // 2 else LONGEST
        yield text[:cut].strip()
        text = text[cut:]
    yield text.strip()


def _values(data: bytes) -> Json:
    try:
        return cast("Json", msgspec.json.decode(data))
    except msgspec.DecodeError as exc:
        lines = [line for line in data.splitlines() if line.strip()]
        found: list[Json] = []
        for number, line in enumerate(lines, start=1):
            try:
                found.append(cast("Json", msgspec.json.decode(line)))
            except msgspec.DecodeError:
                if len(lines) == 1 or number == 1:
                    raise InvalidInput.of("file", f"is neither JSON nor JSON Lines: {exc}") from None
                raise InvalidInput.of(f"line {number}", "is not JSON") from None
        return found


def _conversation(item: Json, path: str) -> Conversation:
    if isinstance(item, list):
        return Conversation(messages=_messages(item, path))
    if isinstance(item, dict):
        turns = next((item[name] for name in _TURNS if isinstance(item.get(name), list)), None)
        if isinstance(turns, list):
            name = next((item[name] for name in _NAME if isinstance(item.get(name), str | int)), None)
            return Conversation(messages=_messages(turns, path), session=None if name is None else str(name))
    raise InvalidInput.of(path or "file", "is neither a turn nor a conversation")


def _messages(turns: Sequence[Json], path: str) -> list[Message]:
    found: list[Message] = []
    for i, turn in enumerate(turns):
        place = f"{path}[{i}]"
        if not isinstance(turn, dict) or not _is_turn(turn):
            raise InvalidInput.of(place, f"is no turn: it has none of {', '.join(_TEXT)}")
        role, speaker = _who(turn, place)
        at = next((_when(turn[name], f"{place}.{name}") for name in _WHEN if turn.get(name) not in (None, "")), None)
        kept: dict[str, MetadataValue] = {
            name: cast("MetadataValue", turn[name]) for name in _KEPT if isinstance(turn.get(name), str | int)
        }
        text = _text(next(turn[name] for name in _TEXT if turn.get(name) is not None))
        found += [
            Message(role=role, text=piece, speaker=speaker, at=at, metadata=kept) for piece in split(text) if piece
        ]
    return found


def _is_turn(item: Json) -> bool:
    return isinstance(item, dict) and any(item.get(name) is not None for name in _TEXT)


def _who(turn: dict[str, Json], place: str) -> tuple[Role, str | None]:
    """The role and the name: what is no role is the name of a person, who is a user."""
    role: Role | None = None
    speaker: str | None = None
    for name in _WHO:
        value = turn.get(name)
        if isinstance(value, dict):  # {"author": {"role": "user", "name": …}}
            value = value.get("role") or value.get("name")
        if value is None or value == "":
            continue
        if not isinstance(value, str):
            raise InvalidInput.of(f"{place}.{name}", "is no text")
        known = _role(value)
        if known is None:
            speaker = speaker or value[:256]
        else:
            role = role or known
    return role or "user", speaker


def _role(value: str) -> Role | None:
    lowered = value.lower()
    if lowered in get_args(Role):
        return cast("Role", lowered)
    return _ROLES.get(lowered)


def _when(value: Json, place: str) -> datetime:
    if isinstance(value, int | float):
        seconds = value / 1000 if abs(value) >= _MILLISECONDS_FROM else value
        try:
            return datetime.fromtimestamp(seconds, UTC)
        except (OverflowError, ValueError, OSError):
            raise InvalidInput.of(place, f"{value!r} is no time") from None
    if isinstance(value, str):
        found = read_moment(value)
        if found is not None:
            return found
    raise InvalidInput.of(place, f"{value!r} is no time; {SHAPE}, or Unix seconds")


def _text(value: Json) -> str:
    """A text, or the texts among the parts of one."""
    if isinstance(value, list):
        return "\n".join(text for text in map(_text, value) if text)
    if isinstance(value, dict):
        inner: Any = value.get("text") or value.get("parts") or value.get("content") or ""
        return _text(inner)
    if isinstance(value, bool | None):
        return ""
    return str(value).strip()
