"""Chinese relations to now: 昨天, 上周三, 三天前, 最近一个月, 月底, and the words that make ranges of them."""

from __future__ import annotations

import re

from hindsight_core.temporal.lexer import Made, Rule, between
from hindsight_core.temporal.numerals import chinese as number
from hindsight_core.temporal.slots import Slots, Token
from hindsight_core.temporal.zh.words import COUNT, SOLO, THIRDS, UNITS, WEEK, WEEKDAYS, Vocabulary, one_of

_UNIT = r"(?:刻钟|分钟|小时|钟头|星期|礼拜|季度|天|日|周|月|年|分)"
_COUNTED = rf"(?P<n>{COUNT}|半)个?(?P<h>半)?(?P<u>{_UNIT})(?P<j>半)?"
_WEEKDAY = r"(?:[一二三四五六天]|日(?![程志历常均报记]))"
_HALVES = {"hour": ("minute", 30), "month": ("day", 15), "year": ("month", 6), "day": ("hour", 12)}
_WHOLES = {"hour": 60, "month": 30, "year": 12, "day": 24}
_MIDDLE = r"中(?![午间学心国秋旬等])"
_NO_FRONT = r"(?![端锋辈进往后者期夕列排面任]|台(?!风))"
_NO_BACK = r"(?![台端悔果遗援面期勤背者])"
_NOT_AGES = r"[童少青成老晚早幼]"


def rules(v: Vocabulary) -> list[Rule]:
    """The rules, those of longer forms first."""
    return [*_counted(), _REST, *_days(v), *_weeks_and_months(v), *_parts_of_units()]


_REST = Rule(
    r"(?P<k>这周|本周|这个?星期|这个?月|本月|今年|今天)(?:(?:剩下|剩余|余下)的?(?:时间|日子|几天)?|晚些时候|晚一?点儿?的?时候)",
    lambda m: Slots(unit=_unit_in(m["k"]), steps=0, upto="rest"),
)


def _unit_in(text: str) -> str:
    return "day" if "天" in text else "year" if "年" in text else "month" if "月" in text else "week"


def _days(v: Vocabulary) -> list[Rule]:
    days = one_of(name for name in v.days if not re.fullmatch("大?[前后][天日]", name))

    def day(m: re.Match[str]) -> Made:
        return Slots(day_steps=v.days[m["d"]])

    def day_part(m: re.Match[str]) -> Made:
        if m["d"] in "前后" and m["p"] not in {"晚", "晚上"}:
            return None
        return Slots(day_steps=v.day_marks[m["d"]], part=v.parts.get(m["p"]) or v.part_marks[m["p"]])

    return [
        Rule(r"(?<![以之目生])(?P<d>大?前[天日])(?![天气赋才])", day),
        Rule(r"(?<![以之今前往最])(?P<d>大?后[天日])(?![天气])", day),
        Rule(r"(?<=[年月周])的?(?:这个?时候|这会儿|这时)", lambda _: Slots(day_steps=0)),
        Rule(rf"(?<![如证声注标])(?P<d>{days})(?!{v.licence('day_after')})", day),
        Rule(rf"(?<![以之])(?P<d>[前昨今明后])(?P<p>{v.part}|[早晚夜晨](?![会报点饭餐婚恋年熟]))", day_part),
    ]


def _weeks_and_months(v: Vocabulary) -> list[Rule]:
    guard = rf"(?<![{v.licence('guarded_before')}])"
    which = rf"{guard}(?P<k>上+|下+|这|本|今)[一1]?个?"

    return [
        Rule(
            rf"(?<![以之目过失如当证声注标])(?P<y>{one_of(v.years)})(?!{v.licence('year_after')})",
            lambda m: Slots(unit="year", steps=v.years[m["y"]]),
        ),
        Rule(
            rf"{which}(?P<u>{WEEK})(?P<w>末|{_WEEKDAY}(?![一二三四五六日天]))",
            _which,
        ),
        Rule(rf"{which}(?P<u>{WEEK})(?P<w>)(?!{v.licence('week_after')})", _which),
        Rule(rf"{guard}(?P<k>上+|下+|这|本|当|今)[一1]?个(?P<u>月|季度|年度?|半年)(?P<w>)", _which),
        Rule(rf"{guard}(?P<k>上+|下+|这|本)一?(?P<u>月)份?(?P<w>)(?!{v.licence('month_after')})", _which),
        Rule(rf"{guard}(?P<k>上+|下+|这|本)一?(?P<u>季度)(?P<w>)", _which),
        Rule(rf"{guard}(?P<k>上+|下+)一?(?P<u>年)(?P<w>)(?!{v.licence('year_after')}|[度纪])", _which),
        Rule(
            r"周六(?:[、和及]?周?[日天])|双休日|(?<![一二两三四五六七八九十几每\d上下本这])周末",
            lambda _: Slots(unit="weekend"),
        ),
        Rule(rf"{WEEK}[一二三四五六日天](?:[、和及，,]?[二三四五六日天])+(?![号月点日])", lambda _: "every"),
        Rule(
            rf"(?<![一二两三四五六七八九十几半每\d数整周]){WEEK}(?P<w>{_WEEKDAY})(?![次回趟遍目周围])",
            lambda m: Slots(weekday=WEEKDAYS[m["w"]]),
        ),
    ]


