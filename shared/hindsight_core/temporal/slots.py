"""What a piece of text says about a time, before it is known which one: the slots of a time expression."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import msgspec

Mode: TypeAlias = Literal["last", "next", "this", "coming"]
Meridiem: TypeAlias = Literal["am", "pm", "exact"]


class Slots(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Each slot is a constraint; together they name one time (last, weekday 4, evening: Friday night).

    `steps` counts units from now (-1 with unit week: last week) and `day_steps` days from today; `mode` says which
    of the named weekdays, months, seasons or holidays, `skip` how many further ("the Friday before last": 1).
    `weekday` 0 is Monday, `season` 0 spring, `third` 0 early, `nth` (index, unit)
    and `count` how many of them; `part` hours of the day;
    `clock` (hour, minute, meridiem); `window` (unit, count, direction) rolls from now; `upto` the unit so far,
    or the rest of it; `offset` (unit, count) shifts the whole; `either_order`: day and month are two bare numbers.
    """

    year: int | None = None
    decade: tuple[int, int] | None = None
    unit: str | None = None
    steps: int | None = None
    quarter: tuple[int, int] | None = None
    half: int | None = None
    season: int | None = None
    holiday: str | None = None
    long: bool | None = None
    month: int | None = None
    third: int | None = None
    nth: tuple[int, str] | None = None
    count: int | None = None
    week_of: str | None = None
    day: int | None = None
    weekday: int | None = None
    mode: Mode | None = None
    skip: int | None = None
    day_steps: int | None = None
    part: tuple[int, int] | None = None
    clock: tuple[int, int, Meridiem | None] | None = None
    window: tuple[str, int, int] | None = None
    within: bool | None = None
    either_order: bool | None = None
    upto: Literal["so_far", "rest"] | None = None
    offset: tuple[str, int] | None = None


FIELDS = Slots.__struct_fields__
# From coarse to fine; a range's end takes what it lacks from the coarser slots of its start, and the other way round.
LEVELS: dict[str, int] = {
    "year": 0, "decade": 0, "quarter": 1, "half": 1, "season": 1, "holiday": 3, "month": 1, "third": 3, "nth": 3,
    "day": 3, "weekday": 3, "day_steps": 3, "part": 4, "clock": 5,
}  # fmt: skip
_UNIT_LEVELS = {"year": 0, "half": 1, "quarter": 1, "month": 1, "week": 2, "weekend": 2, "hour": 5, "minute": 5}


class Token(NamedTuple):
    """A stretch of the text: slots, or an operator such as `since`."""

    start: int
    end: int
    slots: Slots | None
    op: str | None = None


class Chunk(NamedTuple):
    """Slots that belong together, and where they stand."""

    start: int
    end: int
    slots: Slots


def filled(slots: Slots) -> dict[str, object]:
    """The slots that are set, by name."""
    return {name: value for name in FIELDS if (value := getattr(slots, name)) is not None}


def levels(slots: Slots) -> list[int]:
    """The levels that are spoken of, coarse to fine."""
    found = [LEVELS[name] for name in filled(slots) if name in LEVELS]
    if slots.unit is not None:
        found.append(_UNIT_LEVELS.get(slots.unit, 0))
    return sorted(found)


def combine(first: Slots, second: Slots) -> Slots | None:
    """Both together, or None where they contradict or do not belong to one expression."""
    a, b = filled(first), filled(second)
    if a.keys() & b.keys():
        return None
    both = Slots(**{**a, **b})  # type: ignore[arg-type]  # the names are Slots' own
    return both if _coherent(both) else None


def _coherent(slots: Slots) -> bool:
    has = set(filled(slots))
    has -= {"offset", "either_order"}
    if "window" in has or ("decade" in has and has - {"decade", "third"}):
        return False
    if slots.unit in {"minute", "hour", "decade", "century"}:
        return has <= {"unit", "steps", "third"}
    if "day_steps" in has:
        anchored = slots.day_steps == 0 and slots.unit in {"week", "month", "year"} and slots.steps != 0
        return not has - {"day_steps", "part", "clock"} - ({"unit", "steps"} if anchored else set())
    if slots.unit in {"week", "weekend"}:
        fits = has <= {"unit", "steps", "weekday", "part", "clock", "third", "upto"}
        return (
            fits
            and not has >= {"third", "weekday"}
            and (slots.unit == "week" or not has & {"part", "clock", "weekday"})
        )
    if "weekday" in has and has & {"month", "season"} and not has & {"nth", "day"}:
        return False
    if "year" in has and slots.unit in {"year", "month", "quarter", "half"}:
        return False
    if "month" in has and (has & {"quarter", "season", "holiday"} or slots.unit in {"month", "quarter"}):
        return False
    if "third" in has and has & {"day", "weekday", "day_steps", "part", "holiday", "clock"}:
        return False
    if slots.unit == "month" and has & {"quarter", "season"}:
        return False
    return not ("holiday" in has and has & {"quarter", "half", "season", "day", "third", "nth"})


def coarser(slots: Slots, level: int) -> Slots:
    """Only the slots coarser than a level."""
    kept = {name: value for name, value in filled(slots).items() if name in LEVELS and LEVELS[name] < level}
    if slots.unit is not None and _UNIT_LEVELS.get(slots.unit, 9) < level:
        kept |= {"unit": slots.unit, "steps": slots.steps}
    if "weekday" in kept and slots.mode is not None:
        kept |= {name: value for name, value in filled(slots).items() if name in {"mode", "skip"}}
    return Slots(**kept)  # type: ignore[arg-type]  # the names are Slots' own
