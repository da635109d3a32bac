"""English relations to now: last, this and next; so far and the rest; early and late; single words; operators."""

from __future__ import annotations

import re
from typing import Literal

from hindsight_core.temporal.en.words import SPAN, YEAR, Vocabulary
from hindsight_core.temporal.lexer import Made, Rule
from hindsight_core.temporal.slots import Mode, Slots

_MODES: dict[str, Mode] = {
    "last": "last", "past": "last", "previous": "last", "prior": "last", "this past": "last", "this last": "last",
    "this": "this", "current": "this", "present": "this", "coming": "coming", "upcoming": "coming",
    "this coming": "coming", "the coming": "coming", "this next": "coming", "next": "next", "following": "next",
}  # fmt: skip
_STEPS = {"last": -1, "this": 0, "next": 1, "coming": 1}
_ENDS = r"start|beginning|middle|end|back\s+end|close|tail\s+end"
_EVENING = r"(?:the\s+)?(?:end\s+of\s+(?:the\s+)?(?:day|business)|eod|cob|close\s+of\s+(?:business|play))"
_NIGHT = (18, 24)
_WEEKS_OF_A_YEAR = 53


def rules(v: Vocabulary) -> list[Rule]:
    """The rules, those of longer forms first; parts of units go before “last”, which may be the last of something."""
    return [*_parts_of_units(v), *_modes(v)]


def _modes(v: Vocabulary) -> list[Rule]:
    which = "|".join(name.replace(" ", r"\s+") for name in sorted(_MODES, key=len, reverse=True))
    named = rf"(?:(?P<wd>{v.weekday})|(?P<mo>{v.month})|(?P<se>{v.season})|(?P<ho>{v.holiday})|(?P<u>{v.named_unit}))"

    def moded(m: re.Match[str], mode: Mode, skip: int | None = None) -> Made:
        if m["wd"]:
            return Slots(weekday=v.weekday_of(m["wd"]), mode=mode, skip=skip)
        if m["mo"]:
            return Slots(month=v.month_of(m["mo"]), mode=mode, skip=skip)
        if m["se"]:
            return Slots(season=v.season_of(m["se"]), mode=mode, skip=skip)
        if m["ho"]:
            return Slots(holiday=v.holiday_of(m["ho"]), mode=mode, skip=skip)
        steps = _STEPS[mode]
        return Slots(unit=v.unit_of(m["u"]), steps=steps + (skip or 0) * (1 if steps > 0 else -1))

    def which_one(m: re.Match[str]) -> Made:
        if m["wd"] and m[0].startswith("the last"):
            return None  # of some month that is not said
        return moded(m, _MODES[" ".join(m["k"].split())])

    def further(m: re.Match[str]) -> Made:
        return moded(m, "last" if m["k"].startswith("before") else "next", skip=1)

    return [
        Rule(rf"(?:the\s+)?{named}\s+(?P<k>before\s+last|after\s+next)", further),
        Rule(rf"(?:the\s+)?{named}\s+just\s+(?:gone|past)", lambda m: moded(m, "last")),
        Rule(rf"(?:the\s+)?(?P<k>{which})\s+{named}(?:['’]s?)?", which_one),
        Rule(r"(?:the\s+)?night\s+before\s+last", lambda _: Slots(day_steps=-2, part=_NIGHT)),
        Rule(
            rf"the\s+(?P<p>{v.part})\s+(?P<o>before|after)(?=\s+(?:the\s+)?(?:\d|{v.month}|{v.holiday}|{v.weekday}))",
            lambda m: Slots(part=v.part_of(m["p"]), offset=("day", -1 if m["o"] == "before" else 1)),
        ),
        Rule(r"last\s+(?P<p>night|evening)", lambda _: Slots(day_steps=-1, part=_NIGHT)),
        Rule(r"tonight|tonite|2nite|2night", lambda _: Slots(day_steps=0, part=_NIGHT)),
        Rule(rf"this\s+(?P<p>{v.part})", lambda m: Slots(day_steps=0, part=v.part_of(m["p"]))),
        Rule(
            r"(?:this|the\s+same)\s+(?:day|time|date)(?=,?\s+(?:last|next)\b)|on\s+this\s+(?:day|date)(?=\s+(?:in|last)\b)",
            lambda _: Slots(day_steps=0),
        ),
    ]


