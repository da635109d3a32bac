"""One namespace in memory: columns, vectors and postings of its memories, kept up with the file by change sequence.

A slot is a position in every column. Slots are in ascending order of their row in the file, and a row's vectors,
terms and labels never change (see `schema`), so catching up appends new rows, overwrites changed facts, and marks
removed rows as dead. No Python object is kept per memory.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hindsight_core.errors import ConfigurationError
from hindsight_core.scoring import Floats, Mask
from hindsight_core.stores import Head, Vector
from hindsight_core.stores.bodies import Bodies
from hindsight_core.stores.columns import Columns, Slots
from hindsight_core.stores.matrix import Matrix
from hindsight_core.stores.postings import Postings
from hindsight_core.stores.reading import head
from hindsight_core.stores.rows import CODES, FACTS, HALF, TERM

_CHUNK = 1000
_DEAD_ROWS = 1000
_DEAD_SHARE = 0.25
_KNOWN = "SELECT m.row, m.facts FROM memories m"
_NEW = (
    "SELECT m.row, m.facts, m.id, t.text, t.context, t.labels, ifnull(v.mixed, v.bare) FROM memories m"
    " JOIN terms t ON t.row = m.row LEFT JOIN vectors v ON v.row = m.row"
)
_COLUMNS: dict[str, Any] = {
    "row": np.dtype(np.int64),
    "id": np.dtype("S1"),
    "live": np.dtype(np.bool_),
    "rankable": np.dtype(np.bool_),
    **{name: FACTS[name] for name in FACTS.names or ()},
}
_STAMP = np.dtype("<u8")


class Resident:
    """The memories of one namespace, as of `sequence`. Hold `lock` while catching up and while reading."""

    def __init__(self, namespace: str, bodies: Bodies | None = None) -> None:
        """`bodies`, where they are shared, hold what searches of the namespace answer."""
        self.namespace = namespace
        self.bodies = bodies or Bodies()
        self.lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self.sequence = 0
        self.matrix: Matrix | None = None
        self.text = Postings()
        self.context = Postings()
        self.labels = Postings()
        self.documents = 0
        self.alive = 0
        self.unembedded = 0
        self._head: Head | None = None
        self._columns = Columns(_COLUMNS)

    @property
    def size(self) -> int:
        """How many slots there are, those of dead memories included."""
        return self._columns.size

    @property
    def nbytes(self) -> int:
        vectors = 0 if self.matrix is None else self.matrix.nbytes
        return self._columns.nbytes + vectors + self.text.nbytes + self.context.nbytes + self.labels.nbytes

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A column, one value a slot, to be read only: `row`, `id`, `live`, and those of `FACTS`."""
        return self._columns[name]

    def is_current(self, connection: sqlite3.Connection) -> bool:
        """Whether it holds the state that the connection's transaction sees."""
        return bool(self.sequence) and self._present(connection)[1] == self.sequence

    def is_nearly_current(self, connection: sqlite3.Connection, most: int) -> bool:
        """Whether at most so many memories changed until the state that the connection's transaction sees."""
        number, sequence = self._present(connection)
        if not 0 < self.sequence <= sequence or self._worn:
            return False
        changed = "SELECT 1 FROM memories WHERE namespace = ?1 AND sequence > ?2"
        gone = "SELECT 1 FROM tombstones WHERE namespace = ?1 AND sequence > ?2"
        query = f"SELECT count(*) FROM ({changed} UNION ALL {gone} LIMIT ?3)"  # noqa: S608 - our own names
        (count,) = connection.execute(query, (number, self.sequence, most + 1)).fetchone()
        return bool(count <= most)

    def catch_up(self, connection: sqlite3.Connection) -> bool:
        """Read what changed since, and tell whether anything did; the connection's transaction decides what is seen."""
        number, sequence = self._present(connection)
        if sequence == self.sequence:
            return False
        if sequence < self.sequence or self._worn:
            # The file was put back to an earlier state, or what is dead is worth the memory of a fresh start.
            self._clear()
        try:
            self._read_changes(connection, number)
        except BaseException:
            # Half caught up is worse than not loaded.
            self._clear()
            raise
        self.sequence, self._head = sequence, None
        return True

    @property
    def _worn(self) -> bool:
        """Whether so many of its rows are dead that it is better read anew."""
        return self.size - self.alive > max(_DEAD_ROWS, self.size * _DEAD_SHARE)

    def head(self, connection: sqlite3.Connection) -> Head:
        """The namespace's head; it must be current."""
        if self._head is None:
            self._head = head(connection, self.namespace)
        return self._head

    def _present(self, connection: sqlite3.Connection) -> tuple[int, int]:
        """The namespace's number in the file, and its sequence."""
        found = connection.execute("SELECT number, sequence FROM namespaces WHERE name = ?", (self.namespace,))
        number, sequence = found.fetchone() or (0, 0)
        return number, sequence

    def _read_changes(self, connection: sqlite3.Connection, number: int) -> None:
        since = (number, self.sequence)
        if self.sequence:
            gone = connection.execute("SELECT row FROM tombstones WHERE namespace = ? AND sequence > ?", since)
            dead = [row for (row,) in gone]
            slots = self.slots_of(dead)
            self._columns.put("live", slots, False)
            self._columns.put("rankable", slots, False)
            self.bodies.drop(dead)
        changed = connection.execute("SELECT row FROM memories WHERE namespace = ? AND sequence > ?", since)
        rows = sorted(row for (row,) in changed)
        self.bodies.drop(rows)
        last = int(self["row"][-1]) if self.size else 0
        known = sum(row <= last for row in rows)
        for some in _chunks(rows[:known]):
            found_rows, facts = _fetch(connection, _KNOWN, some)
            self._put(self.slots_of(found_rows), facts)
        self._append(connection, rows[known:])
        self.documents = int(np.count_nonzero(self.rankable))
        self.alive = int(np.count_nonzero(self["live"]))

    @property
    def rankable(self) -> Mask:
        """What counts in the statistics of terms: of every status, but not what was erased nor what is never ranked."""
        return self["rankable"]

    def slots_of(self, rows: Sequence[int]) -> Slots:
        """The slots of those rows that are known."""
        wanted = np.array(rows, np.int64)
        slots = np.searchsorted(self["row"], wanted)
        inside = slots < self.size
        slots, wanted = slots[inside], wanted[inside]
        known: Slots = slots[self["row"][slots] == wanted]
        return known

    def cosines(self, vectors: NDArray[np.float32], slots: Slots) -> NDArray[np.float32]:
        """Cosines with the vectors at `slots`, which ascend; -inf where there is none.

        `vectors` has shape (dimension,) or (dimension, n), the answer (slots,) or (slots, n).
        """
        assert self.matrix is not None
        if vectors.shape[0] != self.matrix.dimension:
            raise ConfigurationError(
                f"A vector of {vectors.shape[0]} dimensions cannot be compared with those of {self.matrix.dimension}.",
                remedy="Use the embedder that the store was filled with.",
            )
        found = self.matrix.products(vectors, slots)
        if self.unembedded:
            found[np.isnan(self["closeness"][slots])] = -np.inf
        return found

    def exact_cosines(self, vector: Vector, slots: Slots) -> Floats:
        """As `cosines` of one vector, in double precision, and bit for bit the same wherever a memory lies."""
        assert self.matrix is not None
        found = self.matrix.exact(vector, slots)
        if self.unembedded:
            found[np.isnan(self["closeness"][slots])] = -np.inf
        return found

    def holding(self, labels: Sequence[int]) -> Mask:
        """Which slots have at least one of these labels."""
        found = np.zeros(self.size, np.bool_)
        for _, slots, _ in self.labels.find(labels):
            found[slots] = True
        return found

    def one_of(self, name: str, values: Sequence[str]) -> Mask:
        """Which slots have one of these values in a column of codes."""
        column, found = self[name], np.zeros(self.size, np.bool_)
        for value in values:
            if value in CODES[name]:
                found |= column == CODES[name][value]
        return found

    def rankable_among(self, slots: NDArray[np.int32]) -> int:
        """How many of these slots are rankable."""
        return len(slots) if self.documents == self.size else int(np.count_nonzero(self.rankable[slots]))

    def _append(self, connection: sqlite3.Connection, rows: list[int]) -> None:
        first = self.size
        self._columns.reserve(first + len(rows))
        fields = (self.text, self.context, self.labels)
        blobs: list[list[bytes]] = [[] for _ in fields]
        sizes: list[list[int]] = [[] for _ in fields]
        for some in _chunks(rows):
            found_rows, facts, ids, *packed, vectors = _fetch(connection, _NEW, some)
            slots = self._columns.extend(len(found_rows))
            self._columns.put("row", slots, found_rows)
            self._columns.put("live", slots, True)
            self._columns.put("id", slots, [name.encode() for name in ids])
            self._put(slots, facts)
            self.unembedded += int(np.count_nonzero(np.isnan(self["closeness"][slots])))
            self._put_vectors(slots, vectors)
            # Blobs are joined chunk by chunk: a hundred thousand small ones would stay as holes in the heap.
            for field, column in enumerate(packed):
                blobs[field].append(b"".join(column))
                sizes[field].extend(map(len, column))
        for postings, joined, size, unit in zip(fields, blobs, sizes, (TERM, TERM, _STAMP), strict=True):
            terms = np.frombuffer(b"".join(joined), unit)
            postings.add(terms, np.array(size, np.int64) // unit.itemsize, first, self["live"])

    def _put(self, slots: Slots, facts: Sequence[bytes]) -> None:
        values = np.frombuffer(b"".join(facts), FACTS)
        for name in FACTS.names or ():
            self._columns.put(name, slots, values[name])
        self._columns.put("rankable", slots, values["memory_type"] != CODES["memory_type"]["working"])

    def _put_vectors(self, slots: Slots, blobs: Sequence[bytes | None]) -> None:
        held = [blob for blob in blobs if blob is not None]
        if not held:
            return
        vectors = np.frombuffer(b"".join(held), HALF).astype(np.float32).reshape(len(held), -1)
        if self.matrix is None:
            self.matrix = Matrix(vectors.shape[1])
        if len(held) < len(blobs):
            padded = np.zeros((len(blobs), vectors.shape[1]), np.float32)
            padded[[blob is not None for blob in blobs]] = vectors
            vectors = padded
        self.matrix.put(int(slots[0]), vectors)


def _fetch(connection: sqlite3.Connection, select: str, rows: list[int]) -> list[tuple[Any, ...]]:
    """The columns of these rows, in order of row."""
    marks = ",".join("?" * len(rows))
    return list(zip(*connection.execute(f"{select} WHERE m.row IN ({marks}) ORDER BY m.row", rows), strict=True))


def _chunks(rows: list[int]) -> list[list[int]]:
    return [rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK)]
