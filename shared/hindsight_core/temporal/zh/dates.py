"""Chinese calendar dates: days and months, years in digits and characters, quarters, halves, decades, holidays."""

from __future__ import annotations

import re

from hindsight_core.temporal.lexer import Made, Rule, between
from hindsight_core.temporal.numerals import chinese as number
from hindsight_core.temporal.slots import Mode, Slots
from hindsight_core.temporal.zh.words import DASH, DAY, MONTH, NUMERALS, SOLO, THIRDS, YEAR, Vocabulary

_SEASONS = {"春": 0, "夏": 1, "秋": 2, "冬": 3, "暑": 4}
_WHICH: dict[str, Mode] = {"上": "last", "这": "this", "今": "this", "下": "next"}
_HOUSES = r"[机车房会卡病口行人店门院文]"
_DOUBLES = "|".join(f"(?<!十){c}月{c}(?![十号日月])" for c in "二三五六七九")  # 三月三: festivals of the old calendar
_PIVOT = 50
# What may stand around two digits and 年 tells “19年买的” from “工作了19年”.
_COUNTED_AFTER = re.compile(r"级|纪|之|来|内|间|以[内来上前后]|前|后|左右|的(?:时间|历史|经验|老)|了|多|期|工|龄|会员")
_COUNTED_BEFORE = re.compile(r"[近满共这整约过]$|过去|用了|干了|住了")
_SURE_AFTER = re.compile(
    r"\d{1,2}月|[一二三四五六七八九十]{1,2}月|初|底|末|[上下]半年|第?[一二三四1-4]季|q\d|[春夏秋冬]|国庆|春节|元旦|五一"
    r"|那[会年时阵]|的?时候|出生|毕业"
)
_LIKELY_AFTER = re.compile(r"买|入职|结婚|去|在|我|刚|开始|就|搬|来|考|生|奥运|世")


def rules(v: Vocabulary) -> list[Rule]:
    """The rules, those of longer forms first."""
    return [*_holidays(v), *_days_and_months(v), *_years(v), *_parts_of_years()]


def _holidays(v: Vocabulary) -> list[Rule]:
    described = re.compile(rf"{v.licence('place_after')}|[\d一二三四五六七八九十元块楼号室房点个月日年岁人级届层]")
    of_a_year = re.compile(r"[今去前明后]年$|\d年$")
    october = re.compile(v.licence("eleven_after"))

    def holiday(m: re.Match[str]) -> Made:
        before, after = m.string[max(0, m.start() - 4) : m.start()], m.string[m.end() : m.end() + 8]
        if described.match(after):
            return None
        eleven = m["h"] == "十一" and not m["l"] and not of_a_year.search(before)
        if eleven and not october.match(after):
            return None  # eleven of something
        return Slots(holiday=v.holidays[m["h"]], long=True if m["l"] else None)

    return [
        Rule(
            rf"(?<![A-Za-z\d.零〇一二三四六七八九十百第])(?<!{v.licence('surnames')})(?P<h>{v.holiday})"
            r"(?P<l>假期|长假|黄金周|小长假|假)?(?:期间|当天|那天|这天)?",
            holiday,
        ),
        Rule(rf"(?P<k>[上下])一?个(?=(?:{v.holiday}))", lambda m: Slots(mode=_WHICH[m["k"]])),
        Rule(
            rf"[闰腊正冬]月(?:初?{DAY})?|{SOLO}{MONTH}月初[一二三四五六七八九十](?![号日])|{_DOUBLES}",
            lambda _: "lunar",
        ),
    ]


