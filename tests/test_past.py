from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hindsight_core.past import asks_what_happened, is_past_question


@pytest.mark.parametrize(
    "question",
    [
        "where did I live before?",
        "Who did I used to work for?",
        "what was my old phone number",
        "What's my previous address?",
        "who was my manager before Dana took over",
        "which bank did I use before I switched?",
        "What was our build tool before Bazel?",
        "who was my dentist before Dr. Lee?",
        "What did we call the project originally?",
        "what was the deadline before the change",
        "What editor did I use back then?",
        "what was my dose initially",
        "my former landlord's name?",
        "what did I drive before the Golf?",
        "remind me where I lived before I moved",
        "以前住哪",
        "我之前的手机号是多少",
        "原来的方案是什么",
        "搬家前住在哪个小区",
        "换工作之前在哪家公司",
        "老地址是哪里",
        "最早的供应商是谁",
        "当初定的价格是多少",
        "上一任房东叫什么",
        "刚入职那会儿带我的是谁",
        "升级之前是什么版本",
    ],
)
def test_a_question_about_how_things_were_is_one(question: str):
    assert is_past_question(question)


@pytest.mark.parametrize(
    "question",
    [
        "when did I buy the car?",
        "what did the doctor say on Monday?",
        "did the parcel arrive?",
        "Did I call Anna before Tuesday?",
        "What did the baby eat before bed?",
        "who called yesterday?",
        "现在住哪",
        "我车是什么时候买的",
        "昨天谁来过",
        "快递到了吗",
    ],
)
def test_a_question_in_the_past_tense_about_what_still_holds_is_not(question: str):
    assert not is_past_question(question)


@pytest.mark.parametrize(
    "question",
    [
        "Have I told you this before?",
        "did I mention my sister before?",
        "remind me before the meeting",
        "finish it before Friday",
        "how old is my dog?",
        "I'm used to it",
        "what do I need to do before the trip?",
        "emails before 1 June 2024",
        "same as before please",
        "周五之前要交什么",
        "2020年以前的照片",
        "出门之前提醒我带伞",
        "你之前说的那家店叫什么",
        "原来如此",
        "过去三天的步数",
        "最早几点能到",
        "我老板叫什么",
        "老家在哪",
    ],
)
def test_words_of_the_past_with_another_meaning_do_not_make_one(question: str):
    assert not is_past_question(question)


def test_a_typographic_apostrophe_changes_nothing():
    assert is_past_question("what’s my previous address") == is_past_question("what's my previous address")


@given(st.text())
def test_any_text_is_judged(text: str):
    assert is_past_question(text) in {True, False}


@pytest.mark.parametrize(
    "question",
    [
        "What did I cook for Ann?",
        "Where was the offsite held?",
        "Which countries have we visited?",
        "Have I ever been to Oslo?",
        "who did I meet two weeks ago",
        "我给小王买了什么",
        "你告诉过我哪些办法",
        "上次去的那家店叫什么",
        "我们什么时候签的合同？",
    ],
)
def test_what_happened_may_be_in_an_old_memory(question: str):
    assert asks_what_happened(question)


@pytest.mark.parametrize(
    "question",
    [
        "What is my address?",
        "where do I work?",
        "Has the order shipped?",
        "what's the status of the migration",
        "Do I like tea?",
        "when is my next appointment?",
        "我的地址是哪个",
        "我的订单到了吗",
        "现在住哪",
        "我不喜欢喜剧片，对吗？",
        "我对什么过敏",
    ],
)
def test_what_is_so_now_is_rather_in_a_new_memory(question: str):
    assert not asks_what_happened(question)