def _which(m: re.Match[str]) -> Made:
    mark = m["k"]
    steps = -len(mark) if mark[0] == "上" else len(mark) if mark[0] == "下" else 0
    if m["w"] == "末":
        return Slots(unit="weekend", steps=steps)
    return Slots(unit=UNITS[m["u"]], steps=steps, weekday=WEEKDAYS[m["w"]] if m["w"] else None)


def _counted() -> list[Rule]:
    during = r"(?:以来|之内|[里内间来])?"
    nth = rf"(?:{WEEK}(?P<w>[一二三四五六日天](?!共))|(?P<u>周末|周|星期|礼拜|天|月))"
    return [
        Rule(rf"{SOLO}{_COUNTED}(?:以前|之前|前){_NO_FRONT}", lambda m: _steps(m, -1)),
        Rule(rf"{SOLO}{_COUNTED}(?:以后|之后|后){_NO_BACK}", lambda m: _steps(m, 1)),
        Rule(rf"再过{_COUNTED}", lambda m: _steps(m, 1)),
        Rule(
            rf"(?:最近|(?<![附将接靠最])近|过去|刚刚?过去|这)的?(?:这)?{_COUNTED}{during}",
            lambda m: _window(m, -1),
        ),
        Rule(
            rf"{SOLO}{_COUNTED}(?:以来|来(?=我|他|她|你|的|，|一直|每|共|总|已))",
            lambda m: _window(m, -1),
        ),
        Rule(rf"(?:未来|接下来|今后|往后)的?(?:这)?{_COUNTED}{during}", lambda m: _window(m, 1)),
        Rule(rf"{SOLO}{_COUNTED}(?:之内|以内|内)", _within),
        Rule(rf"第(?P<n>[一二三四五六1-6])个?{nth}", _nth),
        Rule(r"(?P<d>今明|昨今|明后)两?[天日]", _two_days),
        Rule(rf"最后(?:的)?一?个?(?P<n>){nth}", _nth),
        Rule(rf"(?:前|头|最后)的?(?P<c>{COUNT})个?(?P<u>周|星期|礼拜|天|月)", _first_few),
        Rule(rf"的?(?P<k>前|后)(?P<n>{COUNT})天|的?(?P<l>第二)天", _offset),
    ]


def _count(m: re.Match[str]) -> tuple[str, int] | None:
    """The unit and how many of it; a month counts with 个 (三个月), without it is March."""
    unit = UNITS[m["u"]]
    if m["n"] == "半":
        return None if m["h"] else _HALVES.get(unit)
    if len(m["n"]) > 1 and not m["n"].isdigit() and not re.search("[十百廿卅]", m["n"]):
        return None  # 三四天: three or four
    value = number(m["n"])
    if not value or (unit == "month" and "个" not in m[0] and not m[0].startswith(("近", "最近"))):
        return None
    if unit == "quarter_hour":
        return "minute", 15 * value
    if m["h"] or m["j"]:
        half = _HALVES.get(unit)
        return None if half is None else (half[0], value * _WHOLES[unit] + half[1])
    return unit, value


def _steps(m: re.Match[str], sign: int) -> Made:
    counted = _count(m)
    if counted is None:
        return None
    unit, value = counted
    return Slots(day_steps=sign * value) if unit == "day" else Slots(unit=unit, steps=sign * value)


def _window(m: re.Match[str], direction: int) -> Made:
    counted = _count(m)
    if re.match(r"这一个?(?:周|星期|礼拜)", m[0]):
        return Slots(unit="week", steps=0)
    if counted is None or m[0].startswith(("这两天", "这一")):
        return None  # these days, this one
    return Slots(window=(*counted, direction))


def _within(m: re.Match[str]) -> Made:
    counted = _count(m)
    return Slots(window=(*counted, 1), within=True) if counted else None


def _nth(m: re.Match[str]) -> Made:
    index = number(m["n"]) or 1 if m["n"] else -1
    if m["w"]:
        return Slots(nth=(index, "weekday"), weekday=WEEKDAYS[m["w"]])
    return Slots(nth=(index, UNITS[m["u"]]))


