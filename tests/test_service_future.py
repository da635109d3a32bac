"""What is announced for later: what it replaces holds until then, in searches, lists and `as_of` alike."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from hindsight_core.requests import ForgetRequest, ListRequest, Request, SearchRequest, UndoRequest, WriteRequest

DAY = timedelta(days=1)
TOLD = datetime(2026, 3, 1, 9, tzinfo=UTC)
SOON = TOLD + 2 * DAY
MOVE = datetime(2027, 1, 1, tzinfo=UTC)
MOVED = MOVE + DAY

STORIES = {
    "en": ("My address is 5 Elm Road", "My address is 9 Lake View", "What is my address?", "Where did I live before?"),
    "zh": ("我的地址是榆树路5号", "我的地址是湖景街9号", "我的地址是哪个？", "我以前住在哪里？"),
}


async def write(service, caller, content, at, **fields):
    request = WriteRequest(content=content, key="user.address", force=True, now=at, **fields)
    (decision,) = (await service.write(request, caller)).results
    return decision


async def found(service, caller, query, at, **fields):
    answer = await service.search(SearchRequest(query=query, now=at, **fields), caller)
    return {hit.memory.content: hit.marked for hit in answer.hits}


async def listed(service, caller, at, **fields):
    page = await service.list_memories(ListRequest(now=at, **fields), caller)
    return {memory.content for memory in page.memories}


@pytest.fixture(params=sorted(STORIES))
async def story(request, service, caller):
    old, new, question, before = STORIES[request.param]
    await write(service, caller, old, TOLD)
    decision = await write(service, caller, new, TOLD + DAY, valid_from=MOVE)
    assert decision.decision == "supersede"
    return old, new, question, before, decision


async def test_what_holds_today_answers_until_what_replaces_it_begins(story, service, caller):
    old, new, question, _, _ = story
    for at in (SOON, MOVE - timedelta(milliseconds=2)):
        assert await found(service, caller, question, at) == {old: None}
        assert await found(service, caller, question, at, as_of=at) == {old: None}
    for at in (MOVE, MOVED):
        assert await found(service, caller, question, at) == {new: None}
        assert await found(service, caller, question, at, as_of=at) == {new: None}


async def test_a_question_about_the_past_marks_only_what_has_ended(story, service, caller):
    old, new, _, before, _ = story
    assert await found(service, caller, before, SOON) == {old: None}
    assert await found(service, caller, before, MOVED) == {old: "superseded", new: None}


async def test_what_is_to_come_is_listed_beside_what_still_holds(story, service, caller):
    old, new, *_ = story
    assert await listed(service, caller, SOON) == {old, new}
    assert await listed(service, caller, MOVED) == {new}
    assert await listed(service, caller, SOON, as_of=SOON) == {old}


@pytest.mark.parametrize(
    ("content", "question"),
    [
        ("My address is 5 Elm Road from 2027", "What is my address?"),
        ("我的地址从2027年起是榆树路5号", "我的地址是哪个？"),
    ],
)
async def test_what_does_not_hold_yet_is_found_when_it_does_and_counted_until_then(service, caller, content, question):
    await write(service, caller, content, TOLD, valid_from=MOVE)
    answer = await service.search(SearchRequest(query=question, now=SOON, explain=True), caller)
    assert not answer.hits
    assert answer.counts.filtered_by == {"valid_from": 1}
    assert await found(service, caller, question, MOVED) == {content: None}
    assert await found(service, caller, question, SOON, as_of=MOVED) == {content: None}


@pytest.mark.parametrize(("language", "then"), [("en", " in 2027"), ("zh", "2027年")])
async def test_a_question_that_names_a_time_to_come_finds_what_holds_then(service, caller, language, then):
    old, new, question, _ = STORIES[language]
    await write(service, caller, old, TOLD)
    await write(service, caller, new, TOLD + DAY, valid_from=MOVE)
    assert await found(service, caller, question + then, SOON) == {new: None}
    assert await found(service, caller, question, SOON) == {old: None}


async def test_what_is_said_in_between_holds_in_between(story, service, caller):
    old, new, question, *_ = story
    moon = "My address is 1 Moon Court"
    decision = await write(service, caller, moon, SOON)
    assert decision.reason.endswith(f"Holds in the slot user.address until “{new}” begins.")
    assert await found(service, caller, question, SOON + DAY) == {moon: None}
    assert await found(service, caller, question, SOON, as_of=SOON - DAY) == {old: "superseded"}
    assert await found(service, caller, question, MOVED) == {new: None}


async def test_what_was_announced_and_is_then_said_to_be_so_holds_from_there(story, service, caller):
    old, new, question, *_ = story
    echo = await write(service, caller, new, SOON, source="agent")
    assert echo.decision == "duplicate"
    assert await found(service, caller, question, SOON) == {old: None}
    earlier = await write(service, caller, new, SOON)
    assert earlier.decision == "duplicate"
    assert await found(service, caller, question, SOON) == {new: None}
    assert await found(service, caller, question, SOON, as_of=SOON - timedelta(milliseconds=1)) == {old: "superseded"}


@pytest.mark.parametrize(
    ("announced", "question"),
    [("From 2027 on my address is 9 Lake View", "my address"), ("从2027年起我的地址是湖景街9号", "我的地址")],
)
async def test_an_announcement_made_twice_is_still_one(service, caller, announced, question):
    await write(service, caller, announced, TOLD, valid_from=MOVE)
    await write(service, caller, announced, SOON)
    assert await found(service, caller, question, SOON) == {}


async def test_undo_and_bring_back_leave_what_holds(story, service, caller):
    old, new, question, _, decision = story
    forgotten = await service.forget(
        ForgetRequest(ids=(decision.memory_id,), mode="retract", bring_back=True, now=SOON), caller
    )
    assert await found(service, caller, question, SOON) == {old: None}
    assert await found(service, caller, question, MOVED) == {old: None}
    await service.undo(forgotten.run_id, UndoRequest(now=SOON), caller)
    assert await found(service, caller, question, SOON) == {old: None}
    assert await found(service, caller, question, MOVED) == {new: None}


@pytest.mark.parametrize("content", ["I have an appointment with the dentist", "我约了牙医"])
async def test_an_appointment_is_known_before_its_day(service, caller, content):
    decision = await write(service, caller, content, TOLD, observed_at=MOVE)
    stored = await service.get(decision.memory_id, Request(), caller)
    assert (stored.observed_at, stored.valid_from) == (MOVE, TOLD)
    assert await found(service, caller, content, SOON) == {content: None}


async def test_a_clock_that_is_a_little_behind_finds_what_was_just_written(service, caller):
    ahead = caller.now + timedelta(seconds=30)
    await write(service, caller, "The lamp is on", ahead)
    answer = await service.search(SearchRequest(query="lamp"), caller)
    assert [hit.memory.content for hit in answer.hits] == ["The lamp is on"]


@pytest.mark.parametrize(
    ("old", "new", "question"),
    [
        ("My address is 1 Old Street", "From 2027 my address is 2 New Street", "what is my address"),
        ("我的地址是旧街1号", "从2027年起我的地址是新街2号", "我的地址是什么"),
    ],
)
async def test_one_clock_that_is_far_ahead_changes_no_other_users_present(service, caller, old, new, question):
    await write(service, caller, old, TOLD)
    begins = datetime(2027, 1, 1, tzinfo=UTC)
    assert (await write(service, caller, new, TOLD, valid_from=begins)).decision == "supersede"
    await write(service, caller, "The parrot is green", datetime(2099, 1, 1, tzinfo=UTC), user_id="bo")
    assert await found(service, caller, question, SOON) == {old: None}
    # Whoever comes from the year 2099 by their own clock sees what holds then.
    seen = await found(service, caller, question, datetime(2099, 1, 1, tzinfo=UTC))
    assert new in seen
    assert old not in seen
