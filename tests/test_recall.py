"""When memory is searched, and when what is here is enough."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hindsight_core.cues import language_of
from hindsight_core.embedding import Embedder
from hindsight_core.evaluation.trigger import Asked, measures
from hindsight_core.evaluation.trigger import judge as tried
from hindsight_core.recall import recall_for, recall_needed
from hindsight_core.requests import RecallRequest
from hindsight_core.responses import Recall


@pytest.fixture(params=["by meaning", "by wording alone"])
def needed(request: pytest.FixtureRequest, embedder: Embedder):
    async def one(text: str, **more: object) -> Recall:
        if request.param == "by wording alone":
            return recall_needed(text, **more)  # type: ignore[arg-type]
        vector = (await embedder.embed([text], "passage"))[0]
        return recall_needed(text, vector=vector, embedding_model=embedder.identity.name, **more)  # type: ignore[arg-type]

    return one


@pytest.mark.parametrize(
    "text",
    [
        "what did we decide about the roof last time",
        "book my usual table",
        "is this safe with my allergies?",
        "which size do I wear",
        "我上次说的那家店叫什么",
        "老规矩，来一份",
        "我能吃这个药吗",
        "我妈的生日是哪天",
    ],
)
async def test_what_depends_on_the_person_or_the_past_needs_memory(needed, text: str) -> None:
    assert (await needed(text)).needed


@pytest.mark.parametrize(
    "text",
    [
        "what is the capital of Portugal",
        "translate 'good morning' into Greek",
        "how many grams are in a pound",
        "thanks a lot!",
        "葡萄牙的首都是哪里",
        "把“早上好”翻译成希腊语",
        "一磅等于多少克",
        "谢谢啦！",
    ],
)
async def test_what_can_be_answered_as_it_stands_does_not(needed, text: str) -> None:
    assert not (await needed(text)).needed


@pytest.mark.parametrize(
    ("text", "recent"),
    [
        (
            "make it shorter",
            ["Write a note about the lift.", "Dear residents, the lift is out of service until further notice."],
        ),
        ("再短一点", ["写一条电梯通知", "尊敬的住户：电梯因检修暂停使用，恢复时间另行通知。"]),
    ],
)
async def test_what_was_just_said_needs_no_memory(needed, text: str, recent: list[str]) -> None:
    assert not (await needed(text, recent=recent)).needed


@pytest.mark.parametrize(("carries_on", "assents"), [("continue", "ok"), ("继续", "好的")])
async def test_a_change_of_task_needs_memory(needed, carries_on: str, assents: str) -> None:
    assert (await needed(carries_on, task="tax return", previous_task="holiday plans")).needed
    assert not (await needed(carries_on, task="tax return", previous_task="tax return ")).needed
    assert not (await needed(assents, task="tax return", previous_task="holiday plans")).needed


@pytest.mark.parametrize(
    "text",
    ["What is 17*23?", "thanks!", "Sort these numbers: 3 1 2", "17乘以23等于多少？", "谢谢！", "把5英里换算成公里"],
)
async def test_after_a_change_of_task_empty_talk_and_work_that_stands_alone_need_none(needed, text: str) -> None:
    assert not (await needed(text, task="tax return", previous_task="holiday plans")).needed


@pytest.mark.parametrize("text", ["let's start on it", "我们开始弄吧"])
async def test_a_change_of_task_lowers_the_threshold(needed, text: str) -> None:
    switched = await needed(text, task="tax return", previous_task="holiday plans")
    plain = await needed(text, task="tax return")
    assert 0 < switched.evidence["threshold"] < plain.evidence["threshold"]


@pytest.mark.parametrize(
    ("text", "recent"),
    [
        ("What did she say?", []),
        ("What did she say?", ["What a lovely morning.", "It is, isn't it?"]),
        ("Where is he?", []),
        ("Who is Anna?", []),
        ("她怎么说的？", []),
        ("她怎么说的？", ["今天天气不错。"]),
        ("他现在在哪？", []),
        ("小林是谁？", []),
    ],
)
async def test_somebody_of_whom_nothing_was_said_needs_memory(needed, text: str, recent: list[str]) -> None:
    assert (await needed(text, recent=recent)).needed


@pytest.mark.parametrize(
    ("text", "recent"),
    [
        ("What did she say?", ["Marie Curie gave a speech in Oslo."]),
        ("Who is Ada Lovelace?", []),
        ("Translate: he is late", []),
        ("她怎么说的？", ["居里夫人当时发表了演讲。"]),
        ("鲁迅是谁？", []),
        ("把“他迟到了”翻译成英文", []),
    ],
)
async def test_who_was_just_mentioned_or_is_known_to_everybody_is_left_to_the_model(
    embedder: Embedder, text: str, recent: list[str]
) -> None:
    vector = (await embedder.embed([text], "passage"))[0]
    answer = recall_needed(text, recent=recent, vector=vector, embedding_model=embedder.identity.name)
    assert not answer.needed
    assert "rule" not in answer.evidence


async def test_the_reason_speaks_the_messages_language(needed) -> None:
    assert (await needed("what did I say about the roof")).why.isascii()
    assert language_of((await needed("我上次说的那家店叫什么")).why) == "zh"


@pytest.mark.parametrize("text", ["", " ", "\x00", "😀", "a" * 8000])
async def test_any_text_gets_an_answer(needed, text: str) -> None:
    assert isinstance((await needed(text)).needed, bool)


class Asking:
    """As much of a service as an evaluation of the trigger asks for."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    async def recall(self, request: RecallRequest) -> Recall:
        return await recall_for(request, self._embedder)


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_it_holds_on_turns_that_were_written_before_it_was_tried_on_them(embedder: Embedder, language: str):
    """F1 of .976 and .919 when they were written: look-alikes in pairs, one of which needs memory."""
    file = Path(__file__).parent / "data" / "trigger_turns.jsonl"
    items = [msgspec.json.decode(line, type=Asked) for line in file.read_bytes().splitlines()]
    asking = Asking(embedder)
    lines = [line for item in items if item.lang == language for line in await tried(asking, "n", item)]  # type: ignore[arg-type]
    assert measures(lines)[0].value >= 0.88
