"""The file of the embedded store: its tables as numbered migrations, its connections, and its errors in our words."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from hindsight_core.errors import ConfigurationError, HindsightError, StoreUnavailable

# Append only: a migration that was released never changes. `user_version` is how many of them a file has had.
#
# `row` is never used twice. The row of a memory stays while what is searched in it (vectors, terms, labels) stays the
# same; when that changes the memory moves to a new row. So an index in another process only ever has to read rows
# with a later `sequence`, append the unknown ones, and drop those in `tombstones`.
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE namespaces (
        number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
        sequence INTEGER NOT NULL DEFAULT 0, memories INTEGER NOT NULL DEFAULT 0
    );
    CREATE TABLE memories (
        row INTEGER PRIMARY KEY AUTOINCREMENT, namespace INTEGER NOT NULL REFERENCES namespaces, id TEXT NOT NULL,
        version INTEGER NOT NULL, sequence INTEGER NOT NULL,
        status TEXT NOT NULL, memory_type TEXT NOT NULL, kind TEXT NOT NULL, source TEXT NOT NULL,
        visibility TEXT NOT NULL, user_id TEXT, agent_id TEXT, session_id TEXT, task_id TEXT, key TEXT,
        observed_at INTEGER, valid_from INTEGER NOT NULL, valid_to INTEGER,
        expires_at INTEGER, pinned INTEGER NOT NULL, facts BLOB NOT NULL
    );
    CREATE UNIQUE INDEX memories_id ON memories (namespace, id);
    CREATE INDEX memories_sequence ON memories (namespace, sequence);
    CREATE INDEX memories_key ON memories (namespace, key) WHERE key IS NOT NULL;
    CREATE INDEX memories_session ON memories (namespace, session_id, id) WHERE session_id IS NOT NULL;
    CREATE INDEX memories_task ON memories (namespace, task_id, id) WHERE task_id IS NOT NULL;
    CREATE TABLE bodies (
        row INTEGER PRIMARY KEY REFERENCES memories ON DELETE CASCADE, memory BLOB NOT NULL, fields BLOB NOT NULL
    );
    CREATE TABLE vectors (
        row INTEGER PRIMARY KEY REFERENCES memories ON DELETE CASCADE, bare BLOB NOT NULL, mixed BLOB
    );
    CREATE TABLE terms (
        row INTEGER PRIMARY KEY REFERENCES memories ON DELETE CASCADE,
        text BLOB NOT NULL, context BLOB NOT NULL, labels BLOB NOT NULL
    );
    CREATE TABLE access (
        row INTEGER PRIMARY KEY REFERENCES memories ON DELETE CASCADE, count INTEGER NOT NULL, at INTEGER
    );
    CREATE TABLE speakers (
        namespace INTEGER NOT NULL REFERENCES namespaces, speaker TEXT NOT NULL, memories INTEGER NOT NULL,
        PRIMARY KEY (namespace, speaker)
    ) WITHOUT ROWID;
    CREATE TABLE tombstones (
        row INTEGER PRIMARY KEY, namespace INTEGER NOT NULL REFERENCES namespaces, sequence INTEGER NOT NULL, id TEXT
    );
    CREATE INDEX tombstones_sequence ON tombstones (namespace, sequence);
    CREATE TABLE events (
        row INTEGER PRIMARY KEY, namespace INTEGER NOT NULL REFERENCES namespaces, id TEXT NOT NULL,
        memory_id TEXT NOT NULL, run_id TEXT NOT NULL, at INTEGER NOT NULL, body BLOB NOT NULL
    );
    CREATE UNIQUE INDEX events_id ON events (namespace, id);
    CREATE INDEX events_memory ON events (namespace, memory_id, id);
    CREATE INDEX events_run ON events (namespace, run_id, id);
    CREATE TABLE runs (
        row INTEGER PRIMARY KEY, namespace INTEGER NOT NULL REFERENCES namespaces, id TEXT NOT NULL,
        at INTEGER NOT NULL, body BLOB NOT NULL
    );
    CREATE UNIQUE INDEX runs_id ON runs (namespace, id);
    CREATE TABLE receipts (
        row INTEGER PRIMARY KEY, namespace INTEGER NOT NULL REFERENCES namespaces, key TEXT NOT NULL,
        fingerprint TEXT NOT NULL, answer BLOB NOT NULL
    );
    CREATE UNIQUE INDEX receipts_key ON receipts (namespace, key);
    CREATE TABLE answered (
        namespace INTEGER NOT NULL, memory_id TEXT NOT NULL, receipt INTEGER NOT NULL REFERENCES receipts
        ON DELETE CASCADE, PRIMARY KEY (namespace, memory_id, receipt)
    ) WITHOUT ROWID;
    CREATE INDEX answered_receipt ON answered (receipt);
    CREATE TABLE retrievals (
        row INTEGER PRIMARY KEY, namespace INTEGER NOT NULL REFERENCES namespaces, id TEXT NOT NULL,
        at INTEGER NOT NULL, body BLOB NOT NULL
    );
    CREATE UNIQUE INDEX retrievals_id ON retrievals (namespace, id);
    CREATE TABLE retrieved (
        namespace INTEGER NOT NULL, memory_id TEXT NOT NULL, retrieval INTEGER NOT NULL REFERENCES retrievals
        ON DELETE CASCADE, PRIMARY KEY (namespace, memory_id, retrieval)
    ) WITHOUT ROWID;
    CREATE INDEX retrieved_retrieval ON retrieved (retrieval);
    """,
)

