"""Sweeps: the policies of forgetting over a whole namespace, page by page, each a run that can be undone.

A sweep may end before it is done, at its limit or when its time is up. Its report then holds a cursor with which the
next call goes on under the same run. Whatever is broken off may also be begun again: what was done is not found again.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from hindsight_core.ageing import abandoned, expired, next_outlived, outlived, unused
from hindsight_core.caller import Caller
from hindsight_core.consolidation import recurring
from hindsight_core.erasing import clear_contexts
from hindsight_core.errors import Conflict, InvalidInput
from hindsight_core.eviction import crowded
from hindsight_core.forgetting import affected
from hindsight_core.indexing import index_fields
from hindsight_core.induction import voiced
from hindsight_core.ledger import Ledger
from hindsight_core.models import Run
from hindsight_core.pacing import Pace, Pacing
from hindsight_core.passes import Found, Pass, View
from hindsight_core.promotion import confirmed
from hindsight_core.requests import Policy, SweepRequest
from hindsight_core.responses import Affected, PolicyReport, SweepReport
from hindsight_core.retention import Rules, applied
from hindsight_core.stores import MemoryStore, Record
from hindsight_core.traces import AHEAD, Traces
from hindsight_core.turns import Turns
from hindsight_core.upkeep import outdated
from hindsight_core.wordings import Wording

# In this order: what was confirmed is no longer idle, what has expired makes room, what is erased was archived long
# before, and what was induced is judged by the next sweep.
PASSES: dict[Policy, Pass] = {
    "promote": confirmed,
    "expire": expired,
    "idle": unused,
    "evict": crowded,
    "tasks": abandoned,
    "purge": outlived,
    "consolidate": recurring,
    "logs": outdated,
}
OPERATION = "sweep"
_ATTEMPTS = 8


class _Place(msgspec.Struct, frozen=True, array_like=True):
    """Where a sweep goes on: the run and how many memories it has changed, the policy and the last id it looked at."""

    run_id: str
    at: datetime
    count: int
    policy: Policy
    after: str | None


class Sweeper:
    """Sweeps a namespace by `rules`, as fast as `Pace` makes of `pacing`."""

    def __init__(
        self,
        store: MemoryStore,
        rules: Rules,
        pacing: Pacing,
        traces: Callable[[], Traces],
        turns: Turns,
        wording: Callable[[], Wording | None] = lambda: None,
    ) -> None:
        """`wording` gives each sweep what words the memories that it induces, None for the words of an episode."""
        self._turns = turns
        self._wording = wording
        self._store = store
        self._rules = rules
        self._pacing = pacing
        self._traces = traces

    async def sweep(self, namespace: str, request: SweepRequest, caller: Caller) -> SweepReport:
        """Apply the policies of the request, all by default, in the order in which they depend on each other.

        Raises `UnderWay` when another call is applying one of them to the namespace; a dry run asks nobody.
        """
        pace = Pace(self._pacing.rate, self._pacing.share)
        wording = self._wording()
        work = _Sweep(self._store, self._rules, pace, self._traces, namespace, request, caller, wording)
        place = await work.begin()
        if request.dry_run:
            return await work.run(place)
        call = caller.new_id(caller.now)
        async with self._turns.taken(namespace, work.policies, run_id=place.run_id, call=call, now=caller.now):
            return await work.run(place)


class _Sweep:
    """One call."""

    def __init__(
        self,
        store: MemoryStore,
        rules: Rules,
        pace: Pace,
        traces: Callable[[], Traces],
        namespace: str,
        request: SweepRequest,
        caller: Caller,
        wording: Wording | None,
    ) -> None:
        self._store = store
        self._pace = pace
        self._namespace = namespace
        self._request = request
        self._caller = caller
        self._now = caller.clock(request)
        asked = request.policies or tuple(PASSES)
        self.policies: list[Policy] = [policy for policy in PASSES if policy in asked]
        self._traces = traces()
        self._looked = 0
        self._view = View(store, namespace, rules, self._now, dry_run=request.dry_run, wording=wording)
        self._affected: list[Affected] = []
        self._reports: list[PolicyReport] = []

    async def run(self, place: _Place) -> SweepReport:
        """Sweep from a place on."""
        started = _time()
        skipped = self.policies.index(place.policy) if place.policy in self.policies else 0
        for policy in self.policies[skipped:]:
            after = place.after if policy == place.policy else None
            began = _time()
            stopped, after, examined, actions = await self._apply(policy, after, place, started)
            self._reports.append(
                PolicyReport(policy=policy, examined=examined, actions=actions, took_ms=1000 * (_time() - began))
            )
            if stopped:
                place = replace(place, policy=policy, after=after, count=place.count + len(self._affected))
                break
        else:
            place = replace(place, count=place.count + len(self._affected), policy=self.policies[-1])
            stopped = False
        return SweepReport(
            run_id=place.run_id,
            dry_run=self._request.dry_run,
            complete=not stopped,
            cursor=_encode(place) if stopped and not self._request.dry_run else None,
            policies=tuple(self._reports),
            affected=tuple(self._affected),
            count=len(self._affected),
            took_ms=1000 * (_time() - started),
            degraded=None if self._view.wording is None else self._view.wording.degraded,
        )

    async def begin(self) -> _Place:
        """A new run, or the place where an earlier call of the same sweep has stopped."""
        if self._request.cursor is None:
            return _Place(self._caller.new_id(self._now), self._now, 0, self.policies[0], None)
        place = _decode(self._request.cursor)
        found = await self._store.read(self._namespace, "runs", run_id=place.run_id, limit=1)
        known = found[0] if found else None
        if place.count and not (isinstance(known, Run) and known.operation == OPERATION and known.undone_by is None):
            raise InvalidInput.of("cursor", "belongs to no sweep of this namespace that is still going on")
        return place

    async def _apply(
        self, policy: Policy, after: str | None, place: _Place, started: float
    ) -> tuple[bool, str | None, int, dict[str, int]]:
        """Whether the policy was stopped, where, how many memories it looked at, and what it did to how many."""
        examined, actions = 0, Counter[str]()
        self._view.room = self._request.limit - len(self._affected)
        pages = PASSES[policy](self._view, after)
        try:
            async for page in pages:
                taken = page.found[: self._view.room]
                if policy == "purge" and not self._request.dry_run:
                    await self._look_ahead(taken, after)
                done = await self._settle(taken, replace(place, count=place.count + len(self._affected)))
                self._affected += [one for one, _ in done]
                actions.update(action for _, action in done)
                actions.update(page.actions)
                # Also where this call ends here: the next one may come at once.
                await self._pace.rest()
                if len(taken) < len(page.found):
                    mark = taken[-1].mark if taken else None
                    return True, mark or after, examined, dict(actions)
                self._view.room = self._request.limit - len(self._affected)
                examined += page.examined
                after = page.after
                budget = self._request.budget_seconds
                if budget is not None and _time() - started >= budget:
                    return True, after, examined, dict(actions)
        finally:
            await pages.aclose()
        return False, None, examined, dict(actions)

    async def _look_ahead(self, found: Sequence[Found], after: str | None) -> None:
        """Look through the logged searches once for many pages of what is going to be erased, from `after` on."""
        if self._looked < len(found):
            memories = await next_outlived(self._view, after, min(AHEAD, self._view.room))
            if len(memories) > len(found):
                await self._traces.ahead(self._store, self._namespace, memories)
                self._looked = len(memories)
        self._looked = max(0, self._looked - len(found))

    async def _settle(self, found: Sequence[Found], place: _Place) -> list[tuple[Affected, str]]:
        """Do it, in one change; what has changed since it was looked at is left to the next sweep."""
        if self._request.dry_run:
            self._view.left.update({one.memory.id: applied(one.memory, one.verdict, self._now) for one in found})
            return [(self._told(one), one.verdict.action) for one in found]
        if not found:
            return []
        await self._pace.turn(len(found))
        for _ in range(_ATTEMPTS):
            ledger = Ledger(self._run(place), self._caller, self._now)
            done: list[tuple[Affected, str]] = []
            erased: list[Record] = []
            # What is induced rests on memories that this change does not touch, so nothing may have touched them.
            rests = any(one.voice for one in found)
            expected = (await self._store.head(self._namespace)).sequence if rests else None
            stored = await self._stored(found)
            for one in found:
                if not _as_seen(one, stored):
                    continue
                done.append((self._told(one), one.verdict.action))
                record = stored.get(one.memory.id)
                after = applied(one.memory, one.verdict, self._now)
                reason = one.verdict.reason
                if one.voice is not None:
                    new = _new(one, stored[one.voice])
                    if record is None:
                        ledger.add(new, one.verdict.action, reason)
                    else:
                        ledger.replace(record, new, one.verdict.action, reason)
                elif record is None:
                    continue
                elif after is None:
                    erased.append(record)
                    ledger.erase(record, reason)
                else:
                    ledger.replace(record, replace(record, memory=after), one.verdict.action, reason)
            traces = self._traces
            if erased:
                await traces.of(self._store, self._namespace, erased)
                await clear_contexts(self._store, ledger, erased, self._namespace, traces)
            if ledger.empty:
                return []
            try:
                await traces.commit(self._store, self._namespace, ledger.changes(), expected=expected)
            except Conflict:
                continue
            return done
        return []

    def _run(self, place: _Place) -> Run:
        return Run(
            run_id=place.run_id,
            namespace=self._namespace,
            at=place.at,
            operation=OPERATION,
            reason=", ".join(self.policies),
            count=place.count,
        )

    async def _stored(self, found: Sequence[Found]) -> dict[str, Record]:
        ids = [one.memory.id for one in found]
        ids += [origin for one in found if one.voice is not None for origin in one.memory.derived_from]
        return {record.memory.id: record for record in await self._store.get(self._namespace, list(dict.fromkeys(ids)))}

    def _told(self, one: Found) -> Affected:
        after = applied(one.memory, one.verdict, self._now)
        told = affected(one.memory, "erased" if after is None else after.status, one.verdict.reason)
        return told if one.voice is None else replace(told, before="absent")


def _new(one: Found, voice: Record) -> Record:
    """What was induced, with the vectors of its words, as its memory is by now."""
    if one.record is None:
        return voiced(one.memory, voice)
    return replace(one.record, memory=one.memory, index=index_fields(one.memory))


def _as_seen(one: Found, stored: dict[str, Record]) -> bool:
    """Whether a memory, or what a new one is induced from, is still as it was looked at."""
    record = stored.get(one.memory.id)
    if one.voice is None:
        return record is not None and record.memory == one.memory
    origins = [stored.get(origin) for origin in one.memory.derived_from]
    standing = all(origin is not None and origin.memory.status == "active" for origin in origins)
    return standing and (record is None or record.memory.version == one.memory.version)


def _time() -> float:
    return asyncio.get_running_loop().time()


def _encode(place: _Place) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def _decode(cursor: str) -> _Place:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)), type=_Place)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise InvalidInput.of("cursor", "is not one of ours; pass back the cursor of the report before") from None
