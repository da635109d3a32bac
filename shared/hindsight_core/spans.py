"""Spans: the stretches of one message that each say one thing, and those that say nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Literal, TypeAlias

import msgspec

from hindsight_core.cues import LANGUAGES, table
from hindsight_core.handover import is_framed
from hindsight_core.lexical import tokens
from hindsight_core.records import recalls, records
from hindsight_core.requests import Message, Role
from hindsight_core.sentences import sentences, stripped
from hindsight_core.slots import read

Why: TypeAlias = Literal[
    "question", "greeting", "acknowledgement", "echo", "recalled", "system", "code", "frame", "blank"
]

RECALLED = re.compile(r"<(\w*memor(?:y|ies)\w*)\b[^>]*>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_CODE = re.compile(r"```.*?(?:```|\Z)|^[ \t]*>[^\n]*(?:\n[ \t]*>[^\n]*)*", re.DOTALL | re.MULTILINE)
_EDGES = " \t\r\n,.!?~;:，。！？～；：、…—-()（）"
_CLAUSE = re.compile(r"[,，;；、:：。.!！~～…—]+\s*|\s+-\s+")
_WORDY = re.compile(r"\w")
_ASKING = re.compile(r"[?？][\"'”’」』)）~～!！]*$")
_ASKED = re.compile(r"\s*[吗么嘛]?\s*[?？]+\s*$")
_AFTER_LEAD = re.compile(r"[\s,，、:：.!！~]+(?:-\s+)?|(?=[\u4e00-\u9fff])")
_MIN_TERMS = 2
LONGEST_ANSWER = 8
_LONG = 300
_BARE = 6


class Span(msgspec.Struct, frozen=True):
    """A slice of a message's text; `why` is set where it states nothing, `head` where it is a row of a table."""

    start: int
    end: int
    why: Why | None = None
    head: str | None = None


@cache
def _pattern(name: str) -> re.Pattern[str]:
    either = "|".join(table("extraction", language).patterns[name].pattern for language in LANGUAGES)
    return re.compile(either, re.IGNORECASE)


@cache
def _empty_talk() -> re.Pattern[str]:
    either = f"(?:{_pattern('acknowledgement').pattern}|{_pattern('greeting').pattern})"
    return re.compile(rf"{either}(?:\s*{either})*", re.IGNORECASE)


def leans(text: str) -> bool:
    """Whether a sentence cannot be understood without the one before it."""
    plain = text.replace("’", "'").strip(_EDGES)
    return (
        bool(_pattern("dependent").search(plain) or _pattern("anaphor").search(plain))
        or len(tokens(plain)) < _MIN_TERMS
    )


def stands_alone(text: str) -> bool:
    """Whether a sentence says something of its own: a subject and what is said of it, or a rule."""
    return not leans(text) and bool(_pattern("independent").search(text.replace("’", "'").strip(_EDGES)))


def statement(text: str) -> str:
    """The text without the words at its beginning that only lead over to it ("oh, by the way", “对了”).

    Of what is told as a question ("could you note that I'm vegan?") it is what is told.
    """
    rest = text
    if ends_asking(text) and (head := _pattern("reminding").search(text.replace("’", "'"))) is not None:
        return _ASKED.sub("", text[head.end() :]).strip(_EDGES)
    while (lead := _pattern("lead").match(rest.replace("’", "'"))) is not None:
        after = _AFTER_LEAD.match(rest, lead.end())
        if after is None or is_empty_talk(rest[after.end() :]) is not None:
            break
        rest = rest[after.end() :]
    return rest


def is_empty_talk(text: str) -> Why | None:
    """`greeting` or `acknowledgement` where the text is nothing else, `blank` where it has no word."""
    if not _WORDY.search(text):
        return "blank"
    clauses = [c for piece in _CLAUSE.split(text.replace("’", "'").strip(_EDGES)) if (c := piece.strip(_EDGES))]
    if all(_empty_talk().fullmatch(clause) for clause in clauses):
        greets = any(_pattern("greeting").fullmatch(clause) for clause in clauses)
        return "greeting" if greets else "acknowledgement"
    return None


def dismissal(text: str, role: Role) -> Why | None:
    """Why a sentence is no candidate, or None. Questions that order something or bring a fact along are left open."""
    if (empty := is_empty_talk(text)) is not None:
        return empty
    return "question" if role != "tool" and is_question(text) else None


def ends_asking(text: str) -> bool:
    """Whether the text ends with a question's mark or particle, whatever else it says."""
    plain = text.replace("’", "'").strip()
    return bool(_ASKING.search(plain) or _pattern("particle").search(plain))


