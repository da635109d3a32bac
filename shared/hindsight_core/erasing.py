"""What erasing a memory takes from others: the turn that stands beside the turns after it."""

from __future__ import annotations

import msgspec

from hindsight_core.indexing import index_fields
from hindsight_core.ledger import Ledger
from hindsight_core.stores import MemoryStore, Record
from hindsight_core.traces import Traces

_PAGE = 500


async def clear_contexts(
    store: MemoryStore, ledger: Ledger, page: list[Record], namespace: str, traces: Traces
) -> None:
    """An erased turn goes from beside the turns that followed it, and from their vectors."""
    texts = {record.memory.content for record in page} | {
        record.memory.context for record in page if record.memory.context
    }
    gone = {record.memory.id for record in page}
    quoting = [memory_id for memory_id in await store.following(namespace, texts) if memory_id not in gone]
    for start in range(0, len(quoting), _PAGE):
        some = await store.get(namespace, quoting[start : start + _PAGE])
        for record in map(ledger.get, some):
            traces.turn(record.memory)
            cleared = msgspec.structs.replace(record.memory, context=None)
            bare = msgspec.structs.replace(record, memory=cleared, index=index_fields(cleared), mixed=record.bare)
            ledger.replace(record, bare, "context erased", "The turn before it was erased.")
