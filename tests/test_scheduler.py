"""Schedulers as real processes over one store: each slot runs once, whoever dies; a stop is clean; once is once."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import Empty, Queue

import pytest

from hindsight_core.caller import Caller
from hindsight_core.config import Settings
from hindsight_core.errors import ConfigurationError, UnderWay
from hindsight_core.ids import new_id
from hindsight_core.leases import Leases
from hindsight_core.models import Memory
from hindsight_core.requests import PageRequest, Request, SweepRequest, UndoRequest
from hindsight_core.responses import SweepReport
from hindsight_core.service import MemoryService
from hindsight_core.stores import MemoryStore, Where, open_store
from hindsight_scheduler.runner import Runner
from hindsight_scheduler.schedules import DEFAULTS, schedules
from samples import DAY, NAMESPACE, OpenStore, memory, puts, record
from server import environment, server

LINE = re.compile(r" (slot\.\w+) policy=expire slot=(\S+)")
AT = datetime(2025, 1, 1, tzinfo=UTC)
PATIENCE = 60


class Fleet:
    """Schedulers whose log lines come together in one queue."""

    def __init__(self, store: str, **more: str) -> None:
        settings = {"HINDSIGHT_STORE": store, "HINDSIGHT_SWEEP_RATE": "1000", **more}
        self._env = environment(PYTHONUNBUFFERED="1", **settings)
        self.lines: Queue[tuple[subprocess.Popen[str], str]] = Queue()
        self.told: list[tuple[str, str]] = []
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "hindsight_scheduler", *arguments], env=self._env, stderr=subprocess.PIPE, text=True
        )
        self.processes.append(process)
        threading.Thread(target=self._read, args=(process,), daemon=True).start()
        return process

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                self.lines.put((process, line))

    def next(self, event: str) -> tuple[subprocess.Popen[str], str]:
        """Who told this event next, and of which slot."""
        while True:
            process, line = self.lines.get(timeout=PATIENCE)
            if found := LINE.search(line):
                self.told.append((found[1], found[2]))
                if found[1] == event:
                    return process, found[2]

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        try:
            while True:
                if found := LINE.search(self.lines.get(timeout=0.1)[1]):
                    self.told.append((found[1], found[2]))
        except Empty:
            return


async def fill(url: str, prefix: str, count: int) -> None:
    """Memories that have expired, so many that a sweep takes more than a page."""
    store = open_store(url)
    await store.prepare(None)
    past = datetime.now(UTC).replace(microsecond=0) - DAY
    memories = [memory(f"{prefix}{i:05}", expires_at=past) for i in range(count)]
    await store.commit(NAMESPACE, puts(*map(record, memories), run_id=f"fill-{prefix}"))
    await store.aclose()


async def stored(url: str) -> list[Memory]:
    store = open_store(url)
    found: list[Memory] = []
    while page := await store.scan(NAMESPACE, Where(), after=found[-1].id if found else None, limit=1000):
        found += [r.memory for r in page]
    await store.aclose()
    return found


def test_each_slot_of_three_schedulers_runs_once_also_when_one_is_killed_in_the_middle(
    tmp_path: Path, request: pytest.FixtureRequest
):
    slots: int = request.config.getoption("--slots")
    url = f"sqlite:///{tmp_path / 'h.db'}"
    asyncio.run(fill(url, "a", 1))
    others = dict.fromkeys(DEFAULTS.keys() - {"expire"}, "")
    only = json.dumps({"expire": "1s", **others})
    fleet = Fleet(url, HINDSIGHT_SCHEDULES=only, HINDSIGHT_SCHEDULE_LEASE="1")
    killed = 0
    try:
        for _ in range(3):
            fleet.start()
        for number in range(slots):
            if number % 10 == 2:
                asyncio.run(fill(url, f"b{number:03}-", 1200))
                process, slot = fleet.next("slot.begun")
                process.kill()
                killed += 1
                assert fleet.next("slot.resumed")[1] == slot
                fleet.start()
            fleet.next("slot.done")
    finally:
        fleet.end()
    told = Counter(fleet.told)
    done = {slot for (event, slot), _ in told.items() if event == "slot.done"}
    assert len(done) >= slots
    assert all(times == 1 for (event, _), times in told.items() if event in {"slot.begun", "slot.done"})
    # On a busy machine one that lives may be so slow that another one takes over.
    assert sum(event == "slot.resumed" for event, _ in told.elements()) >= killed
    memories = asyncio.run(stored(url))
    assert len(memories) == 1 + 1200 * killed
    # Archived once: the version rose by one.
    assert {(one.status, one.version) for one in memories} == {("archived", 2)}


def test_a_stop_in_the_middle_is_clean_and_the_next_one_goes_on_under_the_same_run(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'h.db'}"
    asyncio.run(fill(url, "a", 2200))
    fleet = Fleet(url, HINDSIGHT_SCHEDULE_LEASE="1", HINDSIGHT_LOG_LEVEL="info")
    try:
        first = fleet.start("--once", "expire")
        _, slot = fleet.next("slot.begun")
        first.send_signal(signal.SIGTERM)
        assert fleet.next("slot.left")[1] == slot
        assert first.wait(PATIENCE) == 0
        assert {one.status for one in asyncio.run(stored(url))} == {"active", "archived"}
        # What was left is finished first, and then the new slot has its turn.
        assert fleet.start("--once", "expire").wait(PATIENCE) == 0
        assert fleet.next("slot.resumed")[1] == slot
        assert fleet.next("slot.done")[1] == slot
        assert fleet.next("slot.done")[1] > slot
    finally:
        fleet.end()
    assert {one.status for one in asyncio.run(stored(url))} == {"archived"}

    async def undo() -> int:
        store = open_store(url)
        service = MemoryService(store, None, Settings())
        caller = Caller(now=datetime.now(UTC), new_id=new_id, namespace=NAMESPACE)
        (run,) = (run for run in (await service.runs(PageRequest(), caller)).runs if run.operation == "sweep")
        count = (await service.undo(run.run_id, UndoRequest(), caller)).count
        assert (await service.stats(Request(), caller)).by_status == {"active": 2200}
        await service.aclose()
        return count

    assert asyncio.run(undo()) == 2200


def test_over_http_the_server_sweeps(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'served.db'}"
    asyncio.run(fill(url, "a", 3))
    with server(env=environment(HINDSIGHT_STORE=url)) as running:
        fleet = Fleet(
            str(tmp_path / "own.db"), HINDSIGHT_SCHEDULE_URL=running.url, HINDSIGHT_SCHEDULE_NAMESPACES=NAMESPACE
        )
        assert fleet.start("--once", "expire").wait(PATIENCE) == 0
        fleet.end()
    assert [one.status for one in asyncio.run(stored(url))] == ["archived"] * 3


def test_the_scheduler_gives_way_to_other_processes():
    """A search on the same machine is worth more than a sweep."""
    code = "import os; from hindsight_scheduler.__main__ import give_way; give_way(); print(os.nice(0))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(told.stdout) >= min(19, os.nice(0) + 10)


def test_a_scheduler_gives_signs_of_life_until_it_is_stopped(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'h.db'}"
    fleet = Fleet(url, TMPDIR=str(tmp_path))

    def told() -> tuple[int, str]:
        command = [sys.executable, "-m", "hindsight_scheduler.heartbeat"]
        asked = subprocess.run(command, env=os.environ | {"TMPDIR": str(tmp_path)}, capture_output=True, text=True)
        return asked.returncode, asked.stderr

    assert told() == (1, "hindsight-scheduler: none has given a sign of life, or it was stopped\n")
    process = fleet.start()
    until = time.monotonic() + PATIENCE
    while not (signs := list(tmp_path.glob("hindsight-scheduler-*.alive"))):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert told() == (0, "")
    process.send_signal(signal.SIGSTOP)
    os.utime(signs[0], (time.time() - 100,) * 2)
    code, why = told()
    assert code == 1
    assert why.startswith("hindsight-scheduler: no sign of life for 10")
    process.send_signal(signal.SIGCONT)
    process.terminate()
    assert process.wait(PATIENCE) == 0
    assert not signs[0].exists()
    fleet.end()


async def test_a_slot_is_taken_once_taken_over_when_it_lapsed_and_never_run_again(opened: OpenStore):
    first, second = [Leases(await opened(), name, timedelta(seconds=10)) for name in ("one", "two")]
    begun = await first.take("expire", AT, AT)
    assert begun is not None
    assert await second.take("expire", AT, AT + timedelta(seconds=9)) is None
    renewed = await first.renew(begun, AT + timedelta(seconds=9), "half")
    assert renewed is not None
    assert await second.take("expire", AT + DAY, AT + timedelta(seconds=18)) is None
    over = await second.take("expire", AT + DAY, AT + timedelta(seconds=19))
    # An earlier slot that was begun is finished before a later one.
    assert over is not None
    assert (over.slot.at, over.slot.progress, over.resumed) == (AT, "half", True)
    assert await first.renew(renewed, AT + timedelta(seconds=20), "more") is None
    assert not await first.end(renewed, AT + timedelta(seconds=20), done=True)
    assert await second.end(over, AT + timedelta(seconds=20), done=True)
    assert [await first.settled("expire", at) for at in (AT - DAY, AT, AT + DAY)] == [True, True, False]
    assert await first.take("expire", AT, AT + DAY) is None
    assert await first.take("expire", AT + DAY, AT + DAY) is not None
    assert await second.take("evict", AT, AT) is not None


async def test_of_many_that_want_a_slot_at_once_one_gets_it(opened: OpenStore):
    stores: list[MemoryStore] = [await opened() for _ in range(3)]
    leases = [Leases(store, f"{i}", timedelta(seconds=10)) for i, store in enumerate(stores)]
    taken = await asyncio.gather(*(one.take("expire", AT, AT) for one in leases))
    assert sum(lease is not None for lease in taken) == 1


def test_schedules_are_cron_lines_or_durations_and_a_policy_may_be_left_out():
    found = schedules('{"expire": "30s", "idle": ""}')
    assert "idle" not in found
    assert {"expire", "evict", "purge", "promote"} <= set(found)
    for wrong in ('{"expire": "soon"}', '{"expire": "99 * * * *"}', '{"nonsense": "1h"}', "[]"):
        with pytest.raises(ConfigurationError, match="HINDSIGHT_SCHEDULES"):
            schedules(wrong)


class Busy:
    """Sweeps of a namespace in which another one is under way for so many seconds of the event loop's."""

    def __init__(self, seconds: float) -> None:
        self._until = asyncio.get_running_loop().time() + seconds
        self.asked = 0

    async def namespaces(self) -> list[str]:
        return [NAMESPACE]

    async def sweep(self, request: SweepRequest) -> SweepReport:
        self.asked += 1
        if asyncio.get_running_loop().time() < self._until:
            raise UnderWay("Somebody sweeps by hand.", remedy="Wait.")
        return SweepReport(
            run_id="r", dry_run=False, complete=True, cursor=None, policies=(), affected=(), count=0, took_ms=0.0
        )


async def test_a_slot_that_waits_for_a_sweep_by_hand_asks_ever_more_rarely(tmp_path: Path):
    store = open_store(f"sqlite:///{tmp_path}/h.db")
    await store.prepare(None)
    sweeps = Busy(1.0)
    runner = Runner(Leases(store, "here", timedelta(seconds=60)), sweeps, slice_seconds=0.3, poll_seconds=0.01)
    await runner.run("expire", AT)
    # Every 10 ms it would be about a hundred times, each of two writes.
    assert 2 <= sweeps.asked <= 12
    assert (await store.head("hindsight.scheduler")).sequence == 2 * sweeps.asked + 1
    await store.aclose()
