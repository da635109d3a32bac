"""Messages to candidates: the sentences and clauses that state something, verbatim, with who said them and when."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

import msgspec

from hindsight_core.cues import language_of, sentence
from hindsight_core.lexical import tokens
from hindsight_core.models import MetadataValue, Source
from hindsight_core.records import recalls
from hindsight_core.requests import Message, Role
from hindsight_core.spans import RECALLED, is_empty_talk, leans, spans, statement

LONGEST = 8000
ECHO_SHARE = 0.75
_ECHO_MIN_TERMS = 3
_TURNS = 2
_SOURCES: dict[Role, Source] = {"user": "user", "assistant": "agent", "tool": "tool", "system": "agent"}
_NUMBER = re.compile(r"\d+")


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

    @property
    def statement(self) -> str:
        """What is judged: a user's text without the words that only lead over to it, else the text."""
        return statement(self.text) if self.role == "user" else self.text


def whole(messages: Sequence[Message]) -> list[Candidate]:
    """Each message kept whole, with the turn before it as context; blank messages are left out."""
    return [
        candidate
        for index, message in enumerate(messages)
        for candidate in _candidates(message, index, message.text, _turns_before(messages, index)[:_TURNS], None)
    ]


def extract(messages: Sequence[Message]) -> list[Candidate]:
    """The spans of the messages in order, each a verbatim slice of at most 8 000 characters.

    A span is one sentence with those that lean on it. Spans that state nothing (questions, greetings,
    acknowledgements, echoes, recalled memories, code) say so in `dismissed`, in their own language. Together the
    spans cover every word of the messages.
    """
    found: list[Candidate] = []
    heard: list[tuple[frozenset[str], frozenset[str]]] = []
    for index, message in enumerate(messages):
        turns = _turns_before(messages, index)
        said: list[tuple[frozenset[str], frozenset[str]]] = []
        for span in spans(message):
            text = message.text[span.start : span.end]
            terms = frozenset(tokens(text)), frozenset(_NUMBER.findall(text))
            why = span.why
            if why is None and message.role == "assistant" and _is_echo(terms, heard):
                why = "echo"
            dismissed = None if why is None else sentence(f"dismissed.{why}", language_of(text), "extraction")
            before = _without_recalled(message.text[: span.start])
            if message.role == "tool":  # a record says nothing about the next one; the head of its table does
                previous = turns[:_TURNS] if span.head is None else (span.head,)
            else:
                previous = _previous(text, before, turns)
            found += _candidates(message, index, text, previous, dismissed)
            said.append(terms)
        heard += said
    return found


def _candidates(
    message: Message, index: int, text: str, previous: tuple[str, ...], dismissed: str | None
) -> list[Candidate]:
    """One candidate; more only where the text is longer than a memory may be."""
    return [
        Candidate(
            index=index,
            text=piece,
            role=message.role,
            source=_SOURCES[message.role],
            speaker=message.speaker,
            at=message.at,
            context=previous[0] if previous else None,
            previous=previous,
            metadata=message.metadata,
            dismissed=dismissed,
        )
        for start in range(0, len(text), LONGEST)
        if (piece := text[start : start + LONGEST].strip())
    ]


def _turns_before(messages: Sequence[Message], index: int) -> tuple[str, ...]:
    """The last turns before a message, latest first, without recalled memories and system messages."""
    before: list[str] = []
    for message in reversed(messages[:index]):
        text = _without_recalled(message.text)
        if message.role == "tool" and recalls(text):
            continue
        if message.role != "system" and text:
            before.append(text[-LONGEST:])
        if len(before) > _TURNS:
            break
    return tuple(before)


def _without_recalled(text: str) -> str:
    return RECALLED.sub("", text).strip()


def _previous(text: str, before: str, turns: tuple[str, ...]) -> tuple[str, ...]:
    """What a span follows: the same message's earlier part, then the turns before.

    A bare acknowledgement ("Noted.") breaks the thread, unless the span cannot stand alone. Empty talk that leads the
    message ("Sure.") is nothing that a span follows.
    """
    if is_empty_talk(before) is not None:
        before = ""
    told = tuple(turn for turn in turns if is_empty_talk(turn) is None)
    if not before and turns and turns[:1] != told[:1] and not leans(text):
        told = ()
    return ((before[-LONGEST:], *told) if before else told)[:_TURNS]


def _is_echo(
    terms: tuple[frozenset[str], frozenset[str]], heard: Sequence[tuple[frozenset[str], frozenset[str]]]
) -> bool:
    """Whether everything but a few words, and every number, was said in one earlier span."""
    words, numbers = terms
    if len(words) < _ECHO_MIN_TERMS:
        return False
    return any(len(words & known) >= ECHO_SHARE * len(words) and numbers <= figures for known, figures in heard)
