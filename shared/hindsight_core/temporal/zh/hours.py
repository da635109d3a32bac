"""Chinese times of day: 下午三点半, 15:30, 九点到十一点, 凌晨."""

from __future__ import annotations

import re

from hindsight_core.temporal.lexer import Made, Rule, between
from hindsight_core.temporal.numerals import chinese as number
from hindsight_core.temporal.slots import Slots
from hindsight_core.temporal.zh.words import DASH, NUMERALS, Vocabulary

_HOUR = r"(?:2[0-4]|[01]?\d|二十[一二三四]?|十[一二三四五六七八九]?|[零一二两三四五六七八九])"
_SOLO = rf"(?<![第有这那几哪\d{NUMERALS}.:：])"
_POINT = r"(?:点|时(?![候间代光刻常而尚机区长段差不]))"
_MINUTES = r"(?:[0-5]?\d|[零一二三四五]?十?[一二三四五六七八九]?)分?"
_NOT_A_POINT = r"(?![儿子心击赞评名菜火头]|建议|原因|要求|外卖|意见)"
_FIXED = {"半": 30, "一刻": 15, "1刻": 15, "三刻": 45, "3刻": 45}
_A_LITTLE = re.compile(r"(?<![昨今明前后周日天])[差早快慢好大多少晚高低]$")
_AT_ALL = re.compile(r"[也都不没儿点小就]")
_LATER = 12


def rules(v: Vocabulary) -> list[Rule]:
    """The rules, those of longer forms first."""

    def clock_range(m: re.Match[str]) -> Made:
        first, last = number(m["h"]) or 0, number(m["i"]) or 0
        a = Slots(clock=(first, 30 if m["t"] == "半" else 0, None if first <= _LATER else "exact"))
        b = Slots(
            clock=(last, 30 if m["u"] == "半" else 0, None if last <= _LATER else "exact"),
            part=v.parts[m["g"]] if m["g"] else None,
        )
        return between(m, a, b)

    after_a_day = r"(?<=[天日号一二三四五六末夕节旦庆秋])"
    not_a_part = r"(?![点于了到会饭餐些年婚恋期熟间上报班])"
    return [
        Rule(
            rf"{_SOLO}(?P<h>{_HOUR})(?:[点时](?P<t>半|整)?)?{DASH}(?P<g>{v.part})?(?P<i>{_HOUR}){_POINT}"
            r"(?P<u>半|整|钟)?(?![\d一二三四五六七八九十])",
            clock_range,
        ),
        Rule(rf"{_SOLO}(?P<h>{_HOUR}){_POINT}{_NOT_A_POINT}(?P<t>半|[一三13]刻|整|钟|{_MINUTES})?", _clock),
        Rule(r"(?<![\d:：.])(?P<h>2[0-4]|[01]?\d)[:：](?P<mi>[0-5]\d)(?:[:：][0-5]\d)?(?![\d:：])", _digital),
        Rule(rf"(?P<p>{v.part})(?!好)", lambda m: Slots(part=v.parts[m["p"]])),
        Rule(
            r"(?<![上每今昨明前后])(?P<p>[早晚])(?=(?:\d{1,2}|[一二三四五六七八九十]{1,2})点(?![儿心]))",
            lambda m: Slots(part=v.part_marks[m["p"]]),
        ),
        Rule(rf"{after_a_day}(?P<p>[早晚夜]){not_a_part}", lambda m: Slots(part=v.part_marks[m["p"]])),
    ]


def _clock(m: re.Match[str]) -> Made:
    hour, tail = number(m["h"]) or 0, m["t"] or ""
    little = m["h"] == "一" and _A_LITTLE.search(m.string[max(0, m.start() - 2) : m.start()])
    if little or (m["h"] == "一" and not tail and _AT_ALL.match(m.string, m.end())):
        return None  # 晚一点, 一点也不: a little later, not at all
    minute = _FIXED.get(tail, 0)
    if not minute and tail not in {"整", "钟", ""}:
        minute = number(tail.removesuffix("分")) or 0
    if minute >= 60 or hour > 24:
        return None
    return Slots(clock=(hour, minute, "exact" if hour > _LATER or hour == 0 else None))


def _digital(m: re.Match[str]) -> Made:
    hour = int(m["h"])
    return Slots(clock=(hour, int(m["mi"]), "exact" if len(m["h"]) == 2 or hour > 6 else None))
