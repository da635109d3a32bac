"""The record of a memory that was changed: its index entries and vectors, as if it had been said so."""

from __future__ import annotations

import msgspec

from hindsight_core.indexing import index_fields, second_turn
from hindsight_core.models import Memory
from hindsight_core.passages import Passages
from hindsight_core.stores import Record, Vector


async def rebuilt(record: Record, memory: Memory, passages: Passages) -> Record:
    """The record of a changed memory: index entries anew, and vectors anew only where the embedded text changed."""
    index = index_fields(memory)
    if all(getattr(memory, name) == getattr(record.memory, name) for name in ("content", "summary", "context")):
        return msgspec.structs.replace(record, memory=memory, index=index)
    turns = await _turns(record, memory, passages)
    bare, mixed = await passages.pair(memory.embedded_text, memory.content, turns)
    memory = msgspec.structs.replace(memory, embedding_model=passages.model)
    return Record(memory=memory, index=index, bare=bare, mixed=mixed)


async def _turns(record: Record, memory: Memory, passages: Passages) -> list[Vector]:
    """The vectors of the turns before a memory, latest first: of the one that it keeps, and of the one before that."""
    old = record.memory
    if memory.context is None:
        return []
    (previous,) = await passages.of([memory.context])
    if record.bare is None or record.mixed is None or old.context != memory.context:
        return [previous]
    if old.embedding_model != passages.model:
        return [previous]
    whole = (await passages.of([old.content]))[0] if old.summary else None
    before = second_turn(record.mixed, record.bare, previous, whole)
    return [previous] if before is None else [previous, before]
