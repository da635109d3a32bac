"""Whether the words around a time expression speak of the past or of what is to come."""

from __future__ import annotations

import re

import msgspec

from hindsight_core.temporal.calendar import Tense

_SENTENCE = re.compile(r"[.?!。？！;；\n]+(?=\s|$|[^\x00-\x7f])")
_CLAUSE = re.compile(
    r"[,，、:：—()（）]|\b(?:but|and|so|because|although|when|while|if|that|which|who|then)\b|但是?|不过|所以|因为|然后"
)
_BOUNDARY = 25
_FAR = 200


class TenseCues(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Patterns of a language.

    `past` and `future` decide, the nearest first; the hints only where neither occurs, and the faint ones only for
    dates and months, which people mostly name when they look back. `neither` are wordings that look like a cue and
    are none ("is cancelled", 过年): they are taken out first; `firmly_future` are those that look like the past and
    speak of the future ("moved to", 推到).
    """

    neither: list[str]
    firmly_future: list[str]
    past: list[str]
    future: list[str]
    past_hints: list[str]
    future_hints: list[str]
    past_faint: list[str]


class TenseReader:
    """Reads the tense at a place of a text; built once per language."""

    def __init__(self, cues: TenseCues, *, words: bool) -> None:
        first = [("neither", cues.neither), ("firm", cues.firmly_future)]
        self._cues = _compile([*first, ("past", cues.past), ("future", cues.future)], words=words)
        self._hints = _compile([*first[:1], ("past", cues.past_hints), ("future", cues.future_hints)], words=words)
        self._faint = _compile([*first[:1], ("past", cues.past_faint)], words=words)

    def at(self, text: str, start: int, end: int, *, hints: bool, dated: bool) -> Tense | None:
        """The tense of the cue nearest to text[start:end] within its sentence; crossing a clause counts as distance.

        `hints` lets the hints decide where there is no cue, `dated` the faint ones, too.
        """
        first, last = _sentence(text, start, end)
        for cues in [self._cues, *[self._hints] * hints, *[self._faint] * (hints and dated)]:
            found = _nearest(cues, text, first, last, start, end)
            if found is not None:
                return found
        return None


def _compile(groups: list[tuple[str, list[str]]], *, words: bool) -> re.Pattern[str]:
    left, right = (r"(?<![\w-])", r"(?![\w-])") if words else ("", "")
    named = (f"(?P<{name}>{left}(?:{'|'.join(either)}){right})" for name, either in groups if either)
    return re.compile("|".join(named), re.IGNORECASE)


def _sentence(text: str, start: int, end: int) -> tuple[int, int]:
    first, last = max(0, start - _FAR), min(len(text), end + _FAR)
    for stop in _SENTENCE.finditer(text, first, last):
        if stop.end() <= start:
            first = stop.end()
        elif stop.start() >= end:
            return first, stop.start()
    return first, last


def _nearest(cues: re.Pattern[str], text: str, first: int, last: int, start: int, end: int) -> Tense | None:
    best: tuple[int, Tense] | None = None
    for cue in cues.finditer(text, first, last):
        name = cue.lastgroup
        if name == "neither" or (cue.start() < end and cue.end() > start):
            continue
        between = text[cue.end() : start] if cue.end() <= start else text[end : cue.start()]
        distance = len(between) + _BOUNDARY * len(_CLAUSE.findall(between))
        if best is None or distance < best[0]:
            best = (distance, "past" if name == "past" else "future")
    return best[1] if best else None
