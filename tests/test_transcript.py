"""A question may be a piece of a conversation: what the user said in it is what is searched for."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hindsight_core.question import read
from hindsight_core.transcript import said_by_user

NOW = datetime(2025, 6, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("user: A gift for Mo?\nassistant: A scarf?\nuser: He has plenty.", "A gift for Mo?\nHe has plenty."),
        ('<Ines>: "Any idea for lunch?"\n<Assistant>: "Ramen?"', "Any idea for lunch?"),
        ("用户：想给妈妈买件礼物\n助手：围巾怎么样？\n用户：她有很多了", "想给妈妈买件礼物\n她有很多了"),
        ("User: first\nand on\nAI: no\nmore of it\nUser: last", "first\nand on\nlast"),
        ("Assistant: Hello!\nAssistant: Anybody there?", "Assistant: Hello!\nAssistant: Anybody there?"),
    ],
)  # fmt: skip
def test_of_a_conversation_only_what_the_user_said_is_left(text: str, said: str):
    assert said_by_user(text) == said


@pytest.mark.parametrize(
    "text",
    [
        "What is my address?",
        "Note: buy milk",
        "assistant: one line is no conversation",
        "What did we decide?\nAgenda: budget",
        "https://a.example\nhttps://b.example",
        "两行\n也不是对话",
        "",
    ],
)
def test_any_other_text_stays_as_it_is(text: str):
    assert said_by_user(text) == text


@given(st.text())
def test_no_text_is_lost_altogether(text: str):
    assert said_by_user(text).strip() or not text.strip()


def test_a_question_is_read_from_the_users_lines():
    found = read("user: When did I plant the elm?\nassistant: Was it with Ann last Friday?", NOW, frozenset({"ann"}))
    assert found.bare == "When did I plant the elm?"
    assert "ann" not in found.terms
    # What a question wants is read of a question alone.
    assert (found.speakers, found.days, found.when) == ((), (), False)
