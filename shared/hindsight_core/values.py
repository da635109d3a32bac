"""The values a sentence states, in one form for both languages: numbers, times, dates, codes.

“五点三公斤”, "5.3 kg" and "5.3 kilos" state the same number; "09:30" and “早上九点半” the same time.
"""

from __future__ import annotations

import math
import re
import tomllib
import unicodedata
from importlib import resources
from typing import Literal, TypeAlias

import msgspec

ValueKind: TypeAlias = Literal["number", "time", "date", "weekday", "code"]

_DIGITS = {c: i for i, c in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2, "俩": 2}
_SMALL = {"十": 10, "百": 100, "千": 1000}
_LARGE = {"万": 10_000, "亿": 100_000_000}


class _Names(msgspec.Struct, frozen=True):
    ones: tuple[str, ...]
    tens: tuple[str, ...]
    ordinals: tuple[str, ...]
    months: tuple[tuple[str, ...], ...]
    weekdays: tuple[tuple[str, ...], ...]
    units: dict[str, tuple[str, ...]]
    parts: dict[str, int]
    hours: dict[str, int]
    scales: dict[str, int]


def _names() -> _Names:
    file = resources.files("hindsight_core.language") / "en" / "reconcile_values.toml"
    return msgspec.convert(tomllib.loads(file.read_text("utf-8")), _Names)


_NAMES = _names()
_ENGLISH = (
    {word: i for i, word in enumerate(_NAMES.ones)}
    | {word: 20 + 10 * i for i, word in enumerate(_NAMES.tens)}
    | {word: 3 + i for i, word in enumerate(_NAMES.ordinals)}
)
_MONTHS = {name: i + 1 for i, names in enumerate(_NAMES.months) for name in names}
_DAYS = {name: i + 1 for i, names in enumerate(_NAMES.weekdays) for name in names}
_SAME_UNIT = {name: unit for unit, names in _NAMES.units.items() for name in names}
_MONTH_NAME = "|".join(sorted(_MONTHS, key=len, reverse=True))
_DAY_NAME = "|".join(sorted(_DAYS, key=len, reverse=True))
_WORD_NUMBER = "|".join(sorted(_ENGLISH, key=len, reverse=True))
_PART = "|".join(part.replace(" ", r"\s") for part in _NAMES.parts)
_SCALE = "|".join(_NAMES.scales)
_LONGEST_NUMERAL = 20
_HAN_DAY = {"一": 1, "二": 2, "三": 3, "四": 4, "五": 5, "六": 6, "日": 7, "天": 7}
_LATER_HALF = ("下午", "晚上", "傍晚", "夜里", "晚")

