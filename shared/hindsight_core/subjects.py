"""Who or what a statement begins with, and what it says besides its values: read off the words, without a parser."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from hindsight_core.lexical import stem

if TYPE_CHECKING:
    from hindsight_core.slots import Reading
    from hindsight_core.values import Value

SubjectKind: TypeAlias = Literal["self", "kin", "pronoun", "owned", "thing", "none"]

HAN = r"\u3400-\u4dbf\u4e00-\u9fff"
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_PIECE = re.compile(rf"[{HAN}]|[^\W_{HAN}]+(?:[.:/-][^\W_{HAN}]+)*|'(?:s|re|ve|ll|d|m|t)\b")
_HAN = re.compile(f"[{HAN}]")
_PLACED = re.compile(rf"\w+ \w+ at |[{HAN}]{{2,4}}?在")
_QUOTES = "“\"'《（( 「"
_MOST = 5
_MUCH = 0.75


class Opening(msgspec.Struct, frozen=True):
    """The words that open a subject: the user's own name and pronouns, what makes a thing theirs, the rest."""

    self: tuple[str, ...]
    own: tuple[str, ...]
    article: tuple[str, ...]
    pronoun: tuple[str, ...]


class Subject(msgspec.Struct, frozen=True):
    """What a statement begins with.

    `head` is the canonical name of a relative, or the first word (in Chinese, two characters) of a thing's name.
    """

    kind: SubjectKind
    head: str


def subject_of(text: str, opening: Opening, kin: tuple[re.Pattern[str], Mapping[str, str]], *, spaced: bool) -> Subject:
    """The subject of a `normalised` text; `spaced` where the language writes spaces between words."""
    return _spaced(text, opening, kin[1]) if spaced else _unspaced(text, opening, kin)


def _spaced(text: str, opening: Opening, kin: Mapping[str, str]) -> Subject:
    words = _WORD.findall(text[:80])
    if words and words[0] in opening.self:
        return Subject("self", "")
    owned = bool(words) and words[0] in opening.own
    if words and (owned or words[0] in opening.article):
        del words[0]
    if not words:
        return Subject("none", "")
    word = words[0].removesuffix("'s")
    if word in kin:
        return Subject("kin", kin[word])
    if words[0] in opening.pronoun:
        return Subject("pronoun", "")
    return Subject("owned" if owned else "thing", stem(word))


def _unspaced(text: str, opening: Opening, kin: tuple[re.Pattern[str], Mapping[str, str]]) -> Subject:
    text = text.lstrip(_QUOTES)
    own = max((word for word in opening.self if text.startswith(word)), key=len, default="")
    rest = text[len(own) :]
    relative = kin[0].match(text) or kin[0].match(rest)
    if relative:
        return Subject("kin", kin[1][relative.group()])
    if own:
        return Subject("self", "")
    return Subject("pronoun", "") if rest[:1] in opening.pronoun else Subject("thing", rest[:2])


def content_of(
    text: str, values: Sequence[Value], cues: Sequence[str], empty: frozenset[str]
) -> tuple[tuple[str, ...], frozenset[str]]:
    """What a `normalised` text says besides values, cues and words that carry nothing: English stems, Han characters.

    In order, and as a set.
    """
    spoken = {piece for cue in cues for piece in _PIECE.findall(cue)}
    found: list[str] = []
    for match in _PIECE.finditer(text):
        piece = match.group()
        if piece in empty or piece in spoken or any(v.start <= match.start() < v.end for v in values):
            continue
        found.append(piece if _HAN.match(piece) else stem(piece))
    return tuple(found), frozenset(found)


def subjects(a: Reading, b: Reading) -> dict[str, float]:
    """Whether both begin with the user, a relative or a thing, with the same one, and whose head the other mentions."""
    x, y = a.subject, b.subject
    things = {"thing", "owned"}
    before, after = x.kind in things, y.kind in things
    alike = x.head == y.head
    kept, known = _mentions(b, x), _mentions(a, y)
    same = (before and after and alike) or (x.kind == y.kind and (x.kind == "self" or (x.kind == "kin" and alike)))
    return {
        "subject_self_old": float(x.kind == "self"),
        "subject_self_new": float(y.kind == "self"),
        "subject_kin_old": float(x.kind == "kin"),
        "subject_kin_new": float(y.kind == "kin"),
        "subject_thing_old": float(before),
        "subject_thing_new": float(after),
        "subject_pronoun_new": float(y.kind == "pronoun"),
        "subject_same": float(same),
        "subject_kin_other": float(x.kind == y.kind == "kin" and not alike),
        "subject_self_or_kin": float({x.kind, y.kind} == {"self", "kin"}),
        "subject_self_to_thing": float(x.kind == "self" and after),
        "subject_thing_to_self": float(y.kind == "self" and before),
        "subject_thing_other": float(before and after and not alike),
        "subject_kept": float(before and kept),
        "subject_known": float(after and known),
        "subject_lost": float(before and not kept),
        "subject_came": float(after and not known),
    }


