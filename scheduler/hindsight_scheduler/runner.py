"""One slot of one policy, from its claim to its end, whichever replica gets it and however often one dies."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime

import msgspec

from hindsight_core.errors import HindsightError, UnderWay
from hindsight_core.leases import Lease, Leases
from hindsight_core.requests import Policy, SweepRequest
from hindsight_scheduler.clock import now
from hindsight_scheduler.sweeper import Sweeps

_log = logging.getLogger("hindsight.scheduler")


class _Progress(msgspec.Struct, frozen=True, array_like=True):
    """The namespace that is being swept, the cursor within it, and how many memories were changed so far."""

    namespace: str
    cursor: str | None
    changed: int


class Runner:
    """Runs slots.

    `slice_seconds` is how long one call to the sweeps may take, `poll_seconds` how often is looked whether another
    replica is done or has died.
    """

    def __init__(self, leases: Leases, sweeps: Sweeps, *, slice_seconds: float, poll_seconds: float) -> None:
        self._leases = leases
        self._sweeps = sweeps
        self._slice = slice_seconds
        self._poll = poll_seconds
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """End after the page that is being swept; whoever comes next goes on from there."""
        self._stop.set()

    async def run(self, policy: Policy, at: datetime) -> None:
        """See to it that the slot of `at` is done: by this process, or by another one that is waited for."""
        waited = 0
        while not self._stop.is_set():
            try:
                lease = await self._leases.take(policy, at, now())
                if lease is not None:
                    await self._work(policy, lease)
                elif await self._leases.settled(policy, at):
                    return
                else:
                    await self._pause(self._poll)
            except UnderWay as exc:  # somebody sweeps by hand, or died while sweeping
                if not waited:
                    _log.info("slot.waits", extra={"policy": policy, "slot": at.isoformat(), "detail": exc.detail})
                # Each look takes the slot and gives it back, which are writes.
                await self._pause(min(self._poll * 2**waited, max(self._poll, self._slice)))
                waited = min(waited + 1, 10)
            except HindsightError as exc:
                _log.warning("slot.failed", extra={"policy": policy, "slot": at.isoformat(), "detail": exc.detail})
                await self._pause(self._poll)

    async def resume(self, policy: Policy) -> None:
        """Finish the slot that the last process left, if there is one."""
        left = await self._leases.left(policy)
        if left is not None:
            await self.run(policy, left)

    async def _work(self, policy: Policy, lease: Lease) -> None:
        fields = {"policy": policy, "slot": lease.slot.at.isoformat()}
        _log.info("slot.resumed" if lease.resumed else "slot.begun", extra=fields)
        done = None if lease.slot.progress is None else msgspec.json.decode(lease.slot.progress, type=_Progress)
        changed = 0 if done is None else done.changed
        try:
            for namespace in await self._sweeps.namespaces():
                if done is not None and namespace < done.namespace:
                    continue
                cursor = done.cursor if done is not None and namespace == done.namespace else None
                while True:
                    report = await self._sweeps.sweep(
                        SweepRequest(namespace=namespace, policies=(policy,), cursor=cursor, budget_seconds=self._slice)
                    )
                    cursor, changed = report.cursor, changed + report.count
                    progress = msgspec.json.encode(_Progress(namespace, cursor, changed)).decode()
                    renewed = await self._leases.renew(lease, now(), progress)
                    if renewed is None:
                        _log.warning("slot.lost", extra=fields)
                        return
                    lease = renewed
                    if self._stop.is_set():
                        await self._leases.end(lease, now(), done=False)
                        _log.info("slot.left", extra=fields)
                        return
                    if cursor is None:
                        break
        except HindsightError:
            await self._leases.end(lease, now(), done=False)
            raise
        if await self._leases.end(lease, now(), done=True):
            _log.info("slot.done", extra={**fields, "changed": changed})

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stop.wait(), seconds)
        except TimeoutError:
            return
