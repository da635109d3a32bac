"""Orders given inside a message: so far one, to forget something."""

from __future__ import annotations

import re
from functools import cache

import msgspec

from hindsight_core.cues import LANGUAGES, Language, table

_EDGES = " \t\r\n,.;:!?-–—\"'“”‘’，。；：！？、…~～"


class _Wording(msgspec.Struct, frozen=True):
    never: re.Pattern[str]
    patterns: tuple[re.Pattern[str], ...]
    that: re.Pattern[str]
    lead: re.Pattern[str]
    tail: re.Pattern[str]


@cache
def _forget(language: Language) -> _Wording:
    found = table("commands", language)
    start, end = (r"(?<!\w)", r"(?!\w)") if language == "en" else ("", "")
    never = "|".join(f"{start}(?:{pattern})" for pattern in found.lists["forget.never"])
    return _Wording(
        never=re.compile(never, re.IGNORECASE),
        patterns=tuple(re.compile(start + pattern, re.IGNORECASE) for pattern in found.lists["forget.patterns"]),
        that=re.compile(found.sentences["forget.that"], re.IGNORECASE),
        lead=re.compile(rf"(?:{found.sentences['forget.lead']}){end}[\s,，、]*", re.IGNORECASE),
        tail=re.compile(rf"{found.sentences['forget.tail']}\Z", re.IGNORECASE),
    )


def forget_request(text: str) -> str | None:
    """What a message orders to forget: a slice of it, "" where it only points at it ("that"), None for no such order.

    A bare "it" is looked up in what the message says before. "Don't forget to …" and questions of memory ("did I
    forget …") are no such orders, nor are orders to keep something from third people only.
    """
    plain = text.replace("’", "'")
    for language in LANGUAGES:
        wording = _forget(language)
        if wording.never.search(plain):
            continue
        for pattern in wording.patterns:
            match = pattern.search(plain)
            if match is not None:
                groups = match.groupdict()
                *earlier, clause = re.split(r"[.!?;。！？；]", plain[: match.start()])
                pieces = (groups["what"], groups.get("rest"), *re.split(r"[,:，：]", clause), *reversed(earlier))
                named = (_name(piece or "", wording) for piece in pieces)
                return next((name for name in named if name), "")
    return None


def _name(piece: str, wording: _Wording) -> str:
    """What the piece names, without the words around it; "" where it only points ("that", “这件事”)."""
    piece = piece.strip(_EDGES)
    while (lead := wording.lead.match(piece)) is not None and lead.end():
        piece = piece[lead.end() :].strip(_EDGES)
    bare = wording.tail.sub("", piece).strip(_EDGES)
    if wording.that.fullmatch(bare) or wording.that.fullmatch(piece):
        return ""
    return bare if len(bare) > 1 else ""
