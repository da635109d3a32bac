"""What a question says about itself: whose words it is about, when, and whether it asks how things were."""

from __future__ import annotations

import re
from datetime import datetime

import msgspec

from hindsight_core.answers import asks_how_many, asks_when, parts_named, speaks_of_self
from hindsight_core.indexing import days_between
from hindsight_core.lexical import tokens
from hindsight_core.models import Source
from hindsight_core.past import asks_what_happened, is_past_question
from hindsight_core.responses import TimeWindow
from hindsight_core.temporal import range_and_days
from hindsight_core.transcript import said_by_user

# A deadline or a limit says until when something is due, not when it was said.
_PLACES_IN_TIME = frozenset({"date", "relative", "rolling", "since"})


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question, read.

    `bare` is its text without the speakers' names and parts (what is embedded: a name in it would pull every turn of
    that speaker near), `terms` its tokens without repeats, `speakers` and `days` in the form of `IndexFields`.
    `changed` tells that it asks for a state that has since changed. `decays` is False where the age of a memory says
    nothing about whether it answers: the question asks for something that happened, or names its time. `when` tells
    that it asks for a time, `amount` that it asks for a number, `own` that it is about who asks, `parts` whom it calls
    the user or the assistant (a piece of a conversation does none of these).
    """

    text: str
    bare: str
    terms: tuple[str, ...]
    speakers: tuple[str, ...]
    days: tuple[str, ...]
    window: TimeWindow | None
    past: bool
    changed: bool = False
    decays: bool = True
    when: bool = False
    amount: bool = False
    own: bool = False
    parts: tuple[Source, ...] = ()


def read(text: str, now: datetime, speakers: frozenset[str]) -> Question:
    """Read a question at `now` (in the caller's zone), where `speakers` are those of the namespace, case-folded.

    Pure and total: a text that says nothing about itself is read as one without speakers, days or window. A time in
    the question is a preference, not a filter: people remember days wrongly. Of a piece of a conversation, only what
    the user said is read.
    """
    said = said_by_user(text)
    asked = said == text
    folded = said.casefold()
    named = tuple(sorted(name for name in speakers if _mentions(folded, name)))
    found, named_days = range_and_days(said, now)
    days = set(named_days)
    changed = past = is_past_question(said)
    window = None
    if found is not None and found.kind in _PLACES_IN_TIME:
        window = TimeWindow(start=found.start, end=found.end, text=found.text, use="prefer")
        if found.start is not None and found.end is not None:
            days.update(days_between(found.start, found.end))
            past = past or found.end <= now
    parts, rest = parts_named(said) if asked else ((), said)
    bare = _without(rest, named) if named else rest
    return Question(
        text=text,
        bare=bare,
        terms=tuple(dict.fromkeys(tokens(said))),
        speakers=named,
        days=tuple(sorted(days)),
        window=window,
        past=past,
        changed=changed,
        decays=not (past or window or asks_what_happened(said)),
        when=asked and asks_when(said),
        amount=asked and asks_how_many(said),
        own=asked and speaks_of_self(said),
        parts=parts,
    )


def _mentions(folded: str, name: str) -> bool:
    """Whether a name stands in a case-folded text; a Latin one as a word of its own."""
    if not name:
        return False
    if name not in folded:
        return False  # first of all: there may be thousands of names, and each has a pattern of its own
    if name.isascii():
        return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", folded) is not None
    return True


def _without(text: str, names: tuple[str, ...]) -> str:
    bare = text
    for name in names:
        pattern = re.escape(name).replace(r"\ ", r"\s+")
        bare = re.sub(rf"{pattern}(?:['’]s)?", " ", bare, flags=re.IGNORECASE)
    bare = " ".join(bare.split())
    return bare if tokens(bare) else text
