"""The transactions that write to the embedded store: a change set, and the log of accesses and retrievals."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from hindsight_core.caller import millis
from hindsight_core.errors import ConfigurationError, Conflict
from hindsight_core.models import AuditEvent, Memory, Retrieval, Run
from hindsight_core.stores import Access, ChangeSet, Receipt, Record
from hindsight_core.stores.rows import COLUMNS, Packed, decode_fields, decode_memory, pack

encode = msgspec.json.Encoder().encode
decode_event = msgspec.json.Decoder(AuditEvent).decode
decode_run = msgspec.json.Decoder(Run).decode
decode_retrieval = msgspec.json.Decoder(Retrieval).decode

_STRING = re.compile(rb'"([^"\\]{1,256})"')
_CHUNK = 500
_INSERT = (
    f"INSERT INTO memories (namespace, sequence, {', '.join(COLUMNS)})"  # noqa: S608 - our own column names
    f" VALUES ({', '.join('?' * (len(COLUMNS) + 2))})"
)
_UPDATE = f"UPDATE memories SET sequence = ?, {', '.join(f'{c} = ?' for c in COLUMNS)} WHERE row = ?"  # noqa: S608 - as above


class Transaction:
    """One change set being applied to one namespace; made inside BEGIN IMMEDIATE, committed or rolled back outside."""

    def __init__(self, connection: sqlite3.Connection, namespace: str) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._executemany = connection.executemany
        self._execute("INSERT OR IGNORE INTO namespaces (name) VALUES (?)", (namespace,))
        found = self._execute("SELECT number, sequence FROM namespaces WHERE name = ?", (namespace,)).fetchone()
        self._number: int = found[0]
        self._sequence: int = found[1] + 1
        self._grown = 0

    def apply(self, changes: ChangeSet, expected: int | None) -> int:
        """The new sequence; raises `Conflict` as `MemoryStore.commit` says."""
        if expected is not None and expected != self._sequence - 1:
            raise Conflict(
                f"The namespace is at change {self._sequence - 1}, not {expected}.", remedy="Read it again and retry."
            )
        for record in changes.puts:
            self._put(record, imported=changes.imported is not None)
        self._add_events(changes.events)
        self._add_run(changes)
        if changes.receipt is not None:
            self._add_receipt(
                changes.receipt, millis(changes.run.at), [*(r.memory.id for r in changes.puts), *changes.erases]
            )
        for memory_id in changes.erases:
            self._erase(memory_id)
        self._bury(changes.tombstones)
        if changes.erases:
            # Remembered until the write-ahead log is emptied, even across a crash.
            self._execute("INSERT OR REPLACE INTO meta VALUES ('wipe', ?)", (f"{self._number}:{self._sequence}",))
        self._execute(
            "UPDATE namespaces SET sequence = ?, memories = memories + ? WHERE number = ?",
            (self._sequence, self._grown, self._number),
        )
        return self._sequence

    def _put(self, record: Record, *, imported: bool) -> None:
        memory = record.memory
        packed = pack(record)
        self._check_vectors(record, packed)
        old = self._execute(
            "SELECT m.row, m.version, t.text, t.context, t.labels, v.bare, v.mixed FROM memories m"
            " JOIN terms t ON t.row = m.row LEFT JOIN vectors v ON v.row = m.row WHERE m.namespace = ? AND m.id = ?",
            (self._number, memory.id),
        ).fetchone()
        if memory.version != (1 if old is None else old[1] + 1) and not (imported and old is None):
            state = "does not exist" if old is None else f"is at version {old[1]}"
            raise Conflict(f"{memory.id} {state}.", remedy="Read it again and retry.")
        if old is None:
            self._grown += 1
            row = self._insert(packed)
        elif old[2:] == packed.searched:
            row = old[0]
            self._execute(_UPDATE, (self._sequence, *packed.columns, row))
            self._execute("UPDATE bodies SET memory = ?, fields = ? WHERE row = ?", (packed.memory, packed.fields, row))
        else:
            row = self._move(old[0], packed)
        if old is not None:
            self._execute("DELETE FROM derivations WHERE row = ?", (row,))
        self._executemany("INSERT OR IGNORE INTO derivations VALUES (?, ?)", [(row, o) for o in memory.derived_from])
        if record.index.speaker is not None and (old is None or row != old[0]):
            self._execute(
                "INSERT INTO speakers (namespace, speaker, memories) VALUES (?, ?, 1)"
                " ON CONFLICT DO UPDATE SET memories = memories + 1",
                (self._number, record.index.speaker),
            )
        if memory.access_count or memory.last_accessed_at is not None:
            at = None if memory.last_accessed_at is None else millis(memory.last_accessed_at)
            # A put never takes back accesses that were counted while it was being prepared.
            self._execute(
                "INSERT INTO access (row, count, at) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET"
                " count = max(count, excluded.count), at = max(ifnull(at, excluded.at), ifnull(excluded.at, at))",
                (row, memory.access_count, at),
            )

    def _check_vectors(self, record: Record, packed: Packed) -> None:
        if packed.bare is None:
            return
        if not all(np.all(np.isfinite(v)) for v in (record.bare, record.mixed) if v is not None):
            raise ConfigurationError(
                f"The vector of {record.memory.id} is not made of finite numbers.", remedy="Check the embedder."
            )
        dimension = len(packed.bare) // 2
        self._execute("INSERT OR IGNORE INTO meta VALUES ('dimension', ?)", (str(dimension),))
        (stored,) = self._execute("SELECT value FROM meta WHERE name = 'dimension'").fetchone()
        if dimension != int(stored) or (packed.mixed is not None and len(packed.mixed) != len(packed.bare)):
            raise ConfigurationError(
                f"A vector of {dimension} dimensions does not fit into a store of {stored}.",
                remedy="Use the embedder that the store was filled with.",
            )

    def _insert(self, packed: Packed) -> int:
        row = self._execute(_INSERT, (self._number, self._sequence, *packed.columns)).lastrowid
        assert row is not None
        self._execute("INSERT INTO bodies VALUES (?, ?, ?)", (row, packed.memory, packed.fields))
        self._execute("INSERT INTO terms VALUES (?, ?, ?, ?)", (row, packed.text, packed.context, packed.labels))
        if packed.bare is not None:
            self._execute("INSERT INTO vectors VALUES (?, ?, ?)", (row, packed.bare, packed.mixed))
        return row

    def _move(self, old: int, packed: Packed) -> int:
        access = self._execute("SELECT count, at FROM access WHERE row = ?", (old,)).fetchone()
        self._remove(old, None)
        row = self._insert(packed)
        if access is not None:
            self._execute("INSERT INTO access VALUES (?, ?, ?)", (row, *access))
        return row

    def _remove(self, row: int, memory_id: str | None) -> None:
        (fields,) = self._execute("SELECT fields FROM bodies WHERE row = ?", (row,)).fetchone()
        speaker = decode_fields(fields).speaker
        if speaker is not None:
            key = (self._number, speaker)
            self._execute("UPDATE speakers SET memories = memories - 1 WHERE namespace = ? AND speaker = ?", key)
            self._execute("DELETE FROM speakers WHERE namespace = ? AND speaker = ? AND memories <= 0", key)
        self._execute("DELETE FROM memories WHERE row = ?", (row,))
        self._execute("INSERT INTO tombstones VALUES (?, ?, ?, ?)", (row, self._number, self._sequence, memory_id))

    def _bury(self, ids: Sequence[str]) -> None:
        """Keep ids that were erased elsewhere; below 0 no row is that of a memory."""
        for memory_id in ids:
            self._execute(
                "INSERT INTO tombstones SELECT min(0, ifnull((SELECT min(row) FROM tombstones), 0)) - 1, ?1, ?2, ?3"
                " WHERE NOT EXISTS (SELECT 1 FROM memories WHERE namespace = ?1 AND id = ?3)"
                " AND NOT EXISTS (SELECT 1 FROM tombstones WHERE namespace = ?1 AND id = ?3)",
                (self._number, self._sequence, memory_id),
            )

    def _add_events(self, events: Sequence[AuditEvent]) -> None:
        try:
            self._executemany(
                "INSERT INTO events (namespace, id, memory_id, run_id, at, body) VALUES (?, ?, ?, ?, ?, ?)",
                [(self._number, e.id, e.memory_id, e.run_id, millis(e.at), encode(e)) for e in events],
            )
        except sqlite3.IntegrityError as exc:
            raise Conflict("An audit event with this id exists.", remedy="Retry with fresh ids.") from exc

    def _add_run(self, changes: ChangeSet) -> None:
        run = changes.run
        if (earlier := self._run(run.run_id)) is not None:
            # A run that commits page by page stays one run; a reason that erasing has emptied stays empty.
            run = replace(run, reason=earlier.reason, undone_by=run.undone_by or earlier.undone_by)
        self._put_run(run)
        for other in changes.imported or ():
            if self._run(other.run_id) is None:
                self._put_run(other)
        if changes.undone is not None:
            undone = self._run(changes.undone)
            if undone is None:
                raise Conflict(f"There is no run {changes.undone} to undo.")
            self._put_run(replace(undone, undone_by=run.run_id))

    def _run(self, run_id: str) -> Run | None:
        key = (self._number, run_id)
        found = self._execute("SELECT body FROM runs WHERE namespace = ? AND id = ?", key).fetchone()
        return None if found is None else decode_run(found[0])

    def _put_run(self, run: Run) -> None:
        self._execute(
            "INSERT INTO runs (namespace, id, at, body) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (namespace, id) DO UPDATE SET body = excluded.body",
            (self._number, run.run_id, millis(run.at), encode(run)),
        )

    def _add_receipt(self, receipt: Receipt, at: int, touched: Iterable[str]) -> None:
        try:
            row = self._execute(
                "INSERT INTO receipts (namespace, key, fingerprint, answer, at) VALUES (?, ?, ?, ?, ?)",
                (self._number, receipt.key, receipt.fingerprint, receipt.answer, at),
            ).lastrowid
        except sqlite3.IntegrityError as exc:
            raise Conflict("This idempotency key was used already.", remedy="Read its receipt.") from exc
        named = {text.decode("utf-8", "replace") for text in _STRING.findall(receipt.answer)}
        ids = set(touched) | existing(self._connection, self._number, sorted(named))
        self._executemany(
            "INSERT INTO answered (namespace, memory_id, receipt) VALUES (?, ?, ?)",
            [(self._number, memory_id, row) for memory_id in sorted(ids)],
        )

    def _erase(self, memory_id: str) -> None:
        key = (self._number, memory_id)
        found = self._execute(
            "SELECT m.row, b.memory FROM memories m JOIN bodies b ON b.row = m.row WHERE m.namespace = ? AND m.id = ?",
            key,
        ).fetchone()
        texts: set[str] = set()
        if found is not None:
            texts.update(_texts(decode_memory(found[1])))
            self._remove(found[0], memory_id)
            self._grown -= 1
        found = self._execute("SELECT row, body FROM events WHERE namespace = ? AND memory_id = ?", key).fetchall()
        events = [(row, decode_event(body)) for row, body in found]
        for _, event in events:
            texts.update(text for memory in (event.before, event.after) if memory for text in _texts(memory))
        for row, event in events:
            emptied = replace(event, before=None, after=None, reason=_unquoting(event.reason, texts))
            self._execute("UPDATE events SET body = ? WHERE row = ?", (encode(emptied), row))
        for run_id in {event.run_id for _, event in events}:
            if (run := self._run(run_id)) is not None and (reason := _unquoting(run.reason, texts)) != run.reason:
                self._put_run(replace(run, reason=reason))
        retrieved = "SELECT retrieval FROM retrieved WHERE namespace = ? AND memory_id = ?"
        self._execute(f"DELETE FROM retrievals WHERE row IN ({retrieved})", key)  # noqa: S608 - our own names
        answered = "SELECT receipt FROM answered WHERE namespace = ? AND memory_id = ?"
        self._execute(f"UPDATE receipts SET fingerprint = '', answer = x'' WHERE row IN ({answered})", key)  # noqa: S608 - our own names
        self._execute(f"DELETE FROM answered WHERE receipt IN ({answered})", key)  # noqa: S608 - our own names


def _texts(memory: Memory) -> list[str]:
    return [text for text in (memory.content, memory.summary, memory.context) if text]


def _unquoting(reason: str, texts: Iterable[str]) -> str:
    """The reason, or nothing where it quotes one of the texts."""
    return "" if any(text in reason for text in texts) else reason


def existing(connection: sqlite3.Connection, number: int, ids: Sequence[str]) -> set[str]:
    """Which of these ids are memories of the namespace with this number."""
    found: set[str] = set()
    for start in range(0, len(ids), _CHUNK):
        some = ids[start : start + _CHUNK]
        query = f"SELECT id FROM memories WHERE namespace = ? AND id IN ({','.join('?' * len(some))})"  # noqa: S608 - question marks
        found.update(memory_id for (memory_id,) in connection.execute(query, (number, *some)))
    return found


def unlog(connection: sqlite3.Connection, namespace: str, ids: Sequence[str]) -> None:
    """Remove these logged searches; inside a transaction of the caller's."""
    connection.executemany(
        "DELETE FROM retrievals WHERE namespace = (SELECT number FROM namespaces WHERE name = ?) AND id = ?",
        [(namespace, retrieval_id) for retrieval_id in ids],
    )
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('wipe', ?)", (f"{namespace}:unlog:{ids[-1]}",))


