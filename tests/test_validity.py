"""From when and until when a memory holds by its own words, and what is no such word."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from hindsight_core.requests import Message, SearchRequest, WriteRequest
from hindsight_core.validity import validity

TOLD = datetime(2025, 6, 4, 9, tzinfo=UTC)  # a Wednesday
DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("We're in Ghent until Sunday.", "2025-06-09"),
        ("I am house-sitting till the end of June", "2025-07-01"),
        ("Until Friday, write my notes in Dutch.", "2025-06-07"),
        ("I work from the library through Friday", "2025-06-07"),
        ("No sugar for me, this month only", "2025-07-01"),
        ("My sister is off sick this week", "2025-06-09"),
        ("We're at my parents' for the next two weeks", "2025-06-18"),
        ("我到周日为止都在苏州", "2025-06-09"),
        ("我在老家待到周五", "2025-06-07"),
        ("直到月底我都睡客厅", "2025-07-01"),
        ("就这个月我不吃糖", "2025-07-01"),
        ("这周我值班", "2025-06-09"),
        ("接下来两周我都在昆明", "2025-06-18"),
    ],
)
def test_what_is_so_for_a_while_ends_with_the_time_it_names(text: str, end: str) -> None:
    found = validity(text, TOLD, momentary=False)
    assert found is not None
    assert found.end is not None
    assert (found.start, f"{found.end:%F}") == (None, end)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("From next month I use the north entrance.", "2025-07-01"),
        ("My extension is 4411 starting Monday", "2025-06-09"),
        ("As of 1 July the rent is 940", "2025-07-01"),
        ("下个月起我走北门", "2025-07-01"),
        ("从周一开始我的分机是4411", "2025-06-09"),
        ("7月1日起房租是4200", "2025-07-01"),
    ],
)
def test_what_is_announced_begins_with_the_time_it_names(text: str, start: str) -> None:
    found = validity(text, TOLD, momentary=False)
    assert found is not None
    assert found.start is not None
    assert (f"{found.start:%F}", found.end) == (start, None)


@pytest.mark.parametrize(
    "text",
    [
        "The slides are due by Friday",
        "I have until Friday to answer",
        "The exam is postponed until Friday",
        "I don't start until Monday",
        "My permit is valid until March 2026",
        "I teach every Friday until 5pm",
        "My birthday is this week",
        "I sold my bike this week",
        "I just this week joined the choir",
        "I have an interview this week",
        "We're going to be at the lake this week",
        "From Monday I'm on holiday",
        "I'm on holiday from Monday to Friday",
        "I worked at the mill until 2020",
        "I've been a nurse since May",
        "Always answer in French from now on",
        "I'm in Ghent until Sunday, and I live in Leeds",
        "I'm in Ghent until Sunday. My flat is on Hill Street.",
        "Are you in Ghent until Sunday?",
        "If it rains I'm at home until Friday",
        "周五前要交幻灯片",
        "到周五交报告",
        "考试推迟到周五",
        "居住证到2026年3月为止有效",
        "每周五我值班到五点",
        "我生日就这周六",
        "这周我卖了自行车",
        "我这周要去出差",
        "从周一开始我休假",
        "我在昆明工作到2020年",
        "以后都用法语回答",
        "我住在杭州，这周在苏州出差",
        "你这周在苏州出差吗？",
    ],
)
def test_what_comes_again_is_due_has_happened_or_is_planned_names_no_such_time(text: str) -> None:
    assert validity(text, TOLD, momentary=False) is None


@pytest.mark.parametrize("text", ["I'm so fed up today", "我今天好烦"])
def test_what_is_momentary_ends_with_any_time_that_is_running(text: str) -> None:
    assert validity(text, TOLD, momentary=False) is None
    found = validity(text, TOLD, momentary=True)
    assert found is not None
    assert found.end == datetime(2025, 6, 5, tzinfo=UTC)


async def write(service, caller, content, at=TOLD, **fields):
    (decision,) = (await service.write(WriteRequest(content=content, now=at, **fields), caller)).results
    return decision


async def found(service, caller, query, at):
    answer = await service.search(SearchRequest(query=query, now=at), caller)
    return {hit.memory.content for hit in answer.hits}


STAYS = {"en": ("I'm in Berlin until Friday.", "Where am I?"), "zh": ("我到周五为止都在柏林", "我在哪里？")}


@pytest.mark.parametrize("language", sorted(STAYS))
async def test_a_stay_expires_at_its_end_in_the_users_zone_and_the_decision_says_why(service, caller, language):
    content, question = STAYS[language]
    decision = await write(service, caller, content, timezone="Asia/Shanghai")
    end = datetime(2025, 6, 7, tzinfo=ZoneInfo("Asia/Shanghai"))
    assert decision.memory.expires_at == end
    assert decision.memory.valid_from == TOLD
    assert decision.evidence["holds"]["words"] in content
    assert await found(service, caller, question, end - timedelta(seconds=1)) == {content}
    assert await found(service, caller, question, end) == set()


@pytest.mark.parametrize("content", ["I'm in Berlin until Friday.", "我到周五为止都在柏林"])
async def test_what_the_request_names_goes_before_the_words(service, caller, content):
    day = await write(service, caller, content, ttl="1d")
    assert (day.memory.expires_at, "holds" in day.evidence) == (TOLD + DAY, False)
    pinned = await write(service, caller, content, pinned=True, user_id="bo")
    assert pinned.memory.expires_at is None
    insisted = await write(service, caller, content, force=True, user_id="cy")
    assert insisted.memory.expires_at is None


@pytest.mark.parametrize("content", ["I'm in Berlin until Friday.", "我到周五为止都在柏林"])
async def test_what_was_over_when_it_was_written_stays_as_history(service, caller, content):
    message = Message(role="user", text=content, at=TOLD)
    request = WriteRequest(messages=(message,), now=TOLD + 30 * DAY)
    (decision,) = (await service.write(request, caller)).results
    assert decision.memory.expires_at is None


ANNOUNCED = {
    "en": ("My desk is on floor 3.", "From next month my desk is on floor 5.", "Where is my desk?", " in July 2025"),
    "zh": ("我的工位在3楼", "下个月起我的工位在5楼", "我的工位在哪？", "2025年7月"),
}


@pytest.mark.parametrize("language", sorted(ANNOUNCED))
async def test_what_is_announced_leaves_what_holds_until_it_begins(service, caller, language):
    old, new, question, then = ANNOUNCED[language]
    await write(service, caller, old, TOLD - DAY, key="desk")
    decision = await write(service, caller, new, key="desk")
    begins = datetime(2025, 7, 1, tzinfo=UTC)
    assert (decision.decision, decision.memory.valid_from) == ("supersede", begins)
    assert await found(service, caller, question, TOLD + DAY) == {old}
    assert await found(service, caller, question + then, TOLD + DAY) == {new}
    assert await found(service, caller, question, begins + DAY) == {new}


@pytest.mark.parametrize(
    ("lasts", "passes", "question"),
    [
        ("My office is in Leeds.", "This week only my office is in York.", "Where is my office?"),
        ("我的办公室在三楼", "就这周我的办公室在五楼", "我的办公室在哪？"),
    ],
)
async def test_what_passes_leaves_what_lasts(service, caller, lasts, passes, question):
    await write(service, caller, lasts, TOLD - DAY)
    decision = await write(service, caller, passes)
    assert decision.memory.expires_at is not None
    assert not decision.superseded
    assert await found(service, caller, question, TOLD + 10 * DAY) == {lasts}
