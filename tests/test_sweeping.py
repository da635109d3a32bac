"""Sweeps over both stores: what each policy does to a namespace, and that a run can be listed, resumed and undone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from hindsight_core.config import Settings
from hindsight_core.errors import Conflict, InvalidInput
from hindsight_core.models import Memory
from hindsight_core.pacing import Pace
from hindsight_core.requests import (
    ForgetRequest,
    PageRequest,
    Request,
    SearchRequest,
    SweepRequest,
    UndoRequest,
    UpdateRequest,
    WriteRequest,
)
from hindsight_core.service import MemoryService
from hindsight_core.stores import Access, ChangeSet, MemoryStore, Where
from samples import DAY, NAMESPACE, START, START_MS, memory, puts, record, run, unit

Sweep = Callable[..., Awaitable[Any]]
NOW = START + 10 * DAY


@pytest.fixture
def service_of(store: MemoryStore, settings: Settings) -> Callable[..., MemoryService]:
    """The service over the test's store, with settings of its own; no embedder, as the function has none."""

    def make(**fields: object) -> MemoryService:
        return MemoryService(
            store, None, replace(settings, namespace=NAMESPACE, sweep_rate=0, sweep_share=1.0, **fields)
        )

    return make


@pytest.fixture
def here(caller: Any) -> Any:
    return replace(caller, namespace=NAMESPACE, now=NOW)


async def fill(store: MemoryStore, *memories: Memory) -> None:
    await store.commit(NAMESPACE, puts(*(record(one, unit(i)) for i, one in enumerate(memories)), run_id="fill"))


async def everything(store: MemoryStore) -> dict[str, Memory]:
    records = await store.scan(NAMESPACE, Where(), after=None, limit=1000)
    return {r.memory.id: r.memory for r in records}


async def statuses(store: MemoryStore) -> dict[str, str]:
    return {memory_id: one.status for memory_id, one in (await everything(store)).items()}


EVENTFUL = (
    memory("a-expired", expires_at=NOW - DAY),
    memory("b-expires-later", expires_at=NOW + DAY),
    memory("c-expired-pinned", expires_at=NOW - DAY, pinned=True),
    memory("d-idle", confidence=0.2, created_at=NOW - 400 * DAY, updated_at=NOW - 400 * DAY),
    memory("e-sure", created_at=NOW - 400 * DAY, updated_at=NOW - 400 * DAY),
    memory("f-archived", status="archived", forgotten_at=NOW - 400 * DAY),
    memory("g-archived-lately", status="archived", forgotten_at=NOW - DAY),
    *(memory(f"h-{i}", user_id="ann", confidence=0.5 + i / 20) for i in range(6)),
)
LIMITED = {"capacity_user": 4, "capacity_namespace": 7}


async def test_each_policy_does_its_part_and_a_dry_run_lists_exactly_that(store, service_of, here):
    await fill(store, *EVENTFUL)
    before = await everything(store)
    service = service_of(**LIMITED)
    dry = await service.sweep(SweepRequest(dry_run=True), here)
    assert await everything(store) == before
    real = await service.sweep(SweepRequest(), here)
    assert [(one.id, one.before, one.after) for one in real.affected] == [
        ("a-expired", "active", "archived"),
        ("d-idle", "active", "archived"),
        ("h-0", "active", "archived"),
        ("h-1", "active", "archived"),
        ("f-archived", "archived", "erased"),
    ]
    assert (real.affected, real.count, real.complete) == (dry.affected, dry.count, True)
    assert {p.policy: p.actions for p in real.policies} == {
        "promote": {},
        "expire": {"archived": 1},
        "idle": {"archived": 1},
        "evict": {"archived": 2},
        "tasks": {},
        "purge": {"erased": 1},
        "consolidate": {},
        "logs": {},
    }
    after = await statuses(store)
    assert after == {id_: m.status for id_, m in before.items() if id_ != "f-archived"} | {
        one.id: "archived" for one in real.affected if one.after == "archived"
    }
    again = await service.sweep(SweepRequest(), here)
    assert (again.count, again.complete) == (0, True)


