"""Restoring: a forgotten memory comes back as what it was."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from hindsight_core.caller import Caller
from hindsight_core.errors import Conflict
from hindsight_core.ledger import Ledger, open_ledger
from hindsight_core.models import AuditEvent, Memory, Status
from hindsight_core.occupancy import holders, taken
from hindsight_core.requests import RestoreRequest
from hindsight_core.responses import UpdateResponse
from hindsight_core.stores import MemoryStore, Record

_RESTORABLE: tuple[Status, ...] = ("archived", "suppressed", "retracted")
_MILLISECOND = timedelta(milliseconds=1)
_ATTEMPTS = 8


async def restore(store: MemoryStore, record: Record, request: RestoreRequest, caller: Caller) -> UpdateResponse:
    """Bring an archived, suppressed or retracted memory back to the status it had; a passed expiry is lifted.

    What it had replaced and was brought back since is replaced by it again. Raises `SlotTaken` when something else is
    active under its key by now.
    """
    memory, now = record.memory, caller.clock(request)
    if memory.status not in _RESTORABLE:
        raise Conflict(
            f"{memory.id!r} is {memory.status}, so there is nothing to restore.",
            remedy="Only archived, suppressed and retracted memories can be restored.",
        )
    status = await _status_before(store, memory)
    fields: dict[str, object] = {
        "status": status,
        "status_reason": request.reason,
        "updated_at": now,
        "forgotten_at": None,
    }
    if memory.expires_at is not None and memory.expires_at <= now:
        fields["expires_at"] = None
    for _ in range(_ATTEMPTS):
        ledger = open_ledger("restore", memory.namespace, now, caller, request.reason)
        expected = (await store.head(memory.namespace)).sequence
        if status == "active":
            await _replace_again(store, ledger, memory, now)
        after = ledger.change(record, "restored", request.reason, **fields)
        try:
            await store.commit(memory.namespace, ledger.changes(), expected=expected)
        except Conflict:
            await asyncio.sleep(0.005)
            found = await store.get(memory.namespace, [memory.id])
            if not found or found[0].memory.version != memory.version:
                raise
            continue
        return UpdateResponse(memory=after.memory, previous_version=memory.version)
    raise Conflict("The namespace is being written so often that this found no turn.", remedy="Try again.")


async def _status_before(store: MemoryStore, memory: Memory) -> Status:
    events = await store.read(memory.namespace, "events", memory_id=memory.id, limit=10_000)
    for event in reversed(events):
        before = event.before if isinstance(event, AuditEvent) else None
        if before is not None and before.status not in _RESTORABLE:
            return before.status
    return "superseded" if memory.superseded_by and memory.valid_to is not None else "active"


async def _replace_again(store: MemoryStore, ledger: Ledger, memory: Memory, now: datetime) -> None:
    """Make room for a memory that becomes active again."""
    for old in await store.get(memory.namespace, list(memory.supersedes)):
        if old.memory.status == "active" and old.memory.superseded_by is None:
            ledger.change(
                old,
                "superseded",
                "What had replaced it was restored.",
                status="superseded",
                status_reason="What had replaced it was restored.",
                superseded_by=memory.id,
                valid_to=max(memory.valid_from, old.memory.valid_from + _MILLISECOND),
                updated_at=now,
            )
    for holder in await holders(store, memory, now):
        if holder.id not in memory.supersedes:
            raise taken(memory, holder, "key")
