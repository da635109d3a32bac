"""The conditions of a `Where`, as SQL over the embedded store's tables, and the labels by which values are found."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from hindsight_core.ids import stamp
from hindsight_core.indexing import IndexFields
from hindsight_core.models import Memory, MetadataValue, Scalar
from hindsight_core.stores import Where

# SQLite limits the depth of an expression, so more labels than these are handed over as one JSON value.
_SPELLED_OUT = 50
_MANY_LABELS = (
    "NOT EXISTS (SELECT 1 FROM json_each(?) AS wanted WHERE NOT EXISTS"
    " (SELECT 1 FROM json_each(wanted.value) AS label WHERE instr(hex(t.labels), label.value)))"
)


def scalar_label(value: Scalar) -> str:
    """A form in which metadata values compare by type and value: 1 equals 1.0, but neither True nor "1"."""
    if isinstance(value, bool):
        return f"b{value}"
    if isinstance(value, str):
        return f"s{value}"
    return f"n{int(value)}" if isinstance(value, int) or value.is_integer() else f"n{value!r}"


def key_label(key: str) -> int:
    return stamp(f"key\0{key}")


def tag_label(tag: str) -> int:
    return stamp(f"tag\0{tag}")


def metadata_label(name: str, value: Scalar) -> int:
    return stamp(f"metadata\0{name}\0{scalar_label(value)}")


def speaker_label(speaker: str) -> int:
    return stamp(f"speaker\0{speaker}")


def day_label(day: str) -> int:
    return stamp(f"day\0{day}")


def labels(memory: Memory, index: IndexFields) -> list[int]:
    """All labels of a memory, without repeats."""
    found = {tag_label(tag) for tag in memory.tags}
    found.update(day_label(day) for day in index.days)
    found.update(metadata_label(name, value) for name, held in memory.metadata.items() for value in _scalars(held))
    if memory.key is not None:
        found.add(key_label(memory.key))
    if index.speaker is not None:
        found.add(speaker_label(index.speaker))
    return sorted(found)


def _scalars(value: MetadataValue) -> Sequence[Scalar]:
    if value is None:
        return ()
    return value if isinstance(value, list) else (value,)


def wanted_labels(where: Where) -> list[list[int]]:
    """Groups of labels: a memory must have at least one of each group. An empty group matches nothing."""
    groups = [[tag_label(tag)] for tag in where.tags_all]
    if where.tags_any:
        groups.append([tag_label(tag) for tag in where.tags_any])
    groups.extend([metadata_label(name, value) for value in values] for name, values in where.metadata.items())
    return groups


def derived(count: int) -> str:
    """A query for the rows of what is derived from any of so many ids, its parameters."""
    return f"SELECT row FROM derivations WHERE origin IN ({','.join('?' * count)})"  # noqa: S608 - question marks


def sql(where: Where) -> tuple[str, list[object]]:
    """The conditions over `memories AS m` and `terms AS t`, each starting with AND, and their parameters."""
    text: list[str] = []
    params: list[object] = []

    def add(condition: str, *values: object) -> None:
        text.append(f" AND {condition}")
        params.extend(values)

    for column in ("user_id", "session_id", "task_id", "key"):
        if (value := getattr(where, column)) is not None:
            add(f"m.{column} = ?", value)
    for column, values in (
        ("status", where.statuses),
        ("memory_type", where.memory_types),
        ("kind", where.kinds),
        ("source", where.sources),
        ("id", where.ids),
    ):
        if values is not None:
            distinct = dict.fromkeys(values)
            add(f"m.{column} IN ({','.join('?' * len(distinct))})", *distinct)
    if where.no_user:
        add("m.user_id IS NULL")
    if where.reader is None:
        add("m.visibility = 'shared'")
    elif where.reader != "*":
        add("(m.visibility = 'shared' OR m.agent_id = ?)", where.reader)
    if where.observed_from is not None:
        add("m.observed_at >= ?", where.observed_from)
    if where.observed_to is not None:
        add("m.observed_at < ?", where.observed_to)
    if where.begun_at is not None:
        add("m.valid_from <= ?", where.begun_at)
    if where.lasting_at is not None:
        add("(m.valid_to IS NULL OR m.valid_to > ?)", where.lasting_at)
    if where.alive_at is not None:
        add("(m.pinned OR m.expires_at IS NULL OR m.expires_at > ?)", where.alive_at)
    if where.expired_at is not None:
        add("m.expires_at <= ? AND NOT m.pinned", where.expired_at)
    if where.derived_from is not None:
        add(f"m.row IN ({derived(len(where.derived_from))})", *where.derived_from)
    groups = [[np.uint64(label).tobytes() for label in group] for group in wanted_labels(where)]
    if sum(map(len, groups)) + len(groups) <= _SPELLED_OUT:
        for blobs in groups:
            add(f"({' OR '.join(['instr(t.labels, ?)'] * len(blobs)) or '0'})", *blobs)
    else:
        add(_MANY_LABELS, msgspec.json.encode([[blob.hex().upper() for blob in blobs] for blobs in groups]).decode())
    return "".join(text), params
