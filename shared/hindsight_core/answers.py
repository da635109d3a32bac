"""What kind of answer a question wants, and which memories hold one: a time, a number, what concerns the speaker."""

from __future__ import annotations

import re

from hindsight_core.cues import languages_of, lower_case
from hindsight_core.models import Source
from hindsight_core.readings import kept

_PARTS: dict[str, Source] = {"user": "user", "assistant": "agent"}
# Capitals tell names, so these are no cues, which are read in lower case.
_PLACE = re.compile(
    r"\b(?:in|at|to|from|near|around|[Hh]ere|[Tt]here) (?:(?:the|a|my|our|this) )?[A-Z]"
    r"|[在到去回].{0,8}[省市县区镇村路街湖山岛国城]"
)
_NAME = re.compile(r"(?<=[a-z,;:] )[A-Z][a-z]+|\"|《")
_NAMES = 3


def asks_when(text: str) -> bool:
    """Whether a question asks when something was or will be."""
    return _holds("when", text)


@kept(4096)
def tells_when(text: str) -> bool:
    """Whether a memory has a word of time in it."""
    return _holds("timed", text)


def asks_how_many(text: str) -> bool:
    """Whether a question asks for a number: how many, how long, how often, 多少."""
    return _holds("amount", text)


@kept(4096)
def tells_a_number(text: str) -> bool:
    """Whether a memory has a number in it, in digits or words."""
    return _holds("counted", text)


def asks_where(text: str) -> bool:
    """Whether a question asks for a place: where, which city, 哪里."""
    return _holds("where", text)


@kept(4096)
def tells_where(text: str) -> bool:
    """Whether a memory names a place: in Leeds, 在杭州市."""
    return _PLACE.search(text) is not None


@kept(4096)
def names_something(text: str) -> float:
    """How much a memory calls things by their names, in [0, 1]: a title in quotation marks, a capital in a sentence."""
    return min(_NAMES, len(_NAME.findall(text))) / _NAMES


@kept(4096)
def speaks_to_another(text: str) -> bool:
    """Whether a text speaks of who hears it: you, your, 你."""
    return _holds("other", text)


@kept(4096)
def speaks_of_self(text: str) -> bool:
    """Whether a text speaks of who says it: I, my, we, 我."""
    return _holds("self", text)


def parts_named(text: str) -> tuple[tuple[Source, ...], str]:
    """Which parts in the conversation a question names (the user, 用户, the assistant), and what else it says.

    The rest is the whole text where nothing is left without them.
    """
    plain = text.replace("’", "'")
    folded = plain.lower()
    if len(folded) != len(plain):
        return (), text
    found: list[Source] = []
    kept = list(plain)
    for cue, source in _PARTS.items():
        for language in languages_of(text):
            for match in lower_case("answers", language)[cue].finditer(folded):
                kept[match.start() : match.end()] = " " * (match.end() - match.start())
                found.append(source)
    if not found:
        return (), text
    rest = " ".join("".join(kept).split())
    return tuple(dict.fromkeys(found)), rest if any(char.isalnum() for char in rest) else text


def _holds(cue: str, text: str) -> bool:
    plain = text.replace("’", "'").lower()
    return any(lower_case("answers", each)[cue].search(plain) for each in languages_of(text))
