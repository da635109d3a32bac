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


async def test_a_change_of_task_needs_memory(needed) -> None:
    assert (await needed("continue", task="tax return", previous_task="holiday plans")).needed
    assert not (await needed("ok", task="tax return", previous_task="tax return ")).needed


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
