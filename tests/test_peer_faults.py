"""Conversations in which other memory systems were reported to go wrong, from the messages to the answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from hindsight_core.requests import Filters, ListRequest, Message, SearchRequest, WriteRequest

MONDAY = datetime(2025, 5, 5, 9, tzinfo=UTC)
DAY = timedelta(days=1)
EVERY = Filters(status=("active", "superseded"))


async def tell(service, caller, *texts, at=MONDAY, role="user"):
    """The decisions about messages of one sitting; an assistant's answers to a user's are in order."""
    said = tuple(Message(role=role, text=text, at=at) for text in texts)
    request = WriteRequest(messages=said, now=at, session_id=at.isoformat(), user_id="ann")
    return (await service.write(request, caller)).results


async def shown(service, caller, query, at):
    """What a search shows as holding."""
    found = await service.search(SearchRequest(query=query, now=at, user_id="ann"), caller)
    return [hit.memory.content for hit in found.hits if hit.marked is None]


async def held(service, caller):
    request = ListRequest(user_id="ann", now=MONDAY + 30 * DAY, filters=EVERY)
    return {one.content: one for one in (await service.list_memories(request, caller)).memories}


@pytest.mark.parametrize(
    ("wrong", "correction", "query", "right"),
    [
        ("I live in Leeds.", "I don't live in Leeds, that was a mistake. I live in York.", "Where do I live?", "York"),
        ("我住在长沙。", "说错了，我不住长沙，我住在株洲。", "我住在哪儿？", "株洲"),
    ],
)
async def test_correcting_a_false_fact_is_no_corroboration_of_it(service, caller, wrong, correction, query, right):
    (first,) = await tell(service, caller, wrong)
    await tell(service, caller, correction, at=MONDAY + DAY)
    after = (await held(service, caller))[wrong]
    assert after.confidence <= first.memory.confidence
    answers = await shown(service, caller, query, MONDAY + 2 * DAY)
    assert wrong not in answers
    assert any(right in text for text in answers)


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ("I love football.", "My son Jack doesn't like football."),
        ("我爱吃香菜。", "我女儿不爱吃香菜。"),
    ],
)
async def test_what_is_so_of_a_child_leaves_the_parent_alone(service, caller, mine, theirs):
    await tell(service, caller, mine)
    await tell(service, caller, theirs, at=MONDAY + DAY)
    stored = await held(service, caller)
    assert stored[mine].status == stored[theirs].status == "active"
    assert stored[mine].contested_by == ()


@pytest.mark.parametrize(
    ("known", "denial"),
    [
        ("I drink coffee every morning.", "I don't drink coffee any more."),
        ("我每天早上喝咖啡。", "我不喝咖啡了。"),
    ],
)
async def test_a_denial_is_stored_itself_and_takes_nothing_out_of_history(service, caller, known, denial):
    await tell(service, caller, known)
    await tell(service, caller, denial, at=MONDAY + DAY)
    stored = await held(service, caller)
    assert stored[denial].status == "active"
    assert known in stored
    assert known not in await shown(service, caller, "coffee 咖啡", MONDAY + 2 * DAY)


@pytest.mark.parametrize("text", ["我姓黎", "我吃素", "我属兔", "我有两个女儿", "我对虾过敏"])
async def test_a_short_sentence_in_chinese_is_long_enough(service, caller, text):
    (decision,) = await tell(service, caller, text)
    assert decision.memory.content == text


@pytest.mark.parametrize(
    ("fact", "order", "part"),
    [
        ("My mobile is 07700 900 461.", "Can you forget my mobile number?", "900 461"),
        ("我的手机号是 13800001234。", "能不能忘掉我的手机号？", "13800001234"),
    ],
)
async def test_being_asked_to_forget_a_number_shows_it_nowhere(service, caller, fact, order, part):
    await tell(service, caller, fact)
    (decision,) = await tell(service, caller, order, at=MONDAY + DAY)
    assert part not in decision.text + decision.reason
    assert decision.related
    answers = await shown(service, caller, "mobile number 手机号", MONDAY + 2 * DAY)
    assert not any(part in text for text in answers)


@pytest.mark.parametrize(
    ("known", "record"),
    [
        ("I follow ticket HD-118, the one about the lift.", "desk: ticket=HD-118 state=reopened"),
        ("我在跟工单 HD-118，电梯那个。", "服务台 工单=HD-118 状态=重新打开"),
    ],
)
async def test_a_tools_record_is_never_taken_for_what_somebody_said(service, caller, known, record):
    await tell(service, caller, known)
    (decision,) = await tell(service, caller, record, at=MONDAY + DAY, role="tool")
    assert decision.memory.content == record
