"""Orders to forget inside messages: obeyed, told, kept nowhere, and lasting until somebody restores."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from hindsight_core.errors import NotFound, OutcomeUnknown, StoreUnavailable
from hindsight_core.requests import (
    ContextRequest,
    ForgetRequest,
    ListRequest,
    Message,
    Request,
    SearchRequest,
    UndoRequest,
    WriteRequest,
)
from hindsight_core.service import MemoryService
from hindsight_core.stores.sqlite import SqliteStore

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
STORED = {
    "en": ("My ex is called Robin.", "My cat is called Biscuit and loves tuna."),
    "zh": ("我前任叫罗宾。", "我家的猫叫饼干，爱吃金枪鱼。"),
}


async def keep(service, caller, *texts, **fields):
    ids = []
    for text in texts:
        request = WriteRequest(content=text, now=NOW, force=True, reconcile="none", **fields)
        ids.append((await service.write(request, caller)).results[0].memory_id)
    return ids


async def say(service, caller, *texts, **fields):
    messages = tuple(Message(role="user", text=text) for text in texts)
    return await service.write(WriteRequest(messages=messages, now=NOW + timedelta(hours=1), **fields), caller)


@pytest.mark.parametrize(
    ("language", "order", "again"),
    [
        ("en", "Please forget about my ex.", "My ex's name is Robin."),
        ("zh", "忘掉我前任吧。", "我的前任叫罗宾。"),
    ],
)
async def test_what_an_order_names_is_suppressed_and_never_comes_back_by_itself(
    service, caller, language, order, again
):
    ex, cat = await keep(service, caller, *STORED[language])
    (decision,) = (await say(service, caller, order)).results
    assert (decision.decision, decision.memory_id, decision.related) == ("skip", None, (ex,))
    assert "1" in decision.reason
    forgot = decision.evidence["forgot"]
    assert [one["id"] for one in forgot["suppressed"]] == [ex]
    assert [(await service.get(one, Request(), caller)).status for one in (ex, cat)] == ["suppressed", "active"]
    # Neither a search, nor a context block, nor a list shows it, and it is not learned again.
    for query in (STORED[language][0], order):
        hits = (await service.search(SearchRequest(query=query, now=NOW), caller)).hits
        assert ex not in [hit.memory.id for hit in hits]
        assert "Robin" not in (block := (await service.context(ContextRequest(query=query), caller)).text)
        assert "罗宾" not in block
    assert [one.id for one in (await service.list_memories(ListRequest(now=NOW), caller)).memories] == [cat]
    (learned,) = (await service.write(WriteRequest(content=again, now=NOW), caller)).results
    assert learned.decision == "refuse"
    await service.undo(forgot["run_id"], UndoRequest(), caller)
    assert (await service.get(ex, Request(), caller)).status == "active"


async def test_an_order_that_points_means_the_turn_before_also_when_it_was_said_only_now(service, caller):
    (cat,) = await keep(service, caller, STORED["zh"][1])
    answer = await say(service, caller, "我上个月住院做了手术。", "不要再提这件事了。")
    told = answer.results[-1]
    assert told.index == 1
    active = (await service.list_memories(ListRequest(now=NOW), caller)).memories
    assert [one.id for one in active] == [cat]
    exported = b"".join([line async for line in service.export(ListRequest(), caller)]).decode()
    assert "不要再提" not in exported


async def test_an_order_stays_with_its_user_and_is_no_context_of_what_follows(service, caller):
    (hers,) = await keep(service, caller, STORED["en"][0], user_id="ann")
    (his,) = await keep(service, caller, STORED["en"][0], user_id="bob")
    answer = await say(
        service, caller, "Please forget about my ex.", "I moved to Leeds with my brother in May.", user_id="ann"
    )
    assert answer.results[0].related == (hers,)
    assert (await service.get(his, Request(), caller)).status == "active"
    stored = [decision.memory for decision in answer.results if decision.memory is not None]
    assert stored
    assert b"my ex" not in msgspec.json.encode(stored)


async def test_an_order_that_means_nothing_stored_takes_nothing_and_says_so(service, caller):
    cat, *_ = await keep(service, caller, STORED["en"][1])
    (decision,) = (await say(service, caller, "Forget everything I told you about the merger.")).results
    assert (decision.decision, decision.related) == ("skip", ())
    assert "nothing" in decision.reason
    (decision,) = (await say(service, caller, "Never mention it again.")).results
    assert "nothing" in decision.reason
    assert (await service.get(cat, Request(), caller)).status == "active"


async def test_logs_are_stored_as_they_are(service, caller):
    (ex,) = await keep(service, caller, STORED["en"][0])
    await say(service, caller, "Please forget about my ex.", extract="none", reconcile="none")
    assert (await service.get(ex, Request(), caller)).status == "active"


async def test_the_orders_of_the_stories_take_what_they_mean_and_leave_the_rest(service, caller):
    """The half that was set aside before the rules were written; 21 in two languages name something there."""
    lines = (Path(__file__).parent / "data" / "forget_orders.jsonl").read_bytes().splitlines()
    stories = [msgspec.json.decode(line) for line in lines]
    right, wrong = 0, []
    for story in (story for story in stories if story["half"] == "aside"):
        ids = await keep(service, caller, *(one["text"] for one in story["memories"]), user_id=story["story"])
        for order in story["orders"]:
            turns = [*order.get("turns", ()), {"role": "user", "text": order["text"]}]
            messages = tuple(Message(**turn) for turn in turns)
            request = WriteRequest(messages=messages, now=NOW + timedelta(hours=1), user_id=story["story"])
            last = (await service.write(request, caller)).results[-1]
            taken = {ids.index(one) for one in last.related if one in ids} if "forgot" in last.evidence else set()
            meant = set(order["meant"])
            if meant <= taken <= meant | set(order.get("may", ())):
                right += 1
            else:
                wrong.append((order["text"], sorted(taken)))
            if "forgot" in last.evidence:
                await service.undo(last.evidence["forgot"]["run_id"], UndoRequest(), caller)
    assert right >= 41, wrong


async def test_what_replaced_a_thing_and_what_it_replaced_is_the_same_thing(service, caller):
    (old,) = await keep(service, caller, "I earn 40,000 a year.", key="user.salary")
    request = WriteRequest(content="I earn 44,000 a year.", now=NOW, key="user.salary", force=True)
    new = (await service.write(request, caller)).results[0].memory_id
    (decision,) = (await say(service, caller, "Please remove my salary from your memory.")).results
    assert set(decision.related) == {old, new}


async def test_a_reason_that_is_to_be_forgotten_is_what_gives_one(service, caller):
    reason, fact = await keep(
        service, caller, "The study is locked because my aunt went through my drawers.", "The bakery opens at seven."
    )
    (decision,) = (await say(service, caller, "Forget the reason for the lock, please.")).results
    assert decision.related == (reason,)
    assert (await service.get(fact, Request(), caller)).status == "active"


class FailsLater(SqliteStore):
    """A store that takes `commits` more changes and then is out of reach."""

    commits = 99

    async def commit(self, *arguments, **options):
        if not self.commits:
            raise StoreUnavailable("The store is away.")
        self.commits -= 1
        return await super().commit(*arguments, **options)


async def test_a_write_whose_order_could_not_be_obeyed_is_not_said_to_have_changed_nothing(
    tmp_path, embedder, settings, caller
):
    store = FailsLater(tmp_path / "hindsight.db")
    await store.prepare(None)
    service = MemoryService(store, embedder, settings)
    await keep(service, caller, *STORED["en"])
    store.commits = 1
    with pytest.raises(OutcomeUnknown):
        await say(service, caller, "I live in Lyon now.", "Please forget about my ex.")
    store.commits = 99
    listed = await service.list_memories(ListRequest(now=NOW), caller)
    assert any("Lyon" in memory.content for memory in listed.memories)
    await service.flush()
    await store.aclose()  # and not the service, whose embedder all tests share


class FailsAfterOne(SqliteStore):
    """A store that is out of reach for readers once it has taken a change by an eraser."""

    away = False

    async def commit(self, namespace, changes, **options):
        head = await super().commit(namespace, changes, **options)
        self.away = bool(changes.erases)
        return head

    async def scan(self, *arguments, **options):
        if self.away:
            raise StoreUnavailable("The store is away.")
        return await super().scan(*arguments, **options)


async def test_an_erasure_after_which_the_store_went_is_not_said_to_have_changed_nothing(
    tmp_path, embedder, settings, caller
):
    store = FailsAfterOne(tmp_path / "hindsight.db")
    await store.prepare(None)
    service = MemoryService(store, embedder, settings)
    (memory_id,) = await keep(service, caller, "The bakery opens at seven.")
    with pytest.raises(OutcomeUnknown):
        await service.forget(ForgetRequest(ids=(memory_id,), mode="erase"), caller)
    with pytest.raises(NotFound):
        await service.get(memory_id, Request(), caller)
    await store.aclose()
