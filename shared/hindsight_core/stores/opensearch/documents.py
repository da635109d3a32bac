"""A record as a document of the memories index, and back."""

from __future__ import annotations

import hashlib
import math
from base64 import b64encode
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from hindsight_core.caller import millis
from hindsight_core.indexing import IndexFields
from hindsight_core.models import Memory
from hindsight_core.scoring import MEMORY_TYPES, UNDATED, moment
from hindsight_core.stores import Record, Vector
from hindsight_core.stores.opensearch.conditions import NEVER, metadata_labels
from hindsight_core.stores.opensearch.connection import Json
from hindsight_core.stores.opensearch.mapping import vector_field
from hindsight_core.stores.rows import HALF, instant, narrow, widen

# What makes a search bring memories along, and whole records. They lie in columns of their own: reading anything else
# of a document takes ten times as long, since the numbers of its vectors are unpacked with it.
MEMORY: Json = {"stored_fields": "_none_", "docvalue_fields": ["kept"]}
RECORD: Json = {"stored_fields": "_none_", "docvalue_fields": ["kept", "bare", "mixed"]}
# The same of a document that is read by its id, also of one that an earlier schema wrote.
SOURCE = ["kept", "bare", "mixed", "record"]
_ID_BYTES = 512
# An impact tells how often a term is in how long a text: a few thousand different ones.
_IMPACTS = 10_000
# So many decimals tell all numbers of half precision apart.
_DECIMALS = 8


