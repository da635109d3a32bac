"""Whom a question names: also speakers whose names are words, and none that is only a part in the conversation."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from hindsight_core.names import named, without
from hindsight_core.question import read
from hindsight_core.requests import SearchRequest, WriteRequest

SPEAKERS = frozenset({"may", "will", "ann lee", "caroline", "user", "assistant", "用户", "小明"})


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("What did caroline buy?", ("caroline",)),
        ("Is Carolines her real name?", ()),
        ("小明喜欢什么？", ("小明",)),
        ("Where did Ann Lee go?", ("ann lee",)),
        ("What does May like?", ("may",)),
        ("May's favourite food?", ("may",)),
        ("Did Will and May go?", ("may", "will")),
        ("May 喜欢什么？", ("may",)),
        ("May I ask what he may like?", ()),
        ("What happened in May?", ()),
        ("What did we do last May, or since May 2024?", ()),
        ("When will it be done?", ()),
        ("Will it rain?", ()),
        ("What does the user want from the assistant?", ()),
        ("用户想要什么？", ()),
    ],
)
def test_a_name_that_is_a_word_is_one_only_where_it_is_written_so(text: str, names: tuple[str, ...]):
    assert named(text, SPEAKERS) == names


@pytest.mark.parametrize(
    ("text", "names", "rest"),
    [
        ("What will Will cook in May?", ("will",), "What will cook in May?"),
        ("What did Ann  Lee's dog eat?", ("ann lee",), "What did dog eat?"),
        ("Caroline?", ("caroline",), "Caroline?"),
        ("May 喜欢什么？", ("may",), "喜欢什么？"),
    ],
)
def test_names_are_taken_out_where_something_is_left(text: str, names: tuple[str, ...], rest: str):
    assert without(text, names) == rest


def test_a_speaker_who_is_called_the_user_is_the_part_of_that_name():
    found = read("What does the user want?", datetime(2025, 6, 1, tzinfo=UTC), SPEAKERS)
    assert (found.speakers, found.parts, found.bare) == ((), ("user",), "What does want?")


async def test_a_question_finds_what_is_told_with_another_form_of_an_irregular_verb(service, caller):
    for text in ("We went to the lighthouse.", "We have a lighthouse on a mug.", "The lighthouse is white."):
        await service.write(WriteRequest(content=text, force=True, reconcile="none"), caller)
    found = await service.search(SearchRequest(query="Where did we go: the lighthouse?", explain=True), caller)
    assert found.hits[0].memory.content == "We went to the lighthouse."
    assert found.hits[0].explain.matched_terms == ("lighthous", "went")
