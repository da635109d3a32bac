"""Whether a bare Chinese weekday, month, hour or part of the day is a time where it stands."""

from __future__ import annotations

import re
from functools import cache

from hindsight_core.temporal.slots import Chunk, filled
from hindsight_core.temporal.zh.words import Vocabulary, words

_MINUTES = re.compile(r"[半刻分整钟]$|[:：点]\d\d$")
_LATIN = re.compile(r"[A-Za-z]+")
_LONG_MONTH = 6


class ChineseContext:
    """The judge of one text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def licensed(self, chunk: Chunk, op: str | None, *, ranged: bool) -> bool:
        names = filled(chunk.slots).keys() - {"offset"}
        before, after = self._text[max(0, chunk.start - 8) : chunk.start], self._text[chunk.end : chunk.end + 16]
        if names <= {"weekday", "part", "month", "season"} and self._named(before, after):
            return False
        weak = names <= {"weekday", "part", "clock"} or names in ({"day"}, {"unit"}, {"month"})
        if weak and re.search(_list("habits"), before):
            return False
        if names == {"weekday"} and ranged:
            return not re.search(_list("working"), after)
        if names == {"season"}:
            return self._text[chunk.start : chunk.end].startswith("暑")
        if names == {"month"} and _LATIN.fullmatch(self._text[chunk.start : chunk.end]):
            return chunk.end - chunk.start > _LONG_MONTH  # the shorter ones are people's names, too
        if names == {"part"}:
            return self._part(chunk, before, after)
        if names == {"clock"}:
            return ranged or op is not None or self._clock(chunk, after)
        return True

    def wanted(self, chunk: Chunk) -> bool:
        """“三天内” asks for something, unless it is a rule of business."""
        around = self._text[max(0, chunk.start - 12) : chunk.end + 12]
        return bool(re.search(_list("requests"), around)) and not re.search(_list("policies"), around)

    def _clock(self, chunk: Chunk, after: str) -> bool:
        if re.match(r"方向|档|的人(?!来)", after):
            return False
        if _MINUTES.search(self._text[chunk.start : chunk.end]):
            return not re.search(rf"{_list('habits')}|天天|每天", self._text[max(0, chunk.start - 40) : chunk.start])
        return bool(re.match(_list("events"), after))

    def _part(self, chunk: Chunk, before: str, after: str) -> bool:
        """下午提醒我…, 上午签了…: today's; 晚上睡不好 is every day's."""
        if (
            re.fullmatch(r"[我咱俺]?们?", self._text[: min(chunk.start, 3)])
            and chunk.start < 3
            and re.match(r"[^，。就都时]{0,12}了", after)
        ):
            return True
        reminders = _list("reminders")
        return bool(re.match(rf".{{0,4}}(?:{reminders})", after) or re.search(rf"(?:{reminders}).{{0,3}}$", before))

    @staticmethod
    def _named(before: str, after: str) -> bool:
        person = rf"(?:是|就是)[^，。]{{0,10}}(?:{_list('people')})|(?:{_list('titles')})"
        return bool(re.match(person, after) or re.search(rf"(?:{_list('called')})$", before))


@cache
def _list(name: str) -> str:
    return Vocabulary(words()).licence(name)
