"""From slots to the span they mean at an instant: coarse to fine, by the conventions of the package's docstring."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import NamedTuple

import msgspec

from hindsight_core.temporal import calendar, holidays
from hindsight_core.temporal.calendar import DAY, Span, Tense, choose
from hindsight_core.temporal.slots import Slots

_EVENING = 18
_JUST_OVER = timedelta(days=21)  # so long people still speak of a holiday as the last one without a word of the past


class Customs(NamedTuple):
    """What readers of a text differ in: 3/4 is the fourth of March; 周日, said on one, is today."""

    month_first: bool = False
    today_counts: bool = False


def resolve(slots: Slots, now: datetime, tense: Tense | None, customs: Customs) -> Span | None:
    """The span, in naive local time; None where the slots name a day that does not exist or nothing at all."""
    if slots.either_order and customs.month_first:
        slots = msgspec.structs.replace(slots, month=slots.day, day=slots.month)
    bare = slots.weekday is not None and slots.mode is None and slots.unit is None
    if bare and customs.today_counts and tense != "past" and slots.weekday == now.weekday():
        slots = msgspec.structs.replace(slots, mode="this")
    elif bare and slots.offset == ("day", 7):
        tense = "future"  # a week on Saturday
    try:
        return _resolve(slots, now, tense)
    except (ValueError, OverflowError):
        return None


def _resolve(slots: Slots, now: datetime, tense: Tense | None) -> Span | None:
    if slots.window is not None:
        unit, count, direction = slots.window
        other = calendar.shift(now, unit, direction * count)
        return Span(min(now, other), max(now, other), "window")
    span = _coarse(slots, now, tense)
    if slots.day is not None or slots.weekday is not None or slots.day_steps is not None:
        span = _one_day(slots, span, now, tense)
    elif slots.nth is not None:
        if span is None:
            return None
        index, unit = slots.nth
        span = calendar.run(span, index, unit, slots.count or 1)
    if slots.third is not None and span is not None:
        span = calendar.third(span, slots.third)
    if slots.week_of is not None and span is not None:
        span = calendar.unit(slots.week_of, span.start, 0)
    hours_away = slots.offset is not None and slots.offset[0] in {"hour", "minute"}
    if slots.offset is not None and span is not None and not hours_away:
        span = _moved(span, *slots.offset)
    if slots.part is not None or slots.clock is not None:
        span = _hours(slots, span, now, tense)
    if slots.offset is not None and span is not None and hours_away:
        span = _moved(span, *slots.offset)
    if span is None or slots.upto is None:
        return span
    return Span(span.start, now, "window") if slots.upto == "so_far" else Span(now, span.end, "window")


def _coarse(slots: Slots, now: datetime, tense: Tense | None) -> Span | None:
    """The year, month, week or holiday that the slots name, if any."""
    base = None
    if slots.unit == "weekend" and slots.steps is None:
        return choose(lambda i: calendar.unit("weekend", now, i), range(-2, 3), now, tense, otherwise="future")
    if slots.decade is not None:
        base = calendar.years(slots.decade[0], slots.decade[1], "decade" if slots.decade[1] == 10 else "century")
    elif slots.year is not None:
        base = calendar.years(slots.year, 1, "year")
    elif slots.unit is not None and slots.steps is not None and slots.day_steps is None:
        base = calendar.unit(slots.unit, now, slots.steps)
    if slots.month is not None or slots.quarter is not None or slots.half is not None or slots.season is not None:
        return _within_year(slots, base, now, tense)
    if slots.holiday is not None:
        return _holiday(slots, base, now, tense)
    return base


def _within_year(slots: Slots, base: Span | None, now: datetime, tense: Tense | None) -> Span | None:
    def make(year: int) -> Span | None:
        if slots.month is not None:
            return calendar.months(year, slots.month, 1, "month")
        if slots.quarter is not None:
            first, last = slots.quarter
            return calendar.months(year, 3 * first - 2, 3 * (last - first + 1), "quarter" if first == last else "span")
        if slots.season is not None:
            return calendar.season(year, slots.season)
        return calendar.months(year, 1 if slots.half == 0 else 7, 6, "half")

    if slots.half is not None and (slots.month is not None or (base is not None and base.grain == "month")):
        whole = base
        if slots.month is not None:
            whole = _within_year(msgspec.structs.replace(slots, half=None), base, now, tense)
        return _half_month(whole, slots.half) if whole is not None else None
    if base is not None:
        return make(base.start.year)
    if slots.month is not None and slots.day is not None and slots.mode is None:
        return None  # chosen together with its day
    around = range(now.year - 2, now.year + 3)
    if slots.mode is not None:
        return _by_mode(make, around, slots, now, tense)
    if tense is None and slots.month is None:
        return make(now.year)
    return choose(make, around, now, tense)


def _half_month(month: Span, half: int) -> Span:
    middle = month.start + 15 * DAY
    return Span(month.start, middle, "span") if half == 0 else Span(middle, month.end, "span")


def _holiday(slots: Slots, base: Span | None, now: datetime, tense: Tense | None) -> Span | None:
    name, long = slots.holiday or "", bool(slots.long)
    if base is not None:
        return holidays.in_year(name, base.start.year, long=long)
    around = range(now.year - 2, now.year + 3)
    if slots.mode is not None:
        return _by_mode(lambda year: holidays.in_year(name, year, long=long), around, slots, now, tense)
    found = choose(lambda year: holidays.in_year(name, year, long=long), around, now, tense, otherwise="past")
    if tense is None and (found is None or now - found.end > _JUST_OVER):
        return choose(lambda year: holidays.in_year(name, year, long=long), around, now, "future")
    return found


def _by_mode(make: calendar.Cycle, around: range, slots: Slots, now: datetime, tense: Tense | None) -> Span | None:
    spans = sorted(span for i in around if (span := make(i)) is not None)
    skip = slots.skip or 0
    if slots.mode == "last":
        over = [s for s in spans if s.end <= now]
        return over[-1 - skip] if len(over) > skip else None
    if slots.mode == "next":
        ahead = [s for s in spans if s.start > now]
        return ahead[skip] if len(ahead) > skip else None
    if slots.mode == "coming":
        return choose(make, around, now, "future")
    this = [s for s in spans if s.start <= now < s.end] or [s for s in spans if s.start.year == now.year]
    if not this or (tense != "past" and this[0].end <= now):
        return choose(make, around, now, tense)
    return this[0]


def _one_day(slots: Slots, base: Span | None, now: datetime, tense: Tense | None) -> Span | None:
    today = now.date()
    if slots.day_steps is not None:
        if slots.unit is not None and slots.steps is not None:
            return calendar.day(calendar.shift(now, slots.unit, slots.steps).date())
        return calendar.day(today + slots.day_steps * DAY)
    if slots.day is not None:
        return _numbered(slots, base, now, tense)
    weekday = slots.weekday or 0
    if slots.nth is not None:
        return calendar.nth(base, slots.nth[0], "weekday", weekday) if base is not None else None
    if base is not None:
        return calendar.day(base.start.date() + weekday * DAY) if base.grain == "week" else None
    this = calendar.unit("week", now, 0).start.date() + weekday * DAY
    ahead = today + ((weekday - today.weekday() - 1) % 7 + 1) * DAY
    behind = ahead - 7 * DAY if ahead - 7 * DAY < today else ahead - 14 * DAY
    skip = 7 * (slots.skip or 0) * DAY
    match slots.mode:
        case "last":
            return calendar.day(behind - skip)
        case "next":
            return calendar.day(this + 7 * DAY + skip)
        case "this":
            return calendar.day(this + 7 * DAY if this < today and tense != "past" else this)
        case "coming":
            return calendar.day(ahead)
        case _:
            return calendar.day(behind if tense == "past" else ahead)


def _numbered(slots: Slots, base: Span | None, now: datetime, tense: Tense | None) -> Span | None:
    number = slots.day or 0
    if base is not None:
        if base.grain == "year" or base.grain == "month":
            return calendar.day(date(base.start.year, slots.month or base.start.month, number))
        return None

    def make(i: int) -> Span | None:
        year, month = (i, slots.month) if slots.month is not None else (i // 12, i % 12 + 1)
        try:
            found = date(year, month, number)
        except ValueError:
            return None
        fits = slots.weekday is None or found.weekday() == slots.weekday
        return calendar.day(found) if fits else None

    if slots.month is not None:
        around = range(max(1, now.year - 8), min(9999, now.year + 8))
    else:
        current = 12 * now.year + now.month - 1
        around = range(current - 14, current + 15)
    return choose(make, around, now, tense if slots.weekday is None else None) or (
        _numbered(msgspec.structs.replace(slots, weekday=None), base, now, tense) if slots.weekday is not None else None
    )


def _hours(slots: Slots, base: Span | None, now: datetime, tense: Tense | None) -> Span | None:
    if base is not None and base.grain != "day":
        return None
    stated = base is not None
    start = base.start if base is not None else calendar.day(now.date()).start
    if slots.clock is None:
        first, last = slots.part or (0, 24)
        return Span(start + timedelta(hours=first), start + timedelta(hours=last), "part")
    hour, minute, meridiem = slots.clock
    late = slots.part is not None and slots.part[0] >= _EVENING
    if meridiem != "exact":
        hour = _on_a_day(hour, meridiem, slots.part)
    if late and hour < 6:
        hour += 24
    found = start + timedelta(hours=hour, minutes=minute)
    span = Span(found, found + timedelta(hours=1), "clock")
    if not stated and slots.part is None:
        midnight = tense is None and hour == minute == 0 and meridiem == "exact"
        if (tense == "future" or midnight) and span.end <= now:
            span = Span(span.start + DAY, span.end + DAY, "clock")
        elif tense == "past" and span.start > now:
            span = Span(span.start - DAY, span.end - DAY, "clock")
    return span


def _on_a_day(hour: int, meridiem: str | None, part: tuple[int, int] | None) -> int:
    """The hour of 24 that a spoken hour means: “下午三点” is 15; a bare one to six, in the afternoon."""
    if part == (0, 6) and hour in {10, 11, 12}:
        return hour + 12
    if meridiem == "am" or (part is not None and part[1] <= 12 and part != (12, 13)):
        return 0 if hour == 12 and meridiem == "am" else hour
    if meridiem == "pm" or (part is not None and part[0] >= 12):
        if part is not None and part[0] >= _EVENING and (hour == 12 or hour < 5):
            return 24 if hour == 12 and meridiem is None else hour + 12 if meridiem == "pm" and hour < 12 else hour
        if part == (12, 13) and hour in {11, 12}:
            return hour
        return hour + 12 if hour < 12 else hour
    return hour + 12 if 1 <= hour <= 6 else hour


def _moved(span: Span, unit: str, count: int) -> Span:
    """A span so many units before or after another: the day after Christmas, the week before Easter."""
    anchor = span.start if count < 0 or span.grain in {"day", "clock", "part"} else span.end - DAY
    if unit == "day":
        return calendar.day(anchor.date() + count * DAY)
    if unit.startswith("weekday"):
        ahead = (int(unit[-1]) - anchor.weekday()) % 7
        return calendar.day(anchor.date() + (ahead - 7 if count < 0 else ahead or 7) * DAY)
    if unit in {"hour", "minute"}:
        found = calendar.shift(span.start, unit, count)
        return Span(found, found + timedelta(hours=1), "clock")
    if unit == "week" and span.grain == "day":
        return calendar.unit("week", anchor, count)
    return calendar.unit(unit, anchor, count)
