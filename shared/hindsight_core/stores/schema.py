"""The tables of the embedded store's file, as numbered migrations."""

from __future__ import annotations

import sqlite3

from hindsight_core.errors import ConfigurationError

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
    CREATE INDEX memories_status ON memories (namespace, status, id, memory_type, kind);
    CREATE INDEX memories_key ON memories (namespace, key, id) WHERE key IS NOT NULL;
    CREATE INDEX memories_user ON memories (namespace, user_id, id) WHERE user_id IS NOT NULL;
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
    """
    CREATE INDEX memories_expires ON memories (namespace, status, expires_at) WHERE expires_at IS NOT NULL;
    """,
    """
    CREATE INDEX tombstones_id ON tombstones (namespace, id) WHERE id IS NOT NULL;
    CREATE TABLE derivations (
        row INTEGER NOT NULL REFERENCES memories ON DELETE CASCADE, origin TEXT NOT NULL, PRIMARY KEY (origin, row)
    ) WITHOUT ROWID;
    CREATE INDEX derivations_row ON derivations (row);
    """,
    """
    ALTER TABLE receipts ADD COLUMN at INTEGER NOT NULL DEFAULT 0;
    UPDATE receipts SET at = CAST(strftime('%s', 'now') AS INTEGER) * 1000;
    CREATE INDEX receipts_at ON receipts (namespace, at);
    CREATE INDEX retrievals_at ON retrievals (namespace, at);
    """,
    # Of memories with a turn before them: what looks for `,"context":"` finds each, and few others.
    """
    CREATE INDEX bodies_context ON bodies (row) WHERE instr(memory, x'2c22636f6e74657874223a22') > 0;
    """,
    """
    CREATE INDEX runs_at ON runs (namespace, at);
    """,
)

# Says whose file it is, so that a database of another program is never taken for an empty one.
APPLICATION_ID = int.from_bytes(b"hsgt", "big")


def migrate(connection: sqlite3.Connection) -> None:
    """Bring a file to the present schema; what several processes do so at once is done by one of them.

    Raises `ConfigurationError` for a file of another program or of a newer version, and leaves it as it is.
    """
    connection.execute("BEGIN")
    try:
        version = _version(connection)
        connection.execute("COMMIT")
        if version == len(MIGRATIONS):
            return
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        for migration in MIGRATIONS[_version(connection) :]:
            for statement in migration.split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise


def _version(connection: sqlite3.Connection) -> int:
    """How many migrations the file has had, 0 for an empty one."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    path = connection.execute("PRAGMA database_list").fetchone()[2]
    if owner != APPLICATION_ID and (owner or version or tables):
        raise ConfigurationError(
            f"{path} is a database, but not one of Hindsight.", remedy="Point HINDSIGHT_STORE at another path."
        )
    if version > len(MIGRATIONS):
        raise ConfigurationError(
            f"{path} was made by a newer version of Hindsight (schema {version}, known {len(MIGRATIONS)}).",
            remedy='pip install --upgrade "hindsight-memory"',
        )
    return int(version)
