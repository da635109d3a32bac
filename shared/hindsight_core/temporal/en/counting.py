"""English counts of units: two weeks ago, in three days, the last 24 hours, two days before something."""

from __future__ import annotations

import re

from hindsight_core.temporal.en.words import Vocabulary
from hindsight_core.temporal.lexer import Made, Rule
from hindsight_core.temporal.slots import Slots

_ABOUT = r"(?:(?:about|around|roughly|some|almost|nearly|exactly|over)\s+)?"
_ROLLING = r"(?:hour|day|week|fortnight|month|quarter|year|decade|minute)"
_NIGHT = (18, 24)
_MOST = 10_000
_FEW = 100
_SMALLER = {"year": ("month", 12), "hour": ("minute", 60), "decade": ("year", 10)}
_HALVES = {"year": ("month", 6), "hour": ("minute", 30), "day": ("hour", 12), "decade": ("year", 5)}
_SHORT = {"d": "day", "h": "hour", "w": "week", "m": "minute", "mo": "month"}


def rules(v: Vocabulary) -> list[Rule]:
    """The rules, those of longer forms first."""
    n, u = rf"(?P<n>{v.number})", rf"(?P<u>{v.unit})"

    def number(m: re.Match[str]) -> int | None:
        value = v.value(m["n"]) if m["n"] else 1
        return value if value is not None and value <= _MOST else None

    def steps(m: re.Match[str], sign: int) -> Made:
        (unit, factor), count = v.counted(m["u"]), number(m)
        if count is None or unit == "second":
            return None
        return _away(unit, sign * count * factor)

    def window(m: re.Match[str], direction: int) -> Made:
        (unit, factor), count = v.counted(m["u"]), number(m)
        return None if count is None or unit == "weekend" else Slots(window=(unit, count * factor, direction))

    def ago_and_half(m: re.Match[str]) -> Made:
        smaller, count = _SMALLER.get(v.counted(m["u"] or m["v"])[0]), number(m)
        if smaller is None or count is None:
            return None
        return Slots(unit=smaller[0], steps=-(count * smaller[1] + smaller[1] // 2))

    def offset(m: re.Match[str]) -> Made:
        unit, factor = v.counted(m["u"])
        count = 1 if m["n"].startswith("the") else v.value(m["n"])
        if count is None or unit == "second" or count > _FEW:
            return None
        return Slots(offset=(unit, (-1 if m["o"] == "before" else 1) * count * factor))

    def weekdays_ago(m: re.Match[str]) -> Made:
        return Slots(weekday=v.weekday_of(m["w"]), mode="last", skip=(number(m) or 1) - 1)

    def weekday_by(m: re.Match[str]) -> Made:
        return Slots(offset=(f"weekday{v.weekday_of(m['w'])}", -1 if m["o"] == "before" else 1))

    return [
        Rule(rf"{_ABOUT}{n}\s+{u}\s+(?:ago|back)", lambda m: steps(m, -1)),
        Rule(
            rf"{n}\s+(?:and\s+a\s+half\s+{u}|(?P<v>{v.unit})\s+and\s+a\s+half)\s+ago",
            ago_and_half,
        ),
        Rule(r"half[\s-]+(?:an?\s+)?(?P<u>year|hour|day|decade)\s+ago", _half_ago),
        Rule(r"(?P<n>\d{1,2})(?P<u>[dhwm]|mo|yr?)\s+ago", _short_ago),
        Rule(rf"{n}\s+nights?\s+ago", lambda m: Slots(day_steps=-(number(m) or 1), part=_NIGHT)),
        Rule(rf"{n}\s+(?P<w>{v.weekday})s?\s+ago", weekdays_ago),
        Rule(rf"{n}\s+{u}\s+from\s+(?:now|today)", lambda m: steps(m, 1)),
        Rule(
            rf"in\s+(?:about\s+|around\s+)?{n}\s+(?:more\s+)?{u}(?:['’]s?)?(?:\s+time)?(?!\s+of|-)",
            lambda m: steps(m, 1),
        ),
        Rule(r"in\s+(?:about\s+|around\s+)?half\s+an?\s+hour", lambda _: Slots(unit="minute", steps=30)),
        Rule(
            r"(?:a|one)\s+week\s+(?P<d>today|tomorrow)|(?P<e>today|tomorrow)\s+week",
            lambda m: Slots(day_steps=7 if (m["d"] or m["e"]) == "today" else 8),
        ),
        Rule(
            rf"(?:a\s+week(?:\s+(?:from|on))?|week\s+(?:from|on))(?=\s+(?:{v.weekday}|today|tomorrow)\b)",
            lambda _: Slots(offset=("day", 7)),
        ),
        Rule(
            rf"(?P<w>{v.weekday})\s+week",
            lambda m: Slots(weekday=v.weekday_of(m["w"]), offset=("day", 7)),
        ),
        Rule(
            rf"(?P<n>{v.number}|the|the\s+very)\s+{u}\s+(?P<o>before|after|from)"
            r"(?=\s+(?!last\b|next\b|that\b|this\s+one)\w)",
            offset,
        ),
        Rule(
            rf"(?:the\s+)?(?P<w>{v.weekday})\s+(?P<o>before|after)(?=\s+(?:the\s+)?(?:\d|{v.month}|{v.holiday}))",
            weekday_by,
        ),
        Rule(
            rf"(?:the\s+|these\s+)?(?:last|past|previous|preceding|trailing)\s+{n}\s+{u}"
            rf"(?!\s+of\s+(?:{v.month}|\d|(?:the|this|last|next)\s+(?:week|month|quarter|year)))",
            lambda m: window(m, -1),
        ),
        Rule(rf"(?:the\s+)?(?:next|coming|following|upcoming)\s+{n}\s+{u}", lambda m: window(m, 1)),
        Rule(r"(?:the\s+)?(?:last|past)\s+half[\s-]+(?:an\s+)?hour", lambda _: Slots(window=("minute", 30, -1))),
        Rule(r"(?:the\s+)?(?:last|past)\s+half[\s-]+(?:a\s+)?year", lambda _: Slots(window=("month", 6, -1))),
        Rule(
            r"(?:(?:the|this)\s+past|(?:over|in|during|for|within|across|throughout)\s+the\s+(?:last|previous)|the\s+last)"
            rf"\s+(?P<u>{_ROLLING})(?P<n>)(?!\s+(?:of|in|before|at)\b|['’]s)",
            lambda m: window(m, -1),
        ),
        Rule(
            rf"(?:over|in|during|for|within|across)\s+the\s+(?:next|coming)\s+(?P<u>{_ROLLING})(?P<n>)",
            lambda m: window(m, 1),
        ),
    ]


def _away(unit: str, steps: int) -> Slots:
    return Slots(day_steps=steps) if unit == "day" else Slots(unit=unit, steps=steps)


def _half_ago(m: re.Match[str]) -> Made:
    unit, steps = _HALVES[m["u"]]
    return Slots(unit=unit, steps=-steps)


def _short_ago(m: re.Match[str]) -> Made:
    return _away(_SHORT.get(m["u"], "year"), -int(m["n"]))
