"""Orders given inside a message: so far one, to forget something."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import msgspec

from hindsight_core.cues import LANGUAGES, Language, table

_EDGES = " \t\r\n,.;:!?-–—\"'“”‘’，。；：！？、…~～"
_SENTENCE = re.compile(r"[.!?;。！？；]")
_CLAUSE = re.compile(r"[,:，：]")
_WORD_LIST = re.compile(r"\{([a-z]+)\}")


class Forgetting(msgspec.Struct, frozen=True):
    """An order to forget. `what` is a slice of the message that names the thing, "" where it only points ("that").

    `about` is the message without the order's own words: what else it tells of the thing.
    `all` tells that everything about it is meant, `reason` that it is the reason for something, `somebody` that it has
    to do with a person who is not named ("him", 她).
    """

    what: str
    about: str = ""
    all: bool = False
    reason: bool = False
    somebody: bool = False


class _Wording(msgspec.Struct, frozen=True):
    never: re.Pattern[str]
    patterns: tuple[re.Pattern[str], ...]
    doubtful: tuple[re.Pattern[str], ...]
    evidence: re.Pattern[str]
    work: re.Pattern[str]
    all: re.Pattern[str]
    reason: re.Pattern[str]
    because: re.Pattern[str]
    somebody: re.Pattern[str]
    that: re.Pattern[str]
    lead: re.Pattern[str]
    tail: re.Pattern[str]


@cache
def _forget(language: Language) -> _Wording:
    found = table("commands", language)
    start, end = (r"(?<!\w)", r"(?!\w)") if language == "en" else ("", "")

    def one_of(match: re.Match[str]) -> str:
        return "(?:" + "|".join(found.lists[f"words.{match[1]}"]) + ")"

    def pattern(source: str, before: str = "", after: str = "") -> re.Pattern[str]:
        return re.compile(before + _WORD_LIST.sub(one_of, source) + after, re.IGNORECASE)

    say = found.sentences
    return _Wording(
        never=pattern("|".join(f"{start}(?:{one})" for one in found.lists["forget.never"])),
        patterns=tuple(pattern(one, start) for one in found.lists["forget.patterns"]),
        doubtful=tuple(pattern(one, start) for one in found.lists["forget.doubtful"]),
        evidence=pattern(say["forget.evidence"], start, end),
        work=pattern(say["forget.work"], start, end),
        all=pattern(say["forget.all"], start, end),
        reason=pattern(say["forget.reason"], start, end),
        because=pattern(say["forget.because"], start, end),
        somebody=pattern(say["forget.somebody"], start, end),
        that=pattern(say["forget.that"]),
        lead=pattern(f"(?:{say['forget.lead']}){end}[\\s,，、]*"),
        tail=pattern(f"{say['forget.tail']}\\Z"),
    )


def forget_request(text: str) -> Forgetting | None:
    """What a message orders to forget, None where it is no such order.

    A bare "it" is looked up in what the message says before. "Don't forget to …" and questions of memory ("did I
    forget …") are no such orders, nor are orders to keep something from third people only, or to work on a text.
    """
    plain = text.replace("’", "'")
    for language in LANGUAGES:
        wording = _forget(language)
        seen = wording.never.sub(lambda match: "\0" * len(match[0]), plain)
        for match in _matches(wording.patterns, seen):
            return _forgetting(match, plain, wording)
        if wording.work.search(plain) or not wording.evidence.search(plain):
            continue
        for match in _matches(wording.doubtful, seen):
            if (found := _forgetting(match, plain, wording)).what:
                return found
    return None


def gives_reason(text: str) -> bool:
    """Whether a text says why something is so."""
    return any(_forget(language).because.search(text) for language in LANGUAGES)


def _forgetting(match: re.Match[str], plain: str, wording: _Wording) -> Forgetting:
    what = _named(match, plain, wording)
    said = match[0].replace("\0", "")
    told = (plain[: match.start()], *(group or "" for group in match.groups()), plain[match.end() :])
    about = " ".join(" ".join(told).replace("\0", " ").split())
    return Forgetting(
        what,
        about,
        all=bool(wording.all.search(said)),
        reason=bool(wording.reason.search(what)),
        somebody=bool(wording.somebody.search(plain)),
    )


def _matches(patterns: tuple[re.Pattern[str], ...], text: str) -> Iterator[re.Match[str]]:
    return (match for pattern in patterns if (match := pattern.search(text)) is not None)


def _named(match: re.Match[str], plain: str, wording: _Wording) -> str:
    """The piece of the message that names the thing: what the pattern says, else what was said last before it."""
    groups = match.groupdict()
    *earlier, clause = _SENTENCE.split(plain[: match.start()])
    pieces = (groups.get("what"), groups.get("rest"), *_CLAUSE.split(clause), *reversed(earlier))
    named = (_name((piece or "").replace("\0", ""), wording) for piece in pieces)
    return next((name for name in named if name), "")


def _name(piece: str, wording: _Wording) -> str:
    """What the piece names, without the words around it; "" where it only points ("that", “这件事”)."""
    piece = piece.strip(_EDGES)
    while (lead := wording.lead.match(piece)) is not None and lead.end():
        piece = piece[lead.end() :].strip(_EDGES)
    bare = wording.tail.sub("", piece).strip(_EDGES)
    if wording.that.fullmatch(bare) or wording.that.fullmatch(piece):
        return ""
    return bare if len(bare) > 1 else ""
