"""The wording of a text as numbers: who said it, which cues it holds, its outer form, its words and word pairs."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from hindsight_core.cues import present

ROLES = ("user", "assistant", "tool")
LONGEST = 2000
_CJK = "\u3040-\u30ff\u3400-\u9fff"
_WORDS = re.compile(rf"[^\W\d_{_CJK}]+(?:'[^\W\d_{_CJK}]+)?|[{_CJK}]|\d+|[^\w\s]")
_ENDS_ASKING = re.compile(r"[?？]\W*$")
_QUOTE = re.compile('["“”「『]')
_DIGIT = re.compile(r"\d")
_STOP = re.compile("[,，。.;；]")
_LONG_NUMBER = 5


class Wording(msgspec.Struct, frozen=True):
    """What a text's wording shows. `form` in a fixed order, `grams` with how often."""

    role: str
    cues: frozenset[str]
    form: tuple[float, ...]
    grams: Mapping[str, int]


def read(text: str, role: str = "user", *, file: str = "gate", before: Sequence[str] = ()) -> Wording:
    """The wording of a text, of which the first 2 000 characters count.

    `file` names the cue file; words of the turns `before` are kept apart from the text's own by a leading `<`.
    """
    text = text[:LONGEST]
    grams = Counter(_grams(text, role))
    for turn in before:
        grams.update(f"<{word}" for word in dict.fromkeys(words(turn[:LONGEST])))
    return Wording(role=role, cues=present(text, file), form=form(text), grams=grams)


def words(text: str) -> list[str]:
    """Lower-cased words, single Chinese characters and marks, in order; numbers by their length (`#2`)."""
    plain = unicodedata.normalize("NFKC", text.replace("’", "'")).lower()
    return [f"#{min(len(w), _LONG_NUMBER)}" if w[0].isdigit() else w for w in _WORDS.findall(plain)]


def form(text: str) -> tuple[float, ...]:
    """Length, question marks, digits, quotation, colon, exclamation, number of stops, lower-case beginning."""
    digits = len(_DIGIT.findall(text))
    return (
        math.log1p(len(text)),
        float("?" in text or "？" in text),
        float(bool(_ENDS_ASKING.search(text))),
        float(digits > 0),
        digits / max(1, len(text)),
        float(bool(_QUOTE.search(text))),
        float(":" in text or "：" in text),
        float("!" in text or "！" in text),
        float(len(_STOP.findall(text))),
        float(text[:1].islower()),
    )


def _grams(text: str, role: str) -> Iterator[str]:
    """Words and neighbouring pairs, from the role before the first word to the end after the last."""
    line = [f"[{role}", *words(text), "]"]
    yield from line
    yield from (f"{left} {right}" for left, right in pairwise(line))
