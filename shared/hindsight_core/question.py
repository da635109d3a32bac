"""What a question says about itself: whose words it is about, when, and whether it asks how things were."""

from __future__ import annotations

from datetime import datetime

import msgspec

from hindsight_core.answers import asks_how_many, asks_when, asks_where, parts_named, speaks_of_self
from hindsight_core.indexing import day_spans, days_between
from hindsight_core.lexical import forms, tokens
from hindsight_core.models import Source
from hindsight_core.names import named, without
from hindsight_core.past import asks_for_last, asks_what_happened, is_past_question
from hindsight_core.responses import TimeWindow
from hindsight_core.temporal import range_and_days
from hindsight_core.transcript import said_by_user

# A deadline or a limit says until when something is due, not when it was said.
_PLACES_IN_TIME = frozenset({"date", "relative", "rolling", "since", "before"})


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question, read.

    `bare` is its text without the speakers' names and parts (what is embedded: a name in it would pull every turn of
    that speaker near), `terms` its tokens and the other forms of irregular words, without repeats, `words` the tokens
    of `bare`, each with its other forms; `speakers` and `days` are in the form of `IndexFields`; where
    the caller's days do not begin at midnight UTC, they are `spans` instead, in the form of `ranking.Weight`.
    `changed` tells that it asks for a state that has since changed. `decays` is False where the age of a memory says
    nothing about whether it answers: the question asks for something that happened, or names its time. `when` tells
    that it asks for a time, `amount` for a number, `place` for a place, `own` that it is about who asks, `parts` whom
    it calls the user or the assistant, `last` as `past.asks_for_last`, `then` the time that it names, where that is
    over, `ahead` where it is to come (a piece of a conversation does none of these, and has no `words`).
    """

    text: str
    bare: str
    terms: tuple[str, ...]
    speakers: tuple[str, ...]
    days: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    window: TimeWindow | None
    past: bool
    words: tuple[tuple[str, ...], ...] = ()
    changed: bool = False
    decays: bool = True
    when: bool = False
    amount: bool = False
    place: bool = False
    own: bool = False
    parts: tuple[Source, ...] = ()
    last: int = 0
    then: tuple[datetime, datetime] | None = None
    ahead: tuple[datetime, datetime] | None = None


def read(text: str, now: datetime, speakers: frozenset[str]) -> Question:
    """Read a question at `now` (in the caller's zone), where `speakers` are those of the namespace, case-folded.

    Pure and total: a text that says nothing about itself is read as one without speakers, days or window. A time in
    the question is a preference, not a filter: people remember days wrongly. Of a piece of a conversation, only what
    the user said is read.
    """
    said = said_by_user(text)
    asked = said == text
    about = named(said, speakers)
    found, named_days = range_and_days(said, now)
    days = set(named_days)
    changed = past = is_past_question(said)
    window = then = ahead = None
    if found is not None and found.kind in _PLACES_IN_TIME:
        window = TimeWindow(start=found.start, end=found.end, text=found.text, use="prefer")
        if found.start is not None and found.end is not None:
            days.update(days_between(found.start, found.end))
            if found.end <= now:
                past, then = True, (found.start, found.end)
            elif found.start > now:
                ahead = (found.start, found.end)
    parts, rest = parts_named(said) if asked else ((), said)
    bare = without(rest, about) if about else rest
    spans = day_spans(days, now)
    words: tuple[tuple[str, ...], ...] = ()
    terms = tuple(dict.fromkeys(tokens(said)))
    if asked:
        words = tuple(forms(term) for term in (terms if bare == said else dict.fromkeys(tokens(bare))))
        terms = tuple(dict.fromkeys((*terms, *(form for word in words for form in word))))
    return Question(
        text=text,
        bare=bare,
        terms=terms,
        words=words,
        speakers=about,
        days=() if spans else tuple(sorted(days)),
        spans=spans,
        window=window,
        past=past,
        changed=changed,
        decays=not (past or window or asks_what_happened(said)),
        when=asked and asks_when(said),
        amount=asked and asks_how_many(said),
        place=asked and asks_where(said),
        own=asked and speaks_of_self(said),
        parts=parts,
        then=then if asked else None,
        ahead=ahead if asked else None,
        last=asks_for_last(said) if asked and not changed and window is None else 0,
    )
