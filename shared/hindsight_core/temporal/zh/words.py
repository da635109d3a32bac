"""Chinese words of time: the lists of `language/zh/temporal.toml`, as patterns and as look-ups."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib import resources

import msgspec

from hindsight_core.temporal.tense import TenseCues

NUMERALS = "零〇一二两三四五六七八九十百"
SOLO = rf"(?<![\d{NUMERALS}几数第])"
COUNT = r"(?:\d{1,3}|[一二两三四五六七八九十百廿卅]{1,4})"
DAY = (
    r"(?:3[01]|[12]\d|0?[1-9]|三十一?|二十[一二三四五六七八九]?|廿[一二三四五六七八九]?|卅一?"
    r"|十[一二三四五六七八九]?|[一二三四五六七八九])"
)
MONTH = r"(?:1[0-2]|0?[1-9]|十[一二]?|[一二三四五六七八九])"
YEAR = r"(?:(?:19|20)\d{2}|[一二][〇零○九][〇零○一二三四五六七八九]{2})"
WEEK = r"(?:周|星期|礼拜)"
DASH = r"\s*[-~–—－～到至]{1,2}\s*"
UNITS = {
    "刻钟": "quarter_hour", "分钟": "minute", "分": "minute", "小时": "hour", "钟头": "hour", "天": "day", "日": "day",
    "周": "week", "星期": "week", "礼拜": "week", "周末": "weekend", "月": "month", "季度": "quarter", "年": "year",
    "半年": "half", "年度": "year",
}  # fmt: skip
WEEKDAYS = {c: i for i, c in enumerate("一二三四五六日")} | {"天": 6}
THIRDS = {"初": 0, "上": 0, "前": 0, "中": 1, "底": 2, "末": 2, "尾": 2, "下": 2, "后": 2}


class Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`language/zh/temporal.toml`."""

    days: dict[str, int]
    day_marks: dict[str, int]
    years: dict[str, int]
    parts: dict[str, tuple[int, int]]
    part_marks: dict[str, tuple[int, int]]
    holidays: dict[str, list[str]]
    tense: TenseCues
    licence: dict[str, list[str] | str]
    disguises: dict[str, list[str]]
    script: dict[str, str]


@cache
def words() -> Words:
    """The word lists of Chinese."""
    file = resources.files("hindsight_core.language") / "zh" / "temporal.toml"
    return msgspec.convert(tomllib.loads(file.read_text("utf-8")), Words)


class Vocabulary:
    """The lists as patterns (attributes) and look-ups."""

    def __init__(self, listed: Words) -> None:
        self.days = listed.days
        self.day_marks = listed.day_marks
        self.years = listed.years
        self.parts = listed.parts
        self.part_marks = listed.part_marks
        self.holidays = {name: key for key, names in listed.holidays.items() for name in names}
        self.part = one_of(self.parts)
        self.holiday = one_of(self.holidays)
        self._licence = {name: "|".join([v] if isinstance(v, str) else v) for name, v in listed.licence.items()}

    def licence(self, name: str) -> str:
        """A list of `licence`, as one alternation."""
        return self._licence[name]


def one_of(names: Iterable[str]) -> str:
    """An alternation of literal words, the longest first."""
    return "|".join(sorted(map(re.escape, names), key=len, reverse=True))
