"""How long something lives: `30d`, `PT1H`, or a number of seconds."""

from __future__ import annotations

import re
from datetime import timedelta

from hindsight_core.errors import InvalidInput

_SHORT = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d|w)")
_ISO = re.compile(r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_HUNDRED_YEARS = timedelta(days=36_525)


def duration(value: str | float, field: str) -> timedelta:
    """The length of a ttl; more than nothing and at most a hundred years, or `InvalidInput` naming `field`."""
    seconds = _seconds(value.strip(), field) if isinstance(value, str) else float(value)
    if not 0 < seconds <= _HUNDRED_YEARS.total_seconds():
        raise InvalidInput.of(field, "must be more than 0 and at most 100 years")
    return timedelta(seconds=seconds)


def _seconds(text: str, field: str) -> float:
    if short := _SHORT.fullmatch(text.lower()):
        return float(short[1]) * _SECONDS[short[2]]
    iso = _ISO.fullmatch(text.upper())
    if iso and any(iso.groups()):
        weeks, days, hours, minutes, seconds = (float(part or 0) for part in iso.groups())
        return weeks * 604_800 + days * 86_400 + hours * 3600 + minutes * 60 + seconds
    raise InvalidInput.of(field, f"{text!r} is no duration; use seconds, or a form such as 30d, 12h, PT1H")