def is_short_answer(text: str, asked: str) -> bool:
    """Whether a few words answer the question just before them, and so mean little without it."""
    if len(tokens(text)) > LONGEST_ANSWER or is_empty_talk(text) is not None:
        return False
    return ends_asking(asked) and not ends_asking(text)


def is_question(text: str) -> bool:
    """Whether the sentence only asks: it ends as a question, and no clause of it orders or tells something.

    Who asks whether something can be noted, or was told, tells it ("could you note that …", “帮我记一下…吗”).
    """
    plain = text.replace("’", "'").strip()
    ending = _pattern("particle").search(plain)
    asks = any(table("gate", language).patterns["question"].search(plain) for language in LANGUAGES)
    if not ((_ASKING.search(plain) and asks) or ending):
        return False
    if any(table("gate", language).patterns["standing"].search(plain) for language in LANGUAGES):
        return False
    if _pattern("reminding").search(plain):
        return False
    *before, _last = [c for c in re.split("[,，]", plain) if c.strip()] or [""]
    return not any(_pattern("telling").search(clause.strip()) for clause in before)


def spans(message: Message) -> Iterator[Span]:
    """The spans of a message, in order; together they cover all of it but white space (and a tool's commas)."""
    text = message.text
    if message.role == "system":
        if (bounds := stripped(text, 0, len(text))) is not None:
            yield Span(*bounds, "system")
        return
    cuts: list[tuple[int, int, Why]] = []
    cuts.extend((m.start(), m.end(), "recalled") for m in RECALLED.finditer(text))
    if message.role != "tool":
        outside = RECALLED.sub(lambda m: "\0" * len(m.group()), text)
        cuts.extend((m.start(), m.end(), "code") for m in _CODE.finditer(outside))
    start = 0
    for a, b, why in sorted(cuts):
        yield from _stated(text, start, a, message.role)
        if (bounds := stripped(text, a, b)) is not None:
            yield Span(*bounds, why)
        start = b
    yield from _stated(text, start, len(text), message.role)


def _stated(text: str, start: int, end: int, role: Role) -> Iterator[Span]:
    """The spans of plain text: each sentence with those that lean on it."""
    piece = text[start:end]
    if role == "tool":
        if recalls(piece):
            if (bounds := stripped(text, start, end)) is not None:
                yield Span(*bounds, "recalled")
            return
        for record in records(piece):
            said = piece[record.start : record.end]
            why: Why | None = "frame" if record.frame else dismissal(said, role)
            yield Span(start + record.start, start + record.end, why, record.head)
        return
    if is_framed(piece):
        pieces = [bounds for bounds in (stripped(piece, 0, len(piece)),) if bounds is not None]
    else:
        pieces = [clause for a, b in sentences(piece) for clause in _topics(piece, a, b)]
    last: Span | None = None
    for a, b in pieces:
        said = piece[a:b]
        span = Span(start + a, start + b, dismissal(said, role))
        if (
            last is not None
            and span.why is None
            and (_belongs(said, last) or _completes(said, piece[last.start - start : last.end - start], last))
        ):
            last = Span(last.start, span.end)
            continue
        if last is not None:
            yield last
        last = span
    if last is not None:
        yield last


def _belongs(said: str, last: Span) -> bool:
    """Whether a sentence goes with the span before it. After a question only what leans on it does."""
    if _pattern("shift").match(said):
        return False
    if last.why == "question":
        return leans(said)
    return last.why is None and (leans(said) or (last.end - last.start < _LONG and not stands_alone(said)))


def _completes(said: str, before: str, last: Span) -> bool:
    """Whether a sentence tells the new value of what the bare one before it ("I moved.") says has changed.

    By itself the one would say what is new and not that anything was replaced, the other that and not what by.
    """
    if last.why is not None or len(tokens(before)) > _BARE or _pattern("shift").match(said):
        return False
    announced, told = read(before), read(said)
    return (
        bool(told.renewed)
        and bool([cue for cue in announced.change if cue not in told.change])
        and not announced.names
        and not announced.hedge
        and announced.attribute is None
        and bool(announced.topics & told.topics)
    )


def _topics(piece: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """One sentence, cut where it changes the subject of talk ("by the way", “对了”)."""
    at = start
    for match in _pattern("shift").finditer(piece, start, end):
        head = stripped(piece, at, match.start())
        if head is not None and len(tokens(piece[head[0] : head[1]])) >= _MIN_TERMS:
            yield head
            at = match.start()
    if (tail := stripped(piece, at, end)) is not None:
        yield tail
