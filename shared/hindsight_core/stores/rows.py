"""How a record lies in the embedded store's tables: the columns, the packed vectors, terms and labels, and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from hindsight_core.caller import millis
from hindsight_core.indexing import IndexFields
from hindsight_core.models import Memory
from hindsight_core.stores import Record, Vector
from hindsight_core.stores.conditions import labels, stamp

# A term of a memory: its stamp, and its impact as a fraction of 65535 (finer than float16 and never 0).
TERM = np.dtype([("stamp", "<u8"), ("impact", "<u2")])
IMPACT_SCALE = 65535
HALF = np.dtype("<f2")

COLUMNS = (
    "id",
    "version",
    "status",
    "memory_type",
    "kind",
    "source",
    "visibility",
    "user_id",
    "agent_id",
    "session_id",
    "task_id",
    "key",
    "observed_at",
    "precise",
    "valid_from",
    "valid_to",
    "expires_at",
    "pinned",
    "confidence",
    "half_life_days",
    "question",
)

Row: TypeAlias = tuple[bytes, bytes, int | None, int | None, bytes | None, bytes | None]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_encode = msgspec.msgpack.Encoder().encode
_memory = msgspec.msgpack.Decoder(Memory).decode
_fields = msgspec.msgpack.Decoder(IndexFields).decode


class Packed(msgspec.Struct, frozen=True, kw_only=True):
    """A record as it is stored; `columns` in the order of `COLUMNS`, `searched` what an index is made of."""

    columns: tuple[object, ...]
    memory: bytes
    fields: bytes
    text: bytes
    context: bytes
    labels: bytes
    bare: bytes | None
    mixed: bytes | None

    @property
    def searched(self) -> tuple[bytes | None, ...]:
        return (self.text, self.context, self.labels, self.bare, self.mixed)


def pack(record: Record) -> Packed:
    """The record without its access statistics, which have a table of their own."""
    memory, index = record.memory, record.index
    bare = None if record.bare is None else narrow(record.bare)
    mixed = None if record.mixed is None else narrow(record.mixed)
    if bare is None:
        bare, mixed = mixed, None
    return Packed(
        columns=(
            memory.id,
            memory.version,
            memory.status,
            memory.memory_type,
            memory.kind,
            memory.source,
            memory.visibility,
            memory.user_id,
            memory.agent_id,
            memory.session_id,
            memory.task_id,
            memory.key,
            _millis(memory.observed_at),
            memory.precision in {"instant", "day"},
            millis(memory.valid_from),
            _millis(memory.valid_to),
            _millis(memory.expires_at),
            memory.pinned,
            memory.confidence,
            memory.half_life_days,
            index.question,
        ),
        memory=_encode(replace(memory, access_count=0, last_accessed_at=None)),
        fields=_encode(index),
        text=pack_terms(index.text),
        context=pack_terms(index.context),
        labels=np.array(labels(memory, index), "<u8").tobytes(),
        bare=bare,
        mixed=None if mixed == bare else mixed,
    )


def pack_terms(impacts: dict[str, float]) -> bytes:
    terms = np.empty(len(impacts), TERM)
    terms["stamp"] = [stamp(term) for term in impacts]
    terms["impact"] = [max(1, round(impact * IMPACT_SCALE)) for impact in impacts.values()]
    return terms.tobytes()


def narrow(vector: NDArray[np.floating]) -> bytes:
    """The vector in half precision, as stored."""
    return vector.astype(HALF).tobytes()


def widen(blob: bytes) -> Vector:
    """A stored vector; what searches compute with, so that a reload changes no score."""
    return np.frombuffer(blob, HALF).astype(np.float32)


def unpack_memory(body: bytes, count: int | None, at: int | None) -> Memory:
    """A memory with its access statistics, None where it was never accessed."""
    memory = _memory(body)
    if count is None:
        return memory
    return replace(memory, access_count=count, last_accessed_at=None if at is None else instant(at))


def unpack(row: Row) -> Record:
    """A record from (memory, fields, access count, accessed at, bare, mixed)."""
    body, fields, count, at, bare, mixed = row
    vector = None if bare is None else widen(bare)
    return Record(
        memory=unpack_memory(body, count, at),
        index=_fields(fields),
        bare=vector,
        mixed=vector if mixed is None else widen(mixed),
    )


def instant(at: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=at)


def _millis(value: datetime | None) -> int | None:
    return None if value is None else millis(value)