def prune(connection: sqlite3.Connection, namespace: str, log: str, before: int, limit: int | None) -> int:
    """Remove entries of one of two logs; inside a transaction of the caller's."""
    gone = connection.execute(
        f"DELETE FROM {log} WHERE row IN (SELECT row FROM {log} WHERE namespace ="  # noqa: S608 - one of two names
        " (SELECT number FROM namespaces WHERE name = ?) AND at < ? LIMIT ?)",
        (namespace, before, -1 if limit is None else limit),
    )
    if gone.rowcount:
        # What they quoted is to leave the write-ahead log, too.
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('wipe', ?)", (f"{namespace}:{log}:{before}",))
    return gone.rowcount


def write_log(
    connection: sqlite3.Connection,
    namespace: str,
    accesses: Sequence[Access],
    retrievals: Sequence[Retrieval],
    seen: int | None,
) -> None:
    """See `MemoryStore.log`; inside a transaction of the caller's."""
    connection.execute("INSERT OR IGNORE INTO namespaces (name) VALUES (?)", (namespace,))
    (number,) = connection.execute("SELECT number FROM namespaces WHERE name = ?", (namespace,)).fetchone()
    connection.executemany(
        "INSERT INTO access (row, count, at) SELECT row, ?, ? FROM memories WHERE namespace = ? AND id = ?"
        " ON CONFLICT (row) DO UPDATE SET count = count + excluded.count, at = max(ifnull(at, 0), excluded.at)",
        [(access.count, access.at, number, access.memory_id) for access in accesses],
    )
    since = "SELECT 1 FROM tombstones WHERE namespace = ? AND sequence > ? AND id IS NOT NULL LIMIT 1"
    late = seen is not None and connection.execute(since, (number, seen)).fetchone() is not None
    for retrieval in () if late else retrievals:
        hits = {memory_id for memory_id, _, _ in retrieval.hits}
        if hits != existing(connection, number, sorted(hits)):
            continue  # a hit was erased since, and the query may quote it
        row = connection.execute(
            "INSERT OR IGNORE INTO retrievals (namespace, id, at, body) VALUES (?, ?, ?, ?) RETURNING row",
            (number, retrieval.id, millis(retrieval.at), encode(retrieval)),
        ).fetchone()
        if row is not None:
            connection.executemany(
                "INSERT OR IGNORE INTO retrieved VALUES (?, ?, ?)",
                [(number, memory_id, row[0]) for memory_id in sorted(hits)],
            )
