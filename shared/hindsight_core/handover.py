"""Texts inside texts: what is handed over to be worked on, quoted or invented says nothing about anybody."""

from __future__ import annotations

import re

from hindsight_core.cues import LANGUAGES, table

_SHORTEST = 8
_QUOTED = re.compile("[\"“”「『‘《](?=[^\"“”」』’》]{6,})|(?<![\\w])'(?=[^']{8,}')|```")
_ANNOUNCED = re.compile(r"(?P<intro>[^\n]{2,120}[:：])\s*\n\s*\S")
_AFTER_COLON = re.compile(r"[:：](?!//|\d)\s*(?P<rest>\S.*)", re.DOTALL)


def _cue(name: str, text: str) -> bool:
    return any(table("gate", language).patterns[name].search(text) for language in LANGUAGES)


def is_handed_over(text: str) -> bool:
    """Whether the text asks for work on a text that it brings along ("translate this: …", “润色下面这段：…”)."""
    plain = text.replace("’", "'")
    if not _cue("transform", plain):
        return False
    if _QUOTED.search(plain):
        return True
    rest = _AFTER_COLON.search(plain)
    return rest is not None and len(rest["rest"]) >= _SHORTEST and _cue("transform", plain[: rest.start()])


def is_framed(text: str) -> bool:
    """Whether the text as a whole is a story, a part to play, handed over, or what somebody else wrote.

    The sentences of such a text mean nothing alone, or something else.
    """
    plain = text.replace("’", "'")
    return is_handed_over(text) or _cue("fiction", plain) or is_passed_on(plain)


def is_passed_on(text: str) -> bool:
    """Whether the text announces what somebody else wrote and brings it along on lines of its own."""
    announced = _ANNOUNCED.match(text)
    return announced is not None and _cue("wrote", announced["intro"].replace("’", "'"))
