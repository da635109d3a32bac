"""Pending memories that were seen again independently: they become active."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime

import numpy as np

from hindsight_core.caller import millis
from hindsight_core.models import Memory
from hindsight_core.passes import PAGE, STORED, Found, Page, View
from hindsight_core.reconciliation import reconcile
from hindsight_core.retention import Verdict
from hindsight_core.stores import MemoryStore, Neighbour, Record, Where

_NEIGHBOURS = 16


async def confirmed(view: View, after: str | None) -> AsyncGenerator[Page]:
    """Every pending memory that another one confirms."""
    where = Where(statuses=("pending",), memory_types=STORED)
    while records := await view.store.scan(view.namespace, where, after=after, limit=PAGE):
        after = records[-1].memory.id
        pending = [record for record in records if view.seen(record.memory)]
        found = await twins(view.store, view.namespace, pending, view.now)
        yield Page([Found(memory=memory, verdict=v, mark=memory.id) for memory, v in found], len(records), after)


async def twins(
    store: MemoryStore, namespace: str, pending: Sequence[Record], now: datetime
) -> list[tuple[Memory, Verdict]]:
    """Of these pending memories those that another one confirms, each to be promoted, the earlier one of two.

    Another one confirms it that means the same and comes from elsewhere; see `independent`.
    """
    found: list[tuple[Memory, Verdict]] = []
    for record in pending:
        if record.bare is None:
            continue
        where = Where(
            user_id=record.memory.user_id,
            no_user=record.memory.user_id is None,
            reader=record.memory.agent_id,
            statuses=("active", "pending"),
            alive_at=millis(now),
        )
        (near,) = await store.neighbours(namespace, np.stack([record.bare]), where, _NEIGHBOURS)
        twin = next((one for one in near if _confirms(one, record)), None)
        if twin is not None:
            reason = f"Seen again independently, as {twin.record.memory.id}."
            found.append((record.memory, Verdict(action="promoted", reason=reason)))
    return found


def independent(one: Memory, other: Memory) -> bool:
    """Whether two memories come from different places: other sessions, or sources, or agents without any session.

    What was induced from the other one, or said in the same breath, is no evidence for it.
    """
    if one.id in other.derived_from or other.id in one.derived_from:
        return False
    if one.session_id is not None and one.session_id == other.session_id:
        return False
    apart = (one.session_id, one.agent_id, one.source) != (other.session_id, other.agent_id, other.source)
    return apart or (
        one.observed_at is not None
        and other.observed_at is not None
        and one.observed_at.date() != other.observed_at.date()
    )


def _confirms(near: Neighbour, record: Record) -> bool:
    other, memory = near.record.memory, record.memory
    # Of two pending ones the earlier one is promoted, and the later one is the evidence.
    if other.id == memory.id or (other.status == "pending" and other.id < memory.id):
        return False
    if other.visibility != memory.visibility or not independent(other, memory):
        return False
    later, vector = (near.record, near.record.bare) if other.id > memory.id else (record, record.bare)
    earlier = record if later is near.record else near.record
    judged = Neighbour(record=earlier, cosine=near.cosine)
    model = later.memory.embedding_model
    return reconcile(later.memory, vector, [judged], embedding_model=model).decision == "duplicate"
