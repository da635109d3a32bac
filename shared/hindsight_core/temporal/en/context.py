"""Whether a bare English weekday, month, year, day or hour is a time where it stands."""

from __future__ import annotations

import re
from functools import cache

from hindsight_core.temporal.en.words import words
from hindsight_core.temporal.slots import Chunk, filled

_WORD = re.compile(r"[\w'’.-]+")
_SENTENCE_START = re.compile(r"(?:^|[.!?;:•\n>\"“(-])\s*$")
_STOP = re.compile(r"[,.;:!?)\n]")
_LOOK = 60
_ABBREVIATED = frozenset({"sat", "sun", "wed", "mon", "fri", "thu", "tue"})
_ALSO_VERBS = frozenset({3, 5})


class EnglishContext:
    """The judge of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lists = _lists()

    def licensed(self, chunk: Chunk, op: str | None, *, ranged: bool) -> bool:
        if self._titled(chunk):
            return False
        shown = self._text[chunk.start : chunk.end]
        before, after = self._before(chunk.start), self._after(chunk.end)
        match sorted(filled(chunk.slots).keys() - {"offset", "either_order"}):
            case ["weekday"]:
                return self._weekday(shown, before, after, op, ranged=ranged)
            case ["month"]:
                return self._month(chunk, before, after, op, ranged=ranged)
            case ["year"]:
                return self._year(before, after, op, ranged=ranged) or not shown[:1].isdigit()
            case ["day"]:
                return self._day(before, after, op, ranged=ranged)
            case ["clock"]:
                return self._clock(chunk, before, after, op, ranged=ranged)
            case ["holiday"]:
                return self._holiday(before, after, op)
            case ["quarter"] | ["half"]:
                return self._quarter(shown, before, after)
            case ["season"]:
                return ranged or before[-2:-1] in (["over"], ["during"], ["throughout"])
            case ["part"]:
                return False
            case ["unit"]:  # the weekend
                return bool(before) and (shown.lower().startswith("the") or self._last(before, "before_weekday"))
            case ["steps", "unit"] | ["day_steps"]:
                return self._counted(chunk, shown, before)
            case ["part", "weekday"] | ["clock", "weekday"]:
                return not self._habitual(before, after)
            case _:
                return True

    def wanted(self, chunk: Chunk) -> bool:  # noqa: ARG002 (a port; English rules make no such chunks)
        return False

    # The words around a place

    def _before(self, at: int, count: int = 4) -> list[str]:
        return [w.lower().replace("’", "'") for w in _WORD.findall(self._text[max(0, at - _LOOK) : at])[-count:]]

    def _after(self, at: int, count: int = 3) -> list[str]:
        rest = self._text[at : at + _LOOK]
        stop = _STOP.search(rest)
        found = _WORD.findall(rest[: stop.start()] if stop else rest)[:count]
        return [w.lower().replace("’", "'") for w in found]

    def _next(self, after: list[str], name: str) -> bool:
        return bool(after) and after[0] in self._lists[name]

    def _last(self, before: list[str], name: str) -> bool:
        return bool(before) and before[-1] in self._lists[name]

    def _starts(self, at: int) -> bool:
        return bool(_SENTENCE_START.search(self._text[max(0, at - 12) : at]))

    def _titled(self, chunk: Chunk) -> bool:
        """Capitals where a time has none make it the name of something: we watched The Day After Tomorrow."""
        if chunk.slots.holiday is not None or self._text[:_LOOK].isupper():
            return False
        for i, word in enumerate(re.finditer(r"[A-Za-z]+", self._text[chunk.start : chunk.end])):
            if i == 0 and self._starts(chunk.start):
                continue
            if word[0][0].isupper() and not word[0].isupper() and word[0].lower() in _lower_words():
                return True
        return False

    def _capital_beside(self, chunk: Chunk) -> bool:
        first = max(0, chunk.start - _LOOK)
        left = re.search(r"([A-Z][a-z]+)\s$", self._text[first : chunk.start])
        if left and not self._starts(first + left.start()) and left[1].lower() not in _lower_words():
            return True
        right = re.match(r"\s([A-Z][a-z]+)", self._text[chunk.end : chunk.end + _LOOK])
        return right is not None and right[1] != "I" and right[1].lower() not in _lower_words()

    def _habitual(self, before: list[str], after: list[str]) -> bool:
        return bool(self._lists["habits"] & set(before[-3:]) or {"every", "each"} & set(after[:1]))

    # One kind of bare word each

    def _weekday(self, shown: str, before: list[str], after: list[str], op: str | None, *, ranged: bool) -> bool:
        if self._habitual(before, after):
            return False
        if ranged:
            return not self._lists["opening"] & {*before, *after}
        after_a_name = self._last(before, "names_before")
        named = after_a_name or " ".join(after[:2]) in self._lists["names_after"]
        if shown.lower() in _ABBREVIATED and not self._abbreviated(shown, before):
            return False
        if op in {"since", "by", "until", "before", "after", "starting", "from", "onward"}:
            return True
        if self._last(before, "before_weekday") and not (named and before[-1] in {"meet", "called", "it", "is"}):
            return not (named and before[-1] in {"was", "and", "or", "like", "than", "about", "for", "to"})
        possessive = shown.lower().replace("’", "'").endswith("'s")
        scheduled = self._next(after, "scheduled")
        if named or (before and before[-1] in {"the", "our", "my", "a"} and not scheduled):
            return possessive and not after_a_name
        if not before:
            return not after or scheduled or self._next(after, "subjects_after_weekday")
        return scheduled or possessive or not after or self._next(after, "after_ordinal")

    def _abbreviated(self, shown: str, before: list[str]) -> bool:
        """“Sat”, “sun” and “wed” are other words, too: on Sat, next wed."""
        if not before:
            return False
        sure = before[-1] in {"on", "by", "next", "last", "this", "since", "until"}
        return sure or (shown[:1].isupper() and before[-1] in {"before", "after", "for", "from", "due", "till"})

    def _month(self, chunk: Chunk, before: list[str], after: list[str], op: str | None, *, ranged: bool) -> bool:
        shown, month = self._text[chunk.start : chunk.end], chunk.slots.month or 0
        namelike = str(month) in self._lists["months_also_names"]
        if " ".join(after[:2]) in self._lists["names_after"] or self._next(after, "names_after"):
            return False
        if shown.lower().replace("’", "'").endswith("'s"):
            return not namelike or bool(self._lists["monthly"] & set(after))
        placed = self._last(before, "before_month")
        small = not shown[:1].isupper()
        if small and month in _ALSO_VERBS and not self._last(before, "before_small_month"):
            return False
        if small and len(shown.rstrip(".")) <= 3 and not placed:
            return False
        if ranged:
            return True
        if self._last(before, "names_before") or self._capital_beside(chunk):
            return False
        if not placed:
            return self._next(after, "monthly") and not namelike
        if namelike and before[-1] in self._lists["weak_before_month"]:
            return bool(self._lists["monthly"] & {*before, *after[:2]})
        return op in {None, "since", "by", "until", "before", "after", "from", "starting", "onward", "to_now"}

    def _year(self, before: list[str], after: list[str], op: str | None, *, ranged: bool) -> bool:
        if self._next(after, "counted") or self._last(before, "labels_before"):
            return False
        if ranged or op in {"since", "until", "before", "after", "onward", "to_now", "starting"}:
            return True
        if not before:
            return not after or after[0] in {"was", "is", "will", "has"}
        if self._last(before, "determiners"):
            return bool(after)
        return self._last(before, "before_year")

    def _day(self, before: list[str], after: list[str], op: str | None, *, ranged: bool) -> bool:
        if after and not self._next(after, "after_ordinal"):
            return False
        return ranged or op in {"since", "by", "until", "before", "after"} or self._last(before, "before_ordinal")

    def _clock(self, chunk: Chunk, before: list[str], after: list[str], op: str | None, *, ranged: bool) -> bool:
        around = {*self._before(chunk.start, 8), *self._after(chunk.end, 8)}
        if self._lists["hours"] & around or self._lists["habits"] & {*before, *after}:
            return False
        if chunk.slots.clock is not None and chunk.slots.clock[2] is None:
            return False
        if ranged or op in {"by", "before", "after", "until", "since"}:
            return True
        return bool(before) and before[-1] in {"at", "around", "about", "till", "from", "for"}

    def _holiday(self, before: list[str], after: list[str], op: str | None) -> bool:
        if self._next(after, "after_holiday"):
            return False
        if op in {"since", "by", "until", "before", "after", "starting"}:
            return True
        return not before or not after or self._last(before, "before_holiday")

    def _quarter(self, shown: str, before: list[str], after: list[str]) -> bool:
        near = {*before, *after}
        if self._lists["questions"] & near:
            return False
        return shown[:1] in "qQ" or bool(self._lists["quarterly"] & near)

    def _counted(self, chunk: Chunk, shown: str, before: list[str]) -> bool:
        """“In three days” is a time unless something was done in three days."""
        if not re.match(r"in\s", shown, re.IGNORECASE):
            return True
        near = {*before, *self._before(chunk.start, 8), *self._after(chunk.end, 2)}
        if not self._lists["lasting"] & near:
            return True
        return bool({"will", "be", "starts", "ends"} & near) and not {"can", "could", "takes"} & near


@cache
def _lists() -> dict[str, frozenset[str]]:
    return {name: frozenset(str(word) for word in listed) for name, listed in words().licence.items()}


@cache
def _lower_words() -> frozenset[str]:
    """Words of times that are written small, so that a capital makes them part of a name."""
    listed = words()
    found = {word for name in listed.days for word in name.split()} | set(listed.parts)
    found |= {name for names in listed.units.values() for name in names}
    return frozenset(found | {str(word) for word in listed.licence["written_small"]})
