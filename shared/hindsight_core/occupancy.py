"""Who holds a slot: at most one memory of a user is active under a key, unless somebody has said otherwise."""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

from hindsight_core.caller import millis
from hindsight_core.errors import FieldError, SlotTaken
from hindsight_core.models import Memory
from hindsight_core.stores import MemoryStore, Where

Slot: TypeAlias = tuple[str | None, str | None, str | None, bool]

_PAGE = 500


def stands(memory: Memory, now: datetime) -> bool:
    """Whether a memory fills a slot at `now`: it has a key, is active and has not expired."""
    lives = memory.pinned or memory.expires_at is None or memory.expires_at > now
    return memory.key is not None and memory.status == "active" and lives


def slot_of(memory: Memory) -> Slot:
    """The key, the user, and the agent where the memory is that agent's alone."""
    private = memory.visibility == "private"
    return memory.key, memory.user_id, memory.agent_id if private else None, private


async def holders(store: MemoryStore, memory: Memory, now: datetime) -> list[Memory]:
    """The others that are active in a memory's slot, as writes see it: same key, same user, same visibility."""
    if memory.key is None:
        return []
    where = Where(
        user_id=memory.user_id,
        no_user=memory.user_id is None,
        reader=memory.agent_id if memory.visibility == "private" else None,
        key=memory.key,
        statuses=("active",),
        alive_at=millis(now),
    )
    held: list[Memory] = []
    after: str | None = None
    while found := await store.scan(memory.namespace, where, after=after, limit=_PAGE, vectors=False):
        held += [record.memory for record in found if record.memory.visibility == memory.visibility]
        if len(found) < _PAGE:
            break
        after = found[-1].memory.id
    return [holder for holder in held if holder.id != memory.id]


def taken(memory: Memory, holder: Memory, field: str) -> SlotTaken:
    """The refusal to make a memory active in a slot that another one holds; `field` is what the request asked with."""
    message = f"the slot {memory.key!r} is held by {holder.id!r}"
    return SlotTaken(
        f"{field}: {message}.",
        remedy=f"Forget {holder.id!r} or give it another key first; or write what holds with this key: it supersedes.",
        errors=(FieldError(field, message),),
    )
