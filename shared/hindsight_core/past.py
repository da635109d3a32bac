"""Questions about how things were: “where did I live before?”, 以前住哪, which memories replaced since answer."""

from __future__ import annotations

import re

from hindsight_core.cues import Language, language_of, table


def is_past_question(text: str) -> bool:
    """Whether a question asks for a state that has since changed, so that superseded memories answer it.

    Not every question in the past tense does: “when did I buy the car?” asks for a fact that still holds, and “what did
    he eat last November?” names its time (see `temporal.find_range`). Total, and free of any context.
    """
    language = language_of(text)
    languages: tuple[Language, ...] = ("zh",) if language == "zh" else ("en", "zh")
    return any(_asks(text, each) for each in languages)


def _asks(text: str, language: Language) -> bool:
    cues = table("past", language).patterns
    plain = cues["otherwise"].sub(lambda match: "\x00" * len(match[0]), text.replace("’", "'"))
    return bool(re.search(cues["as_was"], plain))
