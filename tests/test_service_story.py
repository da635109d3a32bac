"""The story the product is judged by: an address on day 1, another on day 2, a question on day 3; in both languages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from hindsight_core.requests import ListRequest, Request, SearchRequest, UndoRequest, WriteRequest

DAY_1 = datetime(2025, 3, 1, 9, tzinfo=UTC)
DAY_2 = DAY_1 + timedelta(days=1)
DAY_3 = DAY_1 + timedelta(days=2)

STORIES = {
    "zh": (
        "我的收货地址是上海市徐汇区漕溪路88号",
        "我搬家了，新地址是杭州市西湖区文三路12号",
        "我的地址是哪个",
        "我以前住在哪里？",
        "漕溪路",
        "文三路",
    ),
    "en": (
        "My shipping address is 12 Rose Lane, Leeds",
        "I moved house, my new address is 7 Hill Street, York",
        "What is my address?",
        "Where did I live before?",
        "Rose Lane",
        "Hill Street",
    ),
}


@pytest.fixture(params=sorted(STORIES))
async def story(request, service, caller):
    first, second, now, before, old, new = STORIES[request.param]
    for at, text in ((DAY_1, first), (DAY_2, second)):
        answer = await service.write(WriteRequest(content=text, user_id="u1", now=at), caller)
        assert answer.stored, answer
    return now, before, old, new, answer


async def test_the_new_address_alone_answers(story, service, caller):
    now, _, old, new, _ = story
    found = await service.search(SearchRequest(query=now, user_id="u1", now=DAY_3), caller)
    assert new in found.hits[0].memory.content
    assert not [hit for hit in found.hits if old in hit.memory.content]


async def test_the_write_says_what_it_replaced(story):
    _, _, _, _, answer = story
    (decision,) = answer.results
    assert decision.decision == "supersede"
    assert len(decision.superseded) == 1


async def test_a_question_about_the_past_finds_the_old_address_marked(story, service, caller):
    _, before, old, _, _ = story
    found = await service.search(SearchRequest(query=before, user_id="u1", now=DAY_3), caller)
    assert found.query.past
    hit = found.hits[0]
    assert old in hit.memory.content
    assert hit.marked == "superseded"
    assert hit.newer is not None


async def test_as_of_day_one_finds_the_old_address_alone(story, service, caller):
    now, _, old, _, _ = story
    at = DAY_1 + timedelta(hours=1)
    found = await service.search(SearchRequest(query=now, user_id="u1", now=DAY_3, as_of=at), caller)
    assert [old in hit.memory.content for hit in found.hits] == [True]
    listed = await service.list_memories(ListRequest(user_id="u1", now=DAY_3, as_of=at), caller)
    assert [old in memory.content for memory in listed.memories] == [True]


async def test_as_of_the_very_moment_of_change_finds_one_address(story, service, caller):
    now, _, _, new, _ = story
    found = await service.search(SearchRequest(query=now, user_id="u1", now=DAY_3, as_of=DAY_2), caller)
    assert [new in hit.memory.content for hit in found.hits] == [True]


async def test_the_change_can_be_undone(story, service, caller):
    now, _, old, _, answer = story
    undone = await service.undo(answer.run_id, UndoRequest(now=DAY_3), caller)
    assert undone.count == 2
    found = await service.search(SearchRequest(query=now, user_id="u1", now=DAY_3), caller)
    assert [old in hit.memory.content for hit in found.hits] == [True]


async def test_the_history_tells_both_lives(story, service, caller):
    _, _, _, _, answer = story
    (decision,) = answer.results
    history = await service.history(decision.superseded[0], Request(), caller)
    assert [event.action for event in history.events] == ["added", "superseded"]
    assert history.events[1].run_id == answer.run_id
