"""Questions and the past: how things were (以前住哪), what happened, and when."""

from __future__ import annotations

import re
from functools import lru_cache

from hindsight_core.cues import Language, language_of, lower_case


def is_past_question(text: str) -> bool:
    """Whether a question asks for a state that has since changed, so that superseded memories answer it.

    Not every question in the past tense does: “when did I buy the car?” asks for a fact that still holds, and “what did
    he eat last November?” names its time (see `temporal.find_range`). Total, and free of any context.
    """
    language = language_of(text)
    languages: tuple[Language, ...] = ("zh",) if language == "zh" else ("en", "zh")
    return any(_asks(text, each) for each in languages)


def asks_what_happened(text: str) -> bool:
    """Whether a text asks for, or tells of, something that happened: “what did I cook for Ann?”, 我上次去了哪里.

    What is so now (“what is my address?”) is rather in a newer memory; what happened is as well in an old one.
    """
    return _holds("happened", text)


def asks_when(text: str) -> bool:
    """Whether a question asks when something was or will be."""
    return _holds("when", text)


@lru_cache(maxsize=4096)
def tells_when(text: str) -> bool:
    """Whether a memory has a word of time in it."""
    return _holds("timed", text)


def _holds(cue: str, text: str) -> bool:
    languages: tuple[Language, ...] = ("zh",) if language_of(text) == "zh" else ("en", "zh")
    plain = text.replace("’", "'").lower()
    return any(lower_case("past", each)[cue].search(plain) for each in languages)


def _asks(text: str, language: Language) -> bool:
    cues = lower_case("past", language)
    plain = cues["otherwise"].sub(lambda match: "\x00" * len(match[0]), text.replace("’", "'").lower())
    return bool(re.search(cues["as_was"], plain))
