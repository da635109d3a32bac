"""What a store means, in plain Python over a list of records: slow, obvious, and what every store is held against."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hindsight_core.caller import millis
from hindsight_core.lexical import idf
from hindsight_core.models import Parts, Scalar
from hindsight_core.scoring import bm25, evaluate_one
from hindsight_core.stores import Query, Record, Vector, Where


def satisfies(where: Where, record: Record) -> bool:
    memory = record.memory
    for wanted, value in (
        (where.user_id, memory.user_id),
        (where.session_id, memory.session_id),
        (where.task_id, memory.task_id),
        (where.key, memory.key),
    ):
        if wanted is not None and value != wanted:
            return False
    if where.no_user and memory.user_id is not None:
        return False
    if memory.visibility == "private" and where.reader != "*" and where.reader != memory.agent_id:
        return False
    if memory.visibility == "private" and where.reader is None:
        return False
    for allowed, held in (
        (where.statuses, memory.status),
        (where.memory_types, memory.memory_type),
        (where.kinds, memory.kind),
        (where.sources, memory.source),
        (where.ids, memory.id),
    ):
        if allowed is not None and held not in allowed:
            return False
    if not set(where.tags_all) <= set(memory.tags):
        return False
    if where.tags_any and not set(where.tags_any) & set(memory.tags):
        return False
    for name, scalars in where.metadata.items():
        value = memory.metadata.get(name)
        held_values = value if isinstance(value, list) else [value]
        if not any(_same(one, other) for one in scalars for other in held_values):
            return False
    observed = None if memory.observed_at is None else millis(memory.observed_at)
    if where.observed_from is not None and (observed is None or observed < where.observed_from):
        return False
    if where.observed_to is not None and (observed is None or observed >= where.observed_to):
        return False
    if where.begun_at is not None and millis(memory.valid_from) > where.begun_at:
        return False
    until = None if memory.valid_to is None else millis(memory.valid_to)
    if where.lasting_at is not None and until is not None and until <= where.lasting_at:
        return False
    ends = None if memory.expires_at is None or memory.pinned else millis(memory.expires_at)
    if where.alive_at is not None and ends is not None and ends <= where.alive_at:
        return False
    if where.derived_from is not None and not set(where.derived_from) & set(memory.derived_from):
        return False
    return where.expired_at is None or (ends is not None and ends <= where.expired_at)


def _same(one: Scalar, other: Scalar | None) -> bool:
    numbers = (int, float)
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, numbers) and isinstance(other, numbers):
        return one == other
    return isinstance(one, str) and isinstance(other, str) and one == other


def idfs(records: Sequence[Record], terms: Sequence[str]) -> dict[str, float]:
    counted = [record for record in records if record.memory.memory_type != "working"]
    return {term: idf(len(counted), sum(term in record.index.text for record in counted)) for term in terms}


def cosine(one: Vector | None, other: Vector | None) -> float | None:
    return None if one is None or other is None else float(one.astype(np.float64) @ other.astype(np.float64))


def ranked(records: Sequence[Record], query: Query) -> list[tuple[str, float, Parts]]:
    """Every eligible memory that reaches `min_score`, best first."""
    weights = idfs(records, query.terms)
    found: list[tuple[str, float, Parts]] = []
    for record in eligible(records, query.where):
        score, parts = evaluate_one(
            query.formula,
            record.memory,
            record.index,
            cosine=cosine(query.vector, record.mixed),
            bm25=bm25(query.terms, weights, record.index),
            now=query.now,
        )
        if score >= query.min_score:
            found.append((record.memory.id, score, parts))
    return sorted(found, key=lambda hit: (hit[1], hit[0]), reverse=True)


def eligible(records: Sequence[Record], where: Where) -> list[Record]:
    return [r for r in records if r.memory.memory_type != "working" and satisfies(where, r)]
