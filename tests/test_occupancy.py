"""One slot, one memory: nothing that comes back or is given a key stands beside what holds the slot unseen."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from hindsight_core.errors import HindsightError, SlotTaken
from hindsight_core.requests import (
    Filters,
    ForgetRequest,
    ListRequest,
    Request,
    RestoreRequest,
    SearchRequest,
    SweepRequest,
    UndoRequest,
    UpdateRequest,
    WriteRequest,
)
from hindsight_core.service import MemoryService
from hindsight_core.stores.sqlite import SqliteStore
from samples import NAMESPACE, memory, puts, record

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
ALPHA = ["The wifi is called Alpha", "无线网络叫阿尔法"]
BETA = {"The wifi is called Alpha": "The wifi is called Beta", "无线网络叫阿尔法": "无线网络叫贝塔"}


async def write(service, caller, content, minutes=0, **fields):
    given = {"key": "wifi", "force": True, "now": NOW + timedelta(minutes=minutes)}
    (decision,) = (await service.write(WriteRequest(content=content, **(given | fields)), caller)).results
    return decision.memory


async def forget(service, caller, memory, **fields):
    return await service.forget(ForgetRequest(ids=(memory.id,), now=NOW + timedelta(hours=1), **fields), caller)


async def active(service, caller):
    page = await service.list_memories(ListRequest(now=NOW + timedelta(days=1)), caller)
    return {memory.content for memory in page.memories}


async def states(service, caller):
    lines = [msgspec.json.decode(line) async for line in service.export(ListRequest(), caller)]
    memories = [line["memory"] for line in lines if "memory" in line]
    return {memory["id"]: (memory["content"], memory["status"], memory.get("valid_to")) for memory in memories}


async def restored(service, caller, memory):
    request = RestoreRequest(now=NOW + timedelta(hours=2))
    return (await service.restore(memory.id, request, caller)).memory


@pytest.mark.parametrize("first", ALPHA)
@pytest.mark.parametrize("mode", ["archive", "retract"])
async def test_nothing_is_restored_into_a_slot_that_is_held(service, caller, first, mode):
    old = await write(service, caller, first)
    await forget(service, caller, old, mode=mode)
    new = await write(service, caller, BETA[first], 1)
    with pytest.raises(SlotTaken, match=new.id) as caught:
        await restored(service, caller, old)
    assert [error.field for error in caught.value.errors] == ["key"]
    assert await active(service, caller) == {BETA[first]}
    await forget(service, caller, new)
    assert (await restored(service, caller, old)).status == "active"
    assert await active(service, caller) == {first}


@pytest.mark.parametrize("first", ALPHA)
@pytest.mark.parametrize("key", ["wifi", None])
async def test_what_was_brought_back_is_replaced_again_when_its_successor_is_restored(service, caller, first, key):
    old = await write(service, caller, first, key=key)
    new = await write(service, caller, BETA[first], 1, key=key, supersedes=(old.id,))
    await forget(service, caller, new, bring_back=True)
    assert await active(service, caller) == {first}
    await restored(service, caller, new)
    assert await active(service, caller) == {BETA[first]}
    ended = await service.get(old.id, Request(), caller)
    assert (ended.status, ended.superseded_by, ended.valid_to) == ("superseded", new.id, new.valid_from)


async def test_others_in_the_scope_hold_slots_of_their_own(service, caller):
    mine = await write(service, caller, "My wifi is Alpha", user_id="ann")
    await forget(service, caller, mine, user_id="ann")
    await write(service, caller, "My wifi is Beta", user_id="bo")
    await write(service, caller, "The wifi is Gamma")
    await write(service, caller, "My wifi is Delta", user_id="ann", agent_id="coder", visibility="private")
    await write(service, caller, "The wifi is Epsilon", user_id="ann", ttl="1h")
    assert (await restored(service, caller, mine)).status == "active"


@pytest.mark.parametrize("first", ALPHA)
async def test_no_memory_is_given_a_key_that_another_one_holds(service, caller, first):
    held = await write(service, caller, first)
    other = await write(service, caller, BETA[first], key="guest")
    for version in (None, other.version):
        with pytest.raises(SlotTaken, match=held.id) as caught:
            await service.update(other.id, UpdateRequest(key="wifi", version=version, now=NOW), caller)
        assert [error.field for error in caught.value.errors] == ["key"]
    await service.update(other.id, UpdateRequest(key="lobby", now=NOW), caller)
    await service.update(held.id, UpdateRequest(key="wifi", pinned=True, now=NOW), caller)
    assert await active(service, caller) == {first, BETA[first]}


async def test_a_private_memory_is_not_shared_into_a_slot_that_is_held(service, caller):
    own = await write(service, caller, "The wifi is Alpha", agent_id="coder", visibility="private")
    await write(service, caller, "The wifi is Beta", agent_id="coder")
    with pytest.raises(SlotTaken) as caught:
        await service.update(own.id, UpdateRequest(visibility="shared", agent_id="coder", now=NOW), caller)
    assert [error.field for error in caught.value.errors] == ["visibility"]


@pytest.mark.parametrize("first", ALPHA)
async def test_an_undo_leaves_forgotten_what_would_stand_in_a_held_slot(service, caller, first):
    old = await write(service, caller, first)
    run = await forget(service, caller, old)
    await write(service, caller, BETA[first], 90)
    undone = await service.undo(run.run_id, UndoRequest(now=NOW + timedelta(hours=2)), caller)
    assert (undone.count, undone.kept) == (0, (old.id,))
    assert await active(service, caller) == {BETA[first]}


async def test_of_two_at_once_one_gets_the_slot(service, caller):
    spare = [await write(service, caller, f"The wifi number {n} is {n}{n}{n}", key=f"k{n}") for n in range(4)]
    tried = [service.update(one.id, UpdateRequest(key="wifi", now=NOW), caller) for one in spare]
    done = await asyncio.gather(*tried, return_exceptions=True)
    assert sum(isinstance(one, SlotTaken) for one in done) == 3
    assert all(isinstance(one, SlotTaken) for one in done if isinstance(one, HindsightError))
    found = await service.search(SearchRequest(query="wifi", now=NOW), caller)
    assert sum(hit.memory.key == "wifi" for hit in found.hits) == 1


@pytest.mark.parametrize("first", ALPHA)
@pytest.mark.parametrize(
    ("change", "field"),
    [({"ttl": "30d"}, "expires_at"), ({"expires_at": None}, "expires_at"), ({"pinned": True}, "pinned")],
)
async def test_what_has_expired_is_not_revived_beside_what_holds_its_slot(service, caller, first, change, field):
    old = await write(service, caller, first, ttl="1h")
    new = await write(service, caller, BETA[first], 120)
    later = NOW + timedelta(hours=3)
    with pytest.raises(SlotTaken, match=new.id) as caught:
        await service.update(old.id, UpdateRequest(now=later, **change), caller)
    assert [error.field for error in caught.value.errors] == [field]
    assert await active(service, caller) == {BETA[first]}
    # What stays expired takes no room, and what holds the slot may last as long as it likes.
    await service.update(old.id, UpdateRequest(now=later, tags=("old",)), caller)
    await service.update(new.id, UpdateRequest(now=later, **change), caller)
    await forget(service, caller, new)
    await service.update(old.id, UpdateRequest(now=later, **change), caller)
    assert await active(service, caller) == {first}


@pytest.fixture
def in_parts(monkeypatch):
    """Undo takes runs back in parts of three events."""
    monkeypatch.setattr("hindsight_core.undoing.AT_ONCE", 3)
    monkeypatch.setattr("hindsight_core.undoing._PAGE", 3)


async def undo(service, caller, run):
    return await service.undo(run.run_id, UndoRequest(now=NOW + timedelta(days=3)), caller)


@pytest.mark.usefixtures("in_parts")
async def test_an_undo_in_parts_leaves_no_slot_empty(service, caller):
    newer = []
    for n, (old, new) in enumerate([*BETA.items()] * 2):
        first = await write(service, caller, old, key=f"k{n}")
        newer.append(await write(service, caller, new, 1, key=f"k{n}", supersedes=(first.id,)))
    before = await states(service, caller)
    ids = tuple(memory.id for memory in newer)
    run = await service.forget(ForgetRequest(ids=ids, bring_back=True, now=NOW + timedelta(hours=1)), caller)
    assert run.count == 8
    assert (await undo(service, caller, run)).kept == ()
    assert await states(service, caller) == before


@pytest.mark.usefixtures("in_parts")
async def test_a_run_that_archived_many_of_one_slot_is_undone_whole_in_parts(service, caller):
    for n in range(7):
        await write(service, caller, f"The wifi number {n} is {n}{n}{n}", reconcile="none")
    before = await states(service, caller)
    request = ForgetRequest(filters=Filters(key="wifi"), now=NOW + timedelta(hours=1))
    run = await service.forget(request, caller)
    assert (await undo(service, caller, run)).kept == ()
    assert await states(service, caller) == before


@pytest.mark.parametrize("first", ALPHA)
async def test_what_stood_in_one_slot_before_a_run_stands_there_after_its_undo(service, caller, first):
    logged = [await write(service, caller, text, reconcile="none") for text in (first, BETA[first])]
    before = await states(service, caller)
    run = await forget(service, caller, logged[0])
    await service.update(logged[1].id, UpdateRequest(tags=("seen",), now=NOW + timedelta(hours=2)), caller)
    assert (await undo(service, caller, run)).kept == ()
    assert await states(service, caller) == before


@pytest.mark.parametrize("first", ALPHA)
async def test_undoing_a_sweep_brings_back_what_had_expired_beside_what_holds_its_slot(service, caller, first):
    old = await write(service, caller, first, ttl="1d")
    await write(service, caller, BETA[first], 2 * 24 * 60)
    before = await states(service, caller)
    run = await service.sweep(SweepRequest(policies=("expire",), now=NOW + timedelta(days=3)), caller)
    assert [one.id for one in run.affected] == [old.id]
    assert (await undo(service, caller, run)).kept == ()
    assert await states(service, caller) == before


async def test_what_a_memory_that_stays_had_replaced_stays_replaced_in_another_part(service, caller, monkeypatch):
    monkeypatch.setattr("hindsight_core.undoing.AT_ONCE", 1)
    monkeypatch.setattr("hindsight_core.undoing._PAGE", 1)
    old = await write(service, caller, "The wifi is called Alpha", key=None)
    new = await write(service, caller, "The wifi is called Beta", 1, key=None, supersedes=(old.id,))
    (event,) = (await service.history(new.id, Request(), caller)).events
    await service.update(new.id, UpdateRequest(tags=("seen",), now=NOW + timedelta(hours=2)), caller)
    undone = await service.undo(event.run_id, UndoRequest(now=NOW + timedelta(days=3)), caller)
    assert set(undone.kept) == {old.id, new.id}
    assert await active(service, caller) == {"The wifi is called Beta"}


class Busy(SqliteStore):
    """A store in which somebody else writes whenever a slot was looked at for the twelfth time."""

    looks = 0

    async def scan(self, namespace, where, **options):
        if where.key is not None:
            self.looks += 1
            if self.looks % 12 == 0:
                await self.commit(namespace, puts(record(memory(f"w{self.looks}")), run_id=f"w{self.looks}"))
        return await super().scan(namespace, where, **options)


async def test_many_memories_with_keys_are_undone_while_others_write(tmp_path, embedder, settings, caller):
    store = Busy(tmp_path / "hindsight.db")
    await store.prepare(None)
    service = MemoryService(store, embedder, settings)
    expire = {"expires_at": NOW + timedelta(days=9), "user_id": "ann"}
    many = [record(memory(f"m{n:02}", key=f"k{n}", **expire)) for n in range(40)]
    await store.commit(NAMESPACE, puts(*many, run_id="fill"))
    here = msgspec.structs.replace(caller, namespace=NAMESPACE)
    run = await service.forget(ForgetRequest(all=True, user_id="ann", now=NOW), here)
    undone = await service.undo(run.run_id, UndoRequest(now=NOW + timedelta(days=1)), here)
    assert (undone.count, undone.kept) == (40, ())
    (kept,) = await store.read(NAMESPACE, "runs", ids=[undone.run_id])
    assert kept.count == 40
    (taken,) = await store.read(NAMESPACE, "runs", ids=[run.run_id])
    assert taken.undone_by == undone.run_id
    await store.aclose()
