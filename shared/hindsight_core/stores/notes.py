"""Notes in the embedded store: rows of `meta`, each a version and a text."""

from __future__ import annotations

import sqlite3

from hindsight_core.errors import Conflict
from hindsight_core.stores import Note


def read(connection: sqlite3.Connection, name: str) -> Note:
    found = connection.execute("SELECT value FROM meta WHERE name = ?", (_row(name),)).fetchone()
    return Note() if found is None else unpacked(found[0])


def write(connection: sqlite3.Connection, name: str, text: str, expected: int) -> Note:
    """Within a transaction that writes; raises `Conflict` as `MemoryStore.keep` says."""
    check(name, read(connection, name), expected)
    note = Note(text=text, version=expected + 1)
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_row(name), packed(note)))
    return note


def check(name: str, present: Note, expected: int) -> None:
    """Raise `Conflict` unless the note is of the version that is expected."""
    if present.version != expected:
        raise Conflict(
            f"The note {name!r} is at version {present.version}, not {expected}.", remedy="Read it again and retry."
        )


def packed(note: Note) -> str:
    """A note as one text."""
    return f"{note.version}:{note.text}"


def unpacked(value: str) -> Note:
    version, _, text = value.partition(":")
    return Note(text=text, version=int(version))


def _row(name: str) -> str:
    return f"note:{name}"
