"""What became of the memories that a run touched, and of their slots: what an undo of it would meet."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from hindsight_core.loops import several
from hindsight_core.models import AuditEvent, Memory, Run
from hindsight_core.occupancy import Slot, holders, slot_of, stands
from hindsight_core.stores import MemoryStore

_PAGE = 1000
_AT_ONCE = 8


class Aftermath:
    """Looks at the namespace in which `undo` takes `run` back; it judges by the whole run, whatever part is at hand."""

    def __init__(self, store: MemoryStore, run: Run, undo: Run) -> None:
        self._store = store
        self._run = run
        self._undo = undo

    async def shut_out(self, returning: list[Memory], now: datetime) -> set[str]:
        """The ids of those that would stand in a slot beside what has come into it since the run began.

        What stood there before the run stands there again, however many they were, and what the undo takes back
        makes room.
        """
        slots: dict[Slot, list[Memory]] = {}
        for memory in returning:
            slots.setdefault(slot_of(memory), []).append(memory)
        looks = [partial(self._taken, memories[0], now) for memories in slots.values()]
        taken = await several(looks, _AT_ONCE)
        pairs = zip(slots.values(), taken, strict=True)
        return {memory.id for memories, is_taken in pairs if is_taken for memory in memories}

    async def stays(self, memory_id: str) -> bool:
        """Whether the run touched a memory that the undo leaves as it is, because it has changed since."""
        if await self._last(self._run.run_id, memory_id) is None:
            return False
        found = await self._store.get(self._run.namespace, [memory_id])
        return not found or not await self._reverts(found[0].memory)

    async def _taken(self, memory: Memory, now: datetime) -> bool:
        for holder in await holders(self._store, memory, now):
            if not (await self._stood(holder) or await self._reverts(holder)):
                return True
        return False

    async def _stood(self, holder: Memory) -> bool:
        """Whether it was in this slot when the run began, as the first event since tells."""
        run = self._run
        since = await self._store.read(run.namespace, "events", memory_id=holder.id, after=run.run_id, limit=1)
        then = next((event.before for event in since if isinstance(event, AuditEvent)), None) if since else holder
        return then is not None and stands(then, run.at) and slot_of(then) == slot_of(holder)

    async def _reverts(self, memory: Memory) -> bool:
        """Whether the undo takes it back, or did so in an earlier part."""
        last = await self._last(self._run.run_id, memory.id)
        if last is None:
            return False
        unchanged = last.after is not None and last.after.version == memory.version
        return unchanged or await self._last(self._undo.run_id, memory.id) is not None

    async def _last(self, run_id: str, memory_id: str) -> AuditEvent | None:
        last: AuditEvent | None = None
        while found := await self._store.read(
            self._run.namespace,
            "events",
            run_id=run_id,
            memory_id=memory_id,
            after=None if last is None else last.id,
            limit=_PAGE,
        ):
            last = next(event for event in reversed(found) if isinstance(event, AuditEvent))
            if len(found) < _PAGE:
                break
        return last


def comes_back(now: Memory, before: Memory | None, at: datetime) -> bool:
    """Whether a memory that becomes again what it was `before` comes into a slot in which it does not stand at `at`."""
    if before is None or not stands(before, at):
        return False
    return not stands(now, at) or slot_of(now) != slot_of(before)
