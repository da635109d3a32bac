"""The memories that searches answered last, decoded: to read one out of the file costs more than to rank a hundred."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from hindsight_core.models import Memory
from hindsight_core.stores.rows import accessed, decode_memory

# About what a decoded memory takes beyond its texts, in bytes, and how much longer than its JSON those may be.
_EACH = 1500
_WIDTH = 2
_CHUNK = 500
# How many seconds a memory is held at most, if anything is searched in this process after that: it may have been erased
# by another one in a namespace that nobody searches here.
LASTING = 300.0


class _Held(NamedTuple):
    """A memory as it was answered last, and its access statistics in it."""

    memory: Memory
    accesses: int | None
    at: int | None
    size: int
    since: float


class Bodies:
    """Memories by the row of their file, at most about `limit` bytes of them; safe to share between threads.

    What a row holds changes with its namespace's sequence, so whoever sees that change drops the row.
    """

    def __init__(self, limit: int = 8 << 20, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` tells seconds."""
        self._clock = clock
        self._looked_at = clock()
        self._limit = limit
        self._lock = threading.Lock()
        self._held: dict[int, _Held] = {}
        self._cleared = 0
        self.size = 0
        """About how many bytes of memories are held."""

    def read(self, connection: sqlite3.Connection, rows: list[int]) -> dict[int, Memory]:
        """The memories of these rows with the access statistics that the connection's transaction sees."""
        statistics = dict[int, tuple[int, int | None]]()
        for some in _chunks(rows):
            query = f"SELECT row, count, at FROM access WHERE row IN ({_marks(some)})"  # noqa: S608 - question marks
            statistics.update((row, (count, at)) for row, count, at in connection.execute(query, some))
        found: dict[int, Memory] = {}
        fresh: dict[int, _Held] = {}
        unknown: list[int] = []
        with self._lock:
            self._let_go()
            cleared = self._cleared
            for row in rows:
                held = self._held.get(row)
                if held is None:
                    unknown.append(row)
                    continue
                count, at = statistics.get(row, (None, None))
                if held.accesses != count or held.at != at:
                    held = fresh[row] = _Held(accessed(held.memory, count, at), count, at, held.size, held.since)
                found[row] = held.memory
        for some in _chunks(unknown):
            query = f"SELECT row, memory FROM bodies WHERE row IN ({_marks(some)})"  # noqa: S608 - question marks
            for row, body in connection.execute(query, some):
                count, at = statistics.get(row, (None, None))
                found[row] = memory = accessed(decode_memory(body), count, at)
                fresh[row] = _Held(memory, count, at, _EACH + _WIDTH * len(body), self._looked_at)
        if fresh:
            self._keep(fresh, cleared)
        return found

    def drop(self, rows: Iterable[int]) -> None:
        """Forget these rows: they changed, or are gone."""
        with self._lock:
            for row in rows if self._held else ():
                if (gone := self._held.pop(row, None)) is not None:
                    self.size -= gone.size

    def clear(self) -> None:
        """Forget all, and what is being read at the moment as well: it may have been erased since."""
        with self._lock:
            self._held.clear()
            self.size = 0
            self._cleared += 1

    def _let_go(self) -> None:
        """Forget what was read too long ago; looked for a few times in that while, not with each search."""
        now = self._clock()
        if now - self._looked_at < LASTING / 10:
            return
        self._looked_at = now
        for row in [row for row, held in self._held.items() if now - held.since > 0.9 * LASTING]:
            self.size -= self._held.pop(row).size

    def _keep(self, fresh: dict[int, _Held], cleared: int) -> None:
        with self._lock:
            if self._cleared != cleared:
                return
            for row, held in fresh.items():
                if (before := self._held.pop(row, None)) is not None:
                    self.size -= before.size
                self._held[row] = held
                self.size += held.size
            # The oldest go first; that they were answered again since is not worth noting for each of a hundred hits.
            while self.size > self._limit:
                self.size -= self._held.pop(next(iter(self._held))).size


def _marks(rows: list[int]) -> str:
    return ",".join("?" * len(rows))


def _chunks(rows: list[int]) -> list[list[int]]:
    return [rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK)]
