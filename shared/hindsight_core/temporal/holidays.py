"""When a holiday falls in a year: fixed days, movable weekdays, Easter's, and the Chinese lunar festivals."""

from __future__ import annotations

import csv
import tomllib
from datetime import date
from functools import cache
from importlib import resources

import msgspec

from hindsight_core.temporal.calendar import DAY, Span, day, days, months, nth


class Holiday(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rule of one holiday, as written in `language/temporal_holidays.toml`."""

    on: str | None = None
    month: int | None = None
    weekday: int | None = None
    nth: int = 1
    easter: int | None = None
    lunar: str | None = None
    days: int = 0
    period: tuple[int, int] | None = None


@cache
def rules() -> dict[str, Holiday]:
    """All holidays by their id."""
    file = resources.files("hindsight_core.language") / "temporal_holidays.toml"
    return msgspec.convert(tomllib.loads(file.read_text("utf-8"))["holidays"], dict[str, Holiday])


def in_year(name: str, year: int, *, long: bool = False) -> Span | None:
    """The holiday's day in a year, or with `long` the days off around it where there are such; None where unknown.

    The lunar festivals are known from 1950 to 2088, the years for which two independent calendars agree.
    """
    rule = rules()[name]
    found = _day(rule, year)
    if found is None:
        return None
    found += rule.days * DAY
    if long and rule.period:
        return days(found + rule.period[0] * DAY, rule.period[1], "holiday")
    return day(found)


def _day(rule: Holiday, year: int) -> date | None:
    if rule.on is not None:
        return date.fromisoformat(f"{year:04d}-{rule.on}")
    if rule.month is not None:
        return nth(months(year, rule.month, 1, "month"), rule.nth, "weekday", rule.weekday).start.date()
    if rule.easter is not None:
        return easter(year) + rule.easter * DAY
    table = _lunar().get(year)
    return date.fromisoformat(f"{year:04d}-{table[rule.lunar]}") if table and rule.lunar else None


def easter(year: int) -> date:
    """Easter Sunday of the western churches, by the anonymous Gregorian algorithm (Nature, 20 April 1876)."""
    a, (b, c) = year % 19, divmod(year, 100)
    d, e = divmod(b, 4)
    h = (19 * a + b - d - (b - (b + 8) // 25 + 1) // 3 + 15) % 30
    i, k = divmod(c, 4)
    weekday = (32 + 2 * e + 2 * i - h - k) % 7
    m = (a + 11 * h + 22 * weekday) // 451
    month, offset = divmod(h + weekday - 7 * m + 114, 31)
    return date(year, month, offset + 1)


@cache
def _lunar() -> dict[int, dict[str, str]]:
    file = resources.files("hindsight_core.language") / "temporal_lunar.csv"
    return {int(row["year"]): row for row in csv.DictReader(file.read_text("utf-8").splitlines())}
