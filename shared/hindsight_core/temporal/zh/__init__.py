"""Chinese."""

from __future__ import annotations

import re
from functools import cache

from hindsight_core.temporal.language import QUOTED, Language
from hindsight_core.temporal.lexer import Lexer
from hindsight_core.temporal.tense import TenseReader
from hindsight_core.temporal.zh import dates, hours, relative
from hindsight_core.temporal.zh.context import ChineseContext
from hindsight_core.temporal.zh.words import Vocabulary, words

_SPACED = re.compile(r"(?<=\d) (?=[年月日号点时分天周个季小星礼秒世])|(?<=[年月日号第前过近去上下周]) (?=\d)")
_WIDE = {ord(c): ord(c) - 0xFEE0 for c in map(chr, range(0xFF01, 0xFF5F)) if c not in "，；：？！（）"}


@cache
def language() -> Language:
    """Chinese, compiled once."""
    listed = words()
    vocabulary = Vocabulary(listed)
    rules = [
        *dates.rules(vocabulary),
        *relative.rules(vocabulary),
        *hours.rules(vocabulary),
        *relative.operators(),
    ]
    disguises = "|".join(f"(?:{pattern})" for pattern in listed.disguises["patterns"])
    return Language(
        lexer=Lexer(rules, words=False),
        tense=TenseReader(listed.tense, words=False),
        disguises=re.compile(rf"{QUOTED}|{disguises}"),
        context=ChineseContext,
        prepare=_unspaced,
    )


@cache
def script() -> dict[int, int]:
    """Wide and traditional characters to half-width and simplified ones, one to one."""
    listed = words().script
    pairs = zip(listed["traditional"], listed["simplified"], strict=True)
    return {**{ord(a): ord(b) for a, b in pairs}, **_WIDE, 0x3000: 0x20, 0x2019: 0x27}


def _unspaced(text: str) -> tuple[str, list[int]] | None:
    """The text without the spaces that some write around numbers (7 月 3 日), and where its characters stood."""
    gone = {m.start() for m in _SPACED.finditer(text)}
    if not gone:
        return None
    places = [i for i in range(len(text) + 1) if i not in gone]
    return "".join(text[i] for i in places[:-1]), places
