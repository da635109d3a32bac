"""What kind of answer a question wants, and which memories hold one; Chinese and English alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hindsight_core.answers import asks_how_many, asks_when, parts_named, speaks_of_self, tells_a_number, tells_when


def test_questions_for_a_time_and_memories_that_tell_one():
    assert asks_when("When did Ann move?")
    assert asks_when("我们几号签的合同？")
    assert asks_when("Could you remind me again when the lease ends?")
    assert asks_when("When, roughly, did I move?")
    assert not asks_when("What did Ann move?")
    assert not asks_when("What do I drink when I'm stressed?")
    assert not asks_when("When I'm stressed, what do I drink?")
    assert not asks_how_many("前几天我说的那本书")
    assert not asks_when("我们签了什么？")
    assert tells_when("She moved last Friday.")
    assert tells_when("上周五签的。")
    assert not tells_when("She likes to move.")
    assert not tells_when("合同签好了。")


@pytest.mark.parametrize(
    ("question", "told", "untold"),
    [
        ("How many stools do we need?", "Seven of them broke.", "The stools broke."),
        ("how long is the lease?", "It runs for 18 months.", "It runs for a while."),
        ("What price did they ask?", "They wanted €1,200.50 for it.", "They wanted too much for it."),
        ("仓库里还有多少箱？", "还剩三十件。", "还剩一些。"),
        ("你们几个人去？", "我们4个都去。", "我们都去。"),
    ],
)
def test_questions_for_a_number_and_memories_that_tell_one(question: str, told: str, untold: str):
    assert asks_how_many(question)
    assert not asks_how_many(told)
    assert tells_a_number(told)
    assert not tells_a_number(untold)


@pytest.mark.parametrize("question", ["How did it go?", "What did they ask?", "怎么去仓库？", "谁去？"])
def test_other_questions_ask_for_no_number(question: str):
    assert not asks_how_many(question)


@pytest.mark.parametrize("text", ["I’ve painted it.", "Ask my brother.", "It's ours.", "我刷完了。", "咱们家的。"])
def test_who_speaks_of_himself(text: str):
    assert speaks_of_self(text)


@pytest.mark.parametrize("text", ["Did you paint it?", "The MINI is red.", "Item II.", "你刷完了吗？", "他刷的。"])
def test_who_speaks_of_others(text: str):
    assert not speaks_of_self(text)


@pytest.mark.parametrize(
    ("question", "parts", "rest"),
    [
        ("What is the user's shoe size?", ("user",), "What is shoe size?"),
        ("user’s shoe size", ("user",), "shoe size"),
        ("What did the assistant tell the user about tea?", ("user", "agent"), "What did tell about tea?"),
        ("用户的鞋码是多少？", ("user",), "鞋码是多少？"),
        ("助手推荐过什么茶？", ("agent",), "推荐过什么茶？"),
        ("Which column of the user table is indexed?", (), "Which column of the user table is indexed?"),
        ("How many users signed up?", (), "How many users signed up?"),
        ("用户表有哪些列？", (), "用户表有哪些列？"),
        ("the user?", ("user",), "the user?"),
    ],
)
def test_whom_a_question_calls_the_user_or_the_assistant(question: str, parts: tuple[str, ...], rest: str):
    found, left = parts_named(question)
    assert (found, left) == (parts, rest)


@given(st.text())
def test_any_text_leaves_something_to_ask_for(text: str):
    _, rest = parts_named(text)
    assert rest == text or any(char.isalnum() for char in rest)


@given(st.text())
def test_any_text_is_read(text: str):
    for reads in (asks_when, asks_how_many, tells_when, tells_a_number, speaks_of_self):
        assert reads(text) in {True, False}