async def test_maintenance_makes_nothing_look_fresh_and_says_why_it_forgot(store, service_of, here):
    await fill(store, memory("a", expires_at=NOW))
    await service_of().sweep(SweepRequest(policies=("expire",)), here)
    (found,) = (await everything(store)).values()
    assert (found.created_at, found.updated_at, found.forgotten_at) == (START, START, NOW)
    history = await service_of().history("a", Request(), here)
    assert [(e.action, e.reason) for e in history.events] == [("archived", "Expired on 2024-05-11.")]


async def test_a_run_is_undone_as_a_whole_except_for_what_changed_since_and_what_was_erased(store, service_of, here):
    await fill(store, *EVENTFUL)
    before = await everything(store)
    service = service_of(**LIMITED)
    report = await service.sweep(SweepRequest(), here)
    await service.update("h-0", UpdateRequest(tags=("kept",)), here)
    undone = await service.undo(report.run_id, UndoRequest(), here)
    assert sorted(undone.kept) == ["f-archived", "h-0"]
    after = await everything(store)
    for memory_id in ("a-expired", "d-idle", "h-1"):
        assert replace(after[memory_id], version=1) == before[memory_id]
    assert after["h-0"].status == "archived"
    with pytest.raises(Conflict):
        await service.undo(report.run_id, UndoRequest(), here)


@pytest.mark.parametrize("at_once", [2, 5000])
async def test_a_run_of_many_calls_stays_one_run_and_is_undone_in_parts(store, service_of, here, monkeypatch, at_once):
    monkeypatch.setattr("hindsight_core.undoing.AT_ONCE", at_once)
    memories = [memory(f"{i:02}", expires_at=NOW if i % 2 else None, confidence=i / 20) for i in range(12)]
    await fill(store, *memories)
    before = await everything(store)
    service = service_of(capacity_namespace=2, access_extends="30d")
    await store.log(NAMESPACE, accesses=[Access(memory_id="01", at=START_MS + 9 * 86_400_000)])
    reports = [await service.sweep(SweepRequest(limit=2), here)]
    while (cursor := reports[-1].cursor) is not None:
        reports.append(await service.sweep(SweepRequest(limit=2, cursor=cursor), here))
    assert len({report.run_id for report in reports}) == 1
    assert [report.complete for report in reports] == [False] * (len(reports) - 1) + [True]
    # "01" is extended first, and then makes room: one run touches it twice.
    assert [one.id for report in reports for one in report.affected].count("01") == 2
    kept = [memory_id for memory_id, status in (await statuses(store)).items() if status == "active"]
    assert kept == ["08", "10"]
    runs = await service.runs(PageRequest(), here)
    (swept,) = (found for found in runs.runs if found.operation == "sweep")
    assert swept.count == sum(report.count for report in reports) == 11
    undone = await service.undo(reports[0].run_id, UndoRequest(), here)
    assert (undone.count, undone.kept) == (10, ())
    after = await everything(store)
    accesses = {"access_count": 0, "last_accessed_at": None, "version": 1}
    assert {id_: replace(m, **accesses) for id_, m in after.items()} == before


async def test_the_newest_of_a_slot_never_goes_before_what_it_superseded(store, service_of, here):
    await fill(
        store,
        memory("old", status="superseded", superseded_by="mid", memory_type="semantic", access_count=50),
        memory("mid", status="superseded", superseded_by="new", supersedes=("old",), memory_type="semantic"),
        memory("new", supersedes=("mid",), memory_type="episodic", confidence=0.0),
        memory("other", memory_type="episodic"),
    )
    report = await service_of(capacity_episodic=1).sweep(SweepRequest(policies=("evict",)), here)
    assert [one.id for one in report.affected] == ["old", "mid", "new"]


async def test_a_task_is_dead_only_when_none_of_its_messages_is_new(store, service_of, here):
    said = {"memory_type": "working", "created_at": NOW - 8 * DAY}
    await fill(
        store,
        memory("a", task_id="dead", **said),
        memory("b", task_id="alive", **said),
        memory("c", task_id="alive", memory_type="working", created_at=NOW - DAY),
        memory("d", task_id="alive", user_id="ann", **said),
        memory("e", task_id="dead", created_at=NOW - 8 * DAY),
    )
    report = await service_of(task_idle="7d").sweep(SweepRequest(policies=("tasks",)), here)
    assert [one.id for one in report.affected] == ["a", "d"]
    await service_of().undo(report.run_id, UndoRequest(), here)
    assert (await service_of(task_idle="never").sweep(SweepRequest(policies=("tasks",)), here)).count == 0


