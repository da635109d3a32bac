"""What two readings have in common and where they part, in numbers for the learned judge.

Everything here is read off the two texts and the two memories' trust; no vectors. Names are stable: they are the
columns of the weights file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from hindsight_core.alignment import PIECE, align, pieces
from hindsight_core.models import Memory
from hindsight_core.slots import Reading, facets_of, subject_differs, value_conflict
from hindsight_core.subjects import contents, subjects
from hindsight_core.values import Value, ValueKind

UNSURE_BELOW = 0.6
CERTAIN = 0.9
KINDS: tuple[ValueKind, ...] = ("number", "time", "date", "weekday", "code")
_NEAR = 3
_NONE: frozenset[str] = frozenset()


def likeness(new: Memory, old: Memory, a: Reading, b: Reading) -> dict[str, float]:
    """The features of one pair, `a` being the old text read and `b` the new one; always the same names."""
    return {
        **_trust(new, old),
        **_sizes(a, b),
        **_words(a, b),
        **_alignment(a, b),
        **_values(a, b),
        **_facets(a, b),
        **_codes(a, b),
        **_subjects(a, b),
        **_cues(a, b),
        **subjects(a, b),
        **contents(a, b),
    }


def _trust(new: Memory, old: Memory) -> dict[str, float]:
    after, before = _certainty(new), _certainty(old)
    found = {
        "certainty_new": after,
        "certainty_old": before,
        "certainty_gap": after - before,
        "unsure": float(after < UNSURE_BELOW),
        "doubtful": float(after < 0.5),
    }
    for source in ("user", "tool", "agent"):
        found[f"new_from_{source}"] = float(new.source == source)
        found[f"old_from_{source}"] = float(old.source == source)
    return found


def _certainty(memory: Memory) -> float:
    """The confidence on one scale for all sources: what is certain for its source is 0.9, what is pending below 0.5."""
    if memory.status == "pending" or memory.kind == "speculation":
        return min(memory.confidence, 0.45)
    return min(CERTAIN, memory.confidence + (0.1 if memory.source == "tool" else 0.0))


def _sizes(a: Reading, b: Reading) -> dict[str, float]:
    before, after = math.log1p(len(a.text)), math.log1p(len(b.text))
    return {
        "chinese": float(b.language == "zh"),
        "cross": float(a.language != b.language),
        "length_old": before,
        "length_new": after,
        "longer": after - before,
    }


def _words(a: Reading, b: Reading) -> dict[str, float]:
    shared = a.terms & b.terms
    return {
        "shared": float(min(4, len(shared))),
        "nothing_shared": float(not shared),
        "old_kept": len(shared) / max(1, len(a.terms)),
        "new_known": len(shared) / max(1, len(b.terms)),
        "jaccard": len(shared) / max(1, len(a.terms | b.terms)),
        "added": math.log1p(len(b.terms - a.terms)),
        "lost": math.log1p(len(a.terms - b.terms)),
    }


def _alignment(a: Reading, b: Reading) -> dict[str, float]:
    found = align(a.text, b.text)
    old, new, left_old, left_new = found.old, found.new, found.left_old, found.left_new
    starts = set(old[:3])
    swap = bool(left_old) and bool(left_new) and found.matched > 0
    return {
        "aligned_old": found.matched / max(1, len(old)),
        "aligned_new": found.matched / max(1, len(new)),
        "longest": found.longest / max(1, len(old)),
        "same_head": found.head / max(1, len(old)),
        "same_tail": found.tail / max(1, len(old)),
        "head_swapped": float(swap and found.head == 0 and found.tail > 0),
        "tail_swapped": float(swap and found.tail == 0 and found.head > 0),
        "middle_swapped": float(swap and found.tail > 0 and found.head > 0),
        "small_swap": float(swap and len(left_old) <= 3 and len(left_new) <= 3),
        "only_added": float(not left_old and bool(left_new)),
        "only_lost": float(bool(left_old) and not left_new),
        "head_kept": len(starts & set(new)) / max(1, len(starts)),
        "head_known": len(set(new[:3]) & set(old)) / max(1, len(set(new[:3]))),
        "left_old": math.log1p(len(left_old)),
        "left_new": math.log1p(len(left_new)),
        "digits_swapped": float(swap and _has_digit(left_old) and _has_digit(left_new)),
        "digits_came": float(not _has_digit(left_old) and _has_digit(left_new)),
        "order": float(min(3, found.runs)),
        "label_other": float(_relabelled(old, new)),
    }


def _labels(side: Sequence[str]) -> dict[tuple[str, bool], str]:
    """What stands before (True) or after each word at the head of a text: it tells team red from team blue."""
    head = side[:4]
    before = {(word, True): label for label, word in pairwise(head)}
    return before | {(word, False): label for word, label in pairwise(head)}


def _relabelled(old: Sequence[str], new: Sequence[str]) -> bool:
    before, after = _labels(old), _labels(new)
    shared = set(old) & set(new)
    return any(
        word in after and after[word] != label and label not in shared and after[word] not in shared
        for word, label in before.items()
    )


def _has_digit(items: Sequence[str]) -> bool:
    return any(map(str.isdigit, "".join(items)))


def _values(a: Reading, b: Reading) -> dict[str, float]:
    found = {"conflict": float(value_conflict(a, b)), "same_frame": float(a.frame == b.frame)}
    old, new = a.norms, b.norms
    for kind in KINDS:
        before, after = old.get(kind, _NONE), new.get(kind, _NONE)
        found |= {
            f"{kind}_same": float(bool(before) and before <= after),
            f"{kind}_shared": float(not before.isdisjoint(after)),
            f"{kind}_other": float(bool(before) and bool(after) and before.isdisjoint(after)),
            f"{kind}_came": float(not before and bool(after)),
            f"{kind}_gone": float(bool(before) and not after),
        }
    numbers = [(v, w) for v in a.values for w in b.values if v.kind == w.kind == "number" and v.norm != w.norm]
    units = a.units, b.units
    found |= {
        "unit_shared": float(bool(units[0] & units[1])),
        "unit_other": float(bool(units[0]) and bool(units[1]) and not units[0] & units[1]),
        "number_ratio": min((_ratio(v, w) for v, w in numbers), default=0.0),
        "number_context": float(any(_context(a, v) & _context(b, w) for v, w in numbers)),
        "any_shared": float(bool(a.states & b.states)),
        "values_old": float(min(3, len(a.values))),
        "values_new": float(min(3, len(b.values))),
    }
    return found


def _ratio(v: Value, w: Value) -> float:
    x, y = float(v.norm), float(w.norm)
    return min(3.0, abs(math.log((x + 1) / (y + 1)))) if x >= 0 and y >= 0 else 3.0


def _context(reading: Reading, value: Value) -> frozenset[str]:
    """The words right before and after a value: they name what it measures."""
    before, after = pieces(reading.text[: value.start])[-1:], pieces(reading.text[value.end :])[:1]
    return frozenset(before + after)


def _facets(a: Reading, b: Reading) -> dict[str, float]:
    same, other = facets_of(a, b)
    before, after = {facet for facet, _ in a.facets}, {facet for facet, _ in b.facets}
    topics = a.topics & b.topics
    return {
        "topic_shared": float(min(3, len(topics))),
        "topic_other": float(bool(a.topics) and bool(b.topics) and not topics),
        "topic_most": len(topics) / max(1, min(len(a.topics), len(b.topics))),
        "topic_none": float(not a.topics or not b.topics),
        "facet_same": float(min(2, same)),
        "facet_other": float(min(2, other)),
        "facet_gone": float(bool(before - after)),
        "facet_came": float(bool(after - before)),
    }


def _codes(a: Reading, b: Reading) -> dict[str, float]:
    old, new = a.identifiers, b.identifiers
    return {
        "identifier_shared": float(bool(old & new)),
        "identifier_other": float(bool(old) and bool(new) and not old & new),
        "identifier_alike": float(identifiers_alike(a, b)),
        "identifier_lost": float(bool(old) and not new),
    }


def identifiers_alike(a: Reading, b: Reading) -> bool:
    """Whether they name two identifiers that are easily mistaken for each other, and none in common."""
    old, new = a.identifiers, b.identifiers
    return bool(old and new) and not old & new and any(_alike(x, y) for x in old for y in new)


def _alike(x: str, y: str) -> bool:
    """Same length and letters in another order, or one or two characters apart."""
    if len(x) != len(y):
        return False
    return sorted(x) == sorted(y) or sum(p != q for p, q in zip(x, y, strict=True)) <= max(1, len(x) // 4)


def _subjects(a: Reading, b: Reading) -> dict[str, float]:
    found = {
        "subject_differs": float(subject_differs(a, b)),
        "own_both": float(a.own and b.own),
        "own_old": float(a.own and not b.own),
        "own_new": float(b.own and not a.own),
        "other_new": float(bool(b.other) and not a.other),
        "other_both": float(bool(b.other) and bool(a.other)),
    }
    for name, before, after in (("kin", a.kin, b.kin), ("place", a.place, b.place), ("name", a.names, b.names)):
        found |= {
            f"{name}_shared": float(bool(before & after)),
            f"{name}_other": float(bool(before) and bool(after) and not before & after),
            f"{name}_came": float(not before and bool(after)),
            f"{name}_gone": float(bool(before) and not after),
        }
    return found


def _cues(a: Reading, b: Reading) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, before, after in (
        ("change", a.change, b.change),
        ("hedge", a.hedge, b.hedge),
        ("addition", a.addition, b.addition),
        ("negation", a.negation, b.negation),
        ("past", a.past, b.past),
        ("end", a.end, b.end),
        ("restating", a.restating, b.restating),
    ):
        found |= {
            f"{name}_new": float(min(3, len(after))),
            f"{name}_old": float(bool(before)),
            f"{name}_flips": float(bool(before) != bool(after)),
        }
    found |= {
        "change_near": _near(a, b, b.change + b.end),
        "negation_near": _near(a, b, b.negation),
        "asks": float(b.text.rstrip().endswith(("?", "？"))),
    }
    return found


def _near(a: Reading, b: Reading, cues: tuple[str, ...]) -> float:
    """Whether a cue of the new text stands within three pieces of a piece of the old one."""
    if not cues:
        return 0.0
    known, new = {*pieces(a.text)}, pieces(b.text)
    marks = {piece for cue in cues for piece in PIECE.findall(cue)}
    at = [i for i, piece in enumerate(new) if piece in marks]
    kept = [j for j, piece in enumerate(new) if piece in known and piece not in marks]
    return float(any(abs(i - j) <= _NEAR for i in at for j in kept))
