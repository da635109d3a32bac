"""The changes of one run, kept with what was before and what is after, until they are committed together."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from hindsight_core.caller import Caller
from hindsight_core.models import AuditEvent, Memory, Run
from hindsight_core.stores import ChangeSet, Receipt, Record


class Ledger:
    """Collects puts and erasures and writes their audit.

    Each memory rises by one version in a run, however often the run touches it; `get` answers what it is by now.
    """

    def __init__(self, run: Run, caller: Caller, at: datetime | None = None) -> None:
        """`at` is when the changes happen, where that is later than the run began."""
        self.run = run
        self._at = at or run.at
        self._caller = caller
        self._base: dict[str, Memory | None] = {}
        self._now: dict[str, Record] = {}
        self._erased: list[str] = []
        self._events: list[AuditEvent] = []

    @property
    def empty(self) -> bool:
        return not self._events

    def get(self, record: Record) -> Record:
        """The record as this run has left it."""
        return self._now.get(record.memory.id, record)

    def added(self) -> list[Record]:
        """The records that are new in this run, as they are by now."""
        return [record for id_, record in self._now.items() if self._base[id_] is None]

    def add(self, record: Record, action: str, reason: str) -> None:
        """A memory that did not exist before."""
        self._base[record.memory.id] = None
        self._put(record, action, reason, before=None)

    def change(self, record: Record, action: str, reason: str, **fields: object) -> Record:
        """Replace fields of a stored memory; answers the record as it is now. `version` is seen to."""
        current = self.get(record)
        memory = msgspec.structs.replace(current.memory, **fields)
        return self.replace(current, msgspec.structs.replace(current, memory=memory), action, reason)

    def replace(self, before: Record, after: Record, action: str, reason: str) -> Record:
        """Put `after` in the place of `before`, the record as it stands in the store or in this run."""
        base = self._base.setdefault(before.memory.id, before.memory)
        version = 1 if base is None else base.version + 1
        after = msgspec.structs.replace(after, memory=msgspec.structs.replace(after.memory, version=version))
        self._put(after, action, reason, before=before.memory)
        return after

    def erase(self, record: Record, reason: str) -> None:
        """Remove a memory for good; the event keeps that it happened and no text."""
        self._erased.append(record.memory.id)
        self._event(record.memory.id, "erased", reason, None, None)

    def changes(
        self,
        *,
        receipt: Receipt | None = None,
        undone: str | None = None,
        imported: tuple[Run, ...] | None = None,
        history: Sequence[AuditEvent] = (),
        tombstones: tuple[str, ...] = (),
    ) -> ChangeSet:
        """Everything, ready for one commit; `history` are events of elsewhere, for `ChangeSet.imported`."""
        # The run may have earlier change sets, which it counts already.
        run = msgspec.structs.replace(self.run, count=self.run.count + len(self._now) + len(self._erased))
        return ChangeSet(
            run=run,
            puts=tuple(self._now.values()),
            erases=tuple(self._erased),
            events=(*history, *self._events),
            receipt=receipt,
            undone=undone,
            imported=imported,
            tombstones=tombstones,
        )

    def _put(self, record: Record, action: str, reason: str, *, before: Memory | None) -> None:
        self._now[record.memory.id] = record
        self._event(record.memory.id, action, reason, before, record.memory)

    def _event(self, memory_id: str, action: str, reason: str, before: Memory | None, after: Memory | None) -> None:
        self._events.append(
            AuditEvent(
                id=self._caller.new_id(self._at),
                namespace=self.run.namespace,
                memory_id=memory_id,
                run_id=self.run.run_id,
                at=self._at,
                actor=self._caller.actor,
                action=action,
                reason=reason,
                request_id=self._caller.request_id,
                before=_without_context(before),
                after=_without_context(after),
            )
        )


def _without_context(memory: Memory | None) -> Memory | None:
    """What the audit keeps of a memory: its context is another memory's text, which may be erased."""
    return None if memory is None else msgspec.structs.replace(memory, context=None)


def open_ledger(operation: str, namespace: str, at: datetime, caller: Caller, reason: str = "") -> Ledger:
    """An empty ledger of a new run."""
    run = Run(run_id=caller.new_id(at), namespace=namespace, at=at, operation=operation, reason=reason)
    return Ledger(run, caller)
