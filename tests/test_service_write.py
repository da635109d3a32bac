"""What a write keeps, skips, refuses and replaces."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from hindsight_core.caller import millis
from hindsight_core.errors import Conflict, InvalidInput
from hindsight_core.ids import stable_id
from hindsight_core.requests import ListRequest, Message, Request, SearchRequest, TaskRequest, UndoRequest, WriteRequest

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)


async def write(service, caller, content, **fields):
    answer = await service.write(WriteRequest(content=content, **{"now": NOW} | fields), caller)
    (decision,) = answer.results
    return decision


async def everything(service, caller, **fields):
    return (await service.list_memories(ListRequest(now=NOW, limit=1000, **fields), caller)).memories


@pytest.mark.parametrize("text", ["What's the weather in Beijing tomorrow", "北京明天天气怎么样"])
async def test_a_question_is_skipped_with_scores_and_a_reason(service, caller, text):
    answer = await service.write(WriteRequest(messages=(Message(role="user", text=text),), now=NOW), caller)
    assert [decision.decision for decision in answer.results] == ["skip"]
    assert answer.results[0].reason
    assert not answer.stored
    assert await everything(service, caller) == ()


@pytest.mark.parametrize("text", ["From now on show temperatures in Celsius", "我以后查天气都默认用摄氏度"])
async def test_a_standing_wish_is_kept_without_end(service, caller, text):
    decision = await write(service, caller, text)
    assert decision.decision == "add"
    assert decision.memory.memory_type == "semantic"
    assert decision.memory.expires_at is None
    assert decision.scores.total >= decision.scores.threshold


@pytest.mark.parametrize(
    ("known", "news"),
    [
        ("The boiler runs at 20 psi.", "it's 15 psi on the boiler"),
        ("锅炉压力设的是 20", "压力15"),
    ],
)
async def test_news_about_something_remembered_is_worth_keeping_where_alone_it_says_little(
    service, caller, known, news
):
    said = (Message(role="user", text=news),)
    (alone,) = (await service.write(WriteRequest(messages=said, now=NOW, user_id="somebody else"), caller)).results
    assert alone.decision == "skip"
    await write(service, caller, known, user_id="ann", force=True)
    (decision,) = (await service.write(WriteRequest(messages=said, now=NOW, user_id="ann"), caller)).results
    assert decision.memory is not None
    assert decision.evidence["gate"]["density"]["bears"] > 0


@pytest.mark.parametrize(
    ("guess", "sure"),
    [
        ("The gardener may come on Fridays, but I haven't asked him yet.", "The gardener comes on Fridays."),
        ("表弟也想参加，能不能来还不好说。", "表弟不参加了，要值班。"),
    ],
)
async def test_what_comes_true_is_remembered_in_the_words_that_say_so(service, caller, guess, sure):
    first = await write(service, caller, guess)
    assert first.memory.status == "pending"
    await write(service, caller, sure, now=NOW + timedelta(days=1))
    (held,) = (one for one in await everything(service, caller) if one.status == "active")
    assert held.content == sure


@pytest.mark.parametrize("text", ["Maybe the user likes window seats", "用户可能喜欢靠窗的座位"])
async def test_an_agents_guess_waits(service, caller, text):
    decision = await write(service, caller, text, source="agent")
    assert decision.memory.status == "pending"
    assert decision.memory.confidence <= 0.5


@pytest.mark.parametrize("text", ["my password is hunter2!X9", "我的密码是 hunter2!X9", "card 4111 1111 1111 1111"])
async def test_a_secret_is_refused_even_when_forced(service, caller, text):
    decision = await write(service, caller, text, force=True)
    assert decision.decision == "refuse"
    assert "hunter2" not in msgspec.json.encode(decision).decode()
    assert "4111" not in msgspec.json.encode(decision).decode()
    assert await everything(service, caller) == ()


async def test_force_stores_small_talk(service, caller):
    decision = await write(service, caller, "hello there", force=True)
    assert decision.decision == "add"


async def test_the_same_text_twice_is_one_memory(service, caller):
    first = await write(service, caller, "I am allergic to peanuts")
    again = await write(service, caller, "I am allergic to peanuts")
    assert again.decision == "duplicate"
    assert again.memory_id == first.memory_id
    assert len(await everything(service, caller)) == 1


@pytest.mark.parametrize(
    "texts",
    [
        ("My order number is 7731204", "My order number for the lamp is 7731205"),
        ("订单号是 7731204", "另一个订单号是 7731205"),
    ],
)
async def test_two_numbers_that_differ_by_a_digit_are_never_one(service, caller, texts):
    for text in texts:
        decision = await write(service, caller, text)
        assert decision.decision not in {"duplicate", "skip", "refuse"}
    stats = await service.stats(Request(), caller)
    assert stats.memories == 2


async def test_the_same_key_is_the_same_slot(service, caller):
    old = await write(service, caller, "Deploys go out on Tuesday", key="team.deploy_day")
    new = await write(service, caller, "Deploys go out on Thursday", key="team.deploy_day", now=NOW + timedelta(days=1))
    assert new.decision == "supersede"
    assert new.superseded == (old.memory_id,)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("My editor is vim", "My editor is Helix"),
        ("我用vim写代码", "我现在用Helix写代码"),
        ("我在华为上班", "我在阿里上班"),
    ],
)
async def test_another_value_of_a_slot_is_never_taken_for_the_same(service, caller, before, after):
    old = await write(service, caller, before, key="user.value")
    new = await write(service, caller, after, key="user.value", now=NOW + timedelta(days=1))
    assert (new.decision, new.superseded) == ("supersede", (old.memory_id,))
    again = await write(service, caller, after, key="user.value", now=NOW + timedelta(days=2))
    assert (again.decision, again.memory_id) == ("duplicate", new.memory_id)


async def test_the_caller_may_name_what_it_replaces(service, caller):
    old = await write(service, caller, "The demo runs on the blue cluster")
    new = await write(service, caller, "All demos moved to green", supersedes=(old.memory_id,))
    assert new.superseded == (old.memory_id,)
    stored = await service.get(old.memory_id, Request(), caller)
    assert stored.status == "superseded"
    assert stored.superseded_by == new.memory_id


async def test_naming_a_memory_of_another_user_is_refused_and_stores_nothing(service, caller):
    old = await write(service, caller, "I live in Leeds", user_id="alice")
    with pytest.raises(InvalidInput) as caught:
        await write(service, caller, "I live in York", user_id="bob", supersedes=(old.memory_id,))
    assert caught.value.errors[0].field == "supersedes[0]"
    assert len(await everything(service, caller)) == 1


async def test_another_users_address_is_never_replaced(service, caller):
    await write(service, caller, "My address is 12 Rose Lane, Leeds", user_id="alice")
    decision = await write(service, caller, "I moved, my new address is 7 Hill Street, York", user_id="bob")
    assert decision.decision == "add"
    assert len(await everything(service, caller)) == 2


async def test_an_idempotency_key_makes_a_retry_safe(service, caller):
    request = WriteRequest(content="I play the cello", idempotency_key="k1", now=NOW)
    first = await service.write(request, caller)
    assert await service.write(request, caller) == first
    assert len(await everything(service, caller)) == 1
    with pytest.raises(Conflict):
        await service.write(WriteRequest(content="I play the flute", idempotency_key="k1", now=NOW), caller)


@pytest.mark.parametrize(
    "texts", [("The kettle is on", "The door is shut", "The lamp is off"), ("水开了", "门关了", "灯灭了")]
)
async def test_what_has_a_date_and_a_key_is_listed_by_its_date_and_stored_once(service, caller, texts):
    def turns(key: str, *days: int) -> WriteRequest:
        said = tuple(
            Message(role="user", text=text, at=NOW - timedelta(days=day)) for text, day in zip(texts, days, strict=True)
        )
        kept = {"extract": "none", "reconcile": "none", "force": True, "idempotency_key": key}
        return WriteRequest(messages=said, now=NOW, **kept)

    first = await service.write(turns("a", 9, 20, 20), caller)
    listed = [memory.id for memory in await everything(service, caller)]
    ids = [decision.memory_id for decision in first.results]
    assert listed == [ids[1], ids[2], ids[0]]
    # The answer that was kept is gone; the memories are known by their ids.
    await service._store.prune("default", "receipts", millis(NOW + timedelta(days=1)), limit=None)
    again = await service.write(turns("a", 9, 20, 20), caller)
    assert [decision.memory_id for decision in again.results] == ids
    assert [decision.decision for decision in again.results] == ["duplicate"] * 3


async def test_what_an_earlier_version_stored_under_a_key_is_known_by_its_undated_id(service, caller):
    request = WriteRequest(content="I play the cello", force=True, idempotency_key="k1", now=NOW)
    (undated,) = (await service.write(request, caller)).results
    assert undated.memory_id == stable_id("default", "k1", "0")
    await service._store.prune("default", "receipts", millis(NOW + timedelta(days=1)), limit=None)
    dated = msgspec.structs.replace(request, observed_at=NOW - timedelta(days=3))
    (again,) = (await service.write(dated, caller)).results
    assert (again.decision, again.memory_id) == ("duplicate", undated.memory_id)


async def test_retries_that_overlap_store_once(service, caller):
    request = WriteRequest(content="I play the cello", idempotency_key="k1", now=NOW)
    answers = await asyncio.gather(*(service.write(request, caller) for _ in range(8)))
    assert len({msgspec.json.encode(answer) for answer in answers}) == 1
    assert len(await everything(service, caller)) == 1


async def test_concurrent_writes_leave_one_latest(service, caller):
    cities = ["Leeds", "York", "Hull", "Bath", "Ely", "Wells"]
    await asyncio.gather(
        *(
            write(service, caller, f"The user lives in {city}", key="user.city", now=NOW + timedelta(minutes=i))
            for i, city in enumerate(cities)
        )
    )
    active = await everything(service, caller)
    assert [memory.content for memory in active] == ["The user lives in Wells"]


async def test_a_naive_time_needs_a_zone(service, caller):
    naive = datetime(2025, 1, 1)  # noqa: DTZ001
    with pytest.raises(InvalidInput) as caught:
        await write(service, caller, "I moved to York", observed_at=naive)
    assert caught.value.errors[0].field == "observed_at"
    decision = await write(service, caller, "I moved to York", observed_at=naive, timezone="Asia/Shanghai")
    assert decision.memory.observed_at == datetime(2024, 12, 31, 16, tzinfo=UTC)


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("ttl", {"ttl": "soon"}),
        ("ttl", {"ttl": "0d"}),
        ("expires_at", {"ttl": 60.0, "expires_at": NOW + timedelta(days=1)}),
        ("expires_at", {"expires_at": NOW - timedelta(days=1)}),
        ("agent_id", {"visibility": "private"}),
        ("timezone", {"timezone": "Mars/Olympus"}),
        ("content", {"content": "a\x00b"}),
        ("content", {"content": "\ud800"}),
        ("content", {"content": "   "}),
        ("user_id", {"user_id": " "}),
        ("metadata", {"metadata": {"x": "y" * 20_000}}),
        ("memory_type", {"memory_type": "working"}),
        ("content", {"messages": (Message(role="user", text="I live in York"),)}),
    ],
)
async def test_bad_input_names_its_field_and_stores_nothing(service, caller, field, fields):
    request = WriteRequest(**{"content": "I live in York", "now": NOW} | fields)
    with pytest.raises(InvalidInput) as caught:
        await service.write(request, caller)
    assert caught.value.errors[0].field in {field, "messages"}
    assert await everything(service, caller) == ()


async def test_a_batch_stores_each_item_by_itself(service, caller):
    items = [
        msgspec.Raw(b'{"content": "I play the cello every Sunday"}'),
        msgspec.Raw(b'{"content": "x", "colour": "red"}'),
        msgspec.Raw(b'{"content": "My sister Ana lives in Porto"}'),
    ]
    answer = await service.write_batch(items, caller)
    assert [item.status for item in answer.results] == [201, 422, 201]
    assert answer.results[1].problem.errors[0].field == "colour"
    assert len((await service.list_memories(ListRequest(), caller)).memories) == 2


async def test_messages_kept_whole_carry_the_turn_before(service, caller):
    messages = (
        Message(role="user", text="What about her thyroid tablets?"),
        Message(role="user", text="Half a tablet twice a day"),
    )
    request = WriteRequest(messages=messages, extract="none", force=True, reconcile="none", now=NOW)
    answer = await service.write(request, caller)
    assert [decision.decision for decision in answer.results] == ["add", "add"]
    assert answer.results[1].memory.context == "What about her thyroid tablets?"
    found = await service.search(SearchRequest(query="thyroid tablets dose", now=NOW), caller)
    assert "Half a tablet" in {hit.memory.content[:13] for hit in found.hits} or len(found.hits) == 2


@pytest.mark.parametrize(("text", "kept"), [("ok", "Kept as asked"), ("好的", "按要求保留")])
async def test_what_is_kept_because_the_caller_insists_says_so(service, caller, text, kept):
    assert (await write(service, caller, text)).decision == "skip"
    decision = await write(service, caller, text, force=True)
    assert decision.decision == "add"
    assert decision.reason.startswith(kept)
    (event,) = (await service.history(decision.memory_id, Request(), caller)).events
    assert event.reason.startswith(kept)


async def test_old_news_never_replaces_what_is_newer(service, caller):
    new = await write(service, caller, "The user lives in York", key="user.city")
    late = await write(
        service, caller, "The user lives in Leeds", key="user.city", observed_at=NOW - timedelta(days=400)
    )
    assert (await service.get(new.memory_id, Request(), caller)).status == "active"
    assert late.memory.status == "superseded"
    assert late.memory.superseded_by == new.memory_id
    assert late.memory.valid_to == new.memory.valid_from


@pytest.mark.parametrize("cities", [("Rome", "Leeds", "York", "Bath"), ("罗马", "利兹", "约克", "巴斯")])
@pytest.mark.parametrize("order", [(3, 2, 1, 0), (1, 3, 0, 2), (0, 2, 3, 1)])
async def test_one_value_of_a_slot_holds_at_any_time_in_whatever_order_they_arrive(service, caller, cities, order):
    began = [NOW - timedelta(days=100 * (4 - i)) for i in range(4)]
    runs = []
    for i in order:
        fields = {"key": "user.city", "observed_at": began[i], "force": True}
        answer = await service.write(WriteRequest(content=f"Ana: {cities[i]}", now=NOW, **fields), caller)
        runs.append(answer.run_id)

    async def held(at):
        return [memory.content for memory in await everything(service, caller, as_of=at)]

    for i, city in enumerate(cities):
        assert await held(began[i]) == [f"Ana: {city}"]
        assert await held(began[i] + timedelta(days=99)) == [f"Ana: {city}"]
    assert [memory.content for memory in await everything(service, caller)] == [f"Ana: {cities[3]}"]
    await service.undo(runs[-1], UndoRequest(now=NOW), caller)
    assert await held(began[order[-1]]) == ([] if order[-1] == 0 else [f"Ana: {cities[order[-1] - 1]}"])


@pytest.mark.parametrize(
    ("asked", "answer", "question"),
    [
        ("How often does your wife take her thyroid tablets?", "half a tablet twice a day", "wife's thyroid tablets"),
        ("您太太的甲状腺药怎么吃？", "一天两次，每次半片", "太太的甲状腺药"),
    ],
)
async def test_an_answer_without_a_subject_is_found_and_understood_by_its_question(
    service, caller, asked, answer, question
):
    messages = (Message(role="assistant", text=asked), Message(role="user", text=answer))
    (_, decision) = (await service.write(WriteRequest(messages=messages, now=NOW), caller)).results
    assert decision.decision == "add"
    assert decision.memory.content == answer
    found = await service.search(SearchRequest(query=question, now=NOW, token_budget=300), caller)
    assert found.hits[0].memory.id == decision.memory_id
    assert found.context is not None
    assert answer in found.context.text
    assert asked in found.context.text


async def test_a_tools_records_are_kept_one_by_one_as_the_tools(service, caller):
    first = '{"order": 71204, "status": "shipped", "carrier": "DHL", "tracking": "JD0146"}'
    second = '{"customer": "Oakley Ltd", "plan": "business", "seats": 25}'
    message = Message(role="tool", text=f'{{"found": [{first}, {second}], "took_ms": 12}}')
    answer = await service.write(WriteRequest(messages=(message,), now=NOW), caller)
    kept = [decision.memory for decision in answer.results if decision.memory is not None]
    assert [memory.content for memory in kept] == [first, second]
    assert {memory.source for memory in kept} == {"tool"}
    assert {memory.confidence for memory in kept} == {0.8}


async def test_the_assistants_proposal_is_nobodys_fact(service, caller):
    messages = (
        Message(role="user", text="Which cache should the service use?"),
        Message(role="assistant", text="You could use Redis for it, many teams do."),
        Message(role="user", text="hm, let me think"),
    )
    assert not (await service.write(WriteRequest(messages=messages, now=NOW), caller)).stored


@pytest.mark.parametrize(
    ("field", "value"),
    [("tags", ("t" * 129,)), ("user_id", "u" * 300), ("key", "k" * 5000), ("confidence", 7.0)],
)
async def test_a_request_built_in_python_passes_the_same_limits_or_could_not_be_read_again(
    service, caller, field, value
):
    request = msgspec.structs.replace(WriteRequest(content="My sister lives in Porto", force=True), **{field: value})
    with pytest.raises(InvalidInput, match=field):
        await service.write(request, caller)
    assert (await service.list_memories(ListRequest(), caller)).memories == ()


async def test_a_task_with_too_long_a_name_is_refused(service, caller):
    request = TaskRequest(messages=(Message(role="user", text="Remember the milk"),))
    with pytest.raises(InvalidInput, match="task_id"):
        await service.add_to_task("t" * 300, request, caller)
    assert (await service.list_memories(ListRequest(), caller)).memories == ()
