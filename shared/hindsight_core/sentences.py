"""Sentences: where a text falls apart, in both languages; every piece is a slice of it."""

from __future__ import annotations

import re
from functools import cache

from hindsight_core.cues import table

# What may end a sentence: full-width marks anywhere; Latin ones before white space or a Chinese character; line breaks.
_END = re.compile(
    "(?:[。！？!?…]+|\\.{1,}(?=[\\s\u3400-\u9fff]|$)|[；;](?=[\\s\u3400-\u9fff]|$))[\"'”’」』》)）\\]~～]*|\\n+"
)
_LAST_WORD = re.compile(r"([A-Za-z](?:[A-Za-z.]*[A-Za-z])?)\.$")
_PAIRS = {"“": "”", "「": "」", "『": "』", "《": "》", "（": "）", "(": ")", "[": "]", "【": "】"}


@cache
def _abbreviations() -> frozenset[str]:
    return frozenset(table("extraction", "en").lists["abbreviations.words"])


def _ends(text: str, match: re.Match[str]) -> bool:
    """Whether a mark really ends a sentence: not after an abbreviation or an initial, not inside brackets or quotes."""
    before = text[: match.end()].rstrip()
    word = _LAST_WORD.search(before)
    return not (match.group().startswith(".") and word is not None and _is_short(word.group(1)))


def _is_short(word: str) -> bool:
    return (len(word) == 1 and word.isupper() and word != "I") or word.lower() in _abbreviations()


def _depths(text: str) -> list[bool]:
    """For each character whether it stands inside a closed pair of quotes or brackets on one line."""
    inside = [False] * len(text)
    for start, character in enumerate(text):
        closing = _PAIRS.get(character)
        if character == '"' and (start == 0 or not inside[start - 1]):
            closing = '"'
        if closing is None or inside[start]:
            continue
        end = text.find(closing, start + 1)
        if end > 0 and "\n" not in text[start:end]:
            inside[start:end] = [True] * (end - start)
    return inside


def sentences(text: str) -> list[tuple[int, int]]:
    """Start and end of each sentence, in order, without the white space around it; blank ones are left out."""
    inside = _depths(text)
    found: list[tuple[int, int]] = []
    start = 0
    for match in _END.finditer(text):
        if match.start() < start or inside[match.start()] or not _ends(text, match):
            continue
        found.append((start, match.end()))
        start = match.end()
    found.append((start, len(text)))
    return [bounds for a, b in found if (bounds := stripped(text, a, b)) is not None]


def stripped(text: str, start: int, end: int) -> tuple[int, int] | None:
    """The bounds without white space at either side; None where nothing is left."""
    piece = text[start:end]
    left = len(piece) - len(piece.lstrip())
    size = len(piece.strip())
    return (start + left, start + left + size) if size else None
