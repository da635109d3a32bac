"""English."""

from __future__ import annotations

import re
from functools import cache

from hindsight_core.temporal.en import counting, dates, hours, relative
from hindsight_core.temporal.en.context import EnglishContext
from hindsight_core.temporal.en.words import Vocabulary, words
from hindsight_core.temporal.language import QUOTED, Language
from hindsight_core.temporal.lexer import Lexer
from hindsight_core.temporal.spelling import Spelling
from hindsight_core.temporal.tense import TenseReader


@cache
def language() -> Language:
    """English, compiled once."""
    listed = words()
    vocabulary = Vocabulary(listed)
    rules = [
        *dates.rules(vocabulary),
        *counting.rules(vocabulary),
        *relative.rules(vocabulary),
        *hours.rules(vocabulary),
        *relative.single_words(vocabulary),
        *relative.operators(),
    ]
    disguises = "|".join(f"(?:{pattern})" for pattern in listed.disguises["patterns"])
    return Language(
        lexer=Lexer(rules, words=True, initials="abcdefghijklmnopqrstuvwxyz0123456789'’"),
        tense=TenseReader(listed.tense, words=True),
        disguises=re.compile(rf"{QUOTED}|(?<!\w)(?:{disguises})(?!\w)"),
        context=EnglishContext,
        prepare=Spelling(listed.spelling["words"], listed.spelling["unlike"]).corrected,
    )