def _two_days(m: re.Match[str]) -> Made:
    first = {"昨": -1, "今": 0, "明": 1}[m["d"][0]]
    return between(m, Slots(day_steps=first), Slots(day_steps=first + 1))


def _first_few(m: re.Match[str]) -> Made:
    """今年前三个月 are its first three; 国庆前三天 is the day three before it."""
    count, unit, before = number(m["c"]), UNITS[m["u"]], m.string[max(0, m.start() - 2) : m.start()]
    if not count or (unit == "month" and "个" not in m[0] and not before.endswith("年")):
        return None
    if unit == "day" and m[0].startswith("前") and not re.search(r"[月年度]的?$", before):
        return Slots(offset=("day", -count))
    return Slots(nth=(-count if m[0].startswith("最后") else 1, unit), count=count)


def _offset(m: re.Match[str]) -> Made:
    count = 1 if m["l"] else number(m["n"])
    return Slots(offset=("day", -count if m["k"] == "前" else count)) if count else None


def _parts_of_units() -> list[Rule]:
    def third(m: re.Match[str]) -> Made:
        return Slots(third=THIRDS[m["t"][0]])

    def of_month(m: re.Match[str]) -> Made:
        return Slots(unit="month", steps=0, third=THIRDS[m["t"]])

    def of_year(m: re.Match[str]) -> Made:
        return Slots(unit="year", steps=0, third=THIRDS[m["t"] or "末"])

    def within_the_year(m: re.Match[str]) -> Made:
        return [
            Token(m.start(), m.end() - 1, Slots(unit="year", steps=0)),
            Token(m.end() - 1, m.end(), None, "within_post"),
        ]

    no_count = r"(?<![一二两三四五六七八九十几\d])"
    return [
        Rule(rf"{no_count}(?<![今去明前后])年内", within_the_year),
        Rule(rf"(?<=月)(?:的|月)?(?P<t>初|底|末|{_MIDDLE}|[上中下]旬)", third),
        Rule(r"(?<=年代|世纪)的?(?P<t>初|中|末|前|后)[期叶]?", third),
        Rule(rf"(?<=年)(?:的|年)?(?P<t>初|底|末|{_MIDDLE}|尾)", third),
        Rule(r"(?<=季度)(?P<t>初|末|底)", third),
        Rule(r"(?P<t>[上中下])旬", of_month),
        Rule(rf"(?<![个岁蜜满])月(?P<t>初|{_MIDDLE}|底|末)", of_month),
        Rule(rf"{no_count}(?<!{_NOT_AGES})年(?P<t>初(?![一二三四五六七八九十])|底|末)|岁末", of_year),
        Rule(rf"{no_count}(?<!{_NOT_AGES})(?<![今去明前后])年(?P<t>{_MIDDLE})", of_year),
    ]


def operators() -> list[Rule]:
    """Words that make a range of what stands beside them; those ending in `_post` follow it."""
    front = r"(?![端锋辈进往者列排面任妻夫男女]|台(?!风))"
    back = r"(?![台端悔果遗援面期勤背者续来])"
    return [
        Rule(
            r"一?直?到(?:现在|目前为止|目前|如今|此刻|今(?![天年晚早日])|当前)|至今|迄今(?:为止)?|截[至止]目前",
            lambda _: "to_now",
        ),
        Rule(r"自从|打从", lambda _: "since"),
        Rule(r"以来", lambda _: "since_post"),
        Rule(
            r"从(?![来事不没容前此而头小业中])|自(?=[\d一二三四五六七八九十今去前上本昨周])|自?打(?=[今去前上昨周])",
            lambda _: "from",
        ),
        Rule(r"左右|前后|上下", lambda _: "around"),
        Rule(r"(?:起|开始)(?:一直)?(?:至(?!今)|到(?!现在|今|目前))", lambda _: "to"),
        Rule(r"开始(?![时之])|起(?![来床码飞点步始诉草价居伏得身因名火])", lambda _: "onward"),
        Rule(rf"以前|之前|前{front}", lambda _: "before_post"),
        Rule(rf"以后|之后|过后|后{back}", lambda _: "after_post"),
        Rule(r"之内|以内|内(?![容部存心蒙衣裤])", lambda _: "within_post"),
        Rule(r"最晚|最迟|至迟|不晚于|不迟于|截止到?(?:时间)?[:：是]?|截至|赶在", lambda _: "by"),
        Rule(r"为止|下班前|结束前", lambda _: "by_post"),
        Rule(r"一?直到", lambda _: "until"),
        Rule(r"到|至(?!少|于|今|多|尊)|[-~–—－～]{1,2}", lambda _: "to"),
        Rule(r"每[逢到个隔]?|逢|隔(?![离壁])", lambda _: "every"),
    ]
