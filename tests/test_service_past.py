"""What was so before is found among many other memories, whatever little the question says of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from hindsight_core.models import Contest
from hindsight_core.requests import SearchRequest, WriteRequest
from samples import puts, successor

TOLD = datetime(2026, 3, 1, 9, tzinfo=UTC)
DAY = timedelta(days=1)
MOVED = TOLD + DAY
ASKED = TOLD + 2 * DAY

STORIES = {
    "en": ("My shipping address is 12 Rose Lane, Leeds", "I moved. My new address is 7 Hill Street, York"),
    "zh": ("我的收货地址是上海市徐汇区漕溪路88号", "我搬家了，新地址是杭州市西湖区文三路12号"),
}
QUESTIONS = [
    ("en", "Where did I live before?"),
    ("en", "Where did I use to live?"),
    ("zh", "我以前住在哪里？"),
    ("zh", "我原来住在哪儿"),
]
NAMES = {
    "en": [
        "Maya",
        "Tom",
        "Priya",
        "Leo",
        "Anna",
        "Ben",
        "Clara",
        "Dev",
        "Ella",
        "Finn",
        "Grace",
        "Hugo",
        "Iris",
        "Jack",
        "Kira",
        "Liam",
        "Mona",
        "Noah",
        "Olga",
        "Paul",
    ],
    "zh": [
        "小李",
        "小王",
        "老张",
        "阿强",
        "小美",
        "大刘",
        "婷婷",
        "阿伟",
        "小雪",
        "老周",
        "小芳",
        "阿杰",
        "小丽",
        "老陈",
        "小明",
        "阿珍",
        "小杰",
        "老吴",
        "小红",
        "阿亮",
    ],
}
HABITS = {
    "en": ["I was at school with {} in Sheffield", "{} and I play tennis", "{} is allergic to nuts"],
    "zh": ["我跟{}在成都市一起上学", "我和{}打网球", "{}对花生过敏"],
}
HABITS["en"] += ["{}'s gym is on Park Avenue", "I met {} in Lisbon", "{} drives a blue Volvo"]
HABITS["zh"] += ["{}的健身房在公园路", "我在里斯本认识了{}", "{}开一辆蓝色的沃尔沃"]


async def told(service, caller, language, others):
    """The ids of the old and the new address, among so many other memories."""
    texts = [habit.format(name) for habit, name in product(HABITS[language], NAMES[language])]
    step = len(texts) // others
    for n, text in enumerate(texts[::step][:others]):
        request = WriteRequest(content=text, force=True, reconcile="none", now=TOLD - DAY + timedelta(minutes=n))
        await service.write(request, caller)
    ids = []
    for text, at in zip(STORIES[language], (TOLD, MOVED), strict=True):
        request = WriteRequest(content=text, key="user.address", confidence=0.9, force=True, now=at)
        (decision,) = (await service.write(request, caller)).results
        ids.append(decision.memory.id)
    assert decision.superseded == (ids[0],)
    return ids


@pytest.mark.parametrize("others", [20, 120])
@pytest.mark.parametrize(("language", "question"), QUESTIONS)
async def test_what_was_so_before_is_among_the_first_three_marked(service, caller, language, question, others):
    old, new = await told(service, caller, language, others)
    found = await service.search(SearchRequest(query=question, now=ASKED, explain=True), caller)
    first = [hit.memory.id for hit in found.hits[:3]]
    assert old in first
    hit = found.hits[first.index(old)]
    assert (hit.marked, hit.newer) == ("superseded", new)
    assert hit.explain is not None
    assert hit.explain.evidence["replaced"] > 0
    for hit in found.hits:
        assert hit.explain is not None
        assert sum(hit.explain.contributions.values()) == pytest.approx(hit.score, abs=1e-4)


@pytest.mark.parametrize(
    ("language", "question"), [("en", "What did Hill Street replace?"), ("zh", "文三路之前的地址呢？")]
)
async def test_what_was_replaced_is_as_relevant_as_what_replaced_it(service, caller, language, question):
    old, _ = await told(service, caller, language, 20)
    found = await service.search(SearchRequest(query=question, now=ASKED), caller)
    assert found.hits[0].memory.id == old


@pytest.mark.parametrize(("language", "question"), [("en", "What is my address?"), ("zh", "我的地址是哪个？")])
async def test_a_question_for_what_is_so_now_looks_at_nothing_that_was_replaced(service, caller, language, question):
    old, new = await told(service, caller, language, 20)
    found = await service.search(SearchRequest(query=question, now=ASKED, explain=True), caller)
    assert found.hits[0].memory.id == new
    assert old not in [hit.memory.id for hit in found.hits]
    assert not [hit for hit in found.hits if hit.explain is not None and "replaced" in hit.explain.evidence]


@pytest.mark.parametrize(
    ("language", "text", "question"),
    [
        ("en", "I used to play chess with my grandfather", "Who did I use to play chess with?"),
        ("zh", "我以前常和爷爷下象棋", "我以前常和谁下象棋？"),
    ],
)
async def test_what_answers_comes_before_what_was_only_replaced(service, caller, language, text, question):
    await told(service, caller, language, 20)
    await service.write(WriteRequest(content=text, force=True, reconcile="none", now=TOLD), caller)
    found = await service.search(SearchRequest(query=question, now=ASKED), caller)
    assert found.hits[0].memory.content == text


@pytest.mark.parametrize(
    ("language", "question", "today"),
    [("en", "Where did I live before?", "What is my address?"), ("zh", "我以前住在哪里？", "我的地址是哪个？")],
)
async def test_what_may_have_been_replaced_stands_back_for_what_is_so_now_and_not_for_what_was(
    service, store, caller, language, question, today
):
    old, new = await told(service, caller, language, 20)
    (record,) = await store.get("default", [old])
    contest = Contest(id=new, probability=0.6, reason="Perhaps.")
    doubted = successor(record, status="active", superseded_by=None, valid_to=None, contested_by=(contest,))
    await store.commit("default", puts(doubted, run_id=caller.new_id(MOVED)))
    for asked, first in ((question, old), (today, new)):
        found = await service.search(SearchRequest(query=asked, now=ASKED, top_k=20), caller)
        assert next(hit.memory.id for hit in found.hits if hit.memory.id in {old, new}) == first
        assert {hit.memory.id: hit.marked for hit in found.hits}[old] == "contested"
