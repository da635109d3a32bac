"""Undo: a whole run taken back, each memory to what it was before, unless it changed since."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from hindsight_core.aftermath import Aftermath, comes_back
from hindsight_core.caller import Caller
from hindsight_core.embedding import Embedder
from hindsight_core.errors import Conflict, NotFound
from hindsight_core.filtering import concerns
from hindsight_core.forgetting import affected
from hindsight_core.ids import stamp
from hindsight_core.ledger import Ledger, open_ledger
from hindsight_core.models import AuditEvent, Memory, Run, Scope
from hindsight_core.passages import Passages
from hindsight_core.rebuilding import rebuilt
from hindsight_core.requests import UndoRequest
from hindsight_core.responses import Affected, UndoResponse
from hindsight_core.stores import MemoryStore, Record

# Runs of so many events are taken back in one change where nobody else writes, larger ones in several.
AT_ONCE = 5000
LIST_AT_MOST = 1000
_PAGE = 500
# So few are tried again; more than these are halved when another change came in between.
_FEW = 8
_ATTEMPTS = 64


class _Ends(msgspec.Struct):
    """What a memory was before the first event of a run and after its last; None where it did not exist."""

    before: Memory | None
    after: Memory | None


class Undoer:
    def __init__(self, store: MemoryStore, embedder: Embedder | None) -> None:
        self._store = store
        self._embedder = embedder

    async def undo(self, run: Run, scope: Scope, request: UndoRequest, caller: Caller) -> UndoResponse:
        """Take `run` back; what changed since is `kept` as it is. Both lists hold the first 1 000.

        Raises `Conflict` for an erasure or a second undo, `NotFound` for a run that reaches beyond the scope. One that
        was broken off may be repeated.
        """
        if run.operation == "forget.erase":
            raise Conflict("An erasure cannot be undone: nothing of the text is left.")
        if run.undone_by is not None:
            raise Conflict(f"{run.run_id!r} was undone already, by {run.undone_by!r}.")
        often = await self._met_often(run, scope)
        first = open_ledger("undo", scope.namespace, caller.clock(request), caller, request.reason)
        undo = replace(first.run, undoes=run.run_id)
        told: list[Affected] = []
        kept: list[str] = []
        ahead = self._parts(run, often)
        try:
            part = await anext(ahead, None)
            while part is not None:
                following = await anext(ahead, None)
                found, left = await self._take_back(part, run, undo, request, caller, last=following is None)
                undo = replace(undo, count=undo.count + len(found))
                told += found[: LIST_AT_MOST - len(told)]
                kept += left[: LIST_AT_MOST - len(kept)]
                part = following
        finally:
            await ahead.aclose()
        return UndoResponse(
            run_id=undo.run_id,
            undoes=run.run_id,
            affected=tuple(told),
            count=undo.count,
            kept=tuple(kept),
            dry_run=request.dry_run,
        )

    async def _met_often(self, run: Run, scope: Scope) -> NDArray[np.uint64]:
        """The stamps of memories that a large run touched more than once; all of its events lie in the scope."""
        stamps: list[NDArray[np.uint64]] = []
        async for events in self._pages(run):
            if not all(concerns(event, scope) for event in events):
                raise NotFound(f"The run {run.run_id!r} reaches beyond this scope.")
            stamps.append(np.array([stamp(event.memory_id) for event in events], np.uint64))
        if sum(map(len, stamps)) <= AT_ONCE:
            return np.empty(0, np.uint64)
        found, times = np.unique(np.concatenate(stamps), return_counts=True)
        return found[times > 1]

    async def _parts(self, run: Run, often: NDArray[np.uint64]) -> AsyncGenerator[dict[str, _Ends]]:
        """The memories of a run with their ends, so many events at a time, each memory once."""
        met = set(often.tolist())
        done: set[str] = set()
        part: dict[str, _Ends] = {}
        size = 0
        async for events in self._pages(run):
            for event in events:
                memory_id = event.memory_id
                if memory_id in done:
                    continue
                if met and stamp(memory_id) in met:
                    done.add(memory_id)
                    every = [e async for page in self._pages(run, memory_id) for e in page]
                    part[memory_id] = _Ends(every[0].before, every[-1].after)
                else:
                    part.setdefault(memory_id, _Ends(event.before, None)).after = event.after
            size += len(events)
            if size >= AT_ONCE:
                yield part
                part, size = {}, 0
        if part:
            yield part

    async def _pages(self, run: Run, memory_id: str | None = None) -> AsyncGenerator[list[AuditEvent]]:
        after: str | None = None
        while True:
            found = await self._store.read(
                run.namespace, "events", run_id=run.run_id, memory_id=memory_id, after=after, limit=_PAGE
            )
            events = [event for event in found if isinstance(event, AuditEvent)]
            if not events:
                return
            yield events
            after = events[-1].id

    async def _take_back(
        self, part: dict[str, _Ends], run: Run, undo: Run, request: UndoRequest, caller: Caller, *, last: bool
    ) -> tuple[list[Affected], list[str]]:
        """What became of these memories, and which are left as they are.

        In one change; where others write so often that this finds no turn, in smaller ones.
        """
        for _ in range(_ATTEMPTS):
            ledger = Ledger(undo, caller)
            expected = (await self._store.head(undo.namespace)).sequence if _fills_slots(part, undo) else None
            told, kept = await self._plan(part, ledger, run, request)
            if request.dry_run or (ledger.empty and not (last and undo.count)):
                return told, kept
            try:
                changes = ledger.changes(undone=undo.undoes if last else None)
                await self._store.commit(undo.namespace, changes, expected=expected)
            except Conflict:
                if len(part) <= _FEW:
                    continue
                return await self._in_halves(part, run, undo, request, caller, last=last)
            return told, kept
        raise Conflict("The memories of this run are being changed all the time.", remedy="Try again.")

    async def _in_halves(
        self, part: dict[str, _Ends], run: Run, undo: Run, request: UndoRequest, caller: Caller, *, last: bool
    ) -> tuple[list[Affected], list[str]]:
        ends = list(part.items())
        middle = len(ends) // 2
        told, kept = await self._take_back(dict(ends[:middle]), run, undo, request, caller, last=False)
        undo = replace(undo, count=undo.count + len(told))
        more, left = await self._take_back(dict(ends[middle:]), run, undo, request, caller, last=last)
        return told + more, kept + left

    async def _plan(
        self, part: dict[str, _Ends], ledger: Ledger, run: Run, request: UndoRequest
    ) -> tuple[list[Affected], list[str]]:
        passages = Passages(self._embedder)
        aftermath = Aftermath(self._store, run, ledger.run)
        records = {record.memory.id: record for record in await self._store.get(run.namespace, list(part))}
        changed = {
            memory_id
            for memory_id, ends in part.items()
            if memory_id not in records or ends.after is None or records[memory_id].memory.version != ends.after.version
        }
        returning = [
            ends.before
            for memory_id, ends in part.items()
            if ends.before is not None
            and memory_id not in changed
            and comes_back(records[memory_id].memory, ends.before, ledger.run.at)
        ]
        changed |= await aftermath.shut_out(returning, ledger.run.at)
        told: list[Affected] = []
        kept: list[str] = []
        for memory_id, ends in part.items():
            record = records.get(memory_id)
            if record is None or memory_id in changed:
                kept.append(memory_id)
                continue
            successor = _replaced_by(record.memory, ends.before)
            # What a memory that stays had replaced stays replaced.
            if successor in changed or (successor and successor not in part and await aftermath.stays(successor)):
                kept.append(memory_id)
                continue
            before = await _rebuilt(record, ends.before, passages, ledger)
            told.append(affected(record.memory, before.memory.status))
            ledger.replace(record, before, "undone", request.reason or f"Undo of {ledger.run.undoes}.")
        return told, kept


def _replaced_by(now: Memory, before: Memory | None) -> str | None:
    """What has replaced a memory that was not replaced by it before."""
    return None if before is not None and before.superseded_by == now.superseded_by else now.superseded_by


def _fills_slots(part: dict[str, _Ends], undo: Run) -> bool:
    return any(ends.after is not None and comes_back(ends.after, ends.before, undo.at) for ends in part.values())


async def _rebuilt(record: Record, before: Memory | None, passages: Passages, ledger: Ledger) -> Record:
    """The record of a memory as it was; one that did not exist yet becomes retracted, so that its trail stays."""
    if before is None:
        memory = replace(
            record.memory, status="retracted", status_reason="Its writing was undone.", forgotten_at=ledger.run.at
        )
        return replace(record, memory=memory)
    # The audit keeps no context, and no operation but erasure changes it.
    return await rebuilt(record, replace(before, context=record.memory.context), passages)
