"""The nearest memories by their bare vectors, found through the mixed ones that are in memory.

A bare vector b of cosine c with its mixed one m lies at b = c·m + √(1 − c²)·u, u a unit vector across m. So for any
unit q: |q·b − c·(q·m)| ≤ √(1 − c²)·√(1 − (q·m)²). Everything that this bound lets reach `SURE` is compared exactly, and
beyond that the most promising `BREADTH`, by c·(q·m): what a neighbour is missed for is an unlikely u.
"""

from __future__ import annotations

import sqlite3

import numpy as np
from numpy.typing import NDArray

from hindsight_core.scoring import Floats
from hindsight_core.stores import Neighbour, Vector, Where
from hindsight_core.stores.bare import BareVectors, Rows
from hindsight_core.stores.columns import Slots
from hindsight_core.stores.reading import records_at
from hindsight_core.stores.resident import Resident
from hindsight_core.stores.selection import Selection

# No neighbour of at least this cosine is ever missed.
SURE = 0.9
# How many of the others are compared exactly.
BREADTH = 256

_BLOCK = 16
_CHUNK = 512


def neighbours(
    resident: Resident,
    bare: BareVectors,
    connection: sqlite3.Connection,
    vectors: NDArray[np.float32],
    where: Where,
    limit: int,
    most: int | None = None,
) -> list[list[Neighbour]] | None:
    """See `MemoryStore.neighbours`; the resident holds the state that the connection's transaction sees.

    None where more than `most` vectors would have to be read from the file for one of them.
    """
    if resident.matrix is None:
        return [[] for _ in vectors]
    held = resident["live"] & ~np.isnan(resident["closeness"])
    slots = np.flatnonzero(Selection(resident, connection).matching(where, held))
    answers: list[list[Neighbour]] = []
    for start in range(0, len(vectors), _BLOCK):
        block = vectors[start : start + _BLOCK]
        mixed = resident.cosines(block.T, slots)
        for vector, cosines in zip(block, mixed.T, strict=True):
            chosen = slots[_promising(cosines, resident["closeness"][slots], limit)]
            if most is not None and bare.unread(_apart(resident, chosen)) > most:
                return None
            exact = _exact(resident, bare, connection, vector, chosen)
            order = np.lexsort((resident["id"][chosen], exact))[::-1][:limit]
            answers.append(_answer(connection, resident["row"][chosen[order]].tolist(), exact[order]))
    return answers


def _promising(mixed: NDArray[np.float32], closeness: NDArray[np.float32], limit: int) -> Slots:
    """Positions, ascending, among which the `limit` nearest by bare vectors are looked for."""
    breadth = max(BREADTH, 8 * limit)
    if len(mixed) <= breadth:
        return np.arange(len(mixed))
    likely = mixed * closeness
    across = np.sqrt(np.maximum(0.0, (1.0 - closeness**2) * (1.0 - mixed**2)))
    chosen = likely + across >= SURE
    chosen[np.argpartition(likely, len(likely) - breadth)[len(likely) - breadth :]] = True
    return np.flatnonzero(chosen)


def _apart(resident: Resident, slots: Slots) -> Rows:
    """The rows in the file of those whose bare vector is not the mixed one."""
    rows: Rows = resident["row"][slots[resident["closeness"][slots] != 1.0]]
    return rows


def _exact(
    resident: Resident, bare: BareVectors, connection: sqlite3.Connection, vector: Vector, slots: Slots
) -> Floats:
    """Cosines with the bare vectors at `slots`; those that differ from the mixed ones are read from the file."""
    cosines = np.empty(len(slots))
    same = resident["closeness"][slots] == 1.0
    if np.any(same):
        cosines[same] = resident.exact_cosines(vector, slots[same])
    other = slots[~same]
    wide = vector.astype(np.float64)
    rows = resident["row"][other]
    found = np.empty(len(other))
    for start in range(0, len(other), _CHUNK):
        some = slice(start, start + _CHUNK)
        read = bare.read(connection, rows[some], len(vector))
        found[some] = np.einsum("ij,j->i", read.astype(np.float64), wide)
    cosines[~same] = found
    return cosines


def _answer(connection: sqlite3.Connection, rows: list[int], cosines: Floats) -> list[Neighbour]:
    records = records_at(connection, rows)
    return [
        Neighbour(record=records[row], cosine=min(1.0, max(-1.0, float(cosine))))
        for row, cosine in zip(rows, cosines, strict=True)
    ]
