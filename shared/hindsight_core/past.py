"""Questions and the past: how things were (以前住哪), and what happened."""

from __future__ import annotations

import re

from hindsight_core.cues import Language, languages_of, lower_case


def is_past_question(text: str) -> bool:
    """Whether a question asks for a state that has since changed, so that superseded memories answer it.

    Not every question in the past tense does: “when did I buy the car?” asks for a fact that still holds, and “what did
    he eat last November?” names its time (see `temporal.find_range`). Total, and free of any context.
    """
    return any(_asks(text, each) for each in languages_of(text))


def asks_what_happened(text: str) -> bool:
    """Whether a text asks for, or tells of, something that happened: “what did I cook for Ann?”, 我上次去了哪里.

    What is so now (“what is my address?”) is rather in a newer memory; what happened is as well in an old one.
    """
    plain = text.replace("’", "'").lower()
    return any(lower_case("past", each)["happened"].search(plain) for each in languages_of(text))


def asks_for_last(text: str) -> int:
    """1 where a text asks for the last of what has happened more than once (latest, 上次), -1 for the first, else 0."""
    plain = text.replace("’", "'").lower()
    cues = [lower_case("past", each) for each in languages_of(text)]
    if any(each["latest"].search(plain) for each in cues):
        return 1
    return -1 if any(each["earliest"].search(plain) for each in cues) else 0


def _asks(text: str, language: Language) -> bool:
    cues = lower_case("past", language)
    plain = cues["otherwise"].sub(lambda match: "\x00" * len(match[0]), text.replace("’", "'").lower())
    return bool(re.search(cues["as_was"], plain))
