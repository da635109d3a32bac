"""Sweeps: the policies of forgetting over a whole namespace, page by page, each a run that can be undone.

A sweep may end before it is done, at its limit or when its time is up. Its report then holds a cursor with which the
next call goes on under the same run. Whatever is broken off may also be begun again: what was done is not found again.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable
from datetime import datetime

import msgspec
from msgspec.structs import replace

from hindsight_core.cache.vectors import VectorCache
from hindsight_core.caller import Caller, millis
from hindsight_core.errors import Conflict, InvalidInput
from hindsight_core.eviction import STORED, Eviction
from hindsight_core.forgetting import affected, clear_contexts
from hindsight_core.ledger import Ledger
from hindsight_core.models import Memory, Run, Status
from hindsight_core.promotion import twins
from hindsight_core.requests import Policy, SweepRequest
from hindsight_core.responses import Affected, PolicyReport, SweepReport
from hindsight_core.retention import Rules, Verdict, dead, due, expire, idle, purge
from hindsight_core.stores import MemoryStore, Record, Where
from hindsight_core.traces import Traces

# What was confirmed is no longer idle, what has expired makes room, and what is erased was archived long before.
ORDER: tuple[Policy, ...] = ("promote", "expire", "idle", "evict", "tasks", "purge")
OPERATION = "sweep"
_PAGE = 500
_ATTEMPTS = 8
_LIVE: tuple[Status, ...] = ("active", "pending")


class _Place(msgspec.Struct, frozen=True, array_like=True):
    """Where a sweep goes on: the run and how many memories it has changed, the policy and the last id it looked at."""

    run_id: str
    at: datetime
    count: int
    policy: Policy
    after: str | None


class _Page(msgspec.Struct, frozen=True):
    """What a policy found: memories with what is to be done to them, how many it looked at, and where it goes on."""

    found: list[tuple[Memory, Verdict]]
    examined: int
    after: str | None = None


_Pass = Callable[[str | None], AsyncGenerator[_Page]]


class Sweeper:
    """Sweeps a namespace by `rules`, changing at most `rate` memories a second (0: as many as the store takes)."""

    def __init__(self, store: MemoryStore, rules: Rules, rate: int, vectors: VectorCache) -> None:
        self._store = store
        self._rules = rules
        self._rate = rate
        self._vectors = vectors

    async def sweep(self, namespace: str, request: SweepRequest, caller: Caller) -> SweepReport:
        """Apply the policies of the request, all by default, in the order in which they depend on each other."""
        work = _Sweep(self._store, self._rules, self._rate, self._vectors, namespace, request, caller)
        return await work.run()


class _Sweep:
    """One call."""

    def __init__(
        self,
        store: MemoryStore,
        rules: Rules,
        rate: int,
        vectors: VectorCache,
        namespace: str,
        request: SweepRequest,
        caller: Caller,
    ) -> None:
        self._vectors = vectors
        self._store = store
        self._rules = rules
        self._rate = rate
        self._namespace = namespace
        self._request = request
        self._caller = caller
        self._now = caller.clock(request)
        asked = request.policies or ORDER
        self._policies: list[Policy] = [policy for policy in ORDER if policy in asked]
        self._affected: list[Affected] = []
        self._reports: list[PolicyReport] = []
        # How a dry run leaves memories, None for erased ones; a real one leaves them so in the store.
        self._left: dict[str, Memory | None] = {}
        self._free_at = 0.0
        self._passes: dict[Policy, _Pass] = {
            "promote": self._promote,
            "expire": self._expire,
            "idle": self._idle,
            "evict": self._evict,
            "tasks": self._dead_tasks,
            "purge": self._purge,
        }

    async def run(self) -> SweepReport:
        started = _time()
        place = await self._begin()
        skipped = self._policies.index(place.policy) if place.policy in self._policies else 0
        for policy in self._policies[skipped:]:
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
            place = replace(place, count=place.count + len(self._affected), policy=self._policies[-1])
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
        )

    async def _begin(self) -> _Place:
        """A new run, or the place where an earlier call of the same sweep has stopped."""
        if self._request.cursor is None:
            return _Place(self._caller.new_id(self._now), self._now, 0, self._policies[0], None)
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
        pages = self._passes[policy](after)
        try:
            async for page in pages:
                room = self._request.limit - len(self._affected)
                taken = page.found[:room]
                done = await self._settle(taken, replace(place, count=place.count + len(self._affected)))
                self._affected += [one for one, _ in done]
                actions.update(action for _, action in done)
                if len(taken) < len(page.found):
                    return True, taken[-1][0].id if taken and page.after else after, examined, dict(actions)
                examined += page.examined
                after = page.after
                budget = self._request.budget_seconds
                if budget is not None and _time() - started >= budget:
                    return True, after, examined, dict(actions)
        finally:
            await pages.aclose()
        return False, None, examined, dict(actions)

    # what each policy finds

    async def _expire(self, after: str | None) -> AsyncGenerator[_Page]:
        where = Where(statuses=_LIVE, expired_at=millis(due(self._rules, self._now)))
        async for page in self._walk(where, after, lambda memory: expire(memory, self._rules, self._now)):
            yield page

    async def _idle(self, after: str | None) -> AsyncGenerator[_Page]:
        if self._rules.idle_after is None:
            return
        where = Where(statuses=_LIVE, memory_types=STORED)
        async for page in self._walk(where, after, lambda memory: idle(memory, self._rules, self._now)):
            yield page

    async def _dead_tasks(self, after: str | None) -> AsyncGenerator[_Page]:
        """Looks through twice: a message alone does not tell whether its task goes on."""
        if self._rules.task_idle is None:
            return
        where = Where(statuses=_LIVE, memory_types=("working",))
        last: dict[tuple[str | None, str | None], datetime] = {}
        seen: str | None = None
        while records := await self._scan(where, seen):
            seen = records[-1].memory.id
            for record in records:
                memory = self._seen(record.memory)
                if memory is None or memory.status not in _LIVE:
                    continue
                task = (memory.user_id, memory.task_id)
                last[task] = max(memory.created_at, last.get(task, memory.created_at))

        def judge(memory: Memory) -> Verdict | None:
            heard = last.get((memory.user_id, memory.task_id), self._now)
            return dead(memory, heard, self._rules, self._now)

        async for page in self._walk(where, after, judge):
            yield page

    async def _purge(self, after: str | None) -> AsyncGenerator[_Page]:
        if self._rules.purge_after is None:
            return
        where = Where(statuses=("archived",))
        async for page in self._walk(where, after, lambda memory: purge(memory, self._rules, self._now)):
            yield page

    async def _promote(self, after: str | None) -> AsyncGenerator[_Page]:
        where = Where(statuses=("pending",), memory_types=STORED)
        while records := await self._store.scan(self._namespace, where, after=after, limit=_PAGE):
            after = records[-1].memory.id
            found = await twins(self._store, self._namespace, [r for r in records if self._seen(r.memory)], self._now)
            yield _Page([(memory, verdict) for memory, verdict in found if self._seen(memory)], len(records), after)

    async def _walk(
        self, where: Where, after: str | None, judge: Callable[[Memory], Verdict | None]
    ) -> AsyncGenerator[_Page]:
        while records := await self._scan(where, after):
            after = records[-1].memory.id
            yield _Page(list(self._judged(records, judge)), len(records), after)

    def _judged(
        self, records: Iterable[Record], judge: Callable[[Memory], Verdict | None]
    ) -> Iterable[tuple[Memory, Verdict]]:
        for record in records:
            memory = self._seen(record.memory)
            if memory is not None and (verdict := judge(memory)) is not None:
                yield memory, verdict

    async def _evict(self, after: str | None) -> AsyncGenerator[_Page]:
        """What was stopped at is looked through anew: what has made room is gone from it."""
        del after
        eviction = Eviction(self._store, self._namespace, self._rules, self._now, self._seen)
        for place in await eviction.places():
            # One more than there is room for in this run shows that there are more.
            found, examined = await eviction.chosen(place, self._request.limit - len(self._affected) + 1)
            for start in range(0, max(1, len(found)), _PAGE):
                yield _Page(found[start : start + _PAGE], 0 if start else examined)

    async def _scan(self, where: Where, after: str | None) -> list[Record]:
        return await self._store.scan(self._namespace, where, after=after, limit=_PAGE, vectors=False)

    def _seen(self, memory: Memory) -> Memory | None:
        """The memory as this run has left it."""
        return self._left.get(memory.id, memory)

    # what is done

    async def _settle(self, found: list[tuple[Memory, Verdict]], place: _Place) -> list[tuple[Affected, str]]:
        """Do it, in one change; what has changed since it was looked at is left to the next sweep."""
        if self._request.dry_run:
            self._left.update({memory.id: self._after(memory, verdict) for memory, verdict in found})
            return [(self._told(memory, verdict), verdict.action) for memory, verdict in found]
        if not found:
            return []
        await self._wait_for_turn(len(found))
        for _ in range(_ATTEMPTS):
            run = Run(
                run_id=place.run_id,
                namespace=self._namespace,
                at=place.at,
                operation=OPERATION,
                reason=", ".join(self._policies),
                count=place.count,
            )
            ledger = Ledger(run, self._caller, self._now)
            done: list[tuple[Affected, str]] = []
            erased: list[Record] = []
            stored = {r.memory.id: r for r in await self._store.get(self._namespace, [m.id for m, _ in found])}
            for memory, verdict in found:
                record = stored.get(memory.id)
                if record is None or record.memory != memory:
                    continue
                done.append((self._told(memory, verdict), verdict.action))
                after = self._after(memory, verdict)
                if after is None:
                    erased.append(record)
                    ledger.erase(record, verdict.reason)
                else:
                    ledger.replace(record, replace(record, memory=after), verdict.action, verdict.reason)
            traces = Traces(self._vectors)
            if erased:
                await traces.of(self._store, self._namespace, erased)
                await clear_contexts(self._store, ledger, erased, self._namespace, traces)
            if ledger.empty:
                return []
            try:
                await self._store.commit(self._namespace, ledger.changes())
            except Conflict:
                continue
            await traces.remove()
            return done
        return []

    def _after(self, memory: Memory, verdict: Verdict) -> Memory | None:
        match verdict.action:
            case "erased":
                return None
            case "archived":
                return replace(memory, status="archived", status_reason=verdict.reason, forgotten_at=self._now)
            case "promoted":
                return replace(memory, status="active", status_reason=verdict.reason, **verdict.fields)
            case "extended":
                return replace(memory, **verdict.fields)

    def _told(self, memory: Memory, verdict: Verdict) -> Affected:
        after = self._after(memory, verdict)
        return affected(memory, "erased" if after is None else after.status, verdict.reason)

    async def _wait_for_turn(self, changes: int) -> None:
        if not self._rate:
            return
        await asyncio.sleep(max(0.0, self._free_at - _time()))
        self._free_at = _time() + changes / self._rate


def _time() -> float:
    return asyncio.get_running_loop().time()


def _encode(place: _Place) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def _decode(cursor: str) -> _Place:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)), type=_Place)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise InvalidInput.of("cursor", "is not one of ours; pass back the cursor of the report before") from None