async def test_pinned_memories_never_make_room(store, service_of, here):
    await fill(store, *(memory(f"p{i}", pinned=True, confidence=0) for i in range(3)), memory("x"))
    report = await service_of(capacity_namespace=1).sweep(SweepRequest(policies=("evict",)), here)
    assert [one.id for one in report.affected] == ["x"]


async def test_capacity_is_per_user_and_nobodys_memories_are_a_place_of_their_own(store, service_of, here):
    users = ("ann", "bob", None)
    await fill(store, *(memory(f"{user}-{i}", user_id=user, confidence=i / 9) for user in users for i in range(3)))
    await service_of(capacity_user=2).sweep(SweepRequest(policies=("evict",)), here)
    gone = [memory_id for memory_id, status in (await statuses(store)).items() if status == "archived"]
    assert gone == ["None-0", "ann-0", "bob-0"]


async def test_a_search_just_before_counts_as_an_access(store, service_of, here):
    await fill(store, memory("a", "The kettle is blue.", confidence=0.3))
    service = service_of(idle_after="1d")
    await service.search(SearchRequest(query="kettle"), here)
    assert (await service.sweep(SweepRequest(policies=("idle",)), here)).count == 0
    later = replace(here, now=NOW + 2 * DAY)
    assert (await service.sweep(SweepRequest(policies=("idle",)), later)).count == 1


async def test_a_pending_memory_that_was_seen_again_elsewhere_becomes_active(store, service, service_of, here):
    pending = {"status": "pending", "source": "agent", "confidence": 0.5}
    same = "The user likes window seats on trains."
    texts = [
        memory("a", same, session_id="s1", **pending),
        memory("b", same, session_id="s2", **pending),
        memory("c", "The user's cat is called Biscuit.", session_id="s1", **pending),
        memory("d", "The user's cat is called Biscuit.", session_id="s1", **pending),
        memory("e", "用户喜欢靠窗的座位。", user_id="安", session_id="s1", **pending),
        memory("f", "用户喜欢靠窗的座位。", user_id="安", session_id="s2", status="active"),
        memory("g", same, user_id="ann", session_id="s3", **pending),
    ]
    vectors = await service._embedder.embed([one.content for one in texts], "passage")
    await store.commit(NAMESPACE, puts(*(record(one, v) for one, v in zip(texts, vectors, strict=True))))
    report = await service_of().sweep(SweepRequest(policies=("promote",)), here)
    assert [(one.id, one.after) for one in report.affected] == [("a", "active"), ("e", "active")]
    assert (await service_of().sweep(SweepRequest(policies=("promote",)), here)).complete


async def test_logs_that_were_kept_long_enough_go_and_a_key_is_still_no_second_memory(store, service, service_of, here):
    long_ago = replace(here, now=NOW - 100 * DAY)
    request = WriteRequest(content="My dog is called Biscuit.", force=True, idempotency_key="k")
    (first,) = (await service.write(request, long_ago)).results
    await service.search(SearchRequest(query="dog"), long_ago)
    await service.flush()
    logs = SweepRequest(policies=("logs",))
    assert (await service_of(retrievals_kept="never", receipts_kept="never").sweep(logs, here)).policies[
        0
    ].actions == {}
    dry = await service_of().sweep(replace(logs, dry_run=True), here)
    real = await service_of().sweep(logs, here)
    assert real.policies[0].actions == dry.policies[0].actions == {"retrievals removed": 1, "receipts removed": 1}
    assert (real.count, real.complete) == (0, True)
    assert await store.read(NAMESPACE, "retrievals") == []
    (again,) = (await service.write(request, here)).results
    assert (again.decision, again.memory_id) == ("duplicate", first.memory_id)
    await service.forget(ForgetRequest(ids=(first.memory_id,), mode="erase"), here)
    await service_of().sweep(logs, replace(here, now=NOW + 100 * DAY))
    # Even the receipt that said so is gone now, and what was erased is still not stored again.
    (refused,) = (await service.write(request, replace(here, now=NOW + 100 * DAY))).results
    assert refused.decision == "refuse"