def _mentions(reading: Reading, subject: Subject) -> bool:
    if not subject.head:
        return False
    return subject.head in (reading.text if _HAN.match(subject.head) else reading.terms)


def contents(a: Reading, b: Reading) -> dict[str, float]:
    """How much of what each says besides its values the other says too, and what was put in its place."""
    (x, before), (y, after) = a.content, b.content
    shared, gone, came = before & after, before - after, after - before
    held, known = len(shared) / max(1, len(before)), len(shared) / max(1, len(after))
    most = max(held if before else 1.0, known if after else 1.0)
    swapped, kept, unit = _exchange(a, b)
    few = not swapped and bool(shared) and 0 < len(gone) <= 2 and len(came) > 0
    head, tail = bool(x) and x[0] in after, bool(x) and x[-1] in after
    inside = before <= after or after <= before
    return {
        "content_shared": float(min(_MOST, len(shared))),
        "content_held": held,
        "content_known": known,
        "content_gone": math.log1p(len(gone)),
        "content_came": math.log1p(len(came)),
        "content_same": float(bool(before) and before == after),
        "content_old_inside": float(before <= after),
        "content_new_inside": float(after <= before),
        "content_most": most,
        "content_head": float(head),
        "content_tail": float(tail),
        "content_new_head": float(bool(y) and y[0] in before),
        "content_first": float(bool(x) and bool(y) and x[0] == y[0]),
        "content_last": float(bool(x) and bool(y) and x[-1] == y[-1]),
        "exchange": float(swapped),
        "exchange_kept": float(kept),
        "exchange_unit": float(swapped and unit),
        "exchange_inside": float(swapped and inside),
        "exchange_most": most if swapped else 0.0,
        "exchange_only": float(swapped and not kept and most >= 0.5),
        "exchange_none": float(not a.values and not b.values),
        "word_exchange": float(few and len(came) <= 2),
        "word_exchange_tail": float(few and len(came) <= 3 and head),
        "word_exchange_head": float(few and len(came) <= 3 and not head and tail),
    }


def restated(a: Reading, b: Reading) -> bool:
    """Whether the new one says of the same subject, in much the same words, another value and keeps none.

    Where both say where something is, the street counts with the value.
    """
    swapped, kept, _ = _exchange(a, b)
    if swapped and not kept and _same_opening(a, b):
        return True
    (_, before), (_, after) = a.content, b.content
    least = min(len(before), len(after))
    if not swapped or kept or len(before & after) < _MUCH * least or a.subject.kind == "none":
        return False
    x, y = a.subject, b.subject
    if "kin" in {x.kind, y.kind} or x.kind == y.kind == "self":
        return x == y
    # Where Chinese names a thing by one character, the second is already what is said of it.
    short = _HAN.match(x.head) is not None and x.head[:1] == y.head[:1]
    return short or x.head == y.head or _mentions(b, x) or _mentions(a, y)


def _same_opening(a: Reading, b: Reading) -> bool:
    """Whether both begin with the same words and then say where: "I live at 5 …", whatever the street is called."""
    before, after = _PLACED.match(a.text), _PLACED.match(b.text)
    if before is None or after is None or before.group() != after.group():
        return False
    first, second = a.values[0], b.values[0]
    return first.kind == second.kind == "number" and min(first.start, second.start) >= before.end()


def _exchange(a: Reading, b: Reading) -> tuple[bool, bool, bool]:
    """Whether some kind of value is another one, some kind has one in common, and an exchanged one has its unit."""
    swapped = kept = unit = False
    for kind in {value.kind for value in a.values}:
        before = [value for value in a.values if value.kind == kind]
        after = [value for value in b.values if value.kind == kind]
        if not after:
            continue
        if {value.norm for value in before} & {value.norm for value in after}:
            kept = True
        else:
            swapped = True
            unit = unit or bool({value.unit for value in before} & {value.unit for value in after})
    return swapped, kept, unit