_REMEDY_BUSY = "Another process keeps the file locked; stop it, or try again."
_REMEDY_FULL = "Free space on its disk, or point HINDSIGHT_STORE at another one."
_REMEDY_ACCESS = "Give this user read and write access to the file and its directory, or set HINDSIGHT_STORE."


def connect(path: Path, *, timeout: float) -> sqlite3.Connection:
    """A connection in autocommit mode that waits up to `timeout` seconds for locks and wipes what is deleted."""
    connection = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA temp_store = MEMORY")
    except BaseException:
        connection.close()
        raise
    return connection


def create(path: Path, *, timeout: float) -> None:
    """Create the file and its directory, or migrate it; safe when several processes do so at once."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise ConfigurationError(f"The directory of {path} cannot be made: {exc}.", remedy=_REMEDY_ACCESS) from exc
    connection = connect(path, timeout=timeout)
    try:
        _use_wal(connection, deadline=time.monotonic() + timeout)
        connection.execute("BEGIN IMMEDIATE")
        with rollback_on_error(connection):
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version > len(MIGRATIONS):
                raise ConfigurationError(
                    f"{path} was made by a newer version of Hindsight (schema {version}, known {len(MIGRATIONS)}).",
                    remedy='pip install --upgrade "hindsight-memory"',
                )
            for number, migration in enumerate(MIGRATIONS[version:], version + 1):
                for statement in migration.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {number}")
            connection.execute("COMMIT")
    finally:
        connection.close()


def _use_wal(connection: sqlite3.Connection, *, deadline: float) -> None:
    # Switching the journal takes an exclusive lock for which SQLite does not wait.
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as exc:
            if _code(exc) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
        else:
            return


@contextmanager
def rollback_on_error(connection: sqlite3.Connection) -> Generator[None]:
    """Leave no transaction open when the body fails."""
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _code(exc: sqlite3.Error) -> int:
    # The low byte is the primary result code, the rest says more.
    return getattr(exc, "sqlite_errorcode", 0) & 0xFF


@contextmanager
def explained(path: Path) -> Generator[None]:
    """Errors of the driver as ours, naming the file and what to do."""
    try:
        yield
    except HindsightError:
        raise
    except sqlite3.Error as exc:
        raise _explain(path, exc) from exc


def _explain(path: Path, exc: sqlite3.Error) -> HindsightError:
    match _code(exc):
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreUnavailable(f"{path} stayed locked for too long.", remedy=_REMEDY_BUSY)
        case sqlite3.SQLITE_FULL:
            return StoreUnavailable(f"The disk of {path} is full.", remedy=_REMEDY_FULL)
        case sqlite3.SQLITE_NOTADB:
            return ConfigurationError(
                f"{path} is not a database of Hindsight.", remedy="Point HINDSIGHT_STORE at another path."
            )
        case sqlite3.SQLITE_CORRUPT:
            return StoreUnavailable(f"{path} is damaged: {exc}.", remedy="Restore it from a backup.")
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return ConfigurationError(f"{path} cannot be opened for writing: {exc}.", remedy=_REMEDY_ACCESS)
        case _:
            return StoreUnavailable(f"{path}: {exc}.", remedy=_REMEDY_FULL)
