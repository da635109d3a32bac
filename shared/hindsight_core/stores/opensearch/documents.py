"""A record as a document of the memories index, and back."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from hindsight_core.caller import millis
from hindsight_core.indexing import IndexFields
from hindsight_core.models import Memory
from hindsight_core.scoring import UNDATED, moment
from hindsight_core.stores import Record, Vector
from hindsight_core.stores.opensearch.conditions import NEVER, metadata_labels
from hindsight_core.stores.opensearch.connection import Json
from hindsight_core.stores.opensearch.mapping import vector_field
from hindsight_core.stores.rows import HALF, instant

# Both are searched and scored; neither is needed to read a record.
NOT_READ = {"excludes": ["text", "context"]}
_ID_BYTES = 512
# Vectors are kept in half precision, as in the embedded store, so that both compute with the same numbers; so many
# decimals tell all of those apart.
_DECIMALS = 8

_memory = msgspec.json.Decoder(Memory).decode
_index = msgspec.json.Decoder(IndexFields).decode


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


def document(namespace: str, record: Record, born: int) -> Json:
    """Everything of a record but its access statistics, which have a document of their own."""
    memory, index = record.memory, record.index
    at = moment(memory)
    found: Json = {
        "id": memory.id,
        "namespace": namespace,
        "status": memory.status,
        "memory_type": memory.memory_type,
        "kind": memory.kind,
        "source": memory.source,
        "visibility": memory.visibility,
        "user_id": memory.user_id,
        "agent_id": memory.agent_id,
        "session_id": memory.session_id,
        "task_id": memory.task_id,
        "key": memory.key,
        "tags": list(memory.tags),
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
        "memory": msgspec.json.encode(replace(memory, access_count=0, last_accessed_at=None)).decode(),
        "index": msgspec.json.encode(index).decode(),
    }
    bare, mixed = vectors(record)
    if bare is not None and mixed is not None:
        numbers, searched = _decimals(bare), _decimals(mixed)
        found[vector_field("mixed", len(searched))] = searched
        found["vectors"] = "one" if numbers == searched else "two"
        if numbers != searched:
            found[vector_field("bare", len(numbers))] = numbers
    return {name: value for name, value in found.items() if value is not None and value != {}}


def _features(impacts: Mapping[str, float]) -> dict[str, float]:
    return {feature(term): kept_impact(impact) for term, impact in impacts.items() if term}


def _decimals(vector: Vector) -> list[float]:
    rounded: list[float] = np.round(vector.astype(HALF).astype(np.float64), _DECIMALS).tolist()
    return rounded


def memory_of(source: Json, access: Json | None) -> Memory:
    """The memory of a document, with what its access counter says."""
    memory = _memory(source["memory"])
    if access is None:
        return memory
    at: int | None = access["at"]
    return replace(memory, access_count=access["count"], last_accessed_at=None if at is None else instant(at))


def index_of(source: Json) -> IndexFields:
    return _index(source["index"])


def mixed_of(source: Json) -> Vector | None:
    return _vector(source, "mixed_")


def record_of(source: Json, access: Json | None) -> Record:
    """The record of a document."""
    mixed = mixed_of(source)
    bare = _vector(source, "bare_")
    return Record(
        memory=memory_of(source, access),
        index=index_of(source),
        bare=mixed if bare is None else bare,
        mixed=mixed,
    )


def _vector(source: Json, prefix: str) -> Vector | None:
    found: Sequence[Any] | None = next((value for name, value in source.items() if name.startswith(prefix)), None)
    return None if found is None else np.array(found, HALF).astype(np.float32)
