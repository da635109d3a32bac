"""On whose side a new memory stands, where two that are known contest each other or one is only a guess.

It takes the side of the one whose value it tells, if it tells nothing that only the other one does: "No, I live in York
now" that of "I moved to York" against "I live in Leeds".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Literal, TypeAlias

import msgspec

from hindsight_core.guards import is_weak
from hindsight_core.lexical import stem
from hindsight_core.models import Memory
from hindsight_core.readings import kept
from hindsight_core.slots import Language, Reading, matcher, read, subject_differs, topic_words, wording
from hindsight_core.temporal import find_ranges
from hindsight_core.verdicts import Judged

_WORD = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]+|[^\W_\u3400-\u9fff]+(?:['-][^\W_\u3400-\u9fff]+)*")
Side: TypeAlias = Literal["old", "other"]
_ANY_DAY = datetime(2000, 1, 1, tzinfo=UTC)
_ACTS = frozenset({"supersede", "contest"})
# So many words that neither side says are still no news; in Chinese pairs of characters, three of which make a word.
_STRANGE: dict[Language, int] = {"en": 0, "zh": 3}
_AGREES = frozenset({"duplicate", "refine", *_ACTS})


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """The neighbours with what a new memory means for them, once it has taken sides.

    `settled`: pairs of ids, the old one and the challenger that replaces it; `restored`: those of which the old one
    holds, so that the challenger contests it no more; `confirmed`: the guesses that come true.
    """

    items: list[Judged]
    settled: tuple[tuple[str, str], ...] = ()
    restored: tuple[tuple[str, str], ...] = ()
    confirmed: frozenset[str] = frozenset()


def take_sides(new: Memory, items: Sequence[Judged]) -> Taken:
    """What follows for pairs among the neighbours that are linked, and of which a new memory takes one side.

    Who tells the challenger's value again, and would replace or contest the old one, settles the pair. Who tells the
    old one's value again contests the challenger, or replaces it. Where the challenger is a guess that comes true, it
    is replaced, and what it would have changed is at least contested.
    """
    found = {item.old.id: item for item in items}
    if new.source == "agent" or new.status == "pending" or len(found) < 2:
        return Taken(items=list(items))
    standing = {before: item.old.id for item in items for before in item.old.supersedes} | {i: i for i in found}
    settled: list[tuple[str, str]] = []
    restored: list[tuple[str, str]] = []
    confirmed: set[str] = set()
    for item in items:
        for link in item.old.contested_by:
            old, other = found[item.old.id], found.get(standing.get(link.id, ""))
            if other is None or not _concerned(new, old, other):
                continue
            guess = other.old.status == "pending"
            side = _side(new.content, old.old.content, other.old.content, guess=guess)
            ids = (old.old.id, other.old.id)
            if side == "other" and guess and other.verdict in _AGREES:
                confirmed.add(other.old.id)
                doubt = max(old.probability, other.probability, link.probability)
                if other.verdict != "duplicate":
                    found[other.old.id] = _with(other, "supersede", max(other.probability, link.probability))
                if old.verdict not in _ACTS:
                    found[old.old.id] = _with(old, "contest", doubt, "why_confirmed")
            elif side == "other" and other.old.status == "active" and other.verdict in {"duplicate", "refine"}:
                settled.append(ids)
                found[old.old.id] = _with(old, "coexist", 0.0)
            elif side == "other" and other.old.status == "active" and old.verdict in _ACTS:
                settled.append(ids)
                found[old.old.id] = _with(old, "coexist", 0.0)
                if other.verdict in _ACTS:
                    found[other.old.id] = _with(other, "coexist", 0.0)
            elif side == "old" and other.old.status == "active" and (old.verdict in {"refine", *_ACTS}):
                restored.append(ids)
                doubt = max(old.probability, other.probability)
                if old.verdict in _ACTS:
                    found[old.old.id] = _with(old, "coexist", 0.0)
                if other.verdict != "supersede":
                    found[other.old.id] = _with(other, "contest", doubt, "why_returns")
    return Taken(
        items=[found[item.old.id] for item in items],
        settled=tuple(settled),
        restored=tuple(restored),
        confirmed=frozenset(confirmed),
    )


def _concerned(new: Memory, old: Judged, other: Judged) -> bool:
    """Whether one that holds is linked to one that may take its place, and the new one may speak for either."""
    late = "older" in {old.order, other.order}
    return old.old.status == "active" and not late and not is_weak(new, old.old) and not is_weak(new, other.old)


def _with(item: Judged, verdict: str, probability: float, why: str | None = None) -> Judged:
    return msgspec.structs.replace(item, verdict=verdict, probability=probability, why=why or item.why)


def _side(new: str, old: str, other: str, *, guess: bool) -> Side | None:
    """Whose value the new text tells; None where that is not clear, or where it denies it or tells it of another.

    Nor is it on a side where it tells what neither does: that is news.
    """
    said, a, b = read(_unanswered(new)), read(old), read(other)
    mine, theirs = _values(a), _values(b)
    # What both have one of tells them apart for sure: two numbers, two colours.
    kinds = {kind for kind, _ in mine} & {kind for kind, _ in theirs}
    told = {value for value in _values(said) if value[0] in kinds}
    words, before, after = _told(said.text), _told(a.text), _told(b.text)
    strange = len(words - before - after)
    if strange > _STRANGE[said.language] + 3 * guess:
        return None
    # Of a guess that comes true, it is news when and how.
    if not guess and (_values(said) - mine - theirs or _times(said) - _times(a) - _times(b)):
        return None
    for_old, for_other = bool(told & (mine - theirs)), bool(told & (theirs - mine))
    if not told:
        for_old, for_other = _names_it(words, before - after, a), _names_it(words, after - before, b)
    if for_old == for_other:
        return None
    reading = a if for_old else b
    denied = bool(said.negation) != bool(reading.negation) or (bool(said.end) and not reading.end)
    another = subject_differs(reading, said) or not said.kin <= a.kin | b.kin
    return None if denied or another else "old" if for_old else "other"


def _times(reading: Reading) -> set[str]:
    return {time.text for time in find_ranges(reading.text, _ANY_DAY)}


def _values(reading: Reading) -> set[tuple[str, str]]:
    return {*reading.states, *reading.facets}


def _names_it(told: frozenset[str], only: frozenset[str], reading: Reading) -> bool:
    """Whether what is told holds something that only one of the two says: its name, where it has one."""
    named = {stem(name) for name in reading.names | reading.first} & only
    return bool(told & (named or only))


def _unanswered(text: str) -> str:
    """The text without the yes or no at its beginning, which answers a question and denies nothing."""
    plain = text.replace("’", "'")
    found = next((m for m in (_answer("en").match(plain), _answer("zh").match(plain)) if m), None)
    return plain[found.end() :] if found is not None and found.end() < len(plain) else text


@cache
def _answer(language: Language) -> re.Pattern[str]:
    either = "|".join(sorted(map(re.escape, wording(language).answer), key=len, reverse=True))
    return re.compile(rf"\s*(?:(?:{either})\s*[,，.。!！、:：]+\s*)+", re.IGNORECASE)


@kept(4096)
def _told(text: str) -> frozenset[str]:
    """What a `normalised` text tells besides values, times, cues, and the words that only say what it is about.

    English stems, and pairs of neighbouring Han characters.
    """
    reading = read(text)
    plain = reading.frame
    for time in find_ranges(plain, _ANY_DAY):
        plain = plain.replace(time.text, " ")
    for cue in (*reading.change, *reading.hedge, *reading.addition, *reading.restating, *reading.end):
        plain = plain.replace(cue, " ") if reading.language == "zh" else re.sub(rf"\b{re.escape(cue)}\b", " ", plain)
    words = wording(reading.language)
    lists = [name for name in ("self", "predicate", "particle") if getattr(words, name)]
    for pattern in (topic_words(reading.language)[0], *(matcher(reading.language, name) for name in lists)):
        plain = pattern.sub(" ", plain)
    empty = frozenset(words.empty)
    found: set[str] = set()
    for piece in _WORD.findall(plain):
        if reading.language == "zh" and not piece.isascii():
            found.update(piece[i : i + 2] for i in range(max(1, len(piece) - 1)))
        elif piece not in empty:
            found.add(stem(piece))
    return frozenset(found - empty)
