"""What the thresholds, and a judge where one was asked, make of the probabilities of one pair."""

from __future__ import annotations

from typing import Literal

import msgspec

from hindsight_core.guards import is_weak
from hindsight_core.judging import Ruling
from hindsight_core.models import Memory
from hindsight_core.pairs import Order, PairDecision, order_of
from hindsight_core.relations import RELATIONS, Odds, Relation


class ReconcileSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Probabilities in [0, 1] from which the judge's word is acted on, and how many one write may supersede or contest.

    `contest_at` holds for a new one that finds one neighbour alone, `contest_among_at` where there are several, and
    `contest_lost_at` where the new one would else be a duplicate: what it says would be lost.
    `concern_alone_at`: how surely both must speak of one matter before the new one supersedes its only neighbour
    unasked. Where there are several, the probabilities know how many are bystanders; what a rule makes of one that is
    concerned less than `concern_among_at` is asked.
    """

    supersede_at: float = 0.91
    contest_at: float = 0.2
    contest_among_at: float = 0.25
    contest_lost_at: float = 0.2
    concern_alone_at: float = 0.98
    concern_among_at: float = 0.5
    duplicate_at: float = 0.4
    refine_at: float = 0.4
    suppressed_at: float = 0.5
    max_superseded: int = 5
    max_contested: int = 2


DEFAULTS = ReconcileSettings()


class Judged(msgspec.Struct, frozen=True):
    """A pair with its verdict; `probability` is that of supersession after the limits, `ruling` a judge's word."""

    old: Memory
    pair: PairDecision
    order: Order
    probability: float
    why: str
    verdict: Relation | Literal["contest"]
    ruling: Ruling | None = None


def verdict(
    odds: Odds, supersession: float, settings: ReconcileSettings, *, alone: bool = True
) -> Relation | Literal["contest"]:
    """What the thresholds make of one pair's probabilities, `supersession` standing in for that of superseding."""
    if supersession >= settings.supersede_at:
        return "supersede"
    floors: Odds = {"supersede": 2.0, "duplicate": settings.duplicate_at, "refine": settings.refine_at}
    best: Relation = "unrelated"
    for name in RELATIONS:
        if odds[name] >= floors.get(name, 0.0) and odds[name] > odds[best]:
            best = name
    doubt = settings.contest_at if alone else settings.contest_among_at
    if best == "duplicate":
        doubt = min(doubt, settings.contest_lost_at)
    return "contest" if supersession >= doubt else best


def judge_pair(new: Memory, old: Memory, pair: PairDecision, settings: ReconcileSettings, *, alone: bool) -> Judged:
    """The verdict on one pair; `alone` where it is the only neighbour."""
    order = order_of(new, old)
    probability, why = pair.probabilities["supersede"], pair.why
    ceiling = settings.supersede_at - 1e-6
    # Two keys are two slots, whatever the texts look like.
    if new.key is not None and old.key is not None and new.key != old.key:
        probability, why = 0.0, "why_keys"
    # Where it is not clear that the two speak of one matter, asking is all that is safe.
    named = "named" in pair.evidence.get("guards", ())
    ruled_only = not {"renews", "reset", "record"}.isdisjoint(pair.evidence.get("guards", ()))
    needed = settings.concern_alone_at if alone else settings.concern_among_at if ruled_only else 0.0
    if not named and pair.concern < needed:
        probability = min(probability, ceiling)
    if order == "unclear" and probability > ceiling:
        probability, why = ceiling, "why_order"
    if new.kind == old.kind == "preference" and why not in {"why_change", "why_negation"} and probability > ceiling:
        probability, why = ceiling, "why_preference"
    return Judged(old, pair, order, probability, why, verdict(pair.probabilities, probability, settings, alone=alone))


def ruled(new: Memory, item: Judged, ruling: Ruling | None) -> Judged:
    """With the judge's word, unless rules forbid it: no guess replaces, and texts that differ are no duplicates."""
    if ruling is None or ruling.verdict == "unclear":
        return item
    found = ruling.verdict
    if found == "supersede" and is_weak(new, item.old):
        found = "pending"
    if found in {"supersede", "refine"} and (item.order == "unclear" or item.why == "why_keys"):
        return item
    if found == "duplicate" and "differs" in item.pair.evidence.get("guards", ()):
        return item
    probability = 1.0 if found == "supersede" else 0.0
    return msgspec.structs.replace(item, verdict=found, probability=probability, ruling=ruling)


def by_probability(item: Judged) -> tuple[float, str]:
    """A sorting key: likeliest first."""
    return -item.probability, item.old.id
