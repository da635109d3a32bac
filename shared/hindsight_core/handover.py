"""Texts inside texts: what is handed over to be worked on, quoted or invented says nothing about anybody."""

from __future__ import annotations

import re

from hindsight_core.cues import LANGUAGES, table
from hindsight_core.sentences import sentences

_SHORTEST = 8
_QUOTED = re.compile("[\"“”「『‘《](?=[^\"“”」』’》]{6,})|(?<![\\w])'(?=[^']{8,}')|```")
_ANNOUNCED = re.compile(r"(?P<intro>[^\n]{2,120}[:：])\s*\n\s*\S")
_AFTER_COLON = re.compile(r"[:：](?!//|\d)\s*(?P<rest>\S.*)", re.DOTALL)
_LONGEST_LINE = 160
_APART = re.compile(r"\n[ \t]*\n")


def _cue(name: str, text: str, file: str = "gate") -> bool:
    return any(table(file, language).patterns[name].search(text) for language in LANGUAGES)


def is_handed_over(text: str) -> bool:
    """Whether the text asks for work on a text that it brings along.

    In quotation marks or after a colon (“润色下面这段：…”), below a first line that orders it (“Fix my grammar”), or
    before a last sentence that does (“… Translate this into French.”).
    """
    plain = text.replace("’", "'").strip()
    if _ordered_first(plain) or _ordered_last(plain):
        return True
    if not _cue("transform", plain):
        return False
    if _QUOTED.search(plain):
        return True
    rest = _AFTER_COLON.search(plain)
    return rest is not None and len(rest["rest"]) >= _SHORTEST and _cue("transform", plain[: rest.start()])


def is_framed(text: str) -> bool:
    """Whether the text as a whole is a story, a part to play, handed over, or what somebody else wrote.

    The sentences of such a text mean nothing alone, or something else.
    """
    plain = text.replace("’", "'")
    return is_handed_over(text) or _cue("fiction", plain) or is_passed_on(plain)


def is_passed_on(text: str) -> bool:
    """Whether the text announces what somebody else wrote and brings it along on lines of its own."""
    plain = text.replace("’", "'").strip()
    line, rest = _first_line(plain)
    if rest and _cue("author", line, "handover"):
        return True
    announced = _ANNOUNCED.match(plain)
    return announced is not None and _cue("wrote", announced["intro"])


def _ordered_first(text: str) -> bool:
    line, rest = _first_line(text)
    if len(rest) < _SHORTEST or _cue("standing", line, "handover"):
        return False
    # What changes the subject ("by the way") is no text to be worked on.
    if any(table("extraction", language).patterns["shift"].match(rest) for language in LANGUAGES):
        return False
    apart = _APART.match(text, len(line)) is not None
    return _cue("order", line, "handover") or (apart and _cue("order_apart", line, "handover"))


def _ordered_last(text: str) -> bool:
    if not _cue("transform", text[-_LONGEST_LINE:]):
        return False
    start, end = sentences(text)[-1]
    if len(text[:start].strip()) < _SHORTEST:
        return False
    last = text[start:end]
    return _cue("order_back", last, "handover") and not _cue("standing", last, "handover")


def _first_line(text: str) -> tuple[str, str]:
    """The first line of a text and what stands below it; twice "" where it has one line, or a long first one."""
    line, broken, rest = text.partition("\n")
    return (line.rstrip(), rest.strip()) if broken and len(line) <= _LONGEST_LINE else ("", "")
