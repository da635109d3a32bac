"""Where late news belongs: between the memories of one slot that have replaced each other."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from hindsight_core.ledger import Ledger
from hindsight_core.models import Memory
from hindsight_core.stores import MemoryStore, Record
from hindsight_core.temporal import find_ranges

# Further back than this, late news ends where the oldest of them begins.
LONGEST = 64
_MILLISECOND = timedelta(milliseconds=1)


async def line_of(store: MemoryStore, namespace: str, ledger: Ledger, newest: Record) -> list[Record]:
    """A memory and everything it has replaced, directly or not, as the run has left them; oldest first."""
    added = {record.memory.id: record for record in ledger.added()}
    line = [ledger.get(newest)]
    seen = {newest.memory.id}
    wanted = line[0].memory.supersedes
    while wanted and len(line) < LONGEST:
        ids = [memory_id for memory_id in dict.fromkeys(wanted) if memory_id not in seen]
        seen.update(ids)
        stored = await store.get(namespace, [memory_id for memory_id in ids if memory_id not in added])
        found = [ledger.get(record) for record in (*stored, *(added[i] for i in ids if i in added))]
        older = [record for record in found if record.memory.status == "superseded"]
        line += older
        wanted = tuple(memory_id for record in older for memory_id in record.memory.supersedes)
    return sorted(line, key=lambda record: record.memory.valid_from)


def insert(ledger: Ledger, new: Memory, line: list[Record], reason: str) -> Memory:
    """The late memory, superseded by the next of the `line`; what held when it began ends there."""
    begin = new.valid_from
    following = next((record for record in line if record.memory.valid_from > begin), line[-1])
    end = max(following.memory.valid_from, begin + _MILLISECOND)
    cut = _ended(ledger, new, line, begin, reason)
    links = (*following.memory.supersedes, new.id)
    ledger.change(following, "linked", reason, supersedes=links, updated_at=ledger.run.at)
    return msgspec.structs.replace(
        new,
        status="superseded",
        status_reason=reason,
        supersedes=tuple(record.memory.id for record in cut),
        superseded_by=following.memory.id,
        valid_to=end,
    )


def holds_already(said: Memory, target: Memory) -> bool:
    """Whether a memory that does not hold yet is said to hold now: no agent's echo, and no word of a later time."""
    begin = said.valid_from
    if said.source == "agent" or said.status != "active" or not begin < target.valid_from > said.created_at:
        return False
    told = said.observed_at or begin
    return all(found.start is None or found.start <= told for found in find_ranges(said.content, told))


def begin_earlier(ledger: Ledger, announced: Record, line: list[Record], begin: datetime, reason: str) -> None:
    """What was announced for later holds from `begin` on; what held then ends there."""
    memory = ledger.get(announced).memory
    _ended(ledger, memory, [record for record in line if record.memory.id != memory.id], begin, reason)
    ledger.change(ledger.get(announced), "confirmed", reason, valid_from=begin, updated_at=ledger.run.at)


def _ended(ledger: Ledger, new: Memory, line: list[Record], begin: datetime, reason: str) -> list[Record]:
    """Those of the line that held when `new` began, as they were; now they end there."""
    cut = [
        record
        for record in line
        if record.memory.valid_from <= begin and (until := record.memory.valid_to) is not None and until > begin
    ]
    for record in cut:
        until = max(begin, record.memory.valid_from + _MILLISECOND)
        ledger.change(record, "superseded", reason, superseded_by=new.id, valid_to=until, updated_at=ledger.run.at)
    return cut
