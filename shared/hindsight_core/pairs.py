"""The judge of one pair: what a new memory means for an old one, with probabilities and evidence.

The learned model (`pair_model.py`) judges where the vectors are those it was trained on, rules judge otherwise. Either
way the guards have the last word: they move probability away from what must never happen.
"""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.guards import guarded, is_weak
from hindsight_core.models import Memory
from hindsight_core.relations import RELATIONS, Odds, Relation, only
from hindsight_core.slots import Reading, same_text, subject_differs, value_conflict

Order: TypeAlias = Literal["newer", "older", "unclear"]

_SPAN_MS = {"instant": 0.0, "day": 86_400e3, "month": 31 * 86_400e3, "year": 366 * 86_400e3}


class PairDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What the new one means for the old one: the likeliest relation, all six probabilities (they sum to 1), why.

    `why` names a sentence of `language/*/reconcile.toml`; `evidence` says who judged, and what the guards changed;
    `concern`, in [0, 1], how far the two speak of one matter at all (1 where rules judge).
    """

    relation: Relation
    probabilities: Odds
    why: str
    evidence: dict[str, Any]
    concern: float = 1.0


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One old memory, its vector, and the cosine of both bare centred vectors."""

    old: Memory
    cosine: float
    vector: NDArray[np.float32] | None = None


def weighed(
    new: Memory,
    candidate: Candidate,
    a: Reading,
    b: Reading,
    learned: Odds | None,
    concern: float | None,
    judge: str = "model",
    *,
    said: NDArray[np.float32] | None = None,
) -> PairDecision:
    """The decision on one pair from what was `learned` of it, or by rules; the guards have the last word."""
    old = candidate.old
    evidence: dict[str, object] = {
        "judge": "rules" if learned is None else judge,
        "cosine": round(candidate.cosine, 4),
        "weak": is_weak(new, old),
    }
    if concern is not None:
        evidence["concern"] = round(concern, 4)
    if said is not None:
        evidence["read"] = {name: round(math.exp(p), 4) for name, p in zip(RELATIONS, said.tolist(), strict=True)}
    if same_text(a, b):
        return PairDecision(
            relation="duplicate",
            probabilities=only("duplicate"),
            why="same_text",
            evidence=evidence | {"guards": ["same_text"]},
        )
    judged = _by_rules(candidate.cosine, a, b) if learned is None else learned
    odds, guards = guarded(judged, new, old, a, b)
    evidence |= {
        "shared": sorted(a.terms & b.terms)[:8],
        "change": list(b.change[:4]),
        "hedge": list(b.hedge[:4]),
        "conflict": value_conflict(a, b),
        "subject_differs": subject_differs(a, b),
        "guards": guards,
    }
    if guards and judge == "model" and learned is not None:
        evidence["judged"] = {name: round(p, 4) for name, p in judged.items()}
    best = max(RELATIONS, key=lambda name: odds[name])
    share = 1.0 if concern is None else concern
    return PairDecision(relation=best, probabilities=odds, why=_why(a, b), evidence=evidence, concern=share)


def _why(a: Reading, b: Reading) -> str:
    if b.change or b.end:
        return "why_change"
    if value_conflict(a, b):
        return "why_value"
    return "why_negation" if bool(a.negation) != bool(b.negation) else "why_model"


def _by_rules(cosine: float, a: Reading, b: Reading) -> Odds:
    conflict, shared = value_conflict(a, b), a.terms & b.terms
    frame = len(shared) / max(1, min(len(a.terms), len(b.terms)))
    related = 1 / (1 + math.exp(-12 * (max(cosine, 0.5 * frame) - 0.35)))
    scores: Odds = dict.fromkeys(RELATIONS, 0.02)
    scores["unrelated"] = 1 - related + 0.1
    scores["coexist"] = 0.35 * related + (0.6 * related if b.addition else 0.0)
    flips = bool(a.negation) != bool(b.negation)
    if subject_differs(a, b):
        scores["unrelated"] += 1.5
    elif b.change and (shared or conflict) and not b.addition:
        scores["supersede"] += 4.5 * related
    elif conflict or flips:
        scores["supersede"] += 0.8 * related
    else:
        scores["supersede"] += 0.2 * related
    if not conflict and not flips and not b.change and not (a.terms - b.terms and b.terms - a.terms):
        more = len(b.terms - a.terms) > len(shared) or bool(b.states - a.states)
        scores["refine" if more else "duplicate"] += 2.0 * related * frame * max(cosine, 0.0)
    total = sum(scores.values())
    return {name: scores[name] / total for name in RELATIONS}


def order_of(new: Memory, old: Memory) -> Order:
    """Which was observed later, as far as both dates' precision tells; equal instants count as newer.

    What was announced for a time after the new one begins comes after it, whenever it was said.
    """
    if old.valid_from > max(new.valid_from, new.created_at):
        return "older"
    start = (new.observed_at or new.valid_from).timestamp() * 1000
    begin = (old.observed_at or old.valid_from).timestamp() * 1000
    end = start + _SPAN_MS[new.precision if new.observed_at else "instant"]
    finish = begin + _SPAN_MS[old.precision if old.observed_at else "instant"]
    if start >= begin and (start >= finish or old.precision == "day"):
        return "newer"
    if end <= begin:
        return "older"
    return "unclear"
