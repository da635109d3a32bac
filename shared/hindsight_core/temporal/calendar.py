"""Spans of local wall-clock time: calendar units, their parts, and which of several years or weeks is meant.

Everything here is naive local time, half-open and proleptic Gregorian; weeks start on Monday. Functions raise
`ValueError` or `OverflowError` where a day does not exist (30 February, the year 10000).
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from typing import Literal, NamedTuple, TypeAlias

Tense: TypeAlias = Literal["past", "future"]
DAY = timedelta(days=1)


class Span(NamedTuple):
    """[start, end) and the unit it is measured in (`clock` for a stated time of day, `window` for a rolling one)."""

    start: datetime
    end: datetime
    grain: str


Cycle: TypeAlias = Callable[[int], Span | None]


def day(value: date) -> Span:
    """One calendar day."""
    start = datetime.combine(value, time())
    return Span(start, start + DAY, "day")


def days(first: date, count: int, grain: str) -> Span:
    """`count` calendar days from `first`."""
    start = datetime.combine(first, time())
    return Span(start, start + count * DAY, grain)


def months(year: int, month: int, count: int, grain: str) -> Span:
    """`count` calendar months from a month; `month` may lie outside 1 to 12 and is carried into the year."""
    return Span(_first(year, month), _first(year, month + count), grain)


def years(first: int, count: int, grain: str) -> Span:
    """`count` calendar years."""
    return months(first, 1, 12 * count, grain)


def season(year: int, index: int) -> Span:
    """A meteorological season of the northern half: 0 is spring (March to May), 3 the winter that starts in `year`.

    4 are the summer holidays of schools, July and August.
    """
    if index == 4:
        return months(year, 7, 2, "season")
    return months(year, 3 + 3 * index, 3, "season")


def unit(name: str, now: datetime, steps: int) -> Span:
    """The calendar unit `steps` away from the one that holds `now`: `unit("week", now, -1)` is last week."""
    today = now.date()
    match name:
        case "minute":
            start = (now + timedelta(minutes=steps)).replace(second=0, microsecond=0)
            return Span(start, start + timedelta(minutes=1), name)
        case "hour":
            start = (now + timedelta(hours=steps)).replace(minute=0, second=0, microsecond=0)
            return Span(start, start + timedelta(hours=1), name)
        case "day":
            return day(today + steps * DAY)
        case "week":
            return days(_monday(today) + 7 * steps * DAY, 7, name)
        case "weekend":
            return days(_monday(today) + (7 * steps + 5) * DAY, 2, name)
        case "month":
            return months(today.year, today.month + steps, 1, name)
        case "quarter":
            return months(today.year, 3 * ((today.month - 1) // 3 + steps) + 1, 3, name)
        case "half":
            return months(today.year, 6 * ((today.month - 1) // 6 + steps) + 1, 6, name)
        case "year":
            return years(today.year + steps, 1, name)
        case "decade":
            return years(10 * (today.year // 10 + steps), 10, name)
        case "century":
            return years(100 * (today.year // 100 + steps), 100, name)
        case _:
            raise ValueError(name)


def shift(moment: datetime, name: str, steps: int) -> datetime:
    """The same wall-clock time `steps` units later; a day that its month lacks becomes the month's last."""
    match name:
        case "second" | "minute" | "hour" | "day" | "week":
            return moment + steps * timedelta(**{name + "s": 1})
        case "month" | "quarter" | "half" | "year" | "decade":
            factor = {"month": 1, "quarter": 3, "half": 6, "year": 12, "decade": 120}[name]
            first = _first(moment.year, moment.month + factor * steps)
            last = monthrange(first.year, first.month)[1]
            return moment.replace(year=first.year, month=first.month, day=min(moment.day, last))
        case _:
            raise ValueError(name)


def third(span: Span, index: int) -> Span:
    """Early, mid or late (0, 1, 2).

    Ten days of a month or its rest, two or three days of a week, a third of the months of a quarter, season, half or
    year, 3, 4 and 3 years of a decade; `ValueError` for anything else.
    """
    start, end = span.start, span.end
    match span.grain:
        case "month":
            cuts = [start, start + 10 * DAY, start + 20 * DAY, end]
        case "week":
            cuts = [start, start + 2 * DAY, start + 4 * DAY, end]
        case "quarter" | "season" | "half" | "year":
            step = {"quarter": 1, "season": 1, "half": 2, "year": 4}[span.grain]
            cuts = [shift(start, "month", step * i) for i in range(3)] + [end]
        case "decade" | "century":
            scale = 1 if span.grain == "decade" else 10
            cuts = [start, shift(start, "year", 3 * scale), shift(start, "year", 7 * scale), end]
        case _:
            raise ValueError(span.grain)
    return Span(cuts[index], cuts[index + 1], "third")


def nth(span: Span, index: int, name: str, weekday: int | None) -> Span:
    """The `index`-th (from 1, or from the end when negative) day, week, weekend, month or weekday within a span.

    Weeks are counted from the span's first day (days 1 to 7 of a month are its first week); the last is its last
    seven days.
    """
    first, after = span.start.date(), span.end.date()
    if name == "weekday" and weekday is not None:
        if index > 0:
            found = first + ((weekday - first.weekday()) % 7 + 7 * (index - 1)) * DAY
        else:
            last = after - DAY
            found = last - ((last.weekday() - weekday) % 7 + 7 * (-index - 1)) * DAY
        result = day(found)
    elif name == "weekend":
        saturday = nth(span, index, "weekday", 5).start.date()
        result = days(saturday, 2, "weekend")
    elif name in {"day", "week"}:
        length = 1 if name == "day" else 7
        result = days(first + length * (index - 1) * DAY if index > 0 else after + length * index * DAY, length, name)
    elif name in {"month", "quarter"}:
        start = first if index > 0 else after
        length = 1 if name == "month" else 3
        result = months(start.year, start.month + length * (index - 1 if index > 0 else index), length, name)
    else:
        raise ValueError(name)
    if not (span.start <= result.start < span.end):
        raise ValueError(index)
    return result


def run(span: Span, index: int, name: str, count: int) -> Span:
    """`count` units in a row from the `index`-th of a span: the first three months of a year."""
    first = nth(span, index, name, None)
    if count == 1:
        return first
    last = nth(span, index + count - 1, name, None)
    return Span(first.start, last.end, "span")


def choose(
    make: Cycle,
    around: range,
    now: datetime,
    tense: Tense | None,
    *,
    otherwise: Literal["past", "future", "near"] = "near",
    today: tuple[bool, bool] = (True, True),
) -> Span | None:
    """Of the spans that `make` gives for the cycles `around`, the one that the tense means.

    Past is the latest that has begun, future the earliest that has not ended; `today` says whether the one that
    holds `now` counts for each. Without a tense: `otherwise`, where `near` is the nearer, the past one on a tie.
    """
    spans = sorted(span for i in around if (span := make(i)) is not None)
    past = [s for s in spans if s.start <= now and (today[0] or s.end <= now)]
    future = [s for s in spans if s.end > now and (today[1] or s.start > now)]
    direction = tense or otherwise
    if direction == "past" or not future:
        return past[-1] if past else None
    if direction == "future" or not past:
        return future[0]
    return past[-1] if now - past[-1].end <= future[0].start - now else future[0]


def _first(year: int, month: int) -> datetime:
    return datetime(year + (month - 1) // 12, (month - 1) % 12 + 1, 1)  # noqa: DTZ001 (local wall-clock time)


def _monday(value: date) -> date:
    return value - value.weekday() * DAY
