"""Of one policy in one namespace one sweep runs at a time, in whichever process; over both stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from hindsight_core.config import Settings
from hindsight_core.errors import UnderWay
from hindsight_core.requests import SweepRequest
from hindsight_core.responses import SweepReport
from hindsight_core.service import MemoryService
from hindsight_core.stores import MemoryStore
from hindsight_core.turns import Turns
from samples import DAY, NAMESPACE, START, memory, puts, record, unit

NOW = START + 10 * DAY
MINUTE = timedelta(minutes=1)
NOTE = f"turns/{NAMESPACE}"


@pytest.fixture
def here(caller: Any) -> Any:
    return replace(caller, namespace=NAMESPACE, now=NOW)


@pytest.fixture
def replica(store: MemoryStore, settings: Settings) -> Callable[[], MemoryService]:
    """One more process over the test's store."""
    return lambda: MemoryService(store, None, replace(settings, namespace=NAMESPACE, sweep_rate=0, sweep_share=1.0))


async def test_a_sweep_of_a_policy_that_another_sweeps_by_is_refused_and_names_its_run(store, replica, here):
    expired = [memory(f"m{i}", expires_at=NOW - DAY) for i in range(3)]
    await store.commit(NAMESPACE, puts(*(record(one, unit(i)) for i, one in enumerate(expired))))
    service = replica()
    async with Turns(store, MINUTE).taken(NAMESPACE, ["expire", "idle"], run_id="run-1", call="elsewhere", now=NOW):
        for policies in (("expire",), ("purge", "idle"), ()):
            with pytest.raises(UnderWay, match="run run-1") as caught:
                await service.sweep(SweepRequest(policies=policies), here)
            assert caught.value.status == 409
            assert "60 s" in caught.value.remedy
        # What is not the same goes on: other policies, other namespaces, and lists of what would be done.
        assert (await service.sweep(SweepRequest(policies=("purge", "evict")), here)).count == 0
        assert (await service.sweep(SweepRequest(dry_run=True), here)).count == 3
        assert (await service.sweep(SweepRequest(), replace(here, namespace="another"))).count == 0
    assert (await service.sweep(SweepRequest(), here)).count == 3


async def test_a_turn_of_a_process_that_holds_turns_longer_stands(store):
    async with Turns(store, 3 * MINUTE).taken(NAMESPACE, ["expire"], run_id="run-1", call="there", now=NOW):
        with pytest.raises(UnderWay, match="run run-1") as caught:
            async with Turns(store, MINUTE).taken(NAMESPACE, ["expire"], run_id="run-2", call="here", now=NOW):
                pass
        assert "180 s" in caught.value.remedy


async def test_of_sweeps_that_begin_at_once_in_several_processes_one_runs(store, replica, here):
    expired = [memory(f"m{i}", expires_at=NOW - DAY) for i in range(9)]
    await store.commit(NAMESPACE, puts(*(record(one, unit(i)) for i, one in enumerate(expired))))
    asked = [replica().sweep(SweepRequest(), here) for _ in range(4)]
    told = await asyncio.gather(*asked, return_exceptions=True)
    reports = [one for one in told if isinstance(one, SweepReport)]
    refused = [one for one in told if isinstance(one, UnderWay)]
    assert (len(reports), len(refused)) == (1, 3)
    assert reports[0].count == 9
    assert all(reports[0].run_id in one.detail for one in refused)


async def test_a_turn_is_given_up_when_its_sweep_ends_also_when_it_fails_or_is_broken_off(store):
    turns = Turns(store, MINUTE)
    with pytest.raises(RuntimeError, match="in the middle"):
        async with turns.taken(NAMESPACE, ["expire"], run_id="1", call="a", now=NOW):
            raise RuntimeError("in the middle")
    begun = asyncio.Event()

    async def endless() -> None:
        async with turns.taken(NAMESPACE, ["expire"], run_id="2", call="b", now=NOW):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(endless())
    await begun.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    async with turns.taken(NAMESPACE, ["expire"], run_id="3", call="c", now=NOW):
        pass
    assert (await store.note(NOTE)).text == "{}"


@pytest.mark.parametrize(
    ("until", "holds"),
    [(NOW + timedelta(seconds=50), True), (NOW, False), (NOW - MINUTE, False), (NOW + 400 * DAY, False)],
)
async def test_the_turn_of_a_process_that_died_lapses(store, replica, here, until, holds):
    """Also one that a clock far ahead has left."""
    await store.keep(NOTE, f'{{"expire": ["run-1", "dead", "{until.isoformat()}"]}}', expected=0)
    if holds:
        with pytest.raises(UnderWay):
            await replica().sweep(SweepRequest(policies=("expire",)), here)
    else:
        assert (await replica().sweep(SweepRequest(policies=("expire",)), here)).complete


async def test_a_turn_outlasts_its_time_while_its_sweep_goes_on(store):
    lasting = timedelta(seconds=0.3)
    async with Turns(store, lasting).taken(NAMESPACE, ["expire"], run_id="1", call="a", now=NOW):
        async with asyncio.timeout(60):
            # Each renewal is a version; `lasting` has passed by then.
            while (await store.note(NOTE)).version < 5:  # noqa: ASYNC110 (nothing tells of it)
                await asyncio.sleep(0.01)
        with pytest.raises(UnderWay):
            async with Turns(store, lasting).taken(NAMESPACE, ["expire"], run_id="2", call="b", now=NOW + lasting):
                pass
