"""Everything that is read from the embedded store's file without an index in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from hindsight_core.containing import Contained
from hindsight_core.models import AuditEvent, MemoryType, Retrieval, Run, Status
from hindsight_core.stores import Head, Log, Receipt, Record, Where
from hindsight_core.stores.changes import decode_event, decode_retrieval, decode_run
from hindsight_core.stores.conditions import sql
from hindsight_core.stores.rows import unpack

_CHUNK = 500
_SORTED_AT_MOST = 5000
_RECORD = (
    "SELECT b.memory, b.fields, a.count, a.at, v.bare, v.mixed, m.id, m.row FROM memories m"
    " JOIN bodies b ON b.row = m.row"
    " JOIN terms t ON t.row = m.row LEFT JOIN vectors v ON v.row = m.row LEFT JOIN access a ON a.row = m.row"
    " WHERE "
)
# Of rows that are known no terms are asked for.
_KNOWN = _RECORD.replace(" JOIN terms t ON t.row = m.row", "")
_BARE_RECORD = _RECORD.replace("v.bare, v.mixed", "NULL, NULL").replace(" LEFT JOIN vectors v ON v.row = m.row", "")
_DECODE: dict[Log, Callable[[bytes], Any]] = {
    "events": decode_event,
    "runs": decode_run,
    "retrievals": decode_retrieval,
}


class _Before(msgspec.Struct, frozen=True):
    """Of a memory, the turn before it."""

    context: str | None = None


_turn_before = msgspec.json.Decoder(_Before).decode

_NAMING = {
    "runs": "SELECT run_id FROM events WHERE namespace = ? AND memory_id = ?",
    "retrievals": "SELECT retrieval FROM retrieved WHERE namespace = ? AND memory_id = ?",
}


def _number(connection: sqlite3.Connection, namespace: str) -> int | None:
    found = connection.execute("SELECT number FROM namespaces WHERE name = ?", (namespace,)).fetchone()
    return None if found is None else found[0]


def head(connection: sqlite3.Connection, namespace: str) -> Head:
    found = connection.execute(
        "SELECT number, sequence, memories FROM namespaces WHERE name = ?", (namespace,)
    ).fetchone()
    if found is None:
        return Head(sequence=0, memories=0)
    number, sequence, memories = found
    speakers = connection.execute("SELECT speaker FROM speakers WHERE namespace = ?", (number,))
    (latest,) = connection.execute("SELECT max(at) FROM runs WHERE namespace = ?", (number,)).fetchone()
    return Head(
        sequence=sequence,
        memories=memories,
        speakers=frozenset(name for (name,) in speakers),
        latest=latest or 0,
    )


def get(connection: sqlite3.Connection, namespace: str, ids: Sequence[str]) -> list[Record]:
    number = _number(connection, namespace)
    found: dict[str, Record] = {}
    wanted = list(dict.fromkeys(ids))
    for start in range(0, len(wanted), _CHUNK):
        some = wanted[start : start + _CHUNK]
        marks = ",".join("?" * len(some))
        for row in connection.execute(f"{_RECORD} m.namespace = ? AND m.id IN ({marks})", (number, *some)):
            found[row[6]] = unpack(row[:6])
    return [found[memory_id] for memory_id in ids if memory_id in found]


def erased(connection: sqlite3.Connection, namespace: str, ids: Sequence[str]) -> set[str]:
    number = _number(connection, namespace)
    found: set[str] = set()
    for start in range(0, len(ids), _CHUNK):
        some = ids[start : start + _CHUNK]
        query = f"SELECT id FROM tombstones WHERE namespace = ? AND id IN ({','.join('?' * len(some))})"  # noqa: S608 - question marks
        found.update(memory_id for (memory_id,) in connection.execute(query, (number, *some)))
    return found


def erasures(connection: sqlite3.Connection, namespace: str, after: str | None, limit: int) -> list[str]:
    found = connection.execute(
        "SELECT DISTINCT id FROM tombstones WHERE namespace = ? AND id > ? ORDER BY id LIMIT ?",
        (_number(connection, namespace), after or "", limit),
    )
    return [memory_id for (memory_id,) in found]


def records_at(connection: sqlite3.Connection, rows: Sequence[int]) -> dict[int, Record]:
    """The records in these rows of the file, by row."""
    marks = ",".join("?" * len(rows))
    return {row[7]: unpack(row[:6]) for row in connection.execute(f"{_KNOWN} m.row IN ({marks})", tuple(rows))}


def scan(
    connection: sqlite3.Connection,
    namespace: str,
    where: Where,
    after: str | None,
    limit: int,
    vectors: bool = True,
) -> list[Record]:
    number = _number(connection, namespace)
    select = _RECORD if vectors else _BARE_RECORD
    if where.ids is None:
        return _scan(connection, select, number, where, after, limit)
    # A list of ids is looked up, never compared with every memory.
    ids = sorted({memory_id for memory_id in where.ids if after is None or memory_id > after})
    found: list[Record] = []
    for start in range(0, len(ids), _CHUNK):
        if len(found) < limit:
            some = replace(where, ids=tuple(ids[start : start + _CHUNK]))
            found += _scan(connection, select, number, some, None, limit - len(found))
    return found


def _scan(
    connection: sqlite3.Connection, select: str, number: int | None, where: Where, after: str | None, limit: int
) -> list[Record]:
    conditions, params = sql(where)
    if after is not None:
        conditions, params = f"{conditions} AND m.id > ?", [*params, after]
    if where.expired_at is not None and where.statuses is not None and _few(connection, number, where):
        # What has expired is found by its index and sorted, as long as that is little of much.
        select = select.replace("memories m", "memories m INDEXED BY memories_expires", 1)
    query = f"{select} m.namespace = ?{conditions} ORDER BY m.id LIMIT ?"
    return [unpack(row[:6]) for row in connection.execute(query, (number, *params, limit))]


def _few(connection: sqlite3.Connection, number: int | None, where: Where) -> bool:
    """Whether sorting all that has expired is less than walking through everything in order of id."""
    statuses = where.statuses or ()
    (found,) = connection.execute(
        "SELECT count(*) FROM (SELECT 1 FROM memories WHERE namespace = ?"  # noqa: S608 - question marks
        f" AND status IN ({','.join('?' * len(statuses))}) AND expires_at <= ? LIMIT ?)",
        (number, *statuses, where.expired_at, _SORTED_AT_MOST),
    ).fetchone()
    return bool(found < _SORTED_AT_MOST)


def following(connection: sqlite3.Connection, namespace: str, texts: Collection[str]) -> list[str]:
    wanted = Contained(texts)
    found = connection.execute(
        "SELECT m.id, b.memory FROM bodies b INDEXED BY bodies_context JOIN memories m ON m.row = b.row"
        " WHERE instr(b.memory, x'2c22636f6e74657874223a22') > 0 AND m.namespace = ?",
        (_number(connection, namespace),),
    )
    return [memory_id for memory_id, body in found if wanted.within(_turn_before(body).context or "")]


def read(
    connection: sqlite3.Connection,
    namespace: str,
    log: Log,
    *,
    ids: Sequence[str] | None,
    memory_id: str | None,
    memory_ids: Sequence[str] | None,
    run_id: str | None,
    since: int | None,
    after: str | None,
    limit: int,
) -> list[AuditEvent] | list[Run] | list[Retrieval]:
    # Left alone, SQLite walks through the whole log in order of id rather than sort what a few memories have in it.
    index = "" if memory_ids is None else " INDEXED BY events_memory"
    text = f"SELECT l.body FROM {log} l{index} WHERE l.namespace = ?"  # noqa: S608 - our own names
    params: list[object] = [_number(connection, namespace)]

    def add(condition: str, *values: object) -> None:
        nonlocal text
        text += f" AND {condition}"
        params.extend(values)

    if ids is not None:
        add(f"l.id IN ({','.join('?' * len(ids))})", *ids)
    if memory_id is not None:
        match log:
            case "events":
                add("l.memory_id = ?", memory_id)
            case "runs":
                add(f"l.id IN ({_NAMING['runs']})", params[0], memory_id)
            case "retrievals":
                add(
                    "l.row IN (SELECT retrieval FROM retrieved WHERE namespace = ? AND memory_id = ?)",
                    params[0],
                    memory_id,
                )
    if memory_ids is not None:
        add(f"l.memory_id IN ({','.join('?' * len(memory_ids))})", *memory_ids)
    if run_id is not None:
        match log:
            case "events":
                add("l.run_id = ?", run_id)
            case "runs":
                add("l.id = ?", run_id)
            case "retrievals":
                add("0")  # a search changes nothing, so it belongs to no run
    if since is not None:
        add("l.at >= ?", since)
    if after is not None:
        add("l.id > ?", after)
    rows = connection.execute(f"{text} ORDER BY l.id LIMIT ?", (*params, limit))
    return [_DECODE[log](body) for (body,) in rows]


def census(
    connection: sqlite3.Connection, namespace: str, statuses: Sequence[Status]
) -> dict[tuple[str | None, MemoryType], int]:
    groups = connection.execute(
        "SELECT user_id, memory_type, count(*) FROM memories WHERE namespace = ?"  # noqa: S608 - question marks
        f" AND status IN ({','.join('?' * len(statuses))}) GROUP BY 1, 2",
        (_number(connection, namespace), *statuses),
    )
    return {(user_id, memory_type): n for user_id, memory_type, n in groups}


def namespaces(connection: sqlite3.Connection, after: str | None, limit: int) -> list[str]:
    found = connection.execute(
        "SELECT name FROM namespaces WHERE memories > 0 AND name > ? ORDER BY name LIMIT ?", (after or "", limit)
    )
    return [name for (name,) in found]


def receipt(connection: sqlite3.Connection, namespace: str, key: str) -> Receipt | None:
    found = connection.execute(
        "SELECT fingerprint, answer FROM receipts WHERE namespace = ? AND key = ?",
        (_number(connection, namespace), key),
    ).fetchone()
    return None if found is None else Receipt(key=key, fingerprint=found[0], answer=found[1])


def outdated(connection: sqlite3.Connection, namespace: str, log: str, before: int) -> int:
    query = f"SELECT count(*) FROM {log} WHERE namespace = ? AND at < ?"  # noqa: S608 - one of two names
    (found,) = connection.execute(query, (_number(connection, namespace), before)).fetchone()
    return int(found)


def count(connection: sqlite3.Connection, namespace: str) -> dict[str, dict[str, int]]:
    number = _number(connection, namespace)
    sizes: dict[str, dict[str, int]] = {"status": {}, "memory_type": {}, "kind": {}, "log": {}}
    groups = connection.execute(
        "SELECT status, memory_type, kind, count(*) FROM memories WHERE namespace = ? GROUP BY 1, 2, 3", (number,)
    )
    for *values, n in groups:
        for name, value in zip(("status", "memory_type", "kind"), values, strict=True):
            sizes[name][value] = sizes[name].get(value, 0) + n
    for log in ("events", "runs"):
        (n,) = connection.execute(f"SELECT count(*) FROM {log} WHERE namespace = ?", (number,)).fetchone()  # noqa: S608 - one of two names
        sizes["log"][log] = n
    return sizes
