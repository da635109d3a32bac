"""Time expressions of a text, in Chinese and English, as half-open ranges.

``find_range("上上周三下午谁来过", now)`` is 12:00 to 18:00 of the Wednesday two weeks back, in the zone of `now`.

Conventions
    Ranges are half-open and in the offset or zone of `now` (calendar days are days of that zone, also across a clock
    change); weeks start on Monday. “Last week”, 上周: the calendar week before. “Two weeks (months, years) ago” names
    that calendar week (month, year), “three days ago” that day, “two hours ago” that hour of the clock. “Last Friday”:
    the most recent past Friday; 上周五: the Friday of the calendar week before; “next Friday”, 下周五: of the next one.
    “On Friday”, 周五: with a past verb the last one, otherwise the coming one, where 周五 may be today. “In the last 3
    days”, 最近三天: up to now, from this time of the day three days ago. “Since Monday”: from its start to now.
    “Before 2020”: no start; before or by a time still to come: from now. “By Friday” lasts to its end, “before
    Friday”, 周五之前, to its start; 月底前 to the month's end. Months and dates without a year: by the tense, else the
    nearest. Early, mid, late, 上中下旬, 初中底: days 1–10, 11–20, 21–end; of a year four months each. The first week
    of a month is its days 1 to 7. Parts of the day: 凌晨 0–6, morning 6–12, noon 12–13, afternoon 12–18, evening and
    night 18–24; a clock time lasts an hour, but limits and ends of ranges are instants. Both ends of a named range are
    included. Seasons are those of the northern half, by whole months. 3/4/2025 is 3 April, or 4 March where `now` has
    an American offset (−10 to −4).
    No range: ages, frequencies, durations without an anchor, names, idioms, ratios, scores, prices, numbers of things.

How it works
    A text is scanned once per language for words of time (`Language`), which fill slots: year, month, weekday, hour.
    Neighbours that fit make one chunk, chunks and operators (since, to, 之前) an expression, and `resolve` turns slots
    into a span, coarse to fine. Words that may be something else (May, the 3rd, 周日晚, 15号) need a licence from the
    words around them; names and idioms are struck out first. The tense is that of the nearest cue in the sentence.

What was looked at, and left
    Measured on the 90 development items (65 ranges, 25 traps), as exact ranges / false ranges on traps: dateparser
    1.5.0 7 of 33 / 8 of 12 (en), 5 of 32 / 3 of 13 (zh); parsedatetime 2.6 6 of 33 / 8 of 12; recurrent 0.4.1 5 of 33
    / 7 of 12; jionlp 1.5.31 21 of 32 / 9 of 13 (zh, 2 to 4 ms a call). They give points where ranges are asked, or
    read names and counts as dates, so none is a dependency. Taken as ideas: from duckling, parts that combine instead
    of one pattern per phrase, and sentences that must yield nothing; from jionlp and Time-NLP, the slots of Chinese
    dates and completing one end of a range from the other. Lunar festivals come from a table (1950 to 2088) that two
    independent MIT-licensed calendars, lunar-python and borax, agree on: a dependency for seven days a year does not
    earn its place (`holidays` is 14 MB, `lunardate` is GPL). Lunar dates as such (农历三月初五) are recognised as such,
    and no range.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Literal, TypeAlias

import msgspec

from hindsight_core.temporal import en, zh
from hindsight_core.temporal.calendar import DAY, Tense
from hindsight_core.temporal.grammar import Found, Kind, Reader, parse
from hindsight_core.temporal.language import Language
from hindsight_core.temporal.resolution import Customs
from hindsight_core.temporal.slots import Chunk, Token

__all__ = ["Certainty", "Kind", "TimeRange", "event_days", "find_range", "find_ranges"]

Certainty: TypeAlias = Literal["stated", "inferred"]

_HAN = re.compile(r"[\u3400-\u9fff]")
_LATIN = re.compile(r"[A-Za-z]{2}")
_LONGEST = 8_000
_MOST_DAYS = 31
_SECONDS = {"second": 1, "minute": 60, "hour": 3600}
_AMERICAN = (timedelta(hours=-10), timedelta(hours=-4))


class TimeRange(msgspec.Struct, frozen=True, kw_only=True):
    """A time that a text names: [start, end) in the zone of the `now` it was read at.

    A None `start` or `end` is unlimited; not both are. `text` are the words, which begin at `at`. `kind` is `date`
    (calendar dates and holidays), `relative` (yesterday, 上周三), `rolling` (the last 3 days, so far this month),
    `since` (up to now), `deadline` (from now to a limit), `before` or `after`: callers may filter by the first four
    and should take a deadline for a preference at most. `certainty` is `inferred` where the tense or a convention
    chose among several (a month without a year, early May, 3/4/2025), else `stated`.
    """

    start: datetime | None
    end: datetime | None
    text: str
    at: int
    kind: Kind
    certainty: Certainty


def find_range(text: str, now: datetime) -> TimeRange | None:
    """The first time that the text names, read at `now`; None without one.

    Total: any text and any instant are fine. Deterministic: nothing but the arguments is read. Only the first 8 000
    characters are looked at. A `now` without a zone gives ranges without one.
    """
    found = _found(text, now)
    return _ranged(found[0], text, now) if found else None


def find_ranges(text: str, now: datetime) -> list[TimeRange]:
    """All times that the text names, in its order and without overlaps; like `find_range` otherwise."""
    return [_ranged(found, text, now) for found in _found(text, now)]


def range_and_days(text: str, now: datetime) -> tuple[TimeRange | None, tuple[str, ...]]:
    """What `find_range` and `event_days` say of a text, which is read once for both."""
    found = _found(text, now)
    return _ranged(found[0], text, now) if found else None, _all_days(found)


def event_days(text: str, observed_at: datetime, zone: tzinfo | None = None) -> tuple[str, ...]:
    """The calendar days that a text names, for matching a question's days with a memory's; without repeats.

    ISO days (`2023-05-08`) where the year is said or follows from words like yesterday, 上周三, read at `observed_at`
    (in `zone`, if given, else in its own); year-less ones (`05-08`) where it is not. A range counts with its first 31
    days; weeks, months and years name no days.
    """
    now = observed_at if zone is None or observed_at.tzinfo is None else observed_at.astimezone(zone)
    return _all_days(_found(text, now))


def _all_days(found: list[Found]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(day for one in found for day in _days(one)))


def _found(text: str, now: datetime) -> list[Found]:
    plain = text[:_LONGEST].translate(zh.script())
    han = bool(_HAN.search(plain))
    language = zh.language() if han else en.language()
    prepared = language.prepare(plain)
    if prepared is not None:
        plain = prepared[0]
    tokens = _tokens(_lower(plain), language, mixed=han)
    if not any(token.slots is not None for token in tokens):
        return []
    found = parse(plain, tokens, _reader(plain, now, language, mixed=han))
    if prepared is None:
        return found
    places = prepared[1]
    return [f._replace(start=places[f.start], end=places[f.end - 1] + 1) for f in found]


def _tokens(plain: str, language: Language, *, mixed: bool) -> list[Token]:
    """The tokens of a text; in a Chinese one also those of English words that Chinese left alone."""
    tokens = language.lexer.tokens(language.plain(plain))
    latin = _HAN.sub(" ", plain) if mixed else ""
    if _LATIN.search(latin):
        english = en.language()
        more = english.lexer.tokens(english.plain(latin))
        tokens += [t for t in more if not any(t.start < o.end and o.start < t.end for o in tokens)]
        tokens.sort(key=lambda token: (token.start, token.end))
    return tokens


def _reader(plain: str, now: datetime, language: Language, *, mixed: bool) -> Reader:
    tenses = [language.tense, en.language().tense] if mixed else [language.tense]

    def tense(chunk: Chunk, hints: bool) -> Tense | None:
        slots = chunk.slots
        dated = slots.weekday is None and slots.holiday is None and slots.unit != "weekend"
        for reader in tenses:
            reading = reader.at(plain, chunk.start, chunk.end, hints=hints, dated=dated)
            if reading is not None:
                return reading
        return None

    offset = now.utcoffset()
    american = offset is not None and _AMERICAN[0] <= offset <= _AMERICAN[1]
    return Reader(now.replace(tzinfo=None), Customs(american, today_counts=mixed), tense, language.context(plain))


def _ranged(found: Found, text: str, now: datetime) -> TimeRange:
    zone, window = now.tzinfo, found.slots.window
    first, last = _placed(found.first, zone), _placed(found.last, zone)
    if found.first == now.replace(tzinfo=None):
        first = now
    if found.last == now.replace(tzinfo=None):
        last = now
    if window is not None and window[0] in _SECONDS and zone is not None:
        # Hours are hours of the clock on the wall only as long as nobody sets it.
        unit, count, direction = window
        other = _moved(now, timedelta(seconds=direction * count * _SECONDS[unit]))
        first, last = (other or first, now) if direction < 0 else (now, other or last)
    return TimeRange(
        start=first,
        end=last,
        text=text[found.start : found.end],
        at=found.start,
        kind=found.kind,
        certainty="inferred" if found.inferred else "stated",
    )


def _placed(moment: datetime | None, zone: tzinfo | None) -> datetime | None:
    """A wall-clock time in its zone; one that a clock change skips is moved on as the clock was."""
    if moment is None or zone is None:
        return moment
    aware = moment.replace(tzinfo=zone)
    return _moved(aware, timedelta()) or aware


def _moved(moment: datetime, by: timedelta) -> datetime | None:
    try:
        return (moment.astimezone(UTC) + by).astimezone(moment.tzinfo)
    except OverflowError:
        return None


def _days(found: Found) -> list[str]:
    slots = found.slots
    named = (slots.day is not None and slots.month is not None) or slots.holiday is not None
    if not named and slots.day is None and slots.weekday is None and slots.day_steps is None:
        return []
    moment = timedelta(microseconds=1)
    first = found.first.date() if found.first is not None else None
    last = (found.last - moment).date() if found.last is not None else None
    if found.kind in {"deadline", "before"}:
        first = last
    elif found.kind not in {"date", "relative"}:
        last = first
    if first is None or last is None:
        return []
    yearless = named and slots.year is None and slots.unit is None and slots.mode is None
    count = min((last - first).days + 1, _MOST_DAYS)
    return [_key(first + i * DAY, yearless=yearless) for i in range(count)]


def _key(day: date, *, yearless: bool) -> str:
    return day.isoformat()[5:] if yearless else day.isoformat()


def _lower(text: str) -> str:
    """Lower case at the same length: a few capitals have longer small forms and stay."""
    lower = text.lower()
    return lower if len(lower) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)
