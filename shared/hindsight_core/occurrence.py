"""Whether two episodes tell of one happening or of two: what happens again is another one, in whatever words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

from hindsight_core.alignment import pieces
from hindsight_core.cues import LANGUAGES, lower_case, present
from hindsight_core.models import Memory
from hindsight_core.readings import kept
from hindsight_core.temporal import find_range, find_ranges

_DAY = timedelta(days=1)


def happened_again(new: Memory, old: Memory, zone: tzinfo = UTC) -> bool:
    """Whether the new episode is another happening than the old one, though both may say the same.

    Each is read at the time it was told, in `zone`: another one where the times that they name have nothing in common,
    where one names a time that had not come when the other was told, or where the new one, told on another day, says
    that it happened again (又). What episodes have added up to is none of them. Of a plan, another time is a change;
    what an agent tells is an echo.
    """
    if new.memory_type != "episodic" or new.source == "agent" or not new.status == old.status == "active":
        return False
    if old.memory_type == "semantic":
        return bool(old.derived_from)
    if old.memory_type != "episodic":
        return False
    told, before = _told(new, zone), _told(old, zone)
    if told is None or before is None:
        return False
    now, then = _span(new.content, told), _span(old.content, before)
    if any(span is not None and span[0] > at for span, at in ((now, told), (then, before))):
        return False
    if now is not None and then is not None:
        return now[0] >= then[1] or then[0] >= now[1]
    if (now is not None and now[0] > before) or (then is not None and then[0] > told):
        return True
    return told.date() != before.date() and _again(new.content)


def says_no_more(new: Memory, old: Memory) -> bool:
    """Whether the new episode tells nothing that the old one does not, but when, or that it was once more."""
    return _said(new) <= _said(old)


def _said(memory: Memory) -> set[str]:
    text = memory.content
    for found in reversed(find_ranges(memory.content, memory.observed_at or memory.valid_from)):
        text = text[: found.at] + " " + text[found.at + len(found.text) :]
    text = text.lower()
    for language in LANGUAGES:
        text = lower_case("occurrence", language)["again"].sub(" ", text)
    return {*pieces(text)}


def _told(memory: Memory, zone: tzinfo) -> datetime | None:
    if memory.precision not in {"instant", "day"}:
        return None
    return (memory.observed_at or memory.valid_from).astimezone(zone)


@kept(256)
def _again(text: str) -> bool:
    return bool(present(text, "occurrence"))


def _span(text: str, told: datetime) -> tuple[datetime, datetime] | None:
    """The time that a text names, if it is a day or less: a week may hold both."""
    return _named(text, told.replace(tzinfo=None), told.fold, told.tzinfo)


@kept(1024)
def _named(text: str, clock: datetime, fold: int, zone: tzinfo | None) -> tuple[datetime, datetime] | None:
    # By the clock on the wall and the zone: the same instant is another day elsewhere, and yet equal.
    found = find_range(text, clock.replace(tzinfo=zone, fold=fold))
    if found is None or found.start is None or found.end is None or found.end - found.start > _DAY:
        return None
    return found.start, found.end
