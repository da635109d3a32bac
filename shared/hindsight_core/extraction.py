"""Messages to candidates: the sentences and clauses that state something, verbatim, with who said them and when."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

import msgspec

from hindsight_core.cues import counts
from hindsight_core.models import MetadataValue, Source
from hindsight_core.requests import Message, Role


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """Something that may become a memory.

    `index` is the message it came from and `text` is verbatim. `context` is what was said just before (kept beside
    the memory as a second retrieval field), `previous` the turns before it, latest first (they are mixed into its
    vector). `dismissed` says why it is no candidate at all (a question, a greeting …): it is then answered as skipped.
    """

    index: int
    text: str
    role: Role = "user"
    source: Source = "user"
    speaker: str | None = None
    at: datetime | None = None
    context: str | None = None
    previous: tuple[str, ...] = ()
    metadata: dict[str, MetadataValue] = {}
    dismissed: str | None = None


_SENTENCE = re.compile(r"[^.!?。！？；\n]*(?:[.!?](?=\S)[^.!?。！？；\n]*)*(?:[.!?。！？；]+[\"'”’」』)）]*|\n|$)")
_SOURCES: dict[Role, Source] = {"user": "user", "assistant": "agent", "tool": "tool", "system": "agent"}


def _source(message: Message) -> Source:
    return _SOURCES[message.role]


def _turns_before(messages: Sequence[Message], index: int) -> tuple[str, ...]:
    before = [m.text.strip() for m in messages[:index] if m.role != "system" and m.text.strip()]
    return tuple(reversed(before[-2:]))


def _candidate(message: Message, index: int, text: str, previous: tuple[str, ...], dismissed: str | None) -> Candidate:
    return Candidate(
        index=index,
        text=text,
        role=message.role,
        source=_source(message),
        speaker=message.speaker,
        at=message.at,
        context=previous[0] if previous else None,
        previous=previous,
        metadata=message.metadata,
        dismissed=dismissed,
    )


def whole(messages: Sequence[Message]) -> list[Candidate]:
    """Each message kept whole, with the turn before it as context; blank messages are left out."""
    return [
        _candidate(message, index, message.text.strip(), _turns_before(messages, index), None)
        for index, message in enumerate(messages)
        if message.text.strip()
    ]


def extract(messages: Sequence[Message]) -> list[Candidate]:
    """The spans of the messages in order, each a verbatim slice; those that state nothing say why in `dismissed`."""
    found: list[Candidate] = []
    for index, message in enumerate(messages):
        previous = _turns_before(messages, index)
        if message.role != "user":
            if message.text.strip():
                dismissed = "instructions to the agent, said by nobody" if message.role == "system" else None
                found.append(_candidate(message, index, message.text.strip(), previous, dismissed))
            continue
        spans = [s for m in _SENTENCE.finditer(message.text) if (s := m.group().strip())]
        for text in spans:
            cue = counts(text)
            dismissed = None
            if text[-1] in "?？" and "standing" not in cue:
                dismissed = "a question"
            elif "greeting" in cue and len(text) < 16:
                dismissed = "a greeting"
            elif "acknowledgement" in cue and len(text) < 12:
                dismissed = "an acknowledgement"
            found.append(_candidate(message, index, text, previous, dismissed))
    return found
