"""Forgetting in its four modes, restoring, undoing; updating and settling by hand; export and import."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from hindsight_core.answers import tells_when
from hindsight_core.errors import Conflict, InvalidInput, NotFound
from hindsight_core.ledger import open_ledger
from hindsight_core.models import Contest
from hindsight_core.requests import (
    ExportRequest,
    Filters,
    ForgetRequest,
    ListRequest,
    PageRequest,
    Request,
    ResolveRequest,
    RestoreRequest,
    SearchRequest,
    UndoRequest,
    UpdateRequest,
    WriteRequest,
)

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(days=1)


async def keep(service, caller, content, **fields):
    request = WriteRequest(content=content, **{"now": NOW, "force": True, "reconcile": "none"} | fields)
    (decision,) = (await service.write(request, caller)).results
    return decision.memory


async def contents(service, caller, **fields):
    page = await service.list_memories(ListRequest(now=NOW, limit=1000, **fields), caller)
    return sorted(memory.content for memory in page.memories)


async def found(service, caller, query):
    answer = await service.search(SearchRequest(query=query, now=NOW), caller)
    return [hit.memory.id for hit in answer.hits]


@pytest.mark.parametrize(
    "request_",
    [
        ForgetRequest(),
        ForgetRequest(ids=()),
        ForgetRequest(filters=Filters()),
        ForgetRequest(filters=Filters(ids=())),
        ForgetRequest(all=True, query="x"),
    ],
)
async def test_an_empty_selection_never_means_everything(service, caller, request_):
    await keep(service, caller, "The lamp is on")
    with pytest.raises(InvalidInput):
        await service.forget(request_, caller)
    assert await contents(service, caller) == ["The lamp is on"]


@pytest.mark.parametrize(
    ("mode", "status"), [("archive", "archived"), ("suppress", "suppressed"), ("retract", "retracted")]
)
async def test_a_forgotten_memory_is_found_by_no_search_and_can_be_restored(service, caller, mode, status):
    memory = await keep(service, caller, "The lamp is on")
    answer = await service.forget(ForgetRequest(ids=(memory.id,), mode=mode, reason="asked"), caller)
    assert [(a.before, a.after) for a in answer.affected] == [("active", status)]
    assert await found(service, caller, "lamp") == []
    assert await found(service, caller, "did the lamp use to be on before?") == []
    await service.restore(memory.id, RestoreRequest(), caller)
    assert await found(service, caller, "lamp") == [memory.id]


async def test_a_dry_run_lists_exactly_what_the_run_touches_and_touches_nothing(service, caller):
    for i in range(5):
        await keep(service, caller, f"The lamp {i} is on", tags=("lamp",))
    await keep(service, caller, "The sofa is green")
    request = ForgetRequest(filters=Filters(tags_any=("lamp",)), dry_run=True)
    dry = await service.forget(request, caller)
    assert len(await contents(service, caller)) == 6
    real = await service.forget(msgspec.structs.replace(request, dry_run=False), caller)
    assert real.affected == dry.affected
    assert await contents(service, caller) == ["The sofa is green"]


async def test_forgetting_all_of_one_user_reaches_past_any_page_and_no_further(service, caller):
    lines = [
        f'{{"content": "The lamp {i} is on", "user_id": "alice", "force": true, "reconcile": "none"}}'
        for i in range(120)
    ]
    await service.write_batch([msgspec.Raw(line.encode()) for line in lines], caller)
    await keep(service, caller, "The sofa is green", user_id="bob")
    await keep(service, caller, "The door is shut")
    answer = await service.forget(ForgetRequest(all=True, user_id="alice"), caller)
    assert answer.count == 120
    assert await contents(service, caller) == ["The door is shut", "The sofa is green"]


async def test_forgetting_by_query_takes_what_matches_and_leaves_the_rest(service, caller):
    lamp = await keep(service, caller, "My phone number is 555-0101")
    sofa = await keep(service, caller, "The sofa is green")
    answer = await service.forget(ForgetRequest(query="my phone number", min_score=0.6, now=NOW), caller)
    assert [a.id for a in answer.affected] == [lamp.id]
    assert (await service.get(sofa.id, Request(), caller)).status == "active"


async def test_undoing_a_forget_run_brings_back_exactly_what_it_took(service, caller):
    for i in range(3):
        await keep(service, caller, f"The lamp {i} is on")
    before = await contents(service, caller)
    run = await service.forget(ForgetRequest(all=True), caller)
    assert await contents(service, caller) == []
    undone = await service.undo(run.run_id, UndoRequest(), caller)
    assert undone.count == 3
    assert await contents(service, caller) == before
    with pytest.raises(Conflict):
        await service.undo(run.run_id, UndoRequest(), caller)


async def test_undo_leaves_what_changed_since(service, caller):
    memory = await keep(service, caller, "The lamp is on")
    run = await service.forget(ForgetRequest(ids=(memory.id,)), caller)
    await service.update(memory.id, UpdateRequest(tags=("kept",)), caller)
    undone = await service.undo(run.run_id, UndoRequest(), caller)
    assert undone.kept == (memory.id,)
    assert (await service.get(memory.id, Request(), caller)).status == "archived"


async def test_an_erased_memory_is_gone_everywhere_and_cannot_be_undone(service, caller):
    memory = await keep(service, caller, "The zanzibar lamp is on")
    await found(service, caller, "zanzibar")
    tells_when(memory.content)
    run = await service.forget(ForgetRequest(ids=(memory.id,), mode="erase"), caller)
    assert tells_when.cache_info().currsize == 0  # type: ignore[attr-defined]
    with pytest.raises(NotFound):
        await service.get(memory.id, Request(), caller)
    history = await service.history(memory.id, Request(), caller)
    assert [event.action for event in history.events] == ["added", "erased"]
    # Whose it was is gone with it, so within one user or agent nothing is told.
    for narrow in (Request(user_id="ana"), Request(agent_id="planner")):
        with pytest.raises(NotFound):
            await service.history(memory.id, narrow, caller)
    exported = b"".join([line async for line in service.export(ListRequest(), caller)])
    retrievals = await service.retrievals(PageRequest(), caller)
    events = await service.events(PageRequest(), caller)
    for text in (msgspec.json.encode(history), exported, msgspec.json.encode(retrievals), msgspec.json.encode(events)):
        assert b"lamp" not in text
    assert await found(service, caller, "zanzibar") == []
    with pytest.raises(Conflict):
        await service.undo(run.run_id, UndoRequest(), caller)


async def test_what_a_forgotten_memory_had_replaced_comes_back_only_on_request(service, caller):
    for bring_back, status in ((False, "superseded"), (True, "active")):
        old = await keep(service, caller, f"The demo runs on blue {bring_back}")
        new = await keep(service, caller, f"The demo runs on green {bring_back}", supersedes=(old.id,))
        await service.forget(ForgetRequest(ids=(new.id,), bring_back=bring_back), caller)
        assert (await service.get(old.id, Request(), caller)).status == status


@pytest.mark.parametrize(
    ("text", "again"),
    [("My ex is called Robin", "my ex is called Robin"), ("我的前任叫罗宾", "我的前任叫罗宾。")],
)
async def test_suppress_blocks_learning_the_same_again_and_archive_does_not(service, caller, text, again):
    memory = await keep(service, caller, text)
    await service.forget(ForgetRequest(ids=(memory.id,), mode="suppress"), caller)
    (decision,) = (await service.write(WriteRequest(content=again, now=LATER), caller)).results
    assert decision.decision == "refuse"
    await service.restore(memory.id, RestoreRequest(), caller)
    await service.forget(ForgetRequest(ids=(memory.id,), mode="archive"), caller)
    (decision,) = (await service.write(WriteRequest(content=again, now=LATER), caller)).results
    assert decision.decision == "add"


async def test_update_keeps_what_it_does_not_name(service, caller):
    memory = await keep(service, caller, "The lamp is on", tags=("a",), metadata={"room": 7}, key="lamp.state")
    answer = await service.update(memory.id, UpdateRequest(content="The lamp is off", reason="seen", now=LATER), caller)
    after = answer.memory
    assert (after.content, after.tags, after.metadata, after.key) == (
        "The lamp is off",
        ("a",),
        {"room": 7},
        "lamp.state",
    )
    assert (after.version, answer.previous_version) == (2, 1)
    assert (after.created_at, after.updated_at) == (memory.created_at, LATER)
    history = await service.history(memory.id, Request(), caller)
    assert history.events[-1].before.content == "The lamp is on"
    assert history.events[-1].reason == "seen"


async def test_a_changed_text_is_found_by_its_new_meaning(service, caller):
    memory = await keep(service, caller, "The lamp is on")
    await keep(service, caller, "The door is shut")
    await service.update(memory.id, UpdateRequest(content="Our cat is called Biscuit"), caller)
    assert (await found(service, caller, "What is the cat's name?"))[0] == memory.id


async def test_a_stale_version_changes_nothing(service, caller):
    memory = await keep(service, caller, "The lamp is on")
    await service.update(memory.id, UpdateRequest(pinned=True, version=1), caller)
    with pytest.raises(Conflict):
        await service.update(memory.id, UpdateRequest(content="no", version=1), caller)
    assert (await service.get(memory.id, Request(), caller)).content == "The lamp is on"


async def test_updates_that_name_no_version_all_happen(service, caller):
    memory = await keep(service, caller, "The lamp is on")
    changes = [UpdateRequest(confidence=i / 10, now=LATER) for i in range(8)]
    answers = await asyncio.gather(*(service.update(memory.id, change, caller) for change in changes))
    assert sorted(answer.memory.version for answer in answers) == list(range(2, 10))


async def test_null_removes_what_may_be_absent(service, caller):
    memory = await keep(service, caller, "The lamp is on", ttl="1d", key="lamp.state")
    after = (await service.update(memory.id, UpdateRequest(expires_at=None, key=None), caller)).memory
    assert (after.expires_at, after.key) == (None, None)


async def contested(service, store, caller):
    """A pair as a write leaves it when it is not sure."""
    old = await keep(service, caller, "The demo runs on blue")
    new = await keep(service, caller, "Green runs the demo these days")
    (record,) = await store.get("default", [old.id])
    ledger = open_ledger("write", "default", NOW, caller)
    ledger.change(record, "contested", "perhaps", contested_by=(Contest(id=new.id, probability=0.6, reason="perhaps"),))
    await store.commit("default", ledger.changes())
    return old, new


async def test_a_contested_memory_is_marked_and_ranks_below_its_challenger(service, store, caller):
    old, new = await contested(service, store, caller)
    answer = await service.search(SearchRequest(query="The demo runs on blue", now=NOW), caller)
    assert [(hit.memory.id, hit.marked, hit.newer) for hit in answer.hits] == [
        (new.id, None, None),
        (old.id, "contested", new.id),
    ]
    await service.forget(ForgetRequest(ids=(new.id,)), caller)
    answer = await service.search(SearchRequest(query="The demo runs on blue", now=NOW), caller)
    assert [(hit.memory.id, hit.marked) for hit in answer.hits] == [(old.id, None)]


@pytest.mark.parametrize(
    ("decision", "old_status", "new_status"),
    [
        ("supersede", "superseded", "active"),
        ("refine", "superseded", "active"),
        ("coexist", "active", "active"),
        ("duplicate", "active", "archived"),
        ("retract", "active", "retracted"),
    ],
)
async def test_a_contested_pair_is_settled_in_one_call(service, store, caller, decision, old_status, new_status):
    old, new = await contested(service, store, caller)
    request = ResolveRequest(other=old.id, decision=decision, reason="asked")
    answer = await service.resolve(new.id, request, caller)
    assert (answer.other.status, answer.memory.status) == (old_status, new_status)
    assert answer.other.contested_by == ()
    await service.undo(answer.run_id, UndoRequest(), caller)
    assert (await service.get(old.id, Request(), caller)).contested_by[0].id == new.id
    await service.resolve(new.id, request, caller)
    with pytest.raises(Conflict):
        await service.resolve(new.id, request, caller)


async def test_an_export_comes_back_whole_in_another_namespace(service, caller):
    old = await keep(service, caller, "The demo runs on blue", tags=("a",), metadata={"n": [1, "x", True], "z": None})
    await keep(service, caller, "The demo runs on green", supersedes=(old.id,))
    door = await keep(service, caller, "The door is shut")
    await service.forget(ForgetRequest(ids=(door.id,)), caller)
    lines = [line async for line in service.export(ListRequest(), caller)]
    report = await service.import_lines(lines, Request(namespace="copy"), caller)
    assert (report.stored, report.existing, report.problems) == (len(lines) - 1, 0, ())
    again = await service.import_lines(lines, Request(namespace="copy"), caller)
    assert (again.stored, again.existing) == (0, len(lines) - 1)
    copied = [line async for line in service.export(ListRequest(namespace="copy"), caller)]
    for line, copy in zip(lines[1:], copied[1:], strict=True):
        original, twin = (msgspec.json.decode(found)["memory"] for found in (line, copy))
        assert original | {"namespace": "copy"} == twin


async def test_an_export_brings_along_what_was_erased_so_that_no_older_one_brings_it_back(service, caller):
    lamp, door = await keep(service, caller, "The lamp is on"), await keep(service, caller, "The door is shut")
    before = [line async for line in service.export(ExportRequest(history=True), caller)]
    await service.forget(ForgetRequest(ids=(lamp.id,), mode="erase"), caller)
    lines = [line async for line in service.export(ExportRequest(history=True), caller)]
    assert b"The lamp is on" not in b"".join(lines)
    assert msgspec.json.decode(lines[-1])["end"]["erased"] == 1
    for _ in range(2):
        report = await service.import_lines(lines, Request(namespace="copy"), caller)
        assert report.problems == ()
    assert (report.existing, report.erased) == (1, 0)
    older = await service.import_lines(before, Request(namespace="copy"), caller)
    assert [fault.problem.code for fault in older.problems] == ["invalid_input"]
    assert "was erased here" in older.problems[0].problem.detail
    assert await contents(service, caller, namespace="copy") == ["The door is shut"]
    # What stands in the copy all the same is left alone.
    kept = await service.import_lines([msgspec.json.encode({"erased": [door.id]})], Request(namespace="copy"), caller)
    assert (kept.erased, await contents(service, caller, namespace="copy")) == (0, ["The door is shut"])


async def test_who_is_no_admin_neither_sees_nor_brings_along_what_was_erased(service, caller):
    lamp = await keep(service, caller, "The lamp is on")
    await service.forget(ForgetRequest(ids=(lamp.id,), mode="erase"), caller)
    plain = msgspec.structs.replace(caller, admin=False)
    lines = [line async for line in service.export(ExportRequest(history=True), plain)]
    assert not any(b"erased" in line for line in lines[:-1])
    assert msgspec.json.decode(lines[-1])["end"].get("erased", 0) == 0
    told = await service.import_lines([b'{"erased": ["x"]}'], Request(namespace="copy"), plain)
    assert (told.erased, told.note != "") == (0, True)
    wrong = await service.import_lines([b'{"erased": ["a b"]}', b'{"erased": 3}'], Request(namespace="copy"), caller)
    assert [fault.line for fault in wrong.problems] == [1, 2]


async def test_pages_continue_where_they_stopped_while_others_write(service, caller):
    for i in range(7):
        await keep(service, caller, f"The lamp {i} is on")
    seen, cursor = [], None
    while True:
        page = await service.list_memories(ListRequest(limit=3, cursor=cursor), caller)
        seen += [memory.content for memory in page.memories]
        if page.cursor is None:
            break
        if cursor is None:
            await keep(service, caller, "The door is shut", now=LATER)
        cursor = page.cursor
    assert seen[:7] == [f"The lamp {i} is on" for i in range(7)]
    assert len(seen) == len(set(seen)) == 8


async def test_what_is_not_in_the_scope_does_not_exist(service, caller):
    memory = await keep(service, caller, "The lamp is on", user_id="alice")
    for call in (
        lambda: service.get(memory.id, Request(user_id="bob"), caller),
        lambda: service.get(memory.id, Request(namespace="other"), caller),
        lambda: service.update(memory.id, UpdateRequest(user_id="bob", pinned=True), caller),
        lambda: service.restore(memory.id, RestoreRequest(user_id="bob"), caller),
        lambda: service.history(memory.id, Request(user_id="bob"), caller),
    ):
        with pytest.raises(NotFound):
            await call()
    assert (await service.forget(ForgetRequest(all=True, user_id="bob"), caller)).count == 0
