"""The judge of one pair: what a new memory means for an old one, with probabilities and evidence.

The learned model (`pair_model.py`) judges where the vectors are those it was trained on, rules judge otherwise. Either
way the guards have the last word: they move probability away from what must never happen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.closeness import closeness
from hindsight_core.guards import RAISING, guarded, is_weak
from hindsight_core.likeness import likeness
from hindsight_core.models import Memory
from hindsight_core.pair_model import shipped
from hindsight_core.relations import RELATIONS, Odds, Relation, only
from hindsight_core.slots import Reading, fits, read, same_text, subject_differs, value_conflict

Order: TypeAlias = Literal["newer", "older", "unclear"]

# On one writer's memories in one store, 15 of 16 neighbours are bystanders. Reading the eight nearest of them and
# judging the four that most seem concerned misses 6 % of the pairs that matter and costs a fifth of judging all.
_EQUAL = 1e-5
_READ = 8
_JUDGED = 4
_BYSTANDER = 0.2
_NAMED = frozenset(["same", "default"])
CONCERNED = 0.5
"""From which concern on two texts that stand beside each other are related."""

_ENOUGH = 0.75
_ENOUGH_AMONG = 0.97
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


def decide_pair(
    new: Memory,
    old: Memory,
    *,
    cosine: float,
    new_vector: NDArray[np.float32] | None = None,
    old_vector: NDArray[np.float32] | None = None,
    embedding_model: str | None = None,
) -> PairDecision:
    """Judge one pair by what both say; which of them is newer is not asked here (`order_of`). Never raises.

    `embedding_model` is the identity of both vectors: the learned part is used where it was trained on that.
    """
    candidate = Candidate(old=old, cosine=cosine, vector=old_vector)
    return decide_pairs(new, new_vector, [candidate], embedding_model=embedding_model)[0]


def decide_pairs(
    new: Memory,
    new_vector: NDArray[np.float32] | None,
    candidates: Sequence[Candidate],
    *,
    embedding_model: str | None = None,
    least: float = 0.0,
) -> list[PairDecision]:
    """`decide_pair` for all neighbours of a new memory at once, in their order.

    The more there are, the more of them are bystanders: only the nearest are read, only those that may be concerned
    are judged by the model, and its doubt weighs more. Memories that share the new one's key, or name what it names,
    are always judged, unless that changes nothing: where all that the model can say comes to less than `least`, below
    which no probability of the first four relations counts, the guards alone judge, as if it had said `unrelated`.
    """
    b = read(new.content)
    model = shipped()
    if model is None or new_vector is None or not model.fits(embedding_model):
        return [_decide(new, candidate, read(candidate.old.content), b, None, None) for candidate in candidates]
    order = sorted(range(len(candidates)), key=lambda i: (-candidates[i].cosine, candidates[i].old.id))
    best = candidates[order[0]].cosine if order else 0.0
    found: dict[int, PairDecision] = {}
    concerns: dict[int, float] = {}
    likenesses: dict[int, dict[str, float]] = {}
    named: set[int] = set()
    rank, last = 0, best
    for place, i in enumerate(order):
        candidate = candidates[i]
        if candidate.cosine < last - _EQUAL:  # equal texts share their rank
            rank, last = place, candidate.cosine
        old, one_slot = candidate.old, new.key is not None and new.key == candidate.old.key
        if candidate.vector is None or old.embedding_model not in {None, embedding_model}:
            found[i] = _decide(new, candidate, read(old.content), b, None, None)
        elif len(candidates) == 1:
            a = read(old.content)
            likenesses[i] = likeness(new, old, a, b)
            near = closeness(a, b, candidate.cosine, best, rank) | likenesses[i]
            concerns[i] = 1.0 if one_slot else model.concern_alone(near)
        elif one_slot:
            concerns[i] = 1.0
        elif place >= _READ and (b.attribute is None or fits(read(old.content), b) not in _NAMED):
            found[i] = _bystander(candidate, 0.0)
        else:
            a = read(old.content)
            concern = model.concern(closeness(a, b, candidate.cosine, best, rank))
            if fits(a, b) in _NAMED:
                named.add(i)
            if i in named or concern >= _BYSTANDER or same_text(a, b):
                concerns[i] = concern
            else:
                found[i] = _bystander(candidate, concern)
    judged = sorted(concerns, key=lambda i: -concerns[i])
    found |= {
        i: _bystander(candidates[i], concerns[i]) for i in judged[_JUDGED:] if concerns[i] < 1.0 and i not in named
    }
    readings = {i: read(candidates[i].old.content) for i in judged if i not in found}
    for i, a in readings.items():
        if concerns[i] < CONCERNED and _share(concerns[i], len(candidates)) < least:
            unheard = _decide(new, candidates[i], a, b, _BYSTANDS, concerns[i], judge="guards")
            if RAISING.isdisjoint(unheard.evidence["guards"]):
                found[i] = unheard
    rows = [i for i in readings if i not in found]
    if rows:
        odds = model.probabilities(
            [likenesses.get(i) or likeness(new, candidates[i].old, readings[i], b) for i in rows],
            [candidates[i].cosine for i in rows],
            np.stack([np.asarray(candidates[i].vector, dtype=np.float32) for i in rows]),
            np.asarray(new_vector, dtype=np.float32)[None, :],
        )
        for i, row in zip(rows, odds, strict=True):
            learned = concerned(row, concerns[i], len(candidates))
            found[i] = _decide(new, candidates[i], readings[i], b, learned, concerns[i])
    return [found[i] for i in range(len(candidates))]


def concerned(odds: NDArray[np.float64], concern: float, neighbours: int = 1) -> Odds:
    """The model's probabilities for two texts that speak of one matter with probability `concern`.

    Alone, they count in full from `_ENOUGH` on: somebody chose to compare the two. Among n neighbours, of which all
    but one are bystanders, they count by (concern / `_ENOUGH_AMONG`)^(1 + log4 n), at most in full. What the doubt
    takes from the relations that change something goes to those that leave the old one alone.
    """
    found: Odds = {name: float(p) for name, p in zip(RELATIONS, odds, strict=True)}
    share = _share(concern, neighbours)
    taken = 0.0
    for name in RELATIONS[:4]:
        taken += found[name] * (1.0 - share)
        found[name] *= share
    beside = found["coexist"] / max(found["coexist"] + found["unrelated"], 1e-9)
    found["coexist"] += taken * beside
    found["unrelated"] += taken * (1.0 - beside)
    return found


def _share(concern: float, neighbours: int) -> float:
    """How much of the model's word counts; see `concerned`."""
    if neighbours > 1:
        return math.pow(min(1.0, concern / _ENOUGH_AMONG), 1 + math.log(neighbours, 4))
    return min(1.0, concern / _ENOUGH)


_BYSTANDS = only("unrelated")


def _bystander(candidate: Candidate, concern: float) -> PairDecision:
    evidence: dict[str, object] = {
        "judge": "screen",
        "cosine": round(candidate.cosine, 4),
        "concern": round(concern, 4),
    }
    return PairDecision(
        relation="unrelated",
        probabilities=_BYSTANDS.copy(),
        why="why_model",
        evidence=evidence,
        concern=concern,
    )


def _decide(
    new: Memory,
    candidate: Candidate,
    a: Reading,
    b: Reading,
    learned: Odds | None,
    concern: float | None,
    judge: str = "model",
) -> PairDecision:
    old = candidate.old
    evidence: dict[str, object] = {
        "judge": "rules" if learned is None else judge,
        "cosine": round(candidate.cosine, 4),
        "weak": is_weak(new, old),
    }
    if concern is not None:
        evidence["concern"] = round(concern, 4)
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
