"""What a new memory can mean for an old one, and probabilities of it."""

from __future__ import annotations

from typing import Literal, TypeAlias

Relation: TypeAlias = Literal["supersede", "duplicate", "refine", "pending", "coexist", "unrelated"]
RELATIONS: tuple[Relation, ...] = ("supersede", "duplicate", "refine", "pending", "coexist", "unrelated")
Odds: TypeAlias = dict[Relation, float]


def only(relation: Relation) -> Odds:
    """Certainty."""
    return {name: float(name == relation) for name in RELATIONS}