async def test_what_changes_while_a_sweep_looks_at_it_is_left_alone(store, service_of, here, monkeypatch):
    await fill(store, memory("a", expires_at=NOW), memory("b", expires_at=NOW))
    scan = store.scan

    async def meddling(namespace: str, where: Where, **options: Any) -> Any:
        found = await scan(namespace, where, **options)
        if where.expired_at is not None and options["after"] is None:
            (one,) = await store.get(namespace, ["a"])
            longer = replace(one.memory, expires_at=NOW + DAY, version=2)
            await store.commit(namespace, ChangeSet(run=run("meanwhile"), puts=(replace(one, memory=longer),)))
        return found

    monkeypatch.setattr(store, "scan", meddling)
    report = await service_of().sweep(SweepRequest(policies=("expire",)), here)
    assert [one.id for one in report.affected] == ["b"]
    assert await statuses(store) == {"a": "active", "b": "archived"}


async def test_a_sweep_stays_in_its_namespace_and_is_for_all_of_it(store, service_of, here):
    await fill(store, memory("a", expires_at=NOW))
    await store.commit("other", puts(record(memory("a", namespace="other", expires_at=NOW), unit(1))))
    await service_of().sweep(SweepRequest(), here)
    assert (await store.get("other", ["a"]))[0].memory.status == "active"
    with pytest.raises(InvalidInput):
        await service_of().sweep(SweepRequest(user_id="ann"), here)


async def test_a_cursor_that_belongs_to_no_sweep_is_refused(store, service_of, here):
    await fill(store, *(memory(f"{i}", expires_at=NOW) for i in range(3)))
    service = service_of()
    report = await service.sweep(SweepRequest(limit=1), here)
    for cursor in ("nonsense", "W10", report.cursor):
        with pytest.raises(InvalidInput):
            await service.sweep(SweepRequest(cursor=cursor, namespace="other"), here)
    await service.undo(report.run_id, UndoRequest(), here)
    with pytest.raises(InvalidInput):
        await service.sweep(SweepRequest(cursor=report.cursor), here)


async def test_a_budget_of_time_ends_a_sweep_between_two_pages(store, service_of, here, monkeypatch):
    monkeypatch.setattr("hindsight_core.passes.PAGE", 2)
    await fill(store, *(memory(f"{i}", expires_at=NOW) for i in range(5)))
    service = service_of()
    report = await service.sweep(SweepRequest(budget_seconds=1e-9, policies=("expire",)), here)
    assert (report.count, report.complete) == (2, False)
    rest = await service.sweep(SweepRequest(cursor=report.cursor, policies=("expire",)), here)
    assert (rest.count, rest.complete) == (3, True)
    assert msgspec.json.decode(msgspec.json.encode(rest))["affected"][0]["reason"] == "Expired on 2024-05-11."


@pytest.mark.parametrize("end", [{"budget_seconds": 1e-9}, {"limit": 2}], ids=["its time", "its limit"])
async def test_a_call_that_ends_early_rests_for_what_it_did_like_any_other(store, service_of, here, monkeypatch, end):
    """Else whoever goes on at once, as the scheduler does, would sweep without a rest."""
    rested: list[int] = []

    class Watched(Pace):
        async def rest(self) -> None:
            rested.append(len([one for one in (await statuses(store)).values() if one == "archived"]))

    monkeypatch.setattr("hindsight_core.sweeping.Pace", Watched)
    monkeypatch.setattr("hindsight_core.passes.PAGE", 3)
    await fill(store, *(memory(f"{i}", expires_at=NOW) for i in range(5)))
    report = await service_of().sweep(SweepRequest(policies=("expire",), **end), here)
    assert not report.complete
    assert rested == [report.count]


async def test_a_purged_turn_goes_from_beside_the_turns_after_it(store, service_of, here):
    gone = memory("a", "Where is the locker?", status="archived", forgotten_at=NOW - 400 * DAY)
    await fill(store, gone, memory("b", "Behind the lamp.", context="Where is the locker?"))
    await service_of().sweep(SweepRequest(policies=("purge",)), here)
    assert (await everything(store))["b"].context is None
    events = await store.read(NAMESPACE, "events")
    assert b"locker" not in msgspec.json.encode(events)
