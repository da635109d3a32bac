"""Another model's vectors in the embedded store's file: gathered beside the present ones, exchanged in one transaction.

The row of a memory stays as long as its vectors do (see `schema`), so a row that has its new vectors needs no others,
whatever changes meanwhile; what changes in its vectors comes as a later row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from msgspec.structs import replace

from hindsight_core.models import Memory
from hindsight_core.stores import Record
from hindsight_core.stores.rows import closer, decode_memory, encode_memory, pack

_CHUNK = 500
# With a memory that is erased its new vectors go, too.
_TABLE = (
    "CREATE TABLE IF NOT EXISTS reembedded ("
    "row INTEGER PRIMARY KEY REFERENCES memories ON DELETE CASCADE, bare BLOB NOT NULL, mixed BLOB)"
)
_LACKING = (
    "FROM memories m JOIN bodies b ON b.row = m.row LEFT JOIN reembedded r ON r.row = m.row"
    " WHERE r.row IS NULL AND m.memory_type != 'working'"
)


def begin(connection: sqlite3.Connection, identity: str) -> None:
    """Go on with what was begun for this model, else begin."""
    connection.execute(_TABLE)
    found = connection.execute("SELECT value FROM meta WHERE name = 'reembedding'").fetchone()
    if found is None or found[0] != identity:
        connection.execute("DELETE FROM reembedded")
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('reembedding', ?)", (identity,))


def sizes(connection: sqlite3.Connection) -> tuple[int, int]:
    """How many memories have their new vectors, and how many are to have any."""
    (done,) = connection.execute("SELECT count(*) FROM reembedded").fetchone()
    (lacking,) = connection.execute(f"SELECT count(*) {_LACKING}").fetchone()
    return done, done + lacking


def lacking(connection: sqlite3.Connection, after: int, limit: int) -> list[tuple[int, Memory]]:
    """Memories that have no new vectors yet, in rows after this one."""
    found = connection.execute(
        f"SELECT m.row, b.memory {_LACKING} AND m.row > ? ORDER BY m.row LIMIT ?",
        (after, limit),
    )
    return [(row, decode_memory(body)) for row, body in found]


def add(connection: sqlite3.Connection, rows: Sequence[int], records: Sequence[Record]) -> None:
    """Keep new vectors for these rows, where they are still there."""
    for row, record in zip(rows, records, strict=True):
        packed = pack(record)
        connection.execute(
            "INSERT OR REPLACE INTO reembedded SELECT row, ?, ? FROM memories WHERE row = ?",
            (packed.bare, packed.mixed, row),
        )


def exchange(connection: sqlite3.Connection, identity: str) -> bool:
    """Put the new vectors in the place of the old ones; false when a memory has none yet, and nothing is changed."""
    done, wanted = sizes(connection)
    if done != wanted:
        return False
    after = 0
    while rows := connection.execute(
        "SELECT m.row, m.facts, b.memory, r.bare, r.mixed FROM reembedded r JOIN memories m ON m.row = r.row"
        " JOIN bodies b ON b.row = r.row WHERE r.row > ? ORDER BY r.row LIMIT ?",
        (after, _CHUNK),
    ).fetchall():
        for row, facts, body, bare, mixed in rows:
            memory = replace(decode_memory(body), embedding_model=identity)
            connection.execute("UPDATE bodies SET memory = ? WHERE row = ?", (encode_memory(memory), row))
            connection.execute("UPDATE memories SET facts = ? WHERE row = ?", (closer(facts, bare, mixed), row))
        after = rows[-1][0]
    connection.execute("DELETE FROM vectors")
    connection.execute("INSERT INTO vectors SELECT row, bare, mixed FROM reembedded")
    dimension = connection.execute("SELECT length(bare) / 2 FROM reembedded LIMIT 1").fetchone()
    connection.execute("DELETE FROM meta WHERE name IN ('dimension', 'reembedding')")
    if dimension is not None:
        connection.execute("INSERT INTO meta VALUES ('dimension', ?)", (str(dimension[0]),))
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('identity', ?)", (identity,))
    connection.execute("DROP TABLE reembedded")
    return True
