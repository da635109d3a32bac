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
# What the rules' own patterns may begin with, next to the words of the lists.
_INITIALS = set(
    "0123456789零〇○一二两三四五六七八九十百廿卅半qQ-~–—－～"
    "上下这本当今昨明前后去大周星礼月年季春夏秋冬暑闰腊正首第最近过刚未接往再头双岁的初底末中尾早晚夜"
    "直到至迄截自从打以起开之内赶为结左每逢隔不"
)
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
        lexer=Lexer(rules, words=False, initials=_initials(vocabulary)),
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


def _initials(vocabulary: Vocabulary) -> str:
    names = (vocabulary.days, vocabulary.years, vocabulary.parts, vocabulary.holidays)
    return "".join(sorted({name[0] for listed in names for name in listed} | _INITIALS))


def _unspaced(text: str) -> tuple[str, list[int]] | None:
    """The text without the spaces that some write around numbers (7 月 3 日), and where its characters stood."""
    gone = {m.start() for m in _SPACED.finditer(text)}
    if not gone:
        return None
    places = [i for i in range(len(text) + 1) if i not in gone]
    return "".join(text[i] for i in places[:-1]), places
