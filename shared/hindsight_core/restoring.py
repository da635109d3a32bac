"""Restoring: a forgotten memory comes back as what it was."""

from __future__ import annotations

from hindsight_core.caller import Caller
from hindsight_core.errors import Conflict
from hindsight_core.ledger import open_ledger
from hindsight_core.models import AuditEvent, Status
from hindsight_core.requests import RestoreRequest
from hindsight_core.responses import UpdateResponse
from hindsight_core.stores import MemoryStore, Record

_RESTORABLE: tuple[Status, ...] = ("archived", "suppressed", "retracted")


async def restore(store: MemoryStore, record: Record, request: RestoreRequest, caller: Caller) -> UpdateResponse:
    """Bring an archived, suppressed or retracted memory back to the status it had; a passed expiry is lifted."""
    memory, now = record.memory, caller.clock(request)
    if memory.status not in _RESTORABLE:
        raise Conflict(
            f"{memory.id!r} is {memory.status}, so there is nothing to restore.",
            remedy="Only archived, suppressed and retracted memories can be restored.",
        )
    status: Status = "superseded" if memory.superseded_by and memory.valid_to is not None else "active"
    events = await store.read(memory.namespace, "events", memory_id=memory.id, limit=10_000)
    for event in reversed(events):
        before = event.before if isinstance(event, AuditEvent) else None
        if before is not None and before.status not in _RESTORABLE:
            status = before.status
            break
    fields: dict[str, object] = {
        "status": status,
        "status_reason": request.reason,
        "updated_at": now,
        "forgotten_at": None,
    }
    if memory.expires_at is not None and memory.expires_at <= now:
        fields["expires_at"] = None
    ledger = open_ledger("restore", memory.namespace, now, caller, request.reason)
    after = ledger.change(record, "restored", request.reason, **fields)
    await store.commit(memory.namespace, ledger.changes())
    return UpdateResponse(memory=after.memory, previous_version=memory.version)