def _days_and_months(v: Vocabulary) -> list[Rule]:
    noun = re.compile(v.licence("number_nouns"))
    not_noun, alone = f"(?!{noun.pattern})", rf"{SOLO}(?<!{v.licence('number_before')})"
    month, day = r"(?P<m>1[0-2]|0?[1-9])", r"(?P<d>3[01]|[12]\d|0?[1-9])"

    def month_day(m: re.Match[str]) -> Made:
        if m["s"] is None and len(m["d"]) == 1 and not m["d"].isdigit():
            return None  # 三月三: a festival or a phrase
        after = m.string[m.end() : m.end() + 8]
        if m["s"] and noun.match(after) and not re.match(_HOUSES, after):
            return None
        return Slots(month=number(m["m"]), day=number(m["d"]))

    def day_number(m: re.Match[str]) -> Made:
        if m["r"] and m[0].endswith("日") and not m["d"].isdigit():
            return None  # 三日后: a count of days
        return Slots(day=number(m["d"]))

    return [
        Rule(rf"(?<![\d.\-/])(?P<y>(?:19|20)\d{{2}})年{month}月{day}(?!\d)[日号]?", _date),
        Rule(
            rf"(?<![\d.\-/])(?P<y>(?:19|20)\d{{2}})\s*[-/.]\s*{month}\s*[-/.]\s*{day}(?!\d)[日号]?(?!\.\d)",
            _date,
        ),
        Rule(
            r"(?<![\d\-])(?P<y>(?:19|20)\d{2})[-/](?P<m>0[1-9]|1[0-2])(?![\d\-/])",
            lambda m: Slots(year=int(m["y"]), month=int(m["m"])),
        ),
        Rule(rf"(?<!\d)(?P<a>{YEAR})年?{DASH}(?P<b>{YEAR})年?(?![\d月])", _year_range),
        Rule(
            rf"{SOLO}(?P<a>{MONTH})(?:月份?)?{DASH}(?P<b>{MONTH})月份?(?![\d一二三四五六七八九十初])",
            lambda m: between(m, Slots(month=number(m["a"])), Slots(month=number(m["b"]))),
        ),
        Rule(
            rf"{alone}(?P<a>{DAY})[号日]?{DASH}(?P<b>{DAY})[号日]{not_noun}",
            lambda m: between(m, Slots(day=number(m["a"])), Slots(day=number(m["b"]))),
        ),
        Rule(rf"{SOLO}(?P<m>{MONTH})月(?P<d>{DAY})(?:(?P<s>[日号])|(?![\d个天次点:：%日号]))", month_day),
        Rule(
            rf"{SOLO}(?P<m>{MONTH})月份?(?!{v.licence('month_after')}|[\d一二三四五六七八九十]+次)",
            lambda m: Slots(month=number(m["m"])),
        ),
        Rule(
            rf"(?<!\d){month}[./]{day}(?=[日号]|那天|当天|那晚)[日号]?",
            lambda m: Slots(month=int(m["m"]), day=int(m["d"])),
        ),
        Rule(
            r"(?<![\d.\-])(?P<m>0[1-9]|1[0-2])-(?P<d>3[01]|[12]\d|0[1-9])(?=\s*(?:\d{1,2}[:：]\d\d|[早中下晚上夜凌]))",
            lambda m: Slots(month=int(m["m"]), day=int(m["d"])),
        ),
        Rule(rf"{alone}(?P<d>{DAY})[号日]{not_noun}(?=(?P<r>[之以]?[前后内])?)", day_number),
    ]


def _years(v: Vocabulary) -> list[Rule]:
    not_after = v.licence("year_after")
    named = rf"年|q[1-4]|[上下]半年|第?[一二三四1-4]季度|年?[初底末中](?!国)|{v.holiday}|至今|到现在|以来"
    return [
        Rule(
            rf"(?<!\d)(?P<y>{YEAR})年(?:度)?(?!{not_after}|[款版产份])",
            lambda m: Slots(year=number(m["y"])),
        ),
        Rule(
            rf"(?<![\d.A-Za-z\-/])(?P<y>(?:19|20)\d{{2}})(?=\s*(?:{named}))",
            lambda m: Slots(year=int(m["y"])),
        ),
        Rule(
            r"(?:(?:上个?|二十|20)世纪|(?P<y>(?:19|20)\d))?(?P<d>[1-9]|[一二三四五六七八九])[0十零〇](?<!\d{5})年代"
            r"(?P<t>初|中|末|前|后)?期?",
            _decade,
        ),
        Rule(
            r"(?:00|零零|〇〇)年代(?P<t>初|中|末|前|后)?期?",
            lambda m: Slots(decade=(2000, 10), third=THIRDS.get(m["t"] or "")),
        ),
        Rule(
            r"(?P<k>上个?|本)世纪",
            lambda m: Slots(unit="century", steps=-1 if m["k"][0] == "上" else 0),
        ),
        Rule(
            rf"{SOLO}(?P<y>\d{{2}}|[零〇○一二五六七八九][零〇○一二三四五六七八九])年(?=(?P<r>.{{0,4}}))",
            _short_year,
        ),
    ]


