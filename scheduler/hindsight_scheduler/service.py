"""The process: policies on their schedules until it is told to stop, or one policy once."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from apscheduler.executors.base import BaseExecutor
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from hindsight_core.assembly import embedder_of
from hindsight_core.cache import open_cache
from hindsight_core.cache.copies import Copies
from hindsight_core.client import AsyncHindsight
from hindsight_core.config import Settings
from hindsight_core.ids import new_id
from hindsight_core.leases import Leases
from hindsight_core.requests import Policy
from hindsight_core.service import MemoryService
from hindsight_core.stores import open_store
from hindsight_scheduler.clock import now
from hindsight_scheduler.heartbeat import beating
from hindsight_scheduler.runner import Runner
from hindsight_scheduler.schedules import schedules
from hindsight_scheduler.sweeper import InProcess, OverHttp

if TYPE_CHECKING:
    from apscheduler.job import Job


async def once(settings: Settings, policy: Policy) -> None:
    """Run one policy now, for cron and the like; the slot is this very instant."""
    async with _runner(settings) as runner, _stopping(runner):
        await runner.run(policy, now())


async def serve(settings: Settings) -> None:
    """Run every policy at its times until SIGTERM or SIGINT; what is under way is left for others to go on."""
    triggers = schedules(settings.schedules)
    # A slot that passes while the one before is under way is missed, which is as it should be and nothing to tell.
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    async with _runner(settings) as runner, _stopping(runner) as stopped, beating():
        executor = _Slots(runner)
        scheduler = AsyncIOScheduler(
            timezone=UTC,
            executors={"default": executor},
            # Slots missed in between become one; one that is waited for does not keep the next from being claimed.
            job_defaults={"coalesce": True, "misfire_grace_time": None, "max_instances": 1},
        )
        for policy, trigger in triggers.items():
            scheduler.add_job(_nothing, trigger, id=policy)
            executor.begin(runner.resume(policy))
        scheduler.start()
        await stopped.wait()
        scheduler.shutdown(wait=False)
        await executor.finished()


class _Slots(BaseExecutor):
    """Hands the runner each slot with the instant that it is for, which jobs themselves are not told."""

    def __init__(self, runner: Runner) -> None:
        super().__init__()
        self._runner = runner
        self._running: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def finished(self) -> None:
        await asyncio.gather(*self._running)

    def _do_submit_job(self, job: Job, run_times: list[datetime]) -> None:
        self.begin(self._run(job, run_times[-1]))

    async def _run(self, job: Job, at: datetime) -> None:
        try:
            await self._runner.run(job.id, at.astimezone(UTC))  # type: ignore[arg-type]
        finally:
            self._run_job_success(job.id, [])


def _nothing() -> None:
    """What a job would do; the executor does it, knowing its time."""


@asynccontextmanager
async def _runner(settings: Settings) -> AsyncGenerator[Runner]:
    named = [name for name in settings.schedule_namespaces.replace(",", " ").split() if name]
    holder = f"{os.uname().nodename}:{os.getpid()}:{new_id(now())}"
    store = open_store(settings.store, cache_bytes=16 << 20)
    cache = open_cache(settings.redis, timeout=settings.redis_timeout, value_bytes=settings.vector_cache_mb << 20)
    copies = Copies(store, cache if settings.redis else None)
    leases = Leases(store, holder, timedelta(seconds=settings.schedule_lease), copies)
    patience = settings.schedule_lease / 4
    try:
        await store.prepare(None)
        if settings.schedule_url:
            token = settings.schedule_token or None
            async with AsyncHindsight(settings.schedule_url, token=token) as client:
                over = OverHttp(client, named or [settings.namespace])
                yield Runner(leases, over, slice_seconds=patience, poll_seconds=min(1.0, patience))
        else:
            # Sweeps need no vectors to be made, but of what a model words.
            embedder = embedder_of(settings) if settings.consolidate_wording == "judge" else None
            service = MemoryService(store, embedder, settings, cache)
            try:
                if embedder is not None:
                    await service.start()
                inside = InProcess(service, store, named)
                yield Runner(leases, inside, slice_seconds=patience, poll_seconds=min(1.0, patience))
            finally:
                await service.aclose()
    finally:
        await store.aclose()
        await cache.aclose()


@asynccontextmanager
async def _stopping(runner: Runner) -> AsyncGenerator[asyncio.Event]:
    """An event that SIGTERM or SIGINT sets, after the runner was told."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        runner.stop()
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        yield stopped
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
