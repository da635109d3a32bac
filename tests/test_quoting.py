"""Which logged questions tell what an erased text said; the service removes those, and only those."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from hindsight_core.caller import Caller
from hindsight_core.quoting import Quoted
from hindsight_core.requests import ForgetRequest, PageRequest, SearchRequest, UpdateRequest, WriteRequest
from hindsight_core.service import MemoryService

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("My sister is allergic to peanuts.", "is my sister allergic to peanuts?"),
        ("My sister is allergic to peanuts.", "Allergic? Peanuts?"),
        ("My sister is allergic to peanuts.", "What is my sister allergic to?"),
        ("The code of the garage is 4821-B, the light is on the left of it.", "whose gate opens with 4821?"),
        (
            "We met Ann at the harbour and went on to the old lighthouse by boat.",
            "the trip to the old lighthouse by boat",
        ),
        ("我妹妹对花生过敏", "我妹妹对花生过敏吗？"),
        ("我妹妹对花生过敏", "谁对花生过敏"),
        ("车库的密码是 4821，灯在左边", "4821 是哪里的密码"),
        ("ok", "OK?"),
    ],
)
def test_a_question_that_tells_what_a_text_said_quotes_it(text: str, question: str):
    assert Quoted(["Something else altogether happened.", text]).by(question)


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("My sister is allergic to peanuts.", "Where did I park the car?"),
        ("My sister is allergic to peanuts.", "When does my sister start her new job in Leeds?"),
        ("我妹妹对花生过敏", "我把车停在哪里了"),
        ("Room 12 is free.", "which 12 guests come to the party tonight?"),
        ("", "anything"),
        ("It is what it is.", "What is it?"),
        ("anything", ""),
    ],
)
def test_a_question_about_something_else_does_not(text: str, question: str):
    assert not Quoted([text]).by(question)


async def test_erasing_removes_searches_that_quote_it_though_they_never_found_it(
    service: MemoryService, caller: Caller
):
    written = WriteRequest(content="My sister is allergic to peanuts.", user_id="ann", now=NOW, force=True)
    (decision,) = (await service.write(written, caller)).results
    for question in ("Who is allergic to peanuts?", "Where did I park the car?"):
        # Another user's search finds nothing of hers.
        answer = await service.search(SearchRequest(query=question, user_id="bob", now=NOW), caller)
        assert answer.hits == ()
    assert decision.memory_id is not None
    dry = ForgetRequest(ids=(decision.memory_id,), mode="erase", dry_run=True, now=NOW)
    await service.forget(dry, caller)
    assert await logged(service, caller) == ["Where did I park the car?", "Who is allergic to peanuts?"]
    await service.forget(ForgetRequest(ids=(decision.memory_id,), mode="archive", now=NOW), caller)
    assert len(await logged(service, caller)) == 2
    await service.forget(ForgetRequest(ids=(decision.memory_id,), mode="erase", now=NOW), caller)
    assert await logged(service, caller) == ["Where did I park the car?"]


async def test_what_an_erased_memory_said_before_it_was_changed_is_quoted_too(service: MemoryService, caller: Caller):
    written = WriteRequest(content="The spare key lies under the fern.", user_id="ann", now=NOW, force=True)
    (decision,) = (await service.write(written, caller)).results
    assert decision.memory_id is not None
    await service.update(decision.memory_id, UpdateRequest(content="Bob has the spare bicycle.", now=NOW), caller)
    await service.search(SearchRequest(query="key under the fern", user_id="bob", now=NOW), caller)
    await service.forget(ForgetRequest(ids=(decision.memory_id,), mode="erase", now=NOW), caller)
    assert await logged(service, caller) == []


async def logged(service: MemoryService, caller: Caller) -> list[str]:
    page = await service.retrievals(PageRequest(now=NOW), caller)
    return sorted(entry.query for entry in page.retrievals)
