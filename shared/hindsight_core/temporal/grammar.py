"""Chunks and operators to time expressions: single ones, ranges, limits."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, TypeAlias

from hindsight_core.temporal.calendar import Span, Tense, shift
from hindsight_core.temporal.chunking import (
    Item,
    chunks,
    follows,
    is_chunk,
    on_the_day,
    operator_after,
    operator_before,
)
from hindsight_core.temporal.language import Context
from hindsight_core.temporal.resolution import Customs, resolve
from hindsight_core.temporal.slots import Chunk, Slots, Token, coarser, combine, filled, levels

Kind: TypeAlias = Literal["date", "relative", "rolling", "since", "deadline", "before", "after"]

_EXPLICIT = {"year", "month", "day", "decade", "holiday"}
_ANCHORED = {"year", "decade", "unit", "day_steps", "window", "mode"}
_ROUNDED = {"third", "season", "either_order", "offset"}
_PREFIXES = {"since", "by", "until", "before", "after", "starting"}
_POSTFIXES = {"since_post", "to_now", "onward", "before_post", "after_post", "by_post", "within_post"}
_OPENINGS = {"from", "between", "since", "starting"}
_LATE = 2
_HOUR = timedelta(hours=1)
_REACH = 12


class Found(NamedTuple):
    """An expression and what it means, in naive local time; `inferred`: the tense or a convention had a say in it."""

    start: int
    end: int
    first: datetime | None
    last: datetime | None
    kind: Kind
    inferred: bool
    slots: Slots


class Reader(NamedTuple):
    """What the grammar must be told: the instant, customs, the tense at a place, the judge of bare words."""

    now: datetime
    customs: Customs
    tense: Callable[[Chunk, bool], Tense | None]  # and whether nouns may hint at it
    context: Context


def parse(text: str, tokens: list[Token], reader: Reader) -> list[Found]:
    """All expressions of the text in order, without overlaps."""
    return _Parser(text, chunks(text, tokens), reader).expressions()


class _Parser:
    def __init__(self, text: str, items: list[Item], reader: Reader) -> None:
        self._text = text
        self._items = items
        self._reader = reader

    def expressions(self) -> list[Found]:
        found: list[Found] = []
        i = 0
        while i < len(self._items):
            item = self._items[i]
            if not is_chunk(item):
                i += 1
                continue
            if self._reader.context.licensed(item, None, ranged=False):
                item = self._items[i] = on_the_day(self._text, item, self._items[max(0, i - 8) : i])
            before = operator_before(self._text, self._items, i - 1, item.start)
            taken, result = (
                self._range_on_a_day(i) or self._range(i, item, before) or (1, self._single(i, item, before))
            )
            if result is not None and not (found and result.start < found[-1].end):
                found.append(result)
            i += taken
        return found

    # Ranges

    def _range_on_a_day(self, i: int) -> tuple[int, Found | None] | None:
        """A range of hours after the day that it is on: yesterday between 2 and 4pm."""
        if i + 2 >= len(self._items):
            return None
        opening, first = self._items[i + 1], self._items[i + 2]
        if not isinstance(opening, Token) or not is_chunk(first) or self._day_before(i + 2, first, opening) is None:
            return None
        found = self._range(i + 2, first, opening)
        if found is None or found[1] is None or found[1].start != self._items[i].start:
            return None
        return found[0] + 2, found[1]

    def _range(self, i: int, first: Chunk, before: Token | None) -> tuple[int, Found | None] | None:
        """A range that starts at place i: how many items it takes, and what it means; None where there is none."""
        linked = operator_after(self._text, self._items, i + 1, first.end)
        if linked is None or linked[0] + 1 >= len(self._items):
            return None
        at, link = linked
        opened = before.op if before is not None else None
        second = self._items[at + 1]
        if link.op not in {"to", "until"} and not (link.op == "and" and opened == "between"):
            return None
        if not is_chunk(second) or not follows(self._text, link.end, second.start):
            return None
        taken = at + 2 - i
        if opened == "every":
            return taken, None
        day = self._day_before(i, first, before)
        a = (combine(day.slots, first.slots) if day is not None else None) or first.slots
        b = second.slots
        start, end = _completed(a, b), _completed(b, a)
        whole = Chunk(day.start if day is not None else first.start, second.end, start)
        if not self._reader.context.licensed(whole, opened or "range", ranged=True):
            # Monday to Friday, when a shop is open, is no two days either.
            return (taken, None) if filled(a).keys() == filled(b).keys() == {"weekday"} else None
        if opened not in _OPENINGS and max(levels(a), default=0) != max(levels(b), default=0):
            return None
        found = self._between(whole, start, end)
        if found is None:
            return None
        if before is not None and opened in {"from", "between"} and day is None:
            found = found._replace(start=before.start)
        closing = operator_after(self._text, self._items, at + 2, second.end)
        if closing is not None and closing[1].op in {"onward", "by_post", "within_post"}:
            found = found._replace(end=closing[1].end)
        return taken, found

    def _between(self, whole: Chunk, a: Slots, b: Slots) -> Found | None:
        tense = self._reader.tense(whole, True)
        start, end = self._resolved(a, tense), self._resolved(b, tense)
        if start is None or end is None:
            return None
        end = _not_before(start, end, b)
        last = end.start if end.grain == "clock" else end.end
        if last <= start.start:
            return None
        kind: Kind = "date" if filled(a).keys() & _EXPLICIT else "relative"
        return Found(whole.start, whole.end, start.start, last, kind, _inferred(a), a)

    def _day_before(self, i: int, first: Chunk, opening: Token | None) -> Chunk | None:
        """The coarser chunk before “between” or “from”."""
        if opening is None or opening.op not in {"between", "from"} or i < 2:
            return None
        item = self._items[i - 2]
        if not is_chunk(item) or not follows(self._text, item.end, opening.start, loosely=True):
            return None
        return item if max(levels(item.slots), default=9) < min(levels(first.slots), default=0) else None

    # Single times

    def _single(self, i: int, item: Chunk, before: Token | None) -> Found | None:
        opened = before.op if before is not None else None
        after = operator_after(self._text, self._items, i + 1, item.end)
        closed = after[1].op if after is not None else None
        if opened == "every" or not filled(item.slots).keys() - {"offset", "mode"}:
            return None
        if opened in {"to", "and", "between"}:
            # “Through the end of May” is a limit, “all through May” is May.
            opened = "until" if opened == "to" and (closed == "by_post" or item.slots.third == _LATE) else None
        if not self._reader.context.licensed(item, opened or closed, ranged=False):
            return None
        if item.slots.within and not self._reader.context.wanted(item):
            return None
        begun = opened == "since" or closed in {"since_post", "to_now"}
        limited = opened in {"by", "until", "before"} or closed in {"by_post", "before_post"}
        tense = "past" if begun else self._reader.tense(item, not limited)
        span = self._resolved(item.slots, tense)
        if span is None:
            return None
        first, last, kind = _applied(span, opened, closed, tense, item.slots, self._reader.now)
        begin = before.start if before is not None and opened in _PREFIXES else item.start
        finish = after[1].end if after is not None and closed in _POSTFIXES else item.end
        return Found(begin, finish, first, last, kind, _inferred(item.slots), item.slots)

    def _resolved(self, slots: Slots, tense: Tense | None) -> Span | None:
        return resolve(slots, self._reader.now, tense, self._reader.customs)


def _completed(slots: Slots, other: Slots) -> Slots:
    """An end of a range with what it leaves to the other: the month in “3 to 7 July”.

    One that counts from now lacks nothing.
    """
    if slots.day_steps is not None or slots.window is not None:
        return slots
    return combine(coarser(other, min(levels(slots), default=9)), slots) or slots


def _not_before(start: Span, end: Span, slots: Slots) -> Span:
    """The first occurrence of a range's end that does not lie before its start, where its cycle is not said."""
    names = filled(slots).keys()
    if names & {"year", "decade", "unit", "day_steps", "mode", "window"}:
        return end
    cycles = {"holiday": "year", "month": "year", "day": "month", "weekday": "week", "clock": "day"}
    unit = next((cycle for name, cycle in cycles.items() if name in names), None)
    if unit is None:
        return end
    for _ in range(_REACH):
        if end.start >= start.start:
            break
        end = Span(shift(end.start, unit, 1), shift(end.end, unit, 1), end.grain)
    for _ in range(_REACH):
        earlier = Span(shift(end.start, unit, -1), shift(end.end, unit, -1), end.grain)
        if earlier.start < start.start:
            break
        end = earlier
    return end