def _parts_of_years() -> list[Rule]:
    return [
        Rule(r"(?<![A-Za-z\d])q(?P<q>[1-4])(?!\d)", _quarter),
        Rule(r"第?(?P<q>[一二三四1-4])个?季度", _quarter),
        Rule(r"前(?P<q>[两二三])个?季度", lambda m: Slots(quarter=(1, number(m["q"]) or 2))),
        Rule(r"首季度|首季", lambda _: Slots(quarter=(1, 1))),
        Rule(r"[上前]半年", lambda _: Slots(half=0)),
        Rule(r"[下后]半年", lambda _: Slots(half=1)),
        Rule(r"(?<=月)的?(?P<h>[上下])半月", lambda m: Slots(half=0 if m["h"] == "上" else 1)),
        Rule(
            r"(?P<h>[上下])半月",
            lambda m: Slots(half=0 if m["h"] == "上" else 1, unit="month", steps=0),
        ),
        Rule(r"(?<=年)的?(?P<s>[春夏秋冬])(?![节运晚游装令])[天季]?", lambda m: Slots(season=_SEASONS[m["s"]])),
        Rule(
            r"(?P<k>[上下这])一?个(?P<s>[春夏秋冬])[天季]|(?P<l>今)(?P<t>[春夏秋冬])",
            lambda m: Slots(season=_SEASONS[m["s"] or m["t"]], mode=_WHICH[m["k"] or m["l"]]),
        ),
        Rule(r"(?P<s>暑)假(?![工作班])|(?P<t>[春夏秋冬])[天季]", lambda m: Slots(season=_SEASONS[m["s"] or m["t"]])),
    ]


def _date(m: re.Match[str]) -> Made:
    return Slots(year=int(m["y"]), month=int(m["m"]), day=int(m["d"]))


def _year_range(m: re.Match[str]) -> Made:
    first, last = number(m["a"]) or 0, number(m["b"]) or 0
    return between(m, Slots(year=first), Slots(year=last)) if first < last else None


def _quarter(m: re.Match[str]) -> Made:
    found = number(m["q"]) or 1
    return Slots(quarter=(found, found))


def _decade(m: re.Match[str]) -> Made:
    first = (int(m["y"]) * 100 if m["y"] else 1900) + 10 * (number(m["d"]) or 0)
    return Slots(decade=(first, 10), third=THIRDS.get(m["t"] or ""))


def _short_year(m: re.Match[str]) -> Made:
    """A year of two digits, told from a count of years by its form and by what surrounds it."""
    text, after = m["y"], m["r"]
    value = number(text) or 0
    zero = text[0] in "0零〇○"
    counted = _COUNTED_AFTER.match(after) or _COUNTED_BEFORE.search(m.string[max(0, m.start() - 3) : m.start()])
    if counted and not zero:
        return None
    spelt = text[0] in NUMERALS
    rising = spelt and not zero and value % 10 - value // 10 == 1  # 二三年: two or three years
    sure = zero or value >= _PIVOT or _SURE_AFTER.match(after) or (spelt and not rising)
    if not sure and not _LIKELY_AFTER.match(after):
        return None
    return Slots(year=1900 + value if value >= _PIVOT else 2000 + value)
