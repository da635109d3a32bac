"""What is derived from a memory for retrieval: terms, the named speaker, the days it tells of, whether it asks."""

from __future__ import annotations

import math
import re
from calendar import monthrange
from collections.abc import Iterable
from datetime import MAXYEAR, MINYEAR, UTC, date, datetime, timedelta

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.caller import millis
from hindsight_core.lexical import impacts, tokens
from hindsight_core.models import Memory
from hindsight_core.ranking import DAY_MS

_STOPS = "。.!！~～…"
_HAN = re.compile(r"[\u4e00-\u9fff]")
MIX_PREVIOUS = (0.3, 0.2)
MIX_SUMMARY = 0.25
# Enough for three days without a year: who names more means no day in particular.
MOST_SPANS = 24
_FEBRUARY = 2
# What storing a vector in half precision may add to the square of a length.
_NOISE = 1e-4


class IndexFields(msgspec.Struct, frozen=True, kw_only=True):
    """The retrieval fields of one memory.

    `text` and `context` map a term to its BM25 impact in (0, 1); `speaker` is case-folded; `days` are ISO days
    (`2023-05-08`) and year-less ones (`05-08`) that the memory is about; `question` is whether it is itself one.
    """

    text: dict[str, float]
    context: dict[str, float] = {}
    speaker: str | None = None
    days: tuple[str, ...] = ()
    question: bool = False


def index_fields(memory: Memory) -> IndexFields:
    """The retrieval fields of a memory; a pure function of it, so that any store can be rebuilt."""
    words = tokens(memory.content)
    if memory.speaker:
        words += tokens(memory.speaker)
    days: tuple[str, ...] = ()
    if memory.observed_at is not None and memory.precision in {"instant", "day"}:
        observed = memory.observed_at.date()
        days = day_keys(observed)
        words += tokens(_date_words(observed, memory.content))
    return IndexFields(
        text=impacts(words),
        context=impacts(tokens(memory.context)) if memory.context else {},
        speaker=fold_name(memory.speaker) if memory.speaker else None,
        days=days,
        question=asks(memory.content),
    )


def asks(text: str) -> bool:
    """Whether a text ends in a question."""
    end = text.rstrip()
    return end.endswith(("?", "？")) or end.rstrip(_STOPS).rstrip().endswith(("吗", "呢", "么"))


def fold_name(name: str) -> str:
    """The form in which speakers are compared."""
    return " ".join(name.casefold().split())


def day_keys(day: date) -> tuple[str, ...]:
    """Both forms under which a day can be named: with and without its year."""
    return (day.isoformat(), day.strftime("%m-%d"))


def days_between(start: datetime, end: datetime, limit: int = 31) -> tuple[str, ...]:
    """The ISO days of a half-open range, at most `limit` of them (a longer range names no days: none)."""
    last = (end - timedelta(microseconds=1)).date()
    span = (last - start.date()).days + 1
    if span < 1 or span > limit:
        return ()
    return tuple((start.date() + timedelta(days=i)).isoformat() for i in range(span))


def day_spans(days: Iterable[str], now: datetime) -> tuple[tuple[int, int], ...]:
    """The moments of these days, of both forms of `day_keys`, in the zone of `now`; half-open, in Unix milliseconds.

    What is dated to the day has midnight UTC for its moment wherever it was said, so the one of each day belongs to it
    and that of another does not. A year-less day is that of the last five years and of the next one, and west of
    Greenwich takes what is dated to the day after it, too. Empty where the
    days begin at midnight UTC, where the keys of `IndexFields` say the same, and where there would be over `MOST_SPANS`
    of them: there the keys must do.
    """
    zone = now.tzinfo
    found: list[tuple[int, int]] = []
    apart = False
    named = {one: len(key) > len("MM-DD") for key in sorted(days) for one in _dates(key, now.year)}
    for day, exact in named.items():
        start = millis(datetime(day.year, day.month, day.day, tzinfo=zone))
        following = day + timedelta(days=1)
        end = millis(datetime(following.year, following.month, following.day, tzinfo=zone))
        midnight = millis(datetime(day.year, day.month, day.day, tzinfo=UTC))
        apart = apart or start != midnight
        pieces = [(start, end)]
        if exact:
            for other in (midnight - DAY_MS, midnight + DAY_MS):
                pieces = [part for piece in pieces for part in _without(piece, other)]
            if not start <= midnight < end:
                pieces.append((midnight, midnight + 1))
        found.extend(pieces)
    spans = _joined(found) if apart else ()
    return spans if len(spans) <= MOST_SPANS else ()


def _dates(key: str, year: int) -> list[date]:
    if len(key) > len("MM-DD"):
        named = date.fromisoformat(key)
        return [named] if MINYEAR < named.year < MAXYEAR else []
    month, day = map(int, key.split("-"))
    years = range(max(MINYEAR + 1, year - 5), min(MAXYEAR, year + 2))
    return [date(y, month, day) for y in years if month != _FEBRUARY or day <= monthrange(y, 2)[1]]


def _without(piece: tuple[int, int], moment: int) -> list[tuple[int, int]]:
    start, end = piece
    if not start <= moment < end:
        return [piece]
    return [part for part in ((start, moment), (moment + 1, end)) if part[0] < part[1]]


def _joined(spans: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The same moments in as few spans as can be."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return tuple(joined)


def mix(
    bare: NDArray[np.float32], previous: list[NDArray[np.float32]], whole: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """The vector that searches use: the memory's own, with the turn before (.3) and the one before that (.2).

    Where `bare` is that of a summary, `whole` is the whole text's: the summary then counts a quarter as much as it.
    """
    mixed = _own(bare, whole)
    for weight, vector in zip(MIX_PREVIOUS, previous, strict=False):
        mixed += np.float32(weight) * vector
    norm = float(np.linalg.norm(mixed))
    return mixed / np.float32(norm) if norm > 0 else bare


def second_turn(
    mixed: NDArray[np.float32],
    bare: NDArray[np.float32],
    previous: NDArray[np.float32],
    whole: NDArray[np.float32] | None = None,
) -> NDArray[np.float32] | None:
    """The vector of the turn before `previous` that `mix` put into `mixed`, whose text nobody has kept; None of none.

    The mix is a unit vector along `own + .3 · previous + .2 · x`, and so is x a unit vector: that leaves two points,
    of which the one that is nearer to the mix is taken.
    """
    first, second = MIX_PREVIOUS
    known = _own(bare, whole).astype(np.float64) + first * previous
    along = float(mixed @ known)
    across = float(known @ known) - along**2
    if not _NOISE < across <= second**2 + _NOISE:
        return None
    length = along + math.sqrt(max(0.0, second**2 - across))
    found = length * mixed.astype(np.float64) - known
    return (found / np.linalg.norm(found)).astype(np.float32)


def _own(bare: NDArray[np.float32], whole: NDArray[np.float32] | None) -> NDArray[np.float32]:
    """What stands for the memory itself in its mix."""
    if whole is None:
        return bare.astype(np.float32, copy=True)
    own = whole + np.float32(MIX_SUMMARY) * bare
    return np.asarray(own / max(np.float32(np.linalg.norm(own)), np.float32(1e-6)), np.float32)


def _date_words(day: date, text: str) -> str:
    if _HAN.search(text):
        return f"{day.year}年{day.month}月{day.day}日"
    return f"{day.day} {day:%B} {day.year}"
