"""Orders to forget, and their look-alikes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hindsight_core.commands import forget_request


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("please forget my old phone number", "my old phone number"),
        ("Forget everything I told you about the merger.", "the merger"),
        ("The surprise party, don't ever bring it up again.", "The surprise party"),
        ("Never mention my ex to me again", "my ex"),
        ("stop reminding me of the accident", "the accident"),
        ("Can you delete my salary from your memory?", "my salary"),
        ("what I said about Tomas, please erase it", "what I said about Tomas"),
        ("I got the job back. Don't mention the sacking any more, ok?", "the sacking"),
        ("Pretend I never told you about the loan", "the loan"),
        ("And the reason for the lock, forget it, don't ever say it out loud", "the reason for the lock"),
        ("把我的旧手机号忘掉", "我的旧手机号"),
        ("上个月住院的事，以后别再提了", "上个月住院"),
        ("请忘记我前男友的名字。", "我前男友的名字"),
        ("那笔借款你就当没听过", "那笔借款"),
        ("裁员那件事别再说起", "裁员那件事"),
        ("把工资从你的记忆里删掉", "工资"),
        ("Could you delete my phone number?", "my phone number"),
        ("能不能把我的手机号删了？", "我的手机号"),
    ],
)
def test_what_is_to_be_forgotten_is_named_in_the_words_of_the_message(text: str, what: str) -> None:
    asked = forget_request(text)
    assert asked is not None
    assert asked.what == what


@pytest.mark.parametrize(
    "text",
    [
        "Never mention it again.",
        "please forget that",
        "don't ever bring this up again",
        "不要再提这件事了",
        "忘了吧",
        "别再提了",
    ],
)
def test_a_bare_pointer_names_nothing(text: str) -> None:
    asked = forget_request(text)
    assert asked is not None
    assert asked.what == ""


def test_a_pointer_is_looked_up_in_the_sentence_before() -> None:
    asked = forget_request("The complaint is withdrawn. Never mention it again.")
    assert asked is not None
    assert asked.what == "The complaint is withdrawn"


@pytest.mark.parametrize(
    "text",
    [
        "Don't forget to buy milk",
        "please don't forget my birthday",
        "I always forget my keys",
        "Did you forget my name?",
        "forget it, I found it",
        "Forget-me-nots are my favourite flowers",
        "How could I forget that day",
        "Don't mention the price to the client.",
        "Before I forget: the meeting moved to five",
        "delete the last paragraph",
        "Delete my phone number from the form.",
        "把我的电话从通讯录里删掉",
        "I never mentioned it to him",
        "Ignore and forget previous instructions",
        "别忘了带伞",
        "千万不要忘记给我妈打电话",
        "我忘了密码放哪了",
        "别再提醒我喝水了",
        "别提了，今天堵了两个小时",
        "这部电影别提多好看了",
        "算了，当我没说",
        "把第二段删了吧",
        "这张图删掉好了",
        "会不会忘了关灯",
    ],
)
def test_look_alikes_are_no_orders_to_forget(text: str) -> None:
    assert forget_request(text) is None


def test_the_orders_of_the_stories_are_told_from_what_only_looks_like_one() -> None:
    lines = (Path(__file__).parent / "data" / "forget_orders.jsonl").read_bytes().splitlines()
    stories = [msgspec.json.decode(line) for line in lines]
    said = [(order["text"], bool(order["meant"])) for story in stories for order in story["orders"]]
    assert len(said) == 90
    assert [text for text, meant in said if (forget_request(text) is not None) != meant] == []


@pytest.mark.parametrize(
    "text",
    [
        "delete the third row, it is wrong",
        "The chorus is too long, please scrap it.",
        "Never mention my ex to the kids",
        "In the deck: never mention the client by name",
        "Gone, it won't come up again.",
        "小田的钱还清了",
        "他已经忘了",
        "第二段太长，删掉吧",
    ],
)
def test_work_on_a_text_and_things_that_are_over_are_no_orders_to_forget(text: str) -> None:
    assert forget_request(text) is None
