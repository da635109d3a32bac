"""How a record lies in the embedded store's tables: the columns, the packed vectors, terms and labels, and back."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TypeAlias, get_args

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from hindsight_core.caller import millis
from hindsight_core.ids import stamp
from hindsight_core.indexing import IndexFields
from hindsight_core.models import Kind, Memory, Source, Status
from hindsight_core.scoring import MEMORY_TYPES, UNDATED, moment
from hindsight_core.stores import Record, Vector
from hindsight_core.stores.conditions import labels

STATUSES: tuple[Status, ...] = get_args(Status)
KINDS: tuple[Kind, ...] = get_args(Kind)
SOURCES: tuple[Source, ...] = get_args(Source)
CODES: dict[str, dict[str, int]] = {
    "status": {name: code for code, name in enumerate(STATUSES)},
    "memory_type": {name: code for code, name in enumerate(MEMORY_TYPES)},
    "kind": {name: code for code, name in enumerate(KINDS)},
    "source": {name: code for code, name in enumerate(SOURCES)},
}
NEVER = np.iinfo(np.int64).max

# A term of a memory: its stamp, and its impact as a fraction of 65535 (finer than float16 and never 0).
TERM = np.dtype([("stamp", "<u8"), ("impact", "<u2")])
IMPACT_SCALE = 65535
HALF = np.dtype("<f2")

# What an index in memory holds of a memory besides its terms and vectors. Codes are positions in the tuples above;
# a missing scope id is stamp 0; `expires_at` of a pinned memory is `NEVER`; `moment` is for recency, `observed_at` for
# filters; `closeness` is the cosine of the bare and the mixed vector, NaN without any.
FACTS = np.dtype(
    [
        ("status", "i1"),
        ("memory_type", "i1"),
        ("kind", "i1"),
        ("source", "i1"),
        ("shared", "?"),
        ("question", "?"),
        ("user_id", "<u8"),
        ("agent_id", "<u8"),
        ("session_id", "<u8"),
        ("task_id", "<u8"),
        ("observed_at", "<i8"),
        ("moment", "<i8"),
        ("valid_from", "<i8"),
        ("valid_to", "<i8"),
        ("expires_at", "<i8"),
        ("confidence", "<f8"),
        ("half_life", "<f8"),
        ("closeness", "<f4"),
    ]
)

# The columns of `memories` that scans search by.
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
    "valid_from",
    "valid_to",
    "expires_at",
    "pinned",
    "facts",
)

Row: TypeAlias = tuple[bytes, bytes, int | None, int | None, bytes | None, bytes | None]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# JSON, because metadata may hold whole numbers of any size, which MessagePack cannot.
encode_memory = msgspec.json.Encoder().encode
decode_memory = msgspec.json.Decoder(Memory).decode
_encode_fields = msgspec.msgpack.Encoder().encode
decode_fields = msgspec.msgpack.Decoder(IndexFields).decode


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
    if mixed == bare:
        mixed = None
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
            millis(memory.valid_from),
            _millis(memory.valid_to),
            _millis(memory.expires_at),
            memory.pinned,
            _facts(memory, index, bare, mixed),
        ),
        memory=encode_memory(replace(memory, access_count=0, last_accessed_at=None)),
        fields=_encode_fields(index),
        text=pack_terms(index.text),
        context=pack_terms(index.context),
        labels=np.array(labels(memory, index), "<u8").tobytes(),
        bare=bare,
        mixed=mixed,
    )


def _facts(memory: Memory, index: IndexFields, bare: bytes | None, mixed: bytes | None) -> bytes:
    observed_at, expires_at = _millis(memory.observed_at), _millis(memory.expires_at)
    facts = (
        CODES["status"][memory.status],
        CODES["memory_type"][memory.memory_type],
        CODES["kind"][memory.kind],
        CODES["source"][memory.source],
        memory.visibility == "shared",
        index.question,
        scope_stamp(memory.user_id),
        scope_stamp(memory.agent_id),
        scope_stamp(memory.session_id),
        scope_stamp(memory.task_id),
        UNDATED if observed_at is None else observed_at,
        moment(memory),
        millis(memory.valid_from),
        NEVER if memory.valid_to is None else millis(memory.valid_to),
        NEVER if expires_at is None or memory.pinned else expires_at,
        memory.confidence,
        memory.half_life_days or math.nan,
        _closeness(bare, mixed),
    )
    return np.array(facts, FACTS).tobytes()


def closer(facts: bytes, bare: bytes | None, mixed: bytes | None) -> bytes:
    """The facts of a memory that has these vectors instead of others."""
    held = np.frombuffer(facts, FACTS).copy()
    held["closeness"] = _closeness(bare, mixed)
    return held.tobytes()


def _closeness(bare: bytes | None, mixed: bytes | None) -> float:
    if bare is None:
        return math.nan
    return 1.0 if mixed is None else min(1.0, float(widen(bare) @ widen(mixed)))


def scope_stamp(scope_id: str | None) -> int:
    return 0 if scope_id is None else stamp(scope_id)


def pack_terms(impacts: dict[str, float]) -> bytes:
    terms = np.empty(len(impacts), TERM)
    terms["stamp"] = [stamp(term) for term in impacts]
    terms["impact"] = [max(1, round(impact * IMPACT_SCALE)) for impact in impacts.values()]
    return terms.tobytes()


def narrow(vector: NDArray[np.floating]) -> bytes:
    """The vector in half precision, as stored."""
    return vector.astype(HALF).tobytes()


def widen(blob: bytes) -> Vector:
    """A stored vector, or several joined; what searches compute with, so that a reload changes no score."""
    return np.frombuffer(blob, HALF).astype(np.float32)


def accessed(memory: Memory, count: int | None, at: int | None) -> Memory:
    """A memory with its access statistics, None where it was never accessed."""
    if count is None and memory.last_accessed_at is None and not memory.access_count:
        return memory
    return replace(memory, access_count=count or 0, last_accessed_at=None if at is None else instant(at))


def unpack(row: Row) -> Record:
    """A record from (memory, fields, access count, accessed at, bare, mixed)."""
    body, fields, count, at, bare, mixed = row
    vector = None if bare is None else widen(bare)
    return Record(
        memory=accessed(decode_memory(body), count, at),
        index=decode_fields(fields),
        bare=vector,
        mixed=vector if mixed is None else widen(mixed),
    )


def instant(at: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=at)


def _millis(value: datetime | None) -> int | None:
    return None if value is None else millis(value)
