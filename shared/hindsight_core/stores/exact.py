"""Exact search over a resident namespace: the best by a formula, and the nearest by bare vectors."""

from __future__ import annotations

import sqlite3
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hindsight_core.lexical import idf
from hindsight_core.ranking import Weight
from hindsight_core.scoring import MEMORY_TYPES, Evidence, Floats, Mask, Scored, evaluate
from hindsight_core.stores import Neighbour, Query, Ranked, RankedPage, Where
from hindsight_core.stores.conditions import day_label, speaker_label, stamp
from hindsight_core.stores.postings import Postings
from hindsight_core.stores.resident import Resident, Slots
from hindsight_core.stores.rows import IMPACT_SCALE, unpack, unpack_memory, widen

_WORKING = MEMORY_TYPES.index("working")
_CHUNK = 500


def rank(resident: Resident, connection: sqlite3.Connection, query: Query) -> RankedPage:
    """See `MemoryStore.rank`; the resident holds the state that the connection's transaction sees."""
    rankable = resident["memory_type"] != _WORKING
    in_scope = resident.matching(query.scope, _named(resident, connection, query.scope)) & rankable
    eligible = resident.matching(query.where, _named(resident, connection, query.where)) & rankable
    slots = np.flatnonzero(eligible)
    scored = evaluate(query.formula, _evidence(resident, query, slots), query.now)
    reached = scored.score >= query.min_score
    best = _best(scored.score, resident["id"][slots], reached, query.limit)
    return RankedPage(
        hits=_hits(resident, connection, slots[best], scored, best),
        in_scope=int(np.count_nonzero(in_scope)),
        eligible=len(slots),
        below=len(slots) - int(np.count_nonzero(reached)),
    )


def _named(resident: Resident, connection: sqlite3.Connection, where: Where) -> Slots | None:
    if where.ids is None:
        return None
    rows: list[int] = []
    for start in range(0, len(where.ids), _CHUNK):
        some = where.ids[start : start + _CHUNK]
        found = connection.execute(
            "SELECT m.row FROM namespaces n JOIN memories m ON m.namespace = n.number"  # noqa: S608 - question marks
            f" WHERE n.name = ? AND m.id IN ({','.join('?' * len(some))})",
            (resident.namespace, *some),
        )
        rows.extend(row for (row,) in found)
    return resident.slots_of(rows)


def _evidence(resident: Resident, query: Query, slots: Slots) -> Evidence:
    cosine = None
    if query.vector is not None and resident.matrix is not None:
        cosine = resident.matrix.take(slots).astype(np.float64) @ query.vector.astype(np.float64)

    def holding(signal: Weight) -> Mask:
        match signal.field:
            case "speaker":
                return resident.holding([speaker_label(value) for value in signal.values])[slots]
            case "days":
                return resident.holding([day_label(value) for value in signal.values])[slots]
            case "question":
                asks = resident["question"][slots]
                return (asks & ("1" in signal.values)) | (~asks & ("0" in signal.values))
            case "memory_type":
                chosen = [code for code, name in enumerate(MEMORY_TYPES) if name in signal.values]
                return np.isin(resident["memory_type"][slots], chosen)

    return Evidence(
        cosine=cosine,
        bm25=_bm25(resident, query.terms)[slots],
        moment=resident["moment"][slots],
        half_life=resident["half_life"][slots],
        memory_type=resident["memory_type"][slots],
        confidence=resident["confidence"][slots],
        holding=holding,
    )


def _bm25(resident: Resident, terms: tuple[str, ...]) -> Floats:
    counted = resident["live"] & (resident["memory_type"] != _WORKING)
    documents = int(np.count_nonzero(counted))
    text, context = np.zeros(resident.size), np.zeros(resident.size)
    for term in terms:
        token = stamp(term)
        containing = sum(int(np.count_nonzero(counted[slots])) for slots, _ in resident.text.holders(token))
        weight = idf(documents, containing) / IMPACT_SCALE
        _add(resident.text, token, weight, text)
        _add(resident.context, token, weight, context)
    return np.maximum(text, context)


def _add(postings: Postings, token: int, weight: float, sums: Floats) -> None:
    for slots, impacts in postings.holders(token):
        sums[slots] += weight * impacts


def _best(scores: Floats, ids: NDArray[Any], reached: Mask, limit: int) -> Slots:
    """Positions of the best: by score descending, then id descending."""
    chosen = np.flatnonzero(reached)
    if limit < len(chosen):
        least = np.partition(scores[chosen], len(chosen) - limit)[len(chosen) - limit]
        chosen = chosen[scores[chosen] >= least]
    order = np.lexsort((ids[chosen], scores[chosen]))[::-1]
    return chosen[order[:limit]]


def _hits(
    resident: Resident, connection: sqlite3.Connection, slots: Slots, scored: Scored, best: Slots
) -> tuple[Ranked, ...]:
    rows = resident["row"][slots].tolist()
    found = {
        row: unpack_memory(body, count, at)
        for row, body, count, at in connection.execute(
            "SELECT b.row, b.memory, a.count, a.at FROM bodies b LEFT JOIN access a ON a.row = b.row"  # noqa: S608 - question marks
            f" WHERE b.row IN ({','.join('?' * len(rows))})",
            rows,
        )
    }
    return tuple(
        Ranked(memory=found[row], score=float(scored.score[at]), parts=scored.parts(int(at)))
        for row, at in zip(rows, best, strict=True)
    )


def neighbours(
    resident: Resident, connection: sqlite3.Connection, vectors: NDArray[np.float32], where: Where, limit: int
) -> list[list[Neighbour]]:
    """See `MemoryStore.neighbours`; the resident holds the state that the connection's transaction sees."""
    eligible = resident.matching(where, _named(resident, connection, where)) & resident["vector"]
    slots = np.flatnonzero(eligible)
    if not len(slots):
        return [[] for _ in vectors]
    rows = resident["row"][slots].tolist()
    bare = np.concatenate([_bare(connection, rows[i : i + _CHUNK]) for i in range(0, len(rows), _CHUNK)])
    answers: list[list[Neighbour]] = []
    for vector in vectors:
        cosines = bare.astype(np.float64) @ vector.astype(np.float64)
        best = _best(cosines, resident["id"][slots], np.ones(len(slots), np.bool_), limit)
        answers.append(_neighbours(connection, [rows[at] for at in best], cosines[best]))
    return answers


def _bare(connection: sqlite3.Connection, rows: list[int]) -> NDArray[np.float32]:
    marks = ",".join("?" * len(rows))
    found = connection.execute(f"SELECT bare FROM vectors WHERE row IN ({marks}) ORDER BY row", rows)  # noqa: S608 - question marks
    return np.stack([widen(blob) for (blob,) in found])


def _neighbours(connection: sqlite3.Connection, rows: list[int], cosines: Floats) -> list[Neighbour]:
    marks = ",".join("?" * len(rows))
    found = {
        row: unpack(tuple(rest))
        for row, *rest in connection.execute(
            "SELECT b.row, b.memory, b.fields, a.count, a.at, v.bare, v.mixed FROM bodies b"  # noqa: S608 - question marks
            " LEFT JOIN access a ON a.row = b.row LEFT JOIN vectors v ON v.row = b.row"
            f" WHERE b.row IN ({marks})",
            rows,
        )
    }
    return [
        Neighbour(record=found[row], cosine=min(1.0, max(-1.0, float(cosine))))
        for row, cosine in zip(rows, cosines, strict=True)
    ]