_PATTERN = re.compile(
    rf"""
    (?P<mail>[\w.+-]+@[\w-]+(?:\.[\w-]+)+)
  | (?P<iso>(?<!\d)(?P<iy>\d{{4}})[-/.](?P<im>\d{{1,2}})[-/.](?P<id>\d{{1,2}})(?!\d))
  | (?P<hdate>(?:(?P<hy>\d{{4}})年)?(?P<hm>\d{{1,2}})月(?:(?P<hd>\d{{1,2}})[日号]?)?)
  | (?P<dm>(?<!\d)(?P<dd>\d{{1,2}})(?:st|nd|rd|th)?\s(?:of\s)?(?P<dmm>{_MONTH_NAME})\b\.?(?:,?\s(?P<dy>\d{{4}}))?)
  | (?P<md>\b(?P<mm>{_MONTH_NAME})\.?\s(?P<mday>\d{{1,2}})(?:st|nd|rd|th)?\b(?!:)(?:,?\s(?P<my>\d{{4}}))?)
  | (?P<spoken>\b(?P<sp>{_PART})\s(?P<sh>{_WORD_NUMBER}|\d{{1,2}})\b)
  | (?P<named>\b(?:{"|".join(_NAMES.hours)})\b)
  | (?P<wd>\b(?:{_DAY_NAME})\b)
  | (?P<hwd>(?:周|星期|礼拜)(?P<hwn>[一二三四五六日天]))
  | (?P<clock>(?<![\d.])(?P<ch>[01]?\d|2[0-3])[:：](?P<cm>[0-5]\d)(?:[:：][0-5]\d)?\s?(?P<cp>am|pm)?)
  | (?P<ampm>(?<![\d.])(?P<ah>\d{{1,2}})(?:\.(?P<am>[0-5]\d))?\s?(?P<ap>am|pm|a\.m\.|p\.m\.)(?!\w))
  | (?P<htime>(?P<hp>凌晨|早上|上午|中午|下午|傍晚|晚上|夜里|早|晚)?(?P<hh>\d{{1,2}})[点时](?!\d*%)
       (?P<hmin>半|一刻|三刻|\d{{1,2}}分?)?)
  | (?P<code>(?<![a-z0-9_-])(?!\d+(?:\.\d+)?k(?![a-z0-9_-]))(?=[a-z0-9_./-]*\d)(?=[a-z0-9_./-]*[a-z_])
       [a-z0-9_]+(?:[-./][a-z0-9_]+)*(?![a-z0-9_-])
     |(?<![\d.])\d+(?:\.\d+){{2,}}|(?<!\d)\d+(?:-\d+)+(?!\d)|(?<!\d)\d{{7,}}(?!\d))
  | (?P<num>(?:(?<![\w.])-)?(?<![\d.])(?:\d+(?:,\d{{3}})+|\d+)(?:\.\d+)?)(?P<scale>\s?(?:k|m|bn|万|亿|千)(?![\w]))?
  | (?P<word>\b(?:{_WORD_NUMBER})\b(?:[\s-](?:{_WORD_NUMBER})\b)?(?:\s(?P<wscale>{_SCALE})\b)?)
    """,
    re.VERBOSE | re.IGNORECASE,
)
_HAN_NUMBER = re.compile(r"[零〇一二两三四五六七八九十百千万亿]+(?:点[零〇一二三四五六七八九]+)?")
_HOURS = {"min": 1 / 60, "hour": 1.0, "day": 24.0, "week": 168.0}
_SCALES = {"k": 1e3, "m": 1e6, "bn": 1e9, "千": 1e3, "万": 1e4, "亿": 1e8}
_UNIT_AFTER = re.compile(r"\s?(%|[a-z]+|[\u4e00-\u9fff]{1,2})")


class Value(msgspec.Struct, frozen=True):
    """One value: what kind, its normal form (equal text means equal value), its unit, and where it stands."""

    kind: ValueKind
    norm: str
    unit: str
    start: int
    end: int


def normalised(text: str) -> str:
    """The text for comparison: NFKC, lower case, straight quotes, Chinese numerals in digits where they count."""
    plain = unicodedata.normalize("NFKC", text).lower().replace("’", "'")
    return _HAN_NUMBER.sub(lambda m: _digits_of(m, plain), plain)


def read_values(text: str) -> tuple[Value, ...]:
    """The values in a `normalised` text, in order; never raises."""
    found: list[Value] = []
    for match in _PATTERN.finditer(text):
        value = _value(match, text)
        found.append(value)
    return tuple(found)


def same_value(v: Value, w: Value) -> bool:
    """Whether two values of one kind can be one: equal, as long (3 days, 72 hours), or a date and a part of it."""
    if v.norm == w.norm:
        return True
    if v.kind == "date":
        pairs = zip(v.norm.split("-"), w.norm.split("-"), strict=True)
        return all(x == y or "?" in {x, y} for x, y in pairs)
    if v.unit != w.unit and v.unit in _HOURS and w.unit in _HOURS:
        return math.isclose(float(v.norm) * _HOURS[v.unit], float(w.norm) * _HOURS[w.unit])
    return False


def _digits_of(match: re.Match[str], text: str) -> str:
    run = match.group()
    before = text[max(0, match.start() - 2) : match.start()]
    after = text[match.end() : match.end() + 1]
    if before.endswith(("周", "星期", "礼拜")) and len(run) >= 1:
        return run
    # A lone 一 is an article, a part of a word (一起, 统一) or an adverb far more often than a number.
    if run in {"一", "万", "千", "百", "亿", "千万", "万一", "零"} and after not in _COUNTED:
        return run
    number = han_number(run)
    return run if number is None else _plain(number)


_COUNTED = frozenset("点号楼层月日年岁块元个只条间台班级组位次份张")


def han_number(run: str) -> float | None:
    """The number that Chinese numerals write (三百二 = 320, 一二三 = 123, 五点三 = 5.3), or None."""
    if len(run) > _LONGEST_NUMERAL:
        return None
    whole, point, fraction = run.partition("点")
    total = _han_integer(whole)
    if total is None:
        return None
    if not point:
        return total
    return float(f"{total:.0f}." + "".join(str(_DIGITS[c]) for c in fraction))


