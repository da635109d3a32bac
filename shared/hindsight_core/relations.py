"""What a new memory can mean for an old one, and probabilities of it."""

from __future__ import annotations

from typing import Literal, TypeAlias

Relation: TypeAlias = Literal["supersede", "duplicate", "refine", "pending", "coexist", "unrelated"]
RELATIONS: tuple[Relation, ...] = ("supersede", "duplicate", "refine", "pending", "coexist", "unrelated")
Odds: TypeAlias = dict[Relation, float]

TASKS = ("chosen", "among")
CHOSEN, AMONG = slice(0, len(RELATIONS)), slice(len(RELATIONS), 2 * len(RELATIONS))
"""Of what a `PairReader` says of two texts: what the new one means if somebody chose to compare them, and what it means
where the old one is just one of several neighbours."""


def only(relation: Relation) -> Odds:
    """Certainty."""
    return {name: float(name == relation) for name in RELATIONS}
