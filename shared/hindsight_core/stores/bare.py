"""The bare vectors that were read last from the file, which a search for neighbours reads by the hundred."""

from __future__ import annotations

import sqlite3
import threading

import numpy as np
from numpy.typing import NDArray

from hindsight_core.stores.matrix import Vectors
from hindsight_core.stores.rows import widen

# Together 6 MB of vectors of 384 dimensions, all of them in use only after as many were read.
_PLACES = 4096
_CHUNK = 500

Rows = NDArray[np.int64]


class BareVectors:
    """Rows of all namespaces of a file, each in the one place that its number gives it; safe to share between threads.

    A row's vectors never change (see `schema`), so what is known stays true until `clear`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: Rows = np.zeros(_PLACES, np.int64)
        self._vectors: Vectors | None = None

    def read(self, connection: sqlite3.Connection, rows: Rows, dimension: int) -> Vectors:
        """The bare vectors of these rows, which ascend and have some, of shape (rows, dimension)."""
        found = np.empty((len(rows), dimension), np.float32)
        places = rows % _PLACES
        with self._lock:
            known = self._rows[places] == rows
            if self._vectors is not None:
                found[known] = self._vectors[places[known]]
        unknown = np.flatnonzero(~known)
        if len(unknown):
            fresh = _read(connection, rows[unknown].tolist()).reshape(len(unknown), dimension)
            found[unknown] = fresh
            with self._lock:
                if self._vectors is None:
                    self._vectors = np.empty((_PLACES, dimension), np.float32)
                # Of two that share a place the later one gets it, in both arrays.
                taken, last = np.unique(places[unknown][::-1], return_index=True)
                self._rows[taken] = rows[unknown][::-1][last]
                self._vectors[taken] = fresh[::-1][last]
        return found

    def unread(self, rows: Rows) -> int:
        """How many of these rows would have to be read from the file."""
        with self._lock:
            return int(np.count_nonzero(self._rows[rows % _PLACES] != rows))

    def clear(self) -> None:
        """Forget all: rows may stand for other memories now."""
        with self._lock:
            self._rows[:] = 0


def _read(connection: sqlite3.Connection, rows: list[int]) -> Vectors:
    blobs: list[bytes] = []
    for start in range(0, len(rows), _CHUNK):
        some = rows[start : start + _CHUNK]
        marks = ",".join("?" * len(some))
        query = f"SELECT bare FROM vectors WHERE row IN ({marks}) ORDER BY row"  # noqa: S608 - question marks
        blobs.extend(blob for (blob,) in connection.execute(query, some))
    return widen(b"".join(blobs))
