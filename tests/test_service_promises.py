"""Promises that are easily broken: scopes, secrets, erasure and undo where operations meet."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from hindsight_core.errors import Conflict, InvalidInput, NotFound
from hindsight_core.ledger import open_ledger
from hindsight_core.models import Contest
from hindsight_core.requests import (
    ExportRequest,
    Filters,
    ForgetRequest,
    ListRequest,
    Message,
    PageRequest,
    Request,
    ResolveRequest,
    SearchRequest,
    UndoRequest,
    UpdateRequest,
    WriteRequest,
)

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)


async def keep(service, caller, content, **fields):
    request = WriteRequest(content=content, **{"now": NOW, "force": True, "reconcile": "none"} | fields)
    (decision,) = (await service.write(request, caller)).results
    return decision.memory


async def status(service, caller, memory):
    return (await service.get(memory.id, Request(), caller)).status


@pytest.mark.parametrize("name", ["kind", "memory_type", "status", "source", "tags_any"])
async def test_a_filter_with_an_empty_list_never_forgets_everything(service, caller, name):
    memory = await keep(service, caller, "The lamp is on")
    with pytest.raises(InvalidInput):
        await service.forget(ForgetRequest(filters=Filters(**{name: ()}), mode="erase"), caller)
    assert await status(service, caller, memory) == "active"


async def test_a_secret_is_not_kept_as_the_turn_before_something_else(service, caller):
    messages = (
        Message(role="user", text="My password is hunter2Xy9!"),
        Message(role="user", text="I live in Leeds with my sister"),
    )
    for extract in ("auto", "none"):
        await service.write(WriteRequest(messages=messages, extract=extract, now=NOW, force=True), caller)
    exported = b"".join([line async for line in service.export(ListRequest(), caller)])
    assert b"Leeds" in exported
    assert b"hunter2" not in exported


@pytest.mark.parametrize(
    "fields", [{"metadata": {"note": "password: hunter2Xy9!"}}, {"tags": ("password: hunter2Xy9!",)}]
)
async def test_a_secret_in_a_label_is_refused(service, caller, fields):
    with pytest.raises(InvalidInput):
        await service.write(WriteRequest(content="I live in Leeds", now=NOW, **fields), caller)


async def test_erasing_leaves_its_text_in_no_other_memory_and_no_event(service, caller):
    messages = (
        Message(role="user", text="The zanzibar clinic called me on Monday"),
        Message(role="user", text="They want to see me again"),
    )
    request = WriteRequest(messages=messages, extract="none", reconcile="none", force=True, now=NOW)
    first, second = (await service.write(request, caller)).results
    assert second.memory.context
    await service.forget(ForgetRequest(ids=(first.memory_id,), mode="erase"), caller)
    after = await service.get(second.memory_id, Request(), caller)
    assert after.context is None
    events = await service.events(PageRequest(), caller)
    exported = b"".join([line async for line in service.export(ListRequest(), caller)])
    assert b"zanzibar" not in msgspec.json.encode(events) + exported


async def test_what_replaces_an_erased_memory_does_not_quote_it(service, caller):
    old = await keep(service, caller, "My shipping address is 12 Zanzibar Street, Leeds", user_id="u")
    await service.write(
        WriteRequest(
            content="I moved, my new shipping address is 7 Oak Road, York", user_id="u", now=NOW + timedelta(1)
        ),
        caller,
    )
    await service.forget(ForgetRequest(ids=(old.id,), mode="erase"), caller)
    events = await service.events(PageRequest(), caller)
    exported = b"".join([line async for line in service.export(ListRequest(), caller)])
    assert b"Zanzibar" not in msgspec.json.encode(events) + exported


async def test_a_note_never_shows_another_agents_private_memory(service, store, caller):
    old = await keep(service, caller, "I work at Acme")
    new = await keep(service, caller, "I work at Globex", agent_id="a", visibility="private")
    (record,) = await store.get("default", [old.id])
    ledger = open_ledger("write", "default", NOW, caller)
    ledger.change(record, "contested", "perhaps", contested_by=(Contest(id=new.id, probability=0.6),))
    await store.commit("default", ledger.changes())
    seen = await service.search(SearchRequest(query="Where do I work?", agent_id="b", now=NOW), caller)
    assert b"Globex" not in msgspec.json.encode(seen)
    own = await service.search(SearchRequest(query="Where do I work?", agent_id="a", now=NOW), caller)
    assert [hit.memory.id for hit in own.hits] == [new.id, old.id]


async def test_a_private_memory_replaces_nothing_that_others_see(service, caller):
    shared = await keep(service, caller, "Deploys go out on Tuesday", key="team.day")
    request = WriteRequest(
        content="Deploys go out on Friday", key="team.day", agent_id="a", visibility="private", now=NOW + timedelta(1)
    )
    await service.write(request, caller)
    assert await status(service, caller, shared) == "active"


async def test_events_runs_and_retrievals_stay_within_their_user(service, caller):
    answer = await service.write(
        WriteRequest(content="I am allergic to peanuts", user_id="alice", force=True, now=NOW), caller
    )
    found = await service.search(SearchRequest(query="peanuts", user_id="alice", now=NOW), caller)
    assert (await service.events(PageRequest(user_id="bob"), caller)).events == ()
    assert (await service.retrievals(PageRequest(user_id="bob"), caller)).retrievals == ()
    with pytest.raises(NotFound):
        await service.run(answer.run_id, Request(user_id="bob"), caller)
    with pytest.raises(NotFound):
        await service.undo(answer.run_id, UndoRequest(user_id="bob"), caller)
    with pytest.raises(NotFound):
        await service.retrieval(found.retrieval_id, Request(user_id="bob"), caller)
    assert (await service.events(PageRequest(user_id="alice"), caller)).events
    assert (await service.undo(answer.run_id, UndoRequest(user_id="alice"), caller)).count == 1


async def test_what_is_suppressed_is_not_learned_again_from_a_transcript(service, caller):
    memory = await keep(service, caller, "I was fired from Acme", ttl="1h")
    await service.forget(ForgetRequest(ids=(memory.id,), mode="suppress"), caller)
    request = WriteRequest(content="I was fired from Acme", reconcile="none", force=True, now=NOW + timedelta(days=2))
    (decision,) = (await service.write(request, caller)).results
    assert decision.decision == "refuse"


async def test_no_search_finds_what_is_suppressed(service, caller):
    with pytest.raises(InvalidInput) as caught:
        await service.search(SearchRequest(query="x", filters=Filters(status="suppressed")), caller)
    assert caught.value.errors[0].field == "filters.status"


@pytest.mark.parametrize("year", [1, 9999])
async def test_the_ends_of_time_are_refused_not_a_crash(service, caller, year):
    now = datetime(year, 1, 1, tzinfo=UTC)
    for call in (
        service.write(WriteRequest(content="x", ttl="30d", now=now), caller),
        service.search(SearchRequest(query="x", now=now, timezone="America/Los_Angeles"), caller),
    ):
        with pytest.raises(InvalidInput) as caught:
            await call
        assert caught.value.errors[0].field == "now"


async def test_undoing_a_change_in_the_middle_leaves_one_that_holds(service, caller):
    runs, memories = [], []
    for i, day in enumerate(("Monday", "Tuesday", "Friday")):
        request = WriteRequest(
            content=f"Deploys go out on {day}",
            supersedes=(memories[-1],) if memories else (),
            force=True,
            now=NOW + timedelta(days=i),
        )
        answer = await service.write(request, caller)
        runs.append(answer.run_id)
        memories.append(answer.results[0].memory_id)
    await service.undo(runs[1], UndoRequest(), caller)
    listed = await service.list_memories(ListRequest(now=NOW + timedelta(days=9)), caller)
    assert [memory.content for memory in listed.memories] == ["Deploys go out on Friday"]


async def test_bringing_back_needs_something_that_held(service, caller):
    first = await keep(service, caller, "Deploys go out on Monday")
    second = await keep(service, caller, "Deploys go out on Tuesday", supersedes=(first.id,))
    await keep(service, caller, "Deploys go out on Friday", supersedes=(second.id,))
    await service.forget(ForgetRequest(ids=(second.id,), bring_back=True), caller)
    assert await status(service, caller, first) == "superseded"


async def test_saying_it_again_keeps_what_was_asked_this_time(service, caller):
    request = WriteRequest(content="I am allergic to peanuts", ttl="1h", tags=("a",), now=NOW)
    await service.write(request, caller)
    again = WriteRequest(content="I am allergic to peanuts", pinned=True, tags=("b",), metadata={"n": 1}, now=NOW)
    (decision,) = (await service.write(again, caller)).results
    assert decision.decision == "duplicate"
    memory = decision.memory
    assert (memory.pinned, memory.tags, memory.metadata, memory.expires_at) == (True, ("a", "b"), {"n": 1}, None)


async def test_a_guess_that_names_what_it_replaces_only_waits(service, caller):
    old = await keep(service, caller, "He lives in Bergen")
    request = WriteRequest(content="Perhaps the user moved to Oslo", source="agent", supersedes=(old.id,), now=NOW)
    (decision,) = (await service.write(request, caller)).results
    if decision.memory is not None:
        assert decision.memory.status == "pending"
    assert await status(service, caller, old) == "active"


async def test_a_retry_after_an_erasure_is_answered(service, caller):
    messages = (Message(role="user", text="The lamp is on"), Message(role="user", text="The door is shut"))
    request = WriteRequest(
        messages=messages, extract="none", reconcile="none", force=True, idempotency_key="k", now=NOW
    )
    first, second = (await service.write(request, caller)).results
    await service.forget(ForgetRequest(ids=(first.memory_id,), mode="erase"), caller)
    again = (await service.write(request, caller)).results
    assert again[1].memory_id == second.memory_id
    assert (again[0].decision, again[0].memory_id) == ("refuse", None)
    assert "was erased" in again[0].reason
    assert (await service.stats(Request(), caller)).memories == 1


async def test_a_key_whose_memory_was_erased_stores_nothing_again_whatever_it_had_decided(service, caller):
    first = await keep(service, caller, "用户的生日是六月三日。")
    request = WriteRequest(content="用户的生日是六月三日。", force=True, idempotency_key="k", now=LATER)
    (again,) = (await service.write(request, caller)).results
    assert (again.decision, again.memory_id) == ("duplicate", first.id)
    await service.forget(ForgetRequest(ids=(first.id,), mode="erase"), caller)
    for _ in range(2):
        (refused,) = (await service.write(request, caller)).results
        assert (refused.decision, refused.memory_id) == ("refuse", None)
        assert "彻底删除" in refused.reason
    assert (await service.stats(Request(), caller)).memories == 0


async def test_an_import_does_not_bring_back_what_was_erased(service, caller):
    gone, kept = await keep(service, caller, "The lamp is on"), await keep(service, caller, "The door is shut")
    lines = [line async for line in service.export(ExportRequest(history=True), caller)]
    await service.forget(ForgetRequest(ids=(gone.id,), mode="erase"), caller)
    for data in (lines, lines[1:3], [line.replace(b"lamp", b"LAMP") for line in lines]):
        report = await service.import_lines(data, Request(), caller)
        assert (report.stored, report.existing) == (0, 1)
        (problem,) = report.problems
        assert problem.line == [b"lamp" in line.lower() for line in data].index(True) + 1
        assert "was erased here" in problem.problem.errors[0].message
    assert b"lamp" not in b"".join([line async for line in service.export(ExportRequest(history=True), caller)]).lower()
    # Elsewhere nothing was erased.
    assert (await service.import_lines(lines, Request(namespace="copy"), caller)).stored == 2
    del kept


async def test_histories_versions_and_runs_come_along_and_can_be_undone_elsewhere(service, caller):
    one = await keep(service, caller, "The demo runs on blue")
    await keep(service, caller, "The demo runs on green", supersedes=(one.id,))
    door = await keep(service, caller, "The door is shut")
    await service.update(door.id, UpdateRequest(tags=("a",), reason="sorted"), caller)
    run = (await service.forget(ForgetRequest(ids=(door.id,), reason="old"), caller)).run_id
    lines = [line async for line in service.export(ExportRequest(history=True), caller)]
    end = msgspec.json.decode(lines[-1])["end"]
    assert end == {"memories": 3, "events": 6, "runs": 5, "erased": 0}
    copy = Request(namespace="copy")
    report = await service.import_lines(lines, copy, caller)
    assert (report.stored, report.events, report.problems, report.note) == (3, 6, (), "")
    for memory_id in (one.id, door.id):
        before = (await service.history(memory_id, Request(), caller)).events
        after = (await service.history(memory_id, copy, caller)).events
        assert [(e.action, e.reason, e.at, e.actor) for e in after] == [
            *((e.action, e.reason, e.at, e.actor) for e in before),
            ("imported", "Imported as it was.", caller.now, caller.actor),
        ]
    again = await service.import_lines(lines, copy, caller)
    assert (again.stored, again.existing, again.events, again.problems) == (0, 3, 0, ())
    undone = await service.undo(run, UndoRequest(namespace="copy"), caller)
    assert (undone.count, undone.kept) == (1, ())
    assert (await service.get(door.id, copy, caller)).status == "active"
    # Who is no admin brings memories along, and no history of things that may never have been.
    report = await service.import_lines(lines, Request(namespace="third"), msgspec.structs.replace(caller, admin=False))
    assert (report.stored, report.events) == (3, 0)
    assert "verb admin" in report.note


async def test_a_long_history_takes_several_lines_and_comes_without_no_memory(service, caller):
    lamp = await keep(service, caller, "The lamp is on")
    for number in range(8):
        update = UpdateRequest(content=f"The lamp is on, {'and on ' * 1000}{number}", summary="The lamp is on")
        await service.update(lamp.id, update, caller)
    lines = [line async for line in service.export(ExportRequest(history=True), caller)]
    assert [line[:9] for line in lines[1:3]] == [b'{"memory"', b'{"events"']
    assert max(map(len, lines)) < 150_000
    report = await service.import_lines(lines[2:3], Request(namespace="copy"), caller)
    assert (report.stored, report.events, len(report.problems)) == (0, 0, 1)
    report = await service.import_lines(lines, Request(namespace="copy"), caller)
    assert (report.stored, report.events) == (1, 9)


async def test_an_export_for_others_than_admins_leaves_out_what_must_not_be_mentioned(service, caller):
    secret, door = await keep(service, caller, "My ex is called Robin"), await keep(service, caller, "The door is shut")
    await service.forget(ForgetRequest(ids=(secret.id,), mode="suppress"), caller)
    agent = msgspec.structs.replace(caller, admin=False)
    for filters in (Filters(), Filters(status="suppressed"), Filters(status=("active", "suppressed"))):
        lines = [line async for line in service.export(ExportRequest(history=True, filters=filters), agent)]
        assert b"Robin" not in b"".join(lines)
        assert (door.id.encode() in b"".join(lines)) == (filters.status != "suppressed")
    assert b"Robin" in b"".join([line async for line in service.export(ListRequest(), caller)])


async def test_settling_revives_nothing_that_was_forgotten(service, store, caller):
    old = await keep(service, caller, "I work at Acme")
    new = await keep(service, caller, "I work at Globex")
    (record,) = await store.get("default", [old.id])
    ledger = open_ledger("write", "default", NOW, caller)
    ledger.change(record, "contested", "perhaps", contested_by=(Contest(id=new.id, probability=0.6),))
    await store.commit("default", ledger.changes())
    await service.forget(ForgetRequest(ids=(new.id,), mode="suppress"), caller)
    with pytest.raises(Conflict):
        await service.resolve(new.id, ResolveRequest(other=old.id, decision="coexist"), caller)


async def test_a_challenger_comes_along_with_what_it_contests(service, store, caller):
    old = await keep(service, caller, "The demo runs on blue")
    new = await keep(service, caller, "Green is what we show to visitors these days")
    (record,) = await store.get("default", [old.id])
    ledger = open_ledger("write", "default", NOW, caller)
    ledger.change(record, "contested", "perhaps", contested_by=(Contest(id=new.id, probability=0.6),))
    await store.commit("default", ledger.changes())
    found = await service.search(SearchRequest(query="The demo runs on blue", top_k=1, now=NOW), caller)
    assert [hit.memory.id for hit in found.hits] == [new.id]


async def test_imports_of_the_same_memories_at_once_all_succeed(service, caller):
    for content in ("The lamp is on", "The door is shut"):
        await keep(service, caller, content)
    lines = [line async for line in service.export(ListRequest(), caller)]
    copy = Request(namespace="copy")
    reports = await asyncio.gather(*(service.import_lines(lines, copy, caller) for _ in range(4)))
    assert sorted(report.stored for report in reports) == [0, 0, 0, 2]
    assert all(report.stored + report.existing == 2 for report in reports)


async def test_an_imported_guess_is_no_surer_than_a_written_one(service, caller):
    memory = msgspec.to_builtins(await keep(service, caller, "Perhaps Ana likes tea"))
    line = msgspec.json.encode({"memory": memory | {"kind": "speculation", "confidence": 0.9}})
    await service.import_lines([line], Request(namespace="copy"), caller)
    assert (await service.get(memory["id"], Request(namespace="copy"), caller)).confidence == 0.5


async def test_an_import_is_held_to_the_limits_of_a_write(service, caller):
    memory = await keep(service, caller, "The lamp is on")
    line = msgspec.to_builtins(memory)
    faults = [
        {"id": "x" * 65},
        {"valid_to": "2020-01-01T00:00:00Z"},
        {"memory_type": "working"},
        {"metadata": {"x": "y" * 20_000}},
        {"context": "my password is hunter2Xy9!"},
        {"status_reason": "my password is hunter2Xy9!"},
        {"visibility": "private"},
        {"access_count": -1},
        {"tags": ["x"] * 65},
        {"content": " "},
    ]
    lines = [msgspec.json.encode({"memory": line | {"id": f"new-{i}"} | fault}) for i, fault in enumerate(faults)]
    report = await service.import_lines(lines, Request(namespace="copy"), caller)
    assert (report.stored, len(report.problems)) == (0, len(faults))
    named = [problem.problem.errors[0].field for problem in report.problems]
    assert named == [
        "memory.id",
        "memory.valid_to",
        "memory.task_id",
        "memory.metadata",
        "memory.context",
        "memory.status_reason",
        "memory.agent_id",
        "memory.access_count",
        "memory.tags",
        "memory.content",
    ]
    with pytest.raises(InvalidInput):
        await service.import_lines(lines, Request(namespace="copy", user_id="ana"), caller)


async def test_a_long_run_counts_all_it_changed(service, caller):
    lines = [
        f'{{"content": "The lamp is on", "force": true, "reconcile": "none", "user_id": "u{i}"}}' for i in range(500)
    ]
    await service.write_batch([msgspec.Raw(line.encode()) for line in lines], caller)
    await service.write_batch([msgspec.Raw(line.encode()) for line in lines[:20]], caller)
    answer = await service.forget(ForgetRequest(all=True), caller)
    assert answer.count == 520
    page = await service.runs(PageRequest(limit=1000), caller)
    assert {run.run_id: run.count for run in page.runs}[answer.run_id] == 520


async def test_an_expired_memory_is_not_listed_as_active(service, caller):
    await keep(service, caller, "The lamp is on", ttl="1h")
    request = ListRequest(filters=Filters(status="active"), now=NOW + timedelta(days=1))
    assert (await service.list_memories(request, caller)).memories == ()


async def test_a_change_of_text_can_be_undone(service, caller):
    memory = await keep(service, caller, "The lamp is on")
    await service.update(memory.id, UpdateRequest(content="The door is shut"), caller)
    run = (await service.history(memory.id, Request(), caller)).events[-1].run_id
    await service.undo(run, UndoRequest(), caller)
    found = await service.search(SearchRequest(query="Is the lamp on?", now=NOW), caller)
    assert found.hits[0].memory.content == "The lamp is on"
    assert found.hits[0].parts.similarity > 0.5
