"""What kind of answer a question wants, and which memories hold one: a time, a number, what concerns the speaker."""

from __future__ import annotations

from functools import lru_cache

from hindsight_core.cues import Language, language_of, lower_case


def asks_when(text: str) -> bool:
    """Whether a question asks when something was or will be."""
    return _holds("when", text)


@lru_cache(maxsize=4096)
def tells_when(text: str) -> bool:
    """Whether a memory has a word of time in it."""
    return _holds("timed", text)


def asks_how_many(text: str) -> bool:
    """Whether a question asks for a number: how many, how long, how often, 多少."""
    return _holds("amount", text)


@lru_cache(maxsize=4096)
def tells_a_number(text: str) -> bool:
    """Whether a memory has a number in it, in digits or words."""
    return _holds("counted", text)


@lru_cache(maxsize=4096)
def speaks_of_self(text: str) -> bool:
    """Whether a text speaks of who says it: I, my, we, 我."""
    return _holds("self", text)


def _holds(cue: str, text: str) -> bool:
    languages: tuple[Language, ...] = ("zh",) if language_of(text) == "zh" else ("en", "zh")
    plain = text.replace("’", "'").lower()
    return any(lower_case("answers", each)[cue].search(plain) for each in languages)
