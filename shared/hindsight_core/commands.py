"""Orders given inside a message: so far one, to forget something."""

from __future__ import annotations

import re
from functools import cache

from hindsight_core.cues import LANGUAGES, Language, table

_EDGES = " \t\r\n,.;:!?-–—\"'“”‘’，。；：！？、…~～"


@cache
def _forget(
    language: Language,
) -> tuple[re.Pattern[str], tuple[re.Pattern[str], ...], re.Pattern[str], re.Pattern[str]]:
    found = table("commands", language)
    start, end = (r"(?<!\w)", r"(?!\w)") if language == "en" else ("", "")
    never = re.compile("|".join(f"{start}(?:{p})" for p in found.lists["forget.never"]), re.IGNORECASE)
    patterns = tuple(re.compile(start + p, re.IGNORECASE) for p in found.lists["forget.patterns"])
    that = re.compile(found.sentences["forget.that"], re.IGNORECASE)
    lead = re.compile(rf"(?:{found.sentences['forget.lead']}){end}[\s,，、]*", re.IGNORECASE)
    return never, patterns, that, lead


def forget_request(text: str) -> str | None:
    """What a message orders to forget: a slice of it, "" where it only points at it ("that"), None for no such order.

    "Don't forget to …" and questions of memory ("did I forget …") are no such orders.
    """
    plain = text.replace("’", "'")
    for language in LANGUAGES:
        never, patterns, that, lead = _forget(language)
        if never.search(plain):
            continue
        for pattern in patterns:
            match = pattern.search(plain)
            if match is None:
                continue
            groups = match.groupdict()
            what = _trim(groups["what"] or "", lead)
            if that.fullmatch(what) or not what:
                rest = _trim(groups.get("rest") or "", lead)
                before = _trim(re.split(r"[.!?。！？]", plain[: match.start()])[-1], lead)
                what = next((w for w in (rest, before) if len(w) > 1 and not that.fullmatch(w)), "")
            return what
    return None


def _trim(what: str, lead: re.Pattern[str]) -> str:
    what = what.strip(_EDGES)
    while (match := lead.match(what)) and match.end():
        what = what[match.end() :].strip(_EDGES)
    return what