def _applied(
    span: Span, opened: str | None, closed: str | None, tense: Tense | None, slots: Slots, now: datetime
) -> tuple[datetime | None, datetime | None, Kind]:
    """The range that the operators before and after make of a span."""
    instant = span.grain == "clock" or (span.grain == "part" and span.end - span.start <= _HOUR)
    due = span.start if instant else span.end
    if opened == "since" or closed in {"since_post", "to_now"}:
        return (span.start, now, "since") if span.start < now else (span.start, None, "after")
    if opened == "starting" or closed == "onward":
        begun = span.start < now and tense != "future"
        return (span.start, now, "since") if begun else (span.start, None, "after")
    if opened == "before" or closed == "before_post":
        limit = due if slots.third == _LATE else span.start  # 月底前 means by its end
        return (now, limit, "deadline") if limit > now else (None, limit, "before")
    if opened in {"by", "until"} or closed == "by_post":
        return (now, due, "deadline") if due > now else (None, due, "before")
    if opened == "after" or closed == "after_post":
        return due, None, "after"
    if closed == "within_post" and span.end > now and tense != "past":
        return max(span.start, now), span.end, "deadline"
    if slots.within:
        return span.start, span.end, "deadline"
    if slots.window is not None or slots.upto is not None:
        return span.start, span.end, "rolling"
    return span.start, span.end, "date" if filled(slots).keys() & _EXPLICIT else "relative"


def _inferred(slots: Slots) -> bool:
    names = filled(slots).keys()
    return bool(names & _ROUNDED) or not names & _ANCHORED
