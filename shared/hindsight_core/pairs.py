"""The judge of one pair: what a new memory means for an old one, with probabilities and evidence."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.models import Memory
from hindsight_core.slots import Reading, read, same_text

Relation: TypeAlias = Literal["supersede", "duplicate", "refine", "pending", "coexist", "unrelated"]
RELATIONS: tuple[Relation, ...] = ("supersede", "duplicate", "refine", "pending", "coexist", "unrelated")
Order: TypeAlias = Literal["newer", "older", "unclear"]

UNSURE_BELOW = 0.6
GAP = 0.3
_SPAN_MS = {"instant": 0.0, "day": 86_400e3, "month": 31 * 86_400e3, "year": 366 * 86_400e3}


class PairDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What the new one means for the old one: the likeliest relation, all six probabilities (they sum to 1), why."""

    relation: Relation
    probabilities: dict[Relation, float]
    why: str
    evidence: dict[str, object]


def decide_pair(
    new: Memory,
    old: Memory,
    *,
    cosine: float,
    new_vector: NDArray[np.float32] | None = None,  # noqa: ARG001 - for the learned part
    old_vector: NDArray[np.float32] | None = None,  # noqa: ARG001 - for the learned part
    embedding_model: str | None = None,  # noqa: ARG001 - for the learned part
) -> PairDecision:
    """Judge one pair by what both say; which is newer is the caller's question (`order_of`).

    `cosine` is that of the bare centred vectors; the vectors themselves are used where the learned part was trained
    on their `embedding_model`, else rules decide alone.
    """
    a, b = read(old.content), read(new.content)
    weak = is_weak(new, old)
    evidence: dict[str, object] = {"cosine": round(cosine, 4), "weak": weak, "judge": "rules"}
    if same_text(new.content, old.content):
        return _certain("duplicate", "same_text", evidence)
    conflict, frame = value_conflict(a, b), _overlap(a, b)
    subject = subject_differs(a, b)
    evidence |= {
        "conflict": conflict,
        "shared_terms": sorted(a.terms & b.terms),
        "subject_differs": subject,
        "change": list(b.change),
        "hedge": list(b.hedge),
    }
    why = "why_model"
    related = 1 / (1 + math.exp(-12 * (max(cosine, 0.5 * frame) - 0.35)))
    scores: dict[Relation, float] = dict.fromkeys(RELATIONS, 0.02)
    scores["unrelated"] = 1 - related + 0.1
    scores["coexist"] = 0.35 * related + (0.6 * related if b.addition else 0.0)
    if subject:
        scores["unrelated"] += 1.5
    else:
        flips = bool(a.negation) != bool(b.negation)
        shared = bool(a.terms & b.terms)
        if b.change and (shared or conflict) and not b.addition:
            scores["supersede"] += 4.5 * related
            why = "why_change"
        elif conflict:
            scores["supersede"] += 0.8 * related
            why = "why_value"
        elif flips:
            scores["supersede"] += 0.7 * related
            why = "why_negation"
        else:
            scores["supersede"] += 0.2 * related
        if not conflict and not flips and not b.change:
            more = len(b.terms - a.terms) > len(a.terms & b.terms) or bool(b.states - a.states)
            scores["refine" if more else "duplicate"] += 2.0 * related * frame * max(cosine, 0.0)
    if weak:
        scores["pending"] += scores.pop("supersede") * 1.5
        scores["supersede"] = 0.0
    total = sum(scores.values())
    probabilities: dict[Relation, float] = {name: scores[name] / total for name in RELATIONS}
    best = max(RELATIONS, key=lambda name: probabilities[name])
    return PairDecision(relation=best, probabilities=probabilities, why=why, evidence=evidence)


def is_weak(new: Memory, old: Memory) -> bool:
    """Whether the new one may not replace the old one: a guess, hearsay or a plan, or much less certain."""
    return (
        new.status == "pending"
        or new.kind == "speculation"
        or new.confidence < min(UNSURE_BELOW, old.confidence)
        or (new.source == "agent" and old.source != "agent" and new.confidence < old.confidence)
        or new.confidence < old.confidence - GAP
    )


def order_of(new: Memory, old: Memory) -> Order:
    """Which was observed later, as far as both dates' precision tells; equal instants count as newer."""
    start = (new.observed_at or new.valid_from).timestamp() * 1000
    begin = (old.observed_at or old.valid_from).timestamp() * 1000
    end = start + _SPAN_MS[new.precision if new.observed_at else "instant"]
    finish = begin + _SPAN_MS[old.precision if old.observed_at else "instant"]
    if start >= begin and (start >= finish or old.precision == "day"):
        return "newer"
    if end <= begin or (end == start < begin):
        return "older"
    return "unclear"


def value_conflict(a: Reading, b: Reading) -> bool:
    """Whether both state values of one kind and none of the old ones is kept."""
    for kind in {value.kind for value in a.values}:
        before = {value.norm for value in a.values if value.kind == kind}
        after = {value.norm for value in b.values if value.kind == kind}
        if after and not before & after:
            return True
    return False


def subject_differs(a: Reading, b: Reading) -> bool:
    """Whether the two speak of different people, or of different ones of several like places or things."""
    if a.kin != b.kin and not (a.kin & b.kin):
        if a.kin and b.kin:
            return True
        if (a.kin or b.kin) and a.own == b.own and not _shared_name(a, b):
            return True
    return bool(a.place and b.place and not a.place & b.place)


def _shared_name(a: Reading, b: Reading) -> bool:
    return bool(a.names & b.names)


def _overlap(a: Reading, b: Reading) -> float:
    return len(a.terms & b.terms) / max(1, min(len(a.terms), len(b.terms)))


def _certain(relation: Relation, why: str, evidence: dict[str, object]) -> PairDecision:
    probabilities: dict[Relation, float] = {name: float(name == relation) for name in RELATIONS}
    return PairDecision(relation=relation, probabilities=probabilities, why=why, evidence=evidence)
