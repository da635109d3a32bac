"""The namespaces that are held in memory: least recently used ones go when all together are too large."""

from __future__ import annotations

import ctypes
import sqlite3
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager

from hindsight_core.stores.bare import BareVectors
from hindsight_core.stores.bodies import Bodies
from hindsight_core.stores.resident import Resident

SMALL = 4096
# So many changes are read in as short a time as a search takes; a change of thread there and back takes longer.
_FEW = 8
# Loading so many bytes leaves holes in the heap that are worth giving back.
_LARGE = 16 << 20


class Residents:
    """At most about `limit` bytes of namespaces, and the `bare` vectors and `bodies` read last.

    Safe to share between threads.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._held: OrderedDict[str, Resident] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self.bare = BareVectors()
        self.bodies = Bodies()

    @contextmanager
    def caught_up(
        self,
        connection: sqlite3.Connection,
        namespace: str,
        guard: Callable[[sqlite3.Connection], object] | None = None,
    ) -> Generator[Resident]:
        """The namespace as the connection's transaction sees it; nobody else uses it meanwhile.

        The transaction must not have read anything yet. What `guard` raises about what it sees keeps it from being
        read in.
        """
        with self._lock:
            resident = self._held.get(namespace)
            if resident is None:
                resident = self._held[namespace] = Resident(namespace, self.bodies)
            self._held.move_to_end(namespace)
        with resident.lock:
            if guard is not None:
                guard(connection)
            self._catch_up(connection, resident)
            yield resident

    @contextmanager
    def at_hand(self, connection: sqlite3.Connection, namespace: str) -> Generator[Resident | None]:
        """As `caught_up`, where that takes no waiting and no more than a moment, else None.

        So for a namespace in memory of at most `SMALL` memories, which nobody uses and of which few changed since.
        """
        with self._lock:
            resident = self._held.get(namespace)
            if resident is not None:
                self._held.move_to_end(namespace)
        if resident is None or resident.size > SMALL or not resident.lock.acquire(blocking=False):
            yield None
            return
        try:
            if resident.is_current(connection):
                yield resident
            elif resident.is_nearly_current(connection, _FEW):
                self._catch_up(connection, resident)
                yield resident
            else:
                yield None
        finally:
            resident.lock.release()

    def follow(self, connection: sqlite3.Connection, namespace: str) -> None:
        """Catch up where the namespace is in memory and few changed since."""
        with self._lock:
            resident = self._held.get(namespace)
        if resident is not None and resident.lock.acquire(blocking=False):
            try:
                if resident.is_nearly_current(connection, _FEW):
                    self._catch_up(connection, resident)
            finally:
                resident.lock.release()

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._held.clear()
            self._sizes.clear()
        self.bare.clear()
        self.bodies.clear()

    def _catch_up(self, connection: sqlite3.Connection, resident: Resident) -> None:
        before = resident.sequence
        if not resident.catch_up(connection):
            return
        if resident.sequence < before:  # the file was put back to an earlier state
            self.bare.clear()
            self.bodies.clear()
        if self._resized(resident) > _LARGE:
            # What was read once to be held here is not worth SQLite's memory, nor the holes that it left.
            connection.execute("PRAGMA shrink_memory")
            _trim_heap()

    def _resized(self, resident: Resident) -> int:
        """By how many bytes it grew; others may have to go for it."""
        with self._lock:
            grown = resident.nbytes - self._sizes.get(resident.namespace, 0)
            if self._held.get(resident.namespace) is not resident:  # another thread let it go meanwhile
                return grown
            self._sizes[resident.namespace] = resident.nbytes
            total = sum(self._sizes.values())
            for namespace, held in list(self._held.items()):
                if total <= self._limit:
                    break
                if not held.lock.locked():
                    total -= self._sizes.pop(namespace, 0)
                    del self._held[namespace]
        return grown


def _trim_heap() -> None:
    """Give freed memory back to the system, where the C library can (glibc keeps it otherwise)."""
    if sys.platform == "win32":  # has no library of the whole process
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
