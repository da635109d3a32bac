"""English times of day: 3pm, half past nine, between 2 and 4pm, noon."""

from __future__ import annotations

import re

from hindsight_core.temporal.en.words import MERIDIEM, Vocabulary
from hindsight_core.temporal.lexer import Made, Rule, between
from hindsight_core.temporal.slots import Meridiem, Slots

_TIME = r"(?:2[0-3]|[01]?\d)"
_TO = r"(?:-|–|—|to|and|until|till|til)"
_DAY_FOLLOWS = (
    r"(?=\s+(?:tonight|tonite|this\s+(?:morning|afternoon|evening)|(?:tomorrow|yesterday)"
    r"(?:\s+(?:morning|afternoon|evening|night))?|in\s+the\s+(?:morning|afternoon|evening))(?!\w))"
)
# What makes a bare number an hour: "at four", "last night around eleven".
_DAYS = ("night", "yesterday", "today", "tomorrow")
_BEFORE_HOURS = ("at ", "@ ", *(f"{day} {about} " for day in ("at", *_DAYS) for about in ("around", "about")))
_AT = "(?:" + "|".join(f"(?<={words})" for words in _BEFORE_HOURS) + ")"
_NOON = 12


def rules(v: Vocabulary) -> list[Rule]:
    """The rules, those of longer forms first."""
    hour = rf"(?P<h>{v.hour})"
    optional = rf"(?:\s*(?P<mer>{MERIDIEM}))?"

    def clock(m: re.Match[str]) -> Made:
        meridiem, number = _meridiem(m["mer"]), v.value(m["h"]) or 0
        if meridiem is None and m["mi"] and (len(m["h"]) == 2 or number > 6):
            meridiem = "exact"
        return Slots(clock=(number, int(m["mi"] or 0), meridiem))

    def past(m: re.Match[str], minutes: int) -> Made:
        number = v.value(m["h"]) or 0
        if minutes < 0:
            number, minutes = (number - 1) or _NOON, 60 + minutes
        return Slots(clock=(number, minutes, _meridiem(m["mer"])))

    def minutes_past(m: re.Match[str]) -> Made:
        return past(m, (1 if m["o"] == "past" else -1) * (v.value(m["n"]) or 0))

    return [
        Rule(
            rf"(?P<h>{_TIME})(?::(?P<mi>[0-5]\d))?\s*(?P<mer>{MERIDIEM})?\s*{_TO}\s*"
            rf"(?P<h2>{_TIME})(?::(?P<mi2>[0-5]\d))?\s*(?P<mer2>{MERIDIEM})",
            _range,
        ),
        Rule(
            rf"(?P<h>{_TIME}):(?P<mi>[0-5]\d)\s*(?P<mer>{MERIDIEM})?\s*{_TO}\s*(?P<h2>{_TIME}):(?P<mi2>[0-5]\d)(?P<mer2>)",
            _range,
        ),
        Rule(
            rf"(?:between|from)\s+(?P<h>{_TIME})(?P<mi>)(?P<mer>)\s*{_TO}\s*(?P<h2>{_TIME})(?P<mi2>)(?P<mer2>)"
            r"(?=\s+(?:on|yesterday|today|tomorrow|this|last|next)\b|[.?!,]|$)",
            _range,
        ),
        Rule(rf"{hour}(?:[:.](?P<mi>[0-5]\d))?\s*(?P<mer>{MERIDIEM})", clock),
        Rule(rf"{hour}\s*o['’]?\s*clock{optional}(?P<mi>)", clock),
        Rule(rf"(?P<h>{_TIME}):(?P<mi>[0-5]\d)(?::[0-5]\d)?(?P<mer>)(?![:\d])", clock),
        Rule(r"(?P<h>2[0-3]|[01]\d)(?P<mi>[0-5]\d)(?P<mer>)\s*(?:hrs|hours)", clock),
        Rule(rf"half\s+past\s+{hour}{optional}", lambda m: past(m, 30)),
        Rule(rf"(?:a\s+)?quarter\s+past\s+{hour}{optional}", lambda m: past(m, 15)),
        Rule(rf"(?:a\s+)?quarter\s+to\s+{hour}{optional}", lambda m: past(m, -15)),
        Rule(
            rf"{_AT}{hour}(?P<mi>)(?P<mer>)"
            rf"(?![\d:/%-]|[.,]\d|\s*(?:{v.unit}|%|people|degrees|euros|dollars|pounds))",
            clock,
        ),
        Rule(
            rf"(?P<n>five|ten|twenty|twenty[\s-]five|[1-5]?\d)\s+(?:minutes\s+)?(?P<o>past|to)\s+{hour}{optional}(?![\d:])",
            minutes_past,
        ),
        Rule(rf"{hour}(?P<mi>)(?P<mer>){_DAY_FOLLOWS}", clock),
        Rule(r"noon|midday|12\s+noon", lambda _: Slots(clock=(_NOON, 0, "exact"))),
        Rule(r"midnight", lambda _: Slots(clock=(0, 0, "exact"))),
    ]


def _range(m: re.Match[str]) -> Made:
    first, last = int(m["h"]), int(m["h2"])
    a, b = _meridiem(m["mer"]), _meridiem(m["mer2"])
    if a is None and b is not None:
        a = b if b == "am" or (first < last and last != _NOON) else "am"
    if a is None and b is None and m["mi"]:
        a = b = "exact"
        last += _NOON if last <= first <= _NOON else 0  # 11:30 to 1:30
    return between(m, Slots(clock=(first, int(m["mi"] or 0), a)), Slots(clock=(last, int(m["mi2"] or 0), b)))


def _meridiem(text: str | None) -> Meridiem | None:
    return None if not text else "am" if text[0] == "a" else "pm"