def _parts_of_units(v: Vocabulary) -> list[Rule]:
    def nth(m: re.Match[str]) -> Made:
        index = -1 if m["n"] in {"last", "final"} else v.ordinal_value(m["n"])
        if not index or index > _WEEKS_OF_A_YEAR:
            return None
        unit = "weekday" if m["w"] else m["u"]
        return Slots(
            nth=(index, unit),
            weekday=v.weekday_of(m["w"]) if m["w"] else None,
            unit=m["v"] or None,
            steps=0 if m["v"] else None,
        )

    def several(m: re.Match[str]) -> Made:
        count = v.value(m["n"]) or 0
        return Slots(nth=(1 if m["o"] == "first" else -count, m["u"]), count=count) if count else None

    return [
        Rule(
            rf"so\s+far\s+(?:today|this\s+(?P<u>{SPAN}))|(?:this|the)\s+(?P<v>{SPAN})\s+so\s+far|(?P<w>{SPAN})[\s-]to[\s-]date",
            lambda m: _upto(m["u"] or m["v"] or m["w"], "so_far"),
        ),
        Rule(r"(?P<u>[ymq])td", lambda m: _upto({"y": "year", "m": "month", "q": "quarter"}[m["u"]], "so_far")),
        Rule(rf"earlier\s+(?:today|this\s+(?P<u>{SPAN}))", lambda m: _upto(m["u"], "so_far")),
        Rule(
            rf"later\s+(?:today|this\s+(?P<u>{SPAN}))"
            rf"|(?:the\s+)?(?:rest|remainder)\s+of\s+(?:today|the\s+day|(?:the|this)\s+(?P<v>{SPAN}))",
            lambda m: _upto(m["u"] or m["v"], "rest"),
        ),
        Rule(
            rf"{_EVENING}(?=\s+(?:on\s+)?(?:the\s+\d|\d|next|tomorrow|today|{v.weekday}|{v.month}))", lambda _: Slots()
        ),
        Rule(_EVENING, lambda _: Slots(day_steps=0)),
        Rule(
            rf"(?:(?:the\s+)?(?P<a>{_ENDS})\s+of|(?P<b>early|mid|late)(?:\s+in|-)?)(?:\s+the)?\s*(?P<u>{SPAN})(?![\w-])",
            lambda m: Slots(unit=m["u"], steps=0, third=_third(m["a"] or m["b"])),
        ),
        Rule(
            rf"(?:the\s+)?(?P<a>{_ENDS})\s+of(?=\s)|(?P<b>early|mid|late)(?=[\s-])(?:-|\s+in\b)?",
            lambda m: Slots(third=_third(m["a"] or m["b"])),
        ),
        Rule(
            rf"(?:the\s+)?(?P<o>first|last|final)\s+(?P<n>{v.number})\s+(?P<u>day|week|weekend|month|quarter)s\s+(?:of|in)(?!\w)",
            several,
        ),
        Rule(r"eow", lambda _: Slots(unit="week", steps=0)),
        Rule(r"eom|month[\s-]end", lambda _: Slots(unit="month", steps=0, third=2)),
        Rule(r"eoy|year[\s-]end", lambda _: Slots(unit="year", steps=0, third=2)),
        Rule(
            rf"(?:the\s+)?(?P<n>{v.ordinal}|last|final)\s+(?:(?P<u>day|week|weekend|month)|(?P<w>{v.weekday}))\s+(?:of|in)"
            rf"(?:\s+(?:the|this)\s+(?P<v>{SPAN}))?(?!\w)",
            nth,
        ),
    ]


def single_words(v: Vocabulary) -> list[Rule]:
    """Days, holidays, parts of the day, weekdays, months, seasons, years and numbered days on their own."""
    own = r"(?:['’]s)?"
    return [
        Rule(rf"(?P<w>{v.relative_day})(?:['’]?s)?", lambda m: Slots(day_steps=v.day_steps(m["w"]))),
        Rule(rf"(?P<w>{v.holiday}){own}", lambda m: Slots(holiday=v.holiday_of(m["w"]))),
        Rule(rf"(?:the\s+)?weekend{own}", lambda _: Slots(unit="weekend")),
        Rule(
            r"(?:(?:early|late|mid)[\s-]+)?(?:in\s+the\s+|(?:early|late)\s+(?:in\s+the\s+)?)?"
            rf"(?P<w>{v.part})",
            lambda m: Slots(part=v.part_of(m["w"])),
        ),
        Rule(rf"(?P<w>{v.weekday}){own}", lambda m: Slots(weekday=v.weekday_of(m["w"]))),
        Rule(rf"(?P<w>{v.month}){own}", lambda m: Slots(month=v.month_of(m["w"]))),
        Rule(rf"(?P<w>{v.season}){own}", lambda m: Slots(season=v.season_of(m["w"]))),
        Rule(rf"(?P<w>{YEAR}){own}(?![\w.:/%-]*\d|\s*b\.?c)", lambda m: Slots(year=int(m["w"]))),
        Rule(
            r"(?P<w>3[01]|[12]?\d)(?=\s+of\s+(?:this|next|last|the\s+(?:previous|next|current|following))\s+month)",
            lambda m: Slots(day=int(m["w"])) if int(m["w"]) else None,
        ),
        Rule(
            r"(?:the\s+)?(?P<w>3[01]|[12]?\d)(?:st|nd|rd|th)",
            lambda m: Slots(day=int(m["w"])) if int(m["w"]) else None,
        ),
    ]


def operators() -> list[Rule]:
    """Words that make a range of what stands beside them."""
    return [
        Rule(
            r"(?:up\s+)?(?:to|until|till|through)\s+(?:now|(?:the\s+)?present(?:\s+day)?|date)",
            lambda _: "to_now",
        ),
        Rule(r"ever\s+since|since", lambda _: "since"),
        Rule(r"(?:due\s+)?by|(?:no|not)\s+later\s+than|(?:at\s+the\s+)?latest\s+by", lambda _: "by"),
        Rule(r"(?:right\s+|up\s+)?(?:until|till|['’]til|til)", lambda _: "until"),
        Rule(r"before|prior\s+to|earlier\s+than|ahead\s+of", lambda _: "before"),
        Rule(r"after|later\s+than", lambda _: "after"),
        Rule(
            r"starting(?:\s+(?:from|on|in))?|effective(?:\s+from)?|as\s+of|with\s+effect\s+from", lambda _: "starting"
        ),
        Rule(
            r"onwards?|forward|and\s+(?:later|after|onwards?|since)|on(?=\s*(?:[,.;!?]|$))",
            lambda _: "onward",
        ),
        Rule(r"from", lambda _: "from"),
        Rule(r"between", lambda _: "between"),
        Rule(r"to|through|thru|up\s+to", lambda _: "to"),
        Rule(r"and", lambda _: "and"),
        Rule(r"every|each|any|alternate|most|per|on\s+alternate", lambda _: "every"),
    ]


def _upto(unit: str | None, which: Literal["so_far", "rest"]) -> Slots:
    return Slots(unit=unit or "day", steps=0, upto=which)


def _third(text: str) -> int:
    return 0 if text in {"start", "beginning", "early"} else 1 if text in {"middle", "mid"} else 2
