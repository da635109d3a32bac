"""Slots of scheduled work, each taken by one process: kept in the store itself, where every replica sees them.

A slot is held for a while at a time. Whoever holds it renews it with how far the work has come; when a process dies,
its slot lapses and another one goes on from there. What is done is never done again. A copy of a slot spares reading
it before it is taken.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec
from msgspec import Meta

from hindsight_core.cache.copies import Copies, Copy
from hindsight_core.errors import Conflict
from hindsight_core.indexing import index_fields
from hindsight_core.models import Memory, Run
from hindsight_core.stores import ChangeSet, MemoryStore, Record

NAMESPACE = "hindsight.scheduler"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """The latest slot of a kind of work: who has it until when, how far the work has come, whether it is done."""

    at: Annotated[datetime, Meta(tz=True)]
    holder: str
    until: Annotated[datetime, Meta(tz=True)]
    done: bool = False
    progress: str | None = None


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A slot that is held here. `resumed`: somebody else began it."""

    name: str
    slot: Slot
    version: int
    resumed: bool = False


class Leases:
    """Slots by the name of the work. All of `now` come from the caller's clock; replicas' clocks agree to seconds."""

    def __init__(self, store: MemoryStore, holder: str, lasting: timedelta, copies: Copies | None = None) -> None:
        self._store = store
        self._copies = copies or Copies(store)
        self._holder = holder
        self._lasting = lasting

    async def take(self, name: str, at: datetime, now: datetime) -> Lease | None:
        """The slot of the instant `at`, or an earlier one that was begun and left; None when it is not to be had.

        An earlier slot that was never begun is missed: the later one stands for it.
        """
        copy = await self._copies.get(_copy(name), Slot)
        if copy is not None:
            lease = await self._claim(name, at, now, copy.value, copy.version)
            if lease is not None:
                return lease
            await self._copies.drop(_copy(name))  # that it is not to be had, the store has to say
        return await self._claim(name, at, now, *await self._read(name))

    async def _claim(self, name: str, at: datetime, now: datetime, slot: Slot | None, version: int) -> Lease | None:
        if slot is None or (slot.done and slot.at < at):
            return await self._put(name, self._mine(at, now), version)
        if slot.done or slot.until > now:
            return None
        mine = msgspec.structs.replace(self._mine(slot.at, now), progress=slot.progress)
        return await self._put(name, mine, version, resumed=True)

    async def settled(self, name: str, at: datetime) -> bool:
        """Whether the slot of `at`, or a later one, is done."""
        slot, _ = await self._read(name)
        return slot is not None and (slot.at > at or (slot.at == at and slot.done))

    async def left(self, name: str) -> datetime | None:
        """The slot that was begun and is not done, if any."""
        slot, _ = await self._read(name)
        return None if slot is None or slot.done else slot.at

    async def renew(self, lease: Lease, now: datetime, progress: str | None) -> Lease | None:
        """Hold it on, with how far the work has come; None when somebody else has taken it."""
        slot = msgspec.structs.replace(lease.slot, until=now + self._lasting, progress=progress)
        return await self._put(lease.name, slot, lease.version, resumed=lease.resumed)

    async def end(self, lease: Lease, now: datetime, *, done: bool) -> bool:
        """Finish the slot, or leave it to others at once; False when somebody else has taken it."""
        slot = msgspec.structs.replace(lease.slot, until=now, done=done)
        return await self._put(lease.name, slot, lease.version) is not None

    def _mine(self, at: datetime, now: datetime) -> Slot:
        return Slot(at=at, holder=self._holder, until=now + self._lasting)

    async def _read(self, name: str) -> tuple[Slot | None, int]:
        found = await self._store.get(NAMESPACE, [name])
        if not found:
            return None, 0
        return msgspec.json.decode(found[0].memory.content, type=Slot), found[0].memory.version

    async def _put(self, name: str, slot: Slot, version: int, *, resumed: bool = False) -> Lease | None:
        """Compare and set: a memory that no search sees is put as the successor of the version that was read."""
        memory = Memory(
            id=name,
            namespace=NAMESPACE,
            memory_type="working",
            content=msgspec.json.encode(slot).decode(),
            status="archived",
            pinned=True,
            valid_from=_EPOCH,
            created_at=_EPOCH,
            updated_at=_EPOCH,
            version=version + 1,
        )
        # One run for good: the scheduler keeps no history here.
        run = Run(run_id=name, namespace=NAMESPACE, at=_EPOCH, operation="schedule")
        changes = ChangeSet(run=run, puts=(Record(memory=memory, index=index_fields(memory)),))
        try:
            await self._store.commit(NAMESPACE, changes, searchable=False)
        except Conflict:
            return None
        await self._copies.put(_copy(name), Copy(slot, version + 1))
        return Lease(name=name, slot=slot, version=version + 1, resumed=resumed)


def _copy(name: str) -> tuple[str, str]:
    return "slot", name