def _han_integer(run: str) -> float | None:
    if all(c in _DIGITS for c in run):
        return float("".join(str(_DIGITS[c]) for c in run)) if run else None
    total, section, digit, last = 0.0, 0.0, None, 1.0
    for c in run:
        if c in _DIGITS:
            digit = float(_DIGITS[c]) if digit is None else digit * 10 + _DIGITS[c]
            if c in "零〇":
                last = 0.0
        elif c in _SMALL:
            section += (1.0 if digit is None else digit) * _SMALL[c]
            digit, last = None, float(_SMALL[c])
        else:
            section += digit or 0.0
            total = (total + (section or 1.0)) * _LARGE[c] if c == "亿" else total + (section or 1.0) * _LARGE[c]
            section, digit, last = 0.0, None, float(_LARGE[c])
    if digit is not None:
        # 三百二 is 320, 两万五 is 25 000; after a zero or a ten the digit is itself.
        section += digit * (last / 10 if last > 10 else 1.0)
    return total + section


def _plain(number: float) -> str:
    return f"{number:.0f}" if number == int(number) else f"{number:.10g}"


def _decimal(text: str) -> str:
    # 8.10 is a version later than 8.1, so a written trailing zero counts unless nothing but zeros follows the point.
    whole, _, fraction = text.replace(",", "").partition(".")
    return f"{whole}.{fraction}" if fraction.strip("0") else whole


def _value(match: re.Match[str], text: str) -> Value:
    group = match.groupdict()
    span = match.span()
    if group["mail"] or group["code"]:
        return Value("code", match.group().strip("."), "", *span)
    if group["iso"]:
        return Value("date", _date(group["iy"], group["im"], group["id"]), "", *span)
    if group["hdate"]:
        return Value("date", _date(group["hy"], group["hm"], group["hd"]), "", *span)
    if group["dm"]:
        return Value("date", _date(group["dy"], str(_MONTHS[group["dmm"]]), group["dd"]), "", *span)
    if group["md"]:
        return Value("date", _date(group["my"], str(_MONTHS[group["mm"]]), group["mday"]), "", *span)
    if group["spoken"]:
        hour = int(group["sh"]) if group["sh"].isdigit() else _ENGLISH[group["sh"]]
        told = 60 * hour + _NAMES.parts[group["sp"]]
        return Value("time", _time(told // 60, told % 60, False), "", *span)
    if group["named"]:
        return Value("time", _time(_NAMES.hours[group["named"]], 0, False), "", *span)
    if group["wd"]:
        return Value("weekday", str(_DAYS[match.group()]), "", *span)
    if group["hwd"]:
        return Value("weekday", str(_HAN_DAY[group["hwn"]]), "", *span)
    if group["clock"]:
        return Value("time", _time(int(group["ch"]), int(group["cm"]), group["cp"] == "pm"), "", *span)
    if group["ampm"]:
        return Value("time", _time(int(group["ah"]), int(group["am"] or 0), group["ap"].startswith("p")), "", *span)
    if group["htime"]:
        minutes = {None: 0, "半": 30, "一刻": 15, "三刻": 45}.get(group["hmin"])
        minute = int(group["hmin"].rstrip("分")) if minutes is None else minutes
        return Value("time", _time(int(group["hh"]), minute, group["hp"] in _LATER_HALF), "", *span)
    if group["word"]:
        scale = group["wscale"]
        parts = re.split(r"[\s-]", match.group().removesuffix(f" {scale}"))
        total = sum(_ENGLISH[p] for p in parts) if len(parts) == 1 or _ENGLISH[parts[0]] >= 20 else _ENGLISH[parts[-1]]
        return Value("number", str(total * _NAMES.scales.get(scale, 1)), _unit(text, match.end()), *span)
    unit = _unit(text, match.end())
    if group["scale"]:
        return Value(
            "number", _plain(float(group["num"].replace(",", "")) * _SCALES[group["scale"].strip()]), unit, *span
        )
    return Value("number", _decimal(group["num"]), unit, *span)


def _unit(text: str, end: int) -> str:
    match = _UNIT_AFTER.match(text, end)
    if not match:
        return ""
    unit = match.group(1)
    return _SAME_UNIT.get(unit) or _SAME_UNIT.get(unit[0], unit.rstrip("s") if unit.isascii() else unit)


def _date(year: str | None, month: str, day: str | None) -> str:
    return f"{year or '?'}-{int(month)}-{int(day) if day else '?'}"


def _time(hour: int, minute: int, later: bool) -> str:
    return f"{hour % 12 + 12 if later and hour <= 12 else hour}:{minute:02d}"
