"""English calendar dates: days and months, numeric dates, years, quarters, halves and decades."""

from __future__ import annotations

import re

from hindsight_core.temporal.en.words import DAY, SHORT_YEAR, YEAR, Vocabulary, digits, maybe_year, year
from hindsight_core.temporal.lexer import Made, Rule, between
from hindsight_core.temporal.slots import Slots

_TO = r"(?:-|–|—|to|and|until|till|through|thru|&)"
_TAIL = rf"(?:,?\s*(?:of\s+)?(?P<y>{SHORT_YEAR})(?![\d-]))?"
_OF_YEAR = rf"\s*(?:of\s+|/|-)?\s*(?P<y>{SHORT_YEAR})"
_FIRST = r"(?P<w>first|second|latter|1st|2nd|last)"
_DATED = "|".join(rf"(?<={word} )" for word in ("on", "by", "since", "before", "after", "until", "till", "due", "from"))
_QUARTERS = {"first": 1, "1st": 1, "second": 2, "2nd": 2, "third": 3, "3rd": 3}


def rules(v: Vocabulary) -> list[Rule]:
    """The rules, those of longer forms first."""
    day_word = rf"(?:{DAY}|{v.ordinal_word})"

    def day_month(m: re.Match[str]) -> Made:
        return Slots(month=v.month_of(m["m"]), day=v.ordinal_value(m["d"]), year=maybe_year(m["y"]))

    def days_then_month(m: re.Match[str]) -> Made:
        last = Slots(month=v.month_of(m["m"]), day=digits(m["e"]), year=maybe_year(m["y"]))
        return between(m, Slots(day=digits(m["d"])), last)

    def month_then_days(m: re.Match[str]) -> Made:
        first = Slots(month=v.month_of(m["m"]), day=digits(m["d"]), year=maybe_year(m["y"]))
        return between(m, first, Slots(day=digits(m["e"])))

    def month_year(m: re.Match[str]) -> Made:
        month = int(m["m"]) if m["m"].isdigit() else v.month_of(m["m"])
        return Slots(month=month, year=maybe_year(m["y"]))

    def decade_word(m: re.Match[str]) -> Made:
        return Slots(decade=(v.decade_of(m["d"]), 10), third=_third(m["t"]))

    return [
        Rule(
            rf"(?P<y>{YEAR})[-/.](?P<m>0?[1-9]|1[0-2])[-/.](?P<d>3[01]|[12]\d|0?[1-9])(?:t[\d:.]+z?)?(?![-.]?\d)",
            lambda m: Slots(year=int(m["y"]), month=int(m["m"]), day=int(m["d"])),
        ),
        Rule(r"(?P<a>\d{1,2})(?P<s>[/.-])(?P<b>\d{1,2})(?P<t>[/.-])(?P<y>(?:19|20)?\d{2})(?![-/.]?\d)", _three_numbers),
        Rule(
            rf"(?:{_DATED})(?P<a>[0-3]?\d)/(?P<b>[0-3]?\d)(?![/\d%.]|\s*(?:of|stars?|votes?|people|cups?))",
            _two_numbers,
        ),
        Rule(
            rf"(?P<d>{DAY})\s*{_TO}\s*(?:the\s+)?(?P<e>{DAY})\s*(?:of\s+)?(?P<m>{v.month}){_TAIL}",
            days_then_month,
        ),
        Rule(
            rf"(?P<m>{v.month})\s+(?:the\s+)?(?P<d>{DAY})\s*{_TO}\s*(?:the\s+)?(?P<e>{DAY}){_TAIL}",
            month_then_days,
        ),
        Rule(rf"(?P<d>{day_word})\s*(?:day\s+)?(?:of\s+|-)?(?P<m>{v.month}){_TAIL}", day_month),
        Rule(
            rf"(?P<m>{v.month})[\s-]*(?:the\s+)?(?P<d>{day_word})(?![:.]\d|\s*(?:am|pm|a\.m|p\.m|%)){_TAIL}",
            day_month,
        ),
        Rule(rf"(?P<m>{v.month}),?\s*(?:of\s+)?(?P<y>{SHORT_YEAR})(?![\d-])", month_year),
        Rule(rf"(?P<y>{YEAR})[-/](?P<m>0[1-9]|1[0-2])(?![-/\d])", month_year),
        Rule(rf"(?P<m>0?[1-9]|1[0-2])/(?P<y>{YEAR})(?![-/\d])", month_year),
        Rule(rf"(?P<y>{YEAR})\s*[-–]\s*(?P<z>{YEAR}|\d\d)(?![-\d])", _years),
        Rule(rf"q(?P<q>[1-4]){_OF_YEAR}", _quarter),
        Rule(rf"(?P<y>{YEAR})\s*[-/]?\s*q(?P<q>[1-4])", _quarter),
        Rule(rf"h(?P<h>[12]){_OF_YEAR}", _half),
        Rule(rf"(?P<y>{YEAR})\s*[-/]?\s*h(?P<h>[12])", _half),
        Rule(r"q(?P<q>[1-4])(?P<y>)", _quarter),
        Rule(r"h(?P<h>[12])(?P<y>)", _half),
        Rule(
            r"(?P<w>first|second|third|fourth|last|final|1st|2nd|3rd|4th)\s+(?:quarter|qtr)"
            rf"(?:\s+(?:of|in)\s+(?:(?P<y>{YEAR})|(?P<t>the\s+year|this\s+year)))?",
            _named_quarter,
        ),
        Rule(rf"{_FIRST}\s+half\s+(?:of\s+)?(?P<y>{YEAR})(?P<u>)", _named_half),
        Rule(rf"{_FIRST}\s+half\s+of\s+(?:the|this)\s+(?P<u>year|month)(?P<y>)", _named_half),
        Rule(rf"{_FIRST}\s+half(?=\s+of\s)(?P<y>)(?P<u>)", _named_half),
        Rule(r"(?:the\s+)?(?:(?P<t>early|mid|late)[\s-]+)?(?P<d>(?:19|20)\d0|[2-9]0)['’]?s(?!-)", _decade),
        Rule(rf"(?<=the )(?:(?P<t>early|mid|late)[\s-]+)?(?P<d>{v.decade})", decade_word),
        Rule(
            r"(?:the\s+)?(?P<w>last|this|previous)\s+century",
            lambda m: Slots(unit="century", steps=0 if m["w"] == "this" else -1),
        ),
        Rule(r"(?:back\s+)?(?:in|since|of)\s+['’](?P<y>\d\d)", lambda m: Slots(year=year(m["y"]))),
        Rule(
            r"the\s+(?P<u>week|weekend)\s+(?:of|commencing|beginning|starting)(?=\s)", lambda m: Slots(week_of=m["u"])
        ),
    ]