class Kept(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record without its access statistics; `born` is the version of the change that made the memory.

    Vectors lie beside it, in half precision as in the embedded store, so that both compute with the same numbers;
    `bare` is None where it equals `mixed`.
    """

    memory: Memory
    index: IndexFields
    born: int
    bare: bytes | None = None
    mixed: bytes | None = None


class Columns(NamedTuple):
    """What a document keeps beside what is searched, each column as bytes."""

    kept: bytes
    bare: bytes | None
    mixed: bytes | None


class _Born(msgspec.Struct):
    born: int


class _Turn(msgspec.Struct):
    context: str | None = None


class _Turned(msgspec.Struct):
    memory: _Turn


_encode = msgspec.json.Encoder().encode
_kept = msgspec.json.Decoder(Kept).decode
_born = msgspec.json.Decoder(_Born).decode
_turned = msgspec.json.Decoder(_Turned).decode


def document_id(namespace: str, *names: str) -> str:
    """The `_id` of what has these names in a namespace; a namespace holds no slash."""
    found = "/".join((namespace, *names))
    if len(found.encode("utf-8", "surrogatepass")) <= _ID_BYTES:
        return found
    digest = hashlib.blake2b(found.encode("utf-8", "surrogatepass"), digest_size=32).hexdigest()
    return f"{namespace}//{digest}"


def access_id(namespace: str, memory_id: str, born: int) -> str:
    """The `_id` of a memory's access counter; `born` tells it from an erased memory of the same id."""
    return document_id(namespace, "access", str(born), memory_id)


def feature(term: str) -> str:
    """A term as the name of a rank feature, which takes no dot."""
    return term.replace("%", "%25").replace(".", "%2E") if "." in term or "%" in term else term


@lru_cache(_IMPACTS)
def kept_impact(impact: float) -> float:
    """The nearest number that a rank feature keeps as it is: it drops the lower 15 of the 32 bits of a float."""
    return float(((np.float32(impact).view(np.uint32) + np.uint32(0x4000)) & np.uint32(0xFFFF8000)).view(np.float32))


def vectors(record: Record) -> tuple[Vector | None, Vector | None]:
    """The bare and the mixed vector to keep; a vector without direction is none."""
    bare = record.bare if record.bare is not None else record.mixed
    mixed = record.mixed if record.mixed is not None else record.bare
    if bare is None or mixed is None or not (_directed(bare) and _directed(mixed)):
        return None, None
    return bare, mixed


def _directed(vector: Vector) -> bool:
    norm = float(np.linalg.norm(vector))
    return math.isfinite(norm) and norm > 0


def document(namespace: str, record: Record, *, born: int, changed: int) -> Json:
    """Everything of a record but its access statistics, which have a document of their own.

    `born` is the version of the change that made the memory, `changed` of the one that makes it what it is.
    """
    memory, index = record.memory, record.index
    at = moment(memory)
    found: Json = {
        "id": memory.id,
        "namespace": namespace,
        "status": memory.status,
        "memory_type": memory.memory_type,
        "type": MEMORY_TYPES.index(memory.memory_type),
        "kind": memory.kind,
        "source": memory.source,
        "visibility": memory.visibility,
        "user_id": memory.user_id,
        "agent_id": memory.agent_id,
        "session_id": memory.session_id,
        "task_id": memory.task_id,
        "key": memory.key,
        "tags": list(memory.tags),
        "derived_from": list(memory.derived_from) or None,
        "metadata": metadata_labels(memory),
        "speaker": index.speaker,
        "days": list(index.days),
        "question": str(int(index.question)),
        "observed_at": None if memory.observed_at is None else millis(memory.observed_at),
        "moment": None if at == UNDATED else at,
        "valid_from": millis(memory.valid_from),
        "valid_to": NEVER if memory.valid_to is None else millis(memory.valid_to),
        "expires_at": NEVER if memory.expires_at is None or memory.pinned else millis(memory.expires_at),
        "confidence": memory.confidence,
        "half_life_days": memory.half_life_days,
        "text": _features(index.text),
        "context": _features(index.context),
        "version": memory.version,
        "born": born,
        "changed": changed,
    }
    kept = Kept(memory=replace(memory, access_count=0, last_accessed_at=None), index=index, born=born)
    bare, mixed = vectors(record)
    found["kept"] = _encode(kept)
    if bare is not None and mixed is not None:
        found["mixed"] = narrow(mixed)
        found[vector_field("mixed", len(mixed))] = _decimals(mixed)
        found["vectors"] = "one"
        own = narrow(bare)
        if own != found["mixed"]:
            found["bare"] = own
            found["vectors"] = "two"
            found[vector_field("bare", len(bare))] = _decimals(bare)
    return {name: value for name, value in found.items() if value is not None and value != {}}


def _features(impacts: Mapping[str, float]) -> dict[str, float]:
    return {feature(term): kept_impact(impact) for term, impact in impacts.items() if term}


def _decimals(vector: Vector) -> list[float]:
    rounded: list[float] = np.round(vector.astype(HALF).astype(np.float64), _DECIMALS).tolist()
    return rounded


def unpacked(column: str) -> bytes:
    """The bytes that an answer gives as Base64; of a hit it leaves out what fills up the end."""
    # Four times as fast as `b64decode`.
    found: bytes = msgspec.convert(column + "=" * (-len(column) % 4), bytes)
    return found


def columns_in(source: Json) -> Columns:
    """The columns of a document of whatever schema, or of those that a hit brought along."""
    if "record" in source:
        source = renewed(source)
    bare, mixed = (unpacked(source[name]) if name in source else None for name in ("bare", "mixed"))
    return Columns(unpacked(source["kept"]), bare, mixed)


def kept_in(columns: Columns) -> Kept:
    """The record in the columns of a document."""
    kept = _kept(columns.kept)
    return kept if columns.mixed is None else replace(kept, bare=columns.bare, mixed=columns.mixed)


def kept_in_document(source: Json) -> Kept:
    """The record in a document of whatever schema."""
    return kept_in(columns_in(source))


def born_in(columns: Columns) -> int:
    """`Kept.born` of the same, without all the rest."""
    return _born(columns.kept).born


def turn_in(columns: Columns) -> str | None:
    """The turn before the memory of the same, without all the rest."""
    return _turned(columns.kept).memory.context


def renewed(source: Json) -> Json:
    """A document as it was before schema 3, which kept its record in one piece, as one of now."""
    old = _kept(source["record"])
    found = {name: value for name, value in source.items() if name != "record"}
    found["kept"] = _base64(_encode(replace(old, bare=None, mixed=None)))
    if old.bare is not None:
        found["mixed"] = _base64(old.mixed or old.bare)
        if old.mixed is not None:
            found["bare"] = _base64(old.bare)
    return found


def _base64(column: bytes) -> str:
    return b64encode(column).decode()


def memory_of(kept: Kept, access: Json | None) -> Memory:
    """The memory, with what its access counter says."""
    if access is None:
        return kept.memory
    at: int | None = access["at"]
    return replace(kept.memory, access_count=int(access["count"]), last_accessed_at=None if at is None else instant(at))


def record_of(kept: Kept, access: Json | None, *, vectors: bool = True) -> Record:
    """The record, with what its access counter says."""
    if not vectors:
        return Record(memory=memory_of(kept, access), index=kept.index)
    mixed = None if kept.mixed is None else widen(kept.mixed)
    return Record(
        memory=memory_of(kept, access),
        index=kept.index,
        bare=mixed if kept.bare is None else widen(kept.bare),
        mixed=mixed,
    )
