"""Tokens that belong together, and the operators beside them."""

from __future__ import annotations

import re
from typing import TypeAlias, TypeGuard

from hindsight_core.temporal.slots import Chunk, Token, coarser, combine, filled

Item: TypeAlias = Chunk | Token

_FILLER = re.compile(
    r"(?:[\s,，的]|(?<![a-z])(?:of|in|on|at|the|for|during|around|about|this)(?![a-z])|那天|当天)*", re.IGNORECASE
)
_NEAR = re.compile(r"(?:[\s:：]|(?<![a-z])(?:the|about|around|at|on|in)(?![a-z])|在|大概|大约)*", re.IGNORECASE)
_ITS_YEAR = re.compile(r"\s+(?:[a-z]+\s+){1,2}(?:for|of|in)\s+", re.IGNORECASE)
_DASH = re.compile(r"\s*[-–—~]\s*")
_SENTENCE_END = re.compile(r"[.。!！?？;；\n]\s")
_DAYS = {"day", "weekday", "day_steps"}
_HOURS = 4


def is_chunk(item: Item) -> TypeGuard[Chunk]:
    return isinstance(item, Chunk)


def chunks(text: str, tokens: list[Token]) -> list[Item]:
    """The tokens in order, those that make up one time joined: last | Friday | 3pm; a dash between two becomes “to”."""
    items: list[Item] = []
    for token in tokens:
        if token.slots is None:
            items.append(token)
        elif (joined := _joined(text, items, token)) is not None:
            items[-1 if is_chunk(items[-1]) else -2 :] = [joined]
        else:
            last = items[-1] if items else None
            if last is not None and is_chunk(last) and _DASH.fullmatch(text, last.end, max(last.end, token.start)):
                items.append(Token(last.end, token.start, None, "to"))
            items.append(Chunk(token.start, token.end, token.slots))
    return items


def _joined(text: str, items: list[Item], token: Token) -> Chunk | None:
    """The last chunk with the token's slots, where the words between allow it and the slots do not clash."""
    if not items or token.slots is None:
        return None
    last = items[-1]
    if not is_chunk(last):
        return _with_its_week(text, items, token)
    gap = (last.end, max(last.end, token.start))
    if last.slots.third is not None and text[gap[0] : gap[1]] == "-":
        allowed = True  # mid-October
    else:
        allowed = bool(_FILLER.fullmatch(text, *gap)) or _year_of_it(text, last, token)
    # “Two days before …” shifts what follows; 的前一天 what stands before it.
    opens = filled(token.slots).keys() == {"offset"} and text[token.start].isascii()
    both = combine(last.slots, token.slots) if allowed and not opens else None
    return Chunk(last.start, max(last.end, token.end), both) if both is not None else None


def _year_of_it(text: str, part: Chunk, token: Token) -> bool:
    """“The H2 budget for 2026”: the year of a quarter or half named a word or two before."""
    if token.slots is None or filled(token.slots).keys() != {"year"}:
        return False
    return filled(part.slots).keys() <= {"quarter", "half"} and bool(_ITS_YEAR.fullmatch(text, part.end, token.start))


def _with_its_week(text: str, items: list[Item], token: Token) -> Chunk | None:
    """“Sunday from last week”: the week that the day before “from” belongs to, not the start of a range."""
    if len(items) < 2 or token.slots is None or token.slots.unit is None:
        return None
    day, word = items[-2], items[-1]
    if not is_chunk(day) or day.slots.weekday is None or not isinstance(word, Token) or word.op != "from":
        return None
    if not (text[day.end : word.start].isspace() and text[word.end : token.start].isspace()):
        return None
    both = combine(day.slots, token.slots)
    return Chunk(day.start, token.end, both) if both is not None else None


def on_the_day(text: str, chunk: Chunk, earlier: list[Item]) -> Chunk:
    """Hours on their own are those of the day named before them in the sentence: 周三漏了，下午一点到四点的没了."""
    names = filled(chunk.slots).keys()
    last = next((item for item in reversed(earlier) if is_chunk(item)), None)
    if last is None or "clock" not in names or names - {"part", "clock"}:
        return chunk
    day = coarser(last.slots, _HOURS)
    if not filled(day).keys() & _DAYS or _SENTENCE_END.search(text, last.end, chunk.start):
        return chunk
    both = combine(coarser(last.slots, _HOURS + 1), chunk.slots) or combine(day, chunk.slots)
    return chunk._replace(slots=both) if both is not None else chunk


def operator_before(text: str, items: list[Item], i: int, start: int) -> Token | None:
    """The operator at place i, if it stands directly before `start`."""
    if i < 0:
        return None
    item = items[i]
    if isinstance(item, Token) and _NEAR.fullmatch(text, item.end, max(item.end, start)):
        return item
    return None


def operator_after(text: str, items: list[Item], i: int, end: int) -> tuple[int, Token] | None:
    """The operator from place i on that directly follows `end`, past words like 左右; with its place."""
    while i < len(items):
        item = items[i]
        if is_chunk(item) or not isinstance(item, Token):
            return None
        if not _NEAR.fullmatch(text, end, max(end, item.start)):
            return None
        if item.op != "around":
            return i, item
        i, end = i + 1, item.end
    return None


def follows(text: str, end: int, start: int, *, loosely: bool = False) -> bool:
    """Whether only small words stand between two places."""
    return bool((_FILLER if loosely else _NEAR).fullmatch(text, end, max(end, start)))