def _three_numbers(m: re.Match[str]) -> Made:
    if m["s"] != m["t"] or (m["s"] == "." and len(m["y"]) == 2):
        return None  # 1.2.03 is a version
    return _numeric(int(m["a"]), int(m["b"]), year(m["y"]))


def _two_numbers(m: re.Match[str]) -> Made:
    return _numeric(int(m["a"]), int(m["b"]), None)


def _numeric(first: int, second: int, in_year: int | None) -> Slots | None:
    """Which of two numbers is the day; where both could be, the caller's zone tells (`either_order`)."""
    if not (0 < first <= 31 and 0 < second <= 31) or min(first, second) > 12:
        return None
    if second > 12:
        return Slots(year=in_year, month=first, day=second)
    return Slots(year=in_year, month=second, day=first, either_order=True if first <= 12 else None)


def _years(m: re.Match[str]) -> Made:
    first = int(m["y"])
    last = int(m["z"]) if len(m["z"]) == 4 else first // 100 * 100 + int(m["z"])
    return between(m, Slots(year=first), Slots(year=last)) if last > first else None


def _quarter(m: re.Match[str]) -> Made:
    number = int(m["q"])
    return Slots(quarter=(number, number), year=maybe_year(m["y"]))


def _named_quarter(m: re.Match[str]) -> Made:
    if m["w"] == "last" and not m["y"] and not m["t"]:
        return Slots(unit="quarter", steps=-1)
    number = _QUARTERS.get(m["w"], 4)
    if m["t"]:
        return Slots(quarter=(number, number), unit="year", steps=0)
    return Slots(quarter=(number, number), year=maybe_year(m["y"]))


def _half(m: re.Match[str]) -> Made:
    return Slots(half=int(m["h"]) - 1, year=maybe_year(m["y"]))


def _named_half(m: re.Match[str]) -> Made:
    half = 0 if m["w"] in {"first", "1st"} else 1
    if m["u"]:
        return Slots(half=half, unit=m["u"], steps=0)
    return Slots(half=half, year=maybe_year(m["y"]))


def _decade(m: re.Match[str]) -> Made:
    first = int(m["d"]) if len(m["d"]) == 4 else 1900 + int(m["d"])
    return Slots(decade=(first, 10), third=_third(m["t"]))


def _third(text: str | None) -> int | None:
    return {"early": 0, "mid": 1, "late": 2}.get(text or "")
