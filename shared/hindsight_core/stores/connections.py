"""Connections to the embedded store's file: one a thread, transactions that wait for locks, errors in our words."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from hindsight_core.errors import ConfigurationError, HindsightError, StoreUnavailable

T = TypeVar("T")

_BUSY_REMEDY = "Another process keeps the file locked; stop it, or try again."
_FULL_REMEDY = "Free space on its disk, or point HINDSIGHT_STORE at another one."
_ACCESS_REMEDY = "Give this user read and write access to the file and its directory, or set HINDSIGHT_STORE."
_DAMAGE_REMEDY = "Restore it from a backup."
_FILE_REMEDY = "Point HINDSIGHT_STORE at another path."

# Short, because these waits come on top of SQLite's own for a lock.
_PAUSE = 0.005


class Connections:
    """The connections of one process to the file `path`, which `create` makes or migrates before the first.

    A call waits up to `timeout` seconds for another process's lock before it raises `StoreUnavailable`.
    """

    def __init__(self, path: Path, *, timeout: float, create: Callable[[sqlite3.Connection], None]) -> None:
        self._path = path
        self._timeout = timeout
        self._create = create
        self._created = self._closed = False
        self._local = threading.local()
        self._lock = threading.Lock()
        self._all: list[sqlite3.Connection] = []

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The answer of `work` within one transaction that sees one state and changes nothing."""
        return self._patiently(lambda connection: self._within(connection, "BEGIN", work))

    def read_at_once(self, work: Callable[[sqlite3.Connection], T | None]) -> T | None:
        """As `read`, but None where that takes waiting: for a lock, or for the first connection; or after `close`."""
        if not self._created or self._closed:
            return None
        with self._explained():
            connection: sqlite3.Connection | None = getattr(self._local, "impatient", None)
            try:
                if connection is None:
                    connection = self._connect()
                    connection.execute("PRAGMA busy_timeout = 0")
                    with self._lock:
                        self._all.append(connection)
                    self._local.impatient = connection
                return self._within(connection, "BEGIN", work)
            except sqlite3.OperationalError as exc:
                if _code(exc) not in _LOCKED:
                    raise
                return None

    def write(self, work: Callable[[sqlite3.Connection], T], *, durable: bool = True) -> T:
        """Apply `work` as a whole or not at all; without `durable` a power failure may undo it."""

        def attempt(connection: sqlite3.Connection) -> T:
            if durable:
                return self._within(connection, "BEGIN IMMEDIATE", work)
            connection.execute("PRAGMA synchronous = NORMAL")
            try:
                return self._within(connection, "BEGIN IMMEDIATE", work)
            finally:
                connection.execute("PRAGMA synchronous = FULL")

        return self._patiently(attempt)

    def wipe(self, *, wait: float = 0.0) -> bool:
        """Leave nothing of what was erased in the write-ahead log, and tell whether that is so.

        It is not as long as somebody reads an older state, which is waited for up to `wait` seconds. Never raises:
        what is left to wipe is remembered in the file.
        """
        try:
            connection = self._connection()
            found = connection.execute("SELECT value FROM meta WHERE name = 'wipe'").fetchone()
            if found is None:
                return True
            connection.execute(f"PRAGMA busy_timeout = {round(wait * 1000)}")
            try:
                (kept, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                connection.execute(f"PRAGMA busy_timeout = {round(self._timeout * 1000)}")
            if not kept:
                connection.execute("DELETE FROM meta WHERE name = 'wipe' AND value = ?", found)
        except sqlite3.Error:
            return False
        return not kept

    def close(self) -> None:
        """Close all; no thread may be using one."""
        with self._lock:
            self._closed = True
            for connection in self._all:
                connection.close()
            self._all.clear()

    def _patiently(self, attempt: Callable[[sqlite3.Connection], T]) -> T:
        """Try again while the file is locked in ways that SQLite itself does not wait for."""
        deadline = time.monotonic() + self._timeout
        with self._explained():
            while True:
                try:
                    return attempt(self._connection())
                except sqlite3.OperationalError as exc:
                    if _code(exc) not in _LOCKED or time.monotonic() > deadline:
                        raise
                    time.sleep(_PAUSE)

    def _within(self, connection: sqlite3.Connection, begin: str, work: Callable[[sqlite3.Connection], T]) -> T:
        connection.execute(begin)
        try:
            answer = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return answer

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            with self._lock:
                if not self._created:
                    self._make()
                    self._created = True
                connection = self._connect()
                self._all.append(connection)
                self._local.connection = connection
        return connection

    def _make(self) -> None:
        try:
            # What agents remember about people is for this user's eyes alone.
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._path.exists():
                self._path.touch(mode=0o600)
        except OSError as exc:
            raise ConfigurationError(f"{self._path} cannot be made: {exc}.", remedy=_ACCESS_REMEDY) from exc
        connection = self._connect()
        try:
            self._create(connection)
        finally:
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=self._timeout, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA temp_store = MEMORY")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except sqlite3.Error as exc:
            explained = self._explain(exc)
            if self._created and isinstance(explained, ConfigurationError):
                # The settings were right when the file was opened: something has happened to it since.
                explained = StoreUnavailable(explained.detail, remedy=explained.remedy)
            raise explained from exc
        except msgspec.MsgspecError as exc:
            raise StoreUnavailable(f"{self._path} holds what cannot be read: {exc}.", remedy=_DAMAGE_REMEDY) from exc

    def _explain(self, exc: sqlite3.Error) -> HindsightError:
        path = self._path
        match _code(exc):
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED | sqlite3.SQLITE_PROTOCOL:
                return StoreUnavailable(f"{path} stayed locked for {self._timeout:g} s.", remedy=_BUSY_REMEDY)
            case sqlite3.SQLITE_FULL:
                return StoreUnavailable(f"The disk of {path} is full.", remedy=_FULL_REMEDY)
            case sqlite3.SQLITE_NOTADB:
                return ConfigurationError(f"{path} is not a database.", remedy=_FILE_REMEDY)
            case sqlite3.SQLITE_CORRUPT:
                return StoreUnavailable(f"{path} is damaged: {exc}.", remedy=_DAMAGE_REMEDY)
            case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
                return ConfigurationError(f"{path} cannot be opened for writing: {exc}.", remedy=_ACCESS_REMEDY)
            case _:
                return StoreUnavailable(f"{path}: {exc}.", remedy=_FULL_REMEDY)


_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})


def _code(exc: sqlite3.Error) -> int:
    # The low byte is the primary result code, the others say more.
    return getattr(exc, "sqlite_errorcode", 0) & 0xFF
