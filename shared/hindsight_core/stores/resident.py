"""One namespace in memory: columns, vectors and postings of its memories, kept up with the file by change sequence.

A slot is a position in every column. Slots are in ascending order of their row in the file, and a row's vectors,
terms and labels never change (see `schema`), so catching up appends new rows, overwrites changed columns, and marks
removed rows as dead. No Python object is kept per memory.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from typing import Any, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from hindsight_core.models import Kind, Source, Status
from hindsight_core.scoring import MEMORY_TYPES, UNDATED, Mask
from hindsight_core.stores import Where
from hindsight_core.stores.conditions import key_label, stamp, wanted_labels
from hindsight_core.stores.matrix import Matrix
from hindsight_core.stores.postings import Postings
from hindsight_core.stores.rows import HALF

STATUSES: tuple[Status, ...] = get_args(Status)
KINDS: tuple[Kind, ...] = get_args(Kind)
SOURCES: tuple[Source, ...] = get_args(Source)
NEVER = np.iinfo(np.int64).max

Slots: TypeAlias = NDArray[np.int64]

_CHUNK = 1000
_SELECT = (
    "SELECT m.row, m.id, m.status, m.memory_type, m.kind, m.source, m.visibility, m.user_id, m.agent_id, m.session_id,"
    " m.task_id, m.observed_at, m.precise, m.valid_from, m.valid_to, m.expires_at, m.pinned, m.confidence,"
    " m.half_life_days, m.question"
)
_SEARCHED = (
    ", t.text, t.context, t.labels, v.bare, v.mixed FROM memories m JOIN terms t ON t.row = m.row"
    " LEFT JOIN vectors v ON v.row = m.row"
)
_TYPES: dict[str, Any] = {
    "row": np.int64,
    "id": "S1",
    "status": np.int8,
    "memory_type": np.int8,
    "kind": np.int8,
    "source": np.int8,
    "shared": np.bool_,
    "user_id": np.uint64,
    "agent_id": np.uint64,
    "session_id": np.uint64,
    "task_id": np.uint64,
    "observed_at": np.int64,
    "moment": np.int64,
    "valid_from": np.int64,
    "valid_to": np.int64,
    "expires_at": np.int64,
    "confidence": np.float64,
    "half_life": np.float64,
    "question": np.bool_,
    "live": np.bool_,
    "closeness": np.float32,
    "vector": np.bool_,
}
_CODES: dict[str, dict[str, int]] = {
    "status": {name: code for code, name in enumerate(STATUSES)},
    "memory_type": {name: code for code, name in enumerate(MEMORY_TYPES)},
    "kind": {name: code for code, name in enumerate(KINDS)},
    "source": {name: code for code, name in enumerate(SOURCES)},
}


class Resident:
    """The memories of one namespace, as of `sequence`. Hold `lock` while catching up and while reading."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.lock = threading.Lock()
        self.sequence = 0
        self.size = 0
        self.matrix: Matrix | None = None
        self.text = Postings()
        self.context = Postings()
        self.labels = Postings()
        self._columns: dict[str, NDArray[Any]] = {name: np.zeros(0, kind) for name, kind in _TYPES.items()}

    @property
    def nbytes(self) -> int:
        columns = sum(column.nbytes for column in self._columns.values())
        vectors = 0 if self.matrix is None else self.matrix.nbytes
        return columns + vectors + self.text.nbytes + self.context.nbytes + self.labels.nbytes

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._columns[name][: self.size]

    def catch_up(self, connection: sqlite3.Connection) -> None:
        """Read what changed since; the connection's transaction decides which state is seen."""
        found = connection.execute(
            "SELECT number, sequence FROM namespaces WHERE name = ?", (self.namespace,)
        ).fetchone()
        if found is None or found[1] == self.sequence:
            return
        number, sequence = found
        since = (number, self.sequence)
        if self.sequence:
            gone = connection.execute("SELECT row FROM tombstones WHERE namespace = ? AND sequence > ?", since)
            slots = self.slots_of([row for (row,) in gone])
            self._columns["live"][slots] = False
        changed = connection.execute("SELECT row FROM memories WHERE namespace = ? AND sequence > ?", since)
        rows = sorted(row for (row,) in changed)
        last = int(self["row"][-1]) if self.size else 0
        known = [row for row in rows if row <= last]
        for some in _chunks(known):
            query = f"{_SELECT} FROM memories m WHERE m.row IN ({_marks(some)}) ORDER BY m.row"
            self._set(self.slots_of(some), connection.execute(query, some).fetchall())
        for some in _chunks(rows[len(known) :]):
            query = f"{_SELECT}{_SEARCHED} WHERE m.row IN ({_marks(some)}) ORDER BY m.row"
            self._append(connection.execute(query, some).fetchall())
        self.sequence = sequence

    def slots_of(self, rows: Sequence[int]) -> Slots:
        """The slots of those rows that are known."""
        wanted = np.array(rows, np.int64)
        slots = np.searchsorted(self["row"], wanted)
        slots = slots[slots < self.size] if self.size else slots[:0]
        return slots[np.isin(self["row"][slots], wanted)]

    def _append(self, rows: list[tuple[Any, ...]]) -> None:
        first = self.size
        self._grow(first + len(rows))
        self.size = first + len(rows)
        slots = np.arange(first, self.size)
        self._columns["live"][slots] = True
        self._set(slots, rows)
        text, context, labels, bare, mixed = list(zip(*rows, strict=True))[-5:]
        live = self["live"]
        self.text.add(list(text), first, live)
        self.context.add(list(context), first, live)
        self.labels.add_labels(list(labels), first, live)
        self._append_vectors(slots, bare, mixed)

    def _append_vectors(self, slots: Slots, bare: Sequence[bytes | None], mixed: Sequence[bytes | None]) -> None:
        held = slots[[blob is not None for blob in bare]]
        self._columns["vector"][held] = True
        self._columns["closeness"][slots] = 1.0
        if not len(held):
            return
        own = _vectors([blob for blob in bare if blob is not None])
        used = _vectors([b if m is None else m for b, m in zip(bare, mixed, strict=True) if b is not None])
        if self.matrix is None:
            self.matrix = Matrix(own.shape[1])
        padded = np.zeros((len(slots), own.shape[1]), np.float32)
        padded[held - slots[0]] = used
        self.matrix.put(int(slots[0]), padded)
        self._columns["closeness"][held] = np.minimum(1.0, np.einsum("ij,ij->i", own, used))

    def _set(self, slots: Slots, rows: list[tuple[Any, ...]]) -> None:
        columns = dict(zip(_NAMES, zip(*rows, strict=True), strict=False))
        ids = np.array([name.encode() for name in columns["id"]])
        if ids.dtype.itemsize > self._columns["id"].dtype.itemsize:
            self._columns["id"] = self._columns["id"].astype(ids.dtype)
        put = self._columns
        put["row"][slots] = columns["row"]
        put["id"][slots] = ids
        for name, codes in _CODES.items():
            put[name][slots] = [codes[value] for value in columns[name]]
        put["shared"][slots] = [value == "shared" for value in columns["visibility"]]
        for name in ("user_id", "agent_id", "session_id", "task_id"):
            put[name][slots] = [0 if value is None else stamp(value) for value in columns[name]]
        observed = [UNDATED if value is None else value for value in columns["observed_at"]]
        put["observed_at"][slots] = observed
        put["moment"][slots] = np.where(columns["precise"], observed, UNDATED)
        put["valid_from"][slots] = columns["valid_from"]
        put["valid_to"][slots] = [NEVER if value is None else value for value in columns["valid_to"]]
        put["expires_at"][slots] = [
            NEVER if value is None or pinned else value
            for value, pinned in zip(columns["expires_at"], columns["pinned"], strict=True)
        ]
        put["confidence"][slots] = columns["confidence"]
        put["half_life"][slots] = [np.nan if value is None else value for value in columns["half_life_days"]]
        put["question"][slots] = columns["question"]

    def _grow(self, size: int) -> None:
        if size <= len(self._columns["row"]):
            return
        capacity = max(size, len(self._columns["row"]) * 5 // 4, 64)
        for name, column in self._columns.items():
            grown = np.zeros(capacity, column.dtype)
            grown[: self.size] = column[: self.size]
            self._columns[name] = grown

    def holding(self, labels: Sequence[int]) -> Mask:
        """Which slots have at least one of these labels."""
        found = np.zeros(self.size, np.bool_)
        for label in labels:
            for slots, _ in self.labels.holders(label):
                found[slots] = True
        return found

    def matching(self, where: Where, ids: Slots | None) -> Mask:
        """Which live slots satisfy the conditions; `ids` are the slots of `where.ids`."""
        mask = self["live"].copy()
        for name in ("user_id", "session_id", "task_id"):
            if (value := getattr(where, name)) is not None:
                mask &= self[name] == np.uint64(stamp(value))
        if where.no_user:
            mask &= self["user_id"] == 0
        if where.reader is None:
            mask &= self["shared"]
        elif where.reader != "*":
            mask &= self["shared"] | (self["agent_id"] == np.uint64(stamp(where.reader)))
        for name, values in (
            ("status", where.statuses),
            ("memory_type", where.memory_types),
            ("kind", where.kinds),
            ("source", where.sources),
        ):
            if values is not None:
                wanted = np.zeros(len(_CODES[name]), np.bool_)
                wanted[[_CODES[name][value] for value in values]] = True
                mask &= wanted[self[name]]
        if where.observed_from is not None:
            mask &= self["observed_at"] >= max(where.observed_from, UNDATED + 1)
        if where.observed_to is not None:
            mask &= (self["observed_at"] < where.observed_to) & (self["observed_at"] != UNDATED)
        if where.valid_at is not None:
            mask &= (self["valid_from"] <= where.valid_at) & (self["valid_to"] > where.valid_at)
        if where.alive_at is not None:
            mask &= self["expires_at"] > where.alive_at
        if where.key is not None:
            mask &= self.holding([key_label(where.key)])
        for group in wanted_labels(where):
            mask &= self.holding(group)
        if ids is not None:
            named = np.zeros(self.size, np.bool_)
            named[ids] = True
            mask &= named
        return mask


_NAMES = [part.strip().removeprefix("m.") for part in _SELECT.removeprefix("SELECT").split(",")]


def _vectors(blobs: list[bytes]) -> NDArray[np.float32]:
    return np.frombuffer(b"".join(blobs), HALF).astype(np.float32).reshape(len(blobs), -1)


def _chunks(rows: list[int]) -> list[list[int]]:
    return [rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK)]


def _marks(rows: list[int]) -> str:
    return ",".join("?" * len(rows))
