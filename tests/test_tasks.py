"""Working memory: within its budget, what is worth least goes first, pinned stays, and the task's end promotes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from hindsight_core.errors import InvalidInput, NotFound, OutcomeUnknown, StoreUnavailable
from hindsight_core.requests import (
    EndTaskRequest,
    Filters,
    ListRequest,
    Message,
    Request,
    SearchRequest,
    TaskRequest,
)
from hindsight_core.service import MemoryService
from hindsight_core.stores.sqlite import SqliteStore
from serving import serving

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
WORTH = {
    "en": "From now on, show me temperatures in Celsius.",
    "zh": "我以后查天气都默认用摄氏度。",
}


async def say(service, caller, *texts, task="t", role="user", **fields):
    messages = tuple(Message(role=role, text=text) for text in texts)
    return await service.add_to_task(task, TaskRequest(messages=messages, now=NOW, **fields), caller)


async def held(service, caller, task="t", **fields):
    buffer = await service.task(task, Request(**fields), caller)
    return [one.content for one in buffer.messages]


async def test_a_buffer_keeps_what_was_said_in_order_and_no_search_finds_it(service, caller):
    answer = await say(service, caller, "The build is red.", "I am looking into it.", context_window=1000)
    assert (answer.messages, answer.budget, answer.dropped) == (2, 400, ())
    buffer = await service.task("t", Request(), caller)
    assert [one.content for one in buffer.messages] == ["The build is red.", "I am looking into it."]
    assert (buffer.tokens, buffer.budget) == (answer.tokens, 400)
    assert (await service.search(SearchRequest(query="build red", now=NOW), caller)).hits == ()


async def test_over_its_budget_the_oldest_of_low_score_goes_first_and_pinned_stays(service, caller):
    await say(service, caller, "ok, and the pinned one", pinned=True, context_window=100)
    await say(service, caller, WORTH["en"])
    await say(service, caller, "hm, let me see, one moment")
    answer = await say(service, caller, "hm, let me see, another moment", "hm, well, and a third moment please")
    assert answer.budget == 40
    assert answer.tokens <= 40
    assert answer.dropped[0].excerpt == "hm, let me see, one moment"
    kept = await held(service, caller)
    assert {"ok, and the pinned one", WORTH["en"]} <= set(kept)
    assert "hm, let me see, one moment" not in kept


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_the_end_promotes_what_is_worth_it_with_reasons_and_nothing_else_is_left(service, caller, language):
    await say(service, caller, "hello", WORTH[language], user_id="ann")
    ended = await service.end_task("t", EndTaskRequest(now=NOW, user_id="ann"), caller)
    assert [one.text for one in ended.promoted] == [WORTH[language]]
    (memory,) = (one.memory for one in ended.promoted)
    assert (memory.memory_type, memory.user_id, memory.task_id) == ("episodic", "ann", "t")
    assert [one.text for one in ended.dropped] == ["hello"]
    assert all(one.reason for one in ended.dropped)
    with pytest.raises(NotFound):
        await service.task("t", Request(), caller)
    with pytest.raises(NotFound):
        await service.end_task("t", EndTaskRequest(), caller)
    working = await service.list_memories(ListRequest(filters=Filters(memory_type="working"), now=NOW), caller)
    assert working.memories == ()


async def test_what_is_worth_it_is_promoted_also_when_it_makes_room(service, caller):
    await say(service, caller, WORTH["en"], context_window=100)
    answer = await say(service, caller, f"{WORTH['zh']} My desk faces the window and my name is Ann, remember that.")
    assert WORTH["en"] in [one.excerpt for one in answer.dropped]
    assert WORTH["en"] in [one.text for one in answer.promoted if one.memory_id is not None]


async def test_tasks_users_and_namespaces_share_nothing_and_secrets_are_left_out(service, caller):
    await say(service, caller, "for ann", user_id="ann")
    await say(service, caller, "for bob", user_id="bob")
    await say(service, caller, "another", task="u")
    assert await held(service, caller, user_id="ann") == ["for ann"]
    with pytest.raises(NotFound):
        await held(service, caller, namespace="other")
    answer = await say(service, caller, "my password is hunter2", "and on", task="v")
    assert answer.refused == (0,)
    assert await held(service, caller, task="v") == ["and on"]
    with pytest.raises(InvalidInput):
        await say(service, caller, task="v")


async def test_the_routes_are_those_of_the_contract(service, settings):
    async with serving(service, settings) as http:
        body = {"messages": [{"role": "user", "text": WORTH["en"]}], "context_window": 8000}
        added = await http.post("/v1/tasks/t-1/messages", json=body)
        assert (added.status_code, added.json()["budget"]) == (200, 3200)
        read = (await http.get("/v1/tasks/t-1")).json()
        assert [one["content"] for one in read["messages"]] == [WORTH["en"]]
        ended = (await http.post("/v1/tasks/t-1/end")).json()
        assert (len(ended["promoted"]), ended["dropped"]) == (1, [])
        assert (await http.get("/v1/tasks/t-1")).status_code == 404


class GoesAway(SqliteStore):
    """A store that takes `commits` more changes and then is out of reach."""

    commits = 99

    async def commit(self, *arguments, **options):
        if not self.commits:
            raise StoreUnavailable("The store is away.")
        self.commits -= 1
        return await super().commit(*arguments, **options)


@pytest.fixture
async def leaving(tmp_path, embedder, settings):
    store = GoesAway(tmp_path / "leaving.db")
    await store.prepare(None)
    service = MemoryService(store, embedder, settings)
    yield service, store
    await service.flush()
    await store.aclose()  # and not the service, whose embedder all tests share


async def test_a_task_whose_end_broke_off_after_the_first_change_is_not_said_to_go_on_as_it_was(leaving, caller):
    service, store = leaving
    await say(service, caller, WORTH["en"], "hm, let me see")
    store.commits = 1
    with pytest.raises(OutcomeUnknown):
        await service.end_task("t", EndTaskRequest(now=NOW), caller)
    store.commits = 99
    # Called again, it ends, and nothing is there twice.
    answer = await service.end_task("t", EndTaskRequest(now=NOW), caller)
    assert [decision.decision for decision in answer.promoted] == ["duplicate"]
    listed = await service.list_memories(ListRequest(now=NOW, filters=Filters(memory_type="episodic")), caller)
    assert [memory.content for memory in listed.memories] == [WORTH["en"]]


async def test_before_its_first_change_an_end_says_that_nothing_was_changed(leaving, caller):
    service, store = leaving
    await say(service, caller, WORTH["en"])
    store.commits = 0
    with pytest.raises(StoreUnavailable) as told:
        await service.end_task("t", EndTaskRequest(now=NOW), caller)
    assert not isinstance(told.value, OutcomeUnknown)


async def test_what_makes_room_is_offered_before_it_goes(leaving, caller):
    """Broken off between both, the call may be repeated: the message is in its task, and in memory."""
    service, store = leaving
    await say(service, caller, WORTH["en"], context_window=100)
    store.commits = 1
    long = "hm, let me see, " * 6
    with pytest.raises(OutcomeUnknown):
        await say(service, caller, WORTH["zh"], long, WORTH["zh"], context_window=100)
    store.commits = 99
    assert await held(service, caller) == [WORTH["en"]]
    answer = await say(service, caller, WORTH["zh"], long, WORTH["zh"], context_window=100)
    assert answer.dropped
