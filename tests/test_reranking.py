"""The second stage: what hits say about each other may lower some, and never lifts one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hindsight_core.models import Parts
from hindsight_core.question import read
from hindsight_core.ranking import Weights
from hindsight_core.requests import Message, SearchRequest, WriteRequest
from hindsight_core.reranking import DEPTH, rerank
from hindsight_core.stores import Ranked
from samples import memory

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
WEIGHTS = Weights()
PLAIN = read("the kayak", NOW, frozenset())
WHEN = read("when did we buy the kayak?", NOW, frozenset())


def hit(name: str, relevance: float, **fields: object) -> Ranked:
    of = memory(name, **fields)
    parts = Parts(similarity=relevance, lexical=relevance, relevance=relevance, recency=0.5, confidence=1.0)
    return Ranked(memory=of, score=0.6 * relevance + 0.3, parts=parts)


def order(hits: list[Ranked]) -> list[str]:
    return [found.memory.id for found in hits]


def test_a_hit_from_the_session_of_the_best_comes_before_one_that_stands_alone():
    hits = [hit("best", 0.8, session_id="s"), hit("alone", 0.42), hit("beside", 0.4, session_id="s")]
    again = rerank(hits, PLAIN, WEIGHTS)
    assert order(again) == ["best", "beside", "alone"]
    assert again[0] == hits[0]
    assert again[1].parts.relevance == 0.4


def test_the_same_session_of_another_user_is_another_session():
    hits = [
        hit("best", 0.8, session_id="s", user_id="u"),
        hit("other", 0.41, session_id="s", user_id="v"),
        hit("beside", 0.4, session_id="s", user_id="u"),
    ]
    assert order(rerank(hits, PLAIN, WEIGHTS)) == ["best", "beside", "other"]


def test_what_was_answered_to_the_point_counts_for_what_came_before_it():
    hits = [
        hit("reply", 0.8, session_id="s", content="The red one.", context="Which kayak?"),
        hit("stray", 0.41, session_id="s", content="Some kayak."),
        hit("asked", 0.4, session_id="s", content="Which kayak?"),
    ]
    assert order(rerank(hits, PLAIN, WEIGHTS)) == ["reply", "asked", "stray"]


@pytest.mark.parametrize(("told", "untold"), [("Bought it last May.", "Bought it."), ("去年五月买的。", "买的。")])
def test_where_a_time_is_asked_for_a_memory_that_tells_one_comes_first(told: str, untold: str):
    hits = [hit("untold", 0.45, content=untold), hit("told", 0.4, content=told)]
    assert order(rerank(hits, WHEN, WEIGHTS)) == ["told", "untold"]
    assert order(rerank(hits, PLAIN, WEIGHTS)) == ["untold", "told"]


relevances = st.lists(st.floats(0, 1), min_size=0, max_size=70)
sessions = st.lists(st.sampled_from([None, "s", "t"]), min_size=70, max_size=70)


@given(relevances, sessions)
def test_no_score_rises_and_its_parts_still_add_up(values: list[float], names: list[str | None]):
    hits = [hit(f"{n:03}", value, session_id=names[n]) for n, value in enumerate(sorted(values, reverse=True))]
    again = rerank(hits, PLAIN, WEIGHTS)
    assert sorted(order(again)) == order(hits)
    first = {found.memory.id: found for found in hits}
    for found in again:
        assert found.score <= first[found.memory.id].score
        assert 0 <= found.parts.relevance <= first[found.memory.id].parts.relevance
        assert found.score == pytest.approx(0.6 * found.parts.relevance + 0.3)
    if hits:
        assert max(found.parts.relevance for found in again) == pytest.approx(hits[0].parts.relevance)


def test_a_longer_page_begins_like_a_shorter_one():
    hits = [hit(f"{n:03}", 1 - n / 100, session_id=f"s{n % 7}") for n in range(90)]
    assert order(rerank(hits, PLAIN, WEIGHTS))[:20] == order(rerank(hits[:DEPTH], PLAIN, WEIGHTS))[:20]


def test_without_weights_there_is_no_second_stage():
    hits = [hit("best", 0.8, session_id="s"), hit("alone", 0.42), hit("beside", 0.4, session_id="s")]
    off = msgspec.structs.replace(WEIGHTS, session=0.0, next_turn=0.0, asked_when=0.0)
    assert rerank(hits, PLAIN, off) == hits


async def test_a_search_explains_what_the_others_took_and_counts_what_fell(service, caller):
    turns = ["We bought a red kayak for the lake.", "It leaks a little at the stern.", "The shop was in Kendal."]
    messages = tuple(Message(role="user", text=text, at=NOW - timedelta(days=9)) for text in turns)
    together = WriteRequest(messages=messages, session_id="s", extract="none", force=True, reconcile="none", now=NOW)
    await service.write(together, caller)
    await service.write(WriteRequest(content="A kayak needs a licence.", force=True, reconcile="none", now=NOW), caller)
    question = SearchRequest(query="What about the red kayak for the lake?", explain=True, now=NOW)
    answer = await service.search(question, caller)
    assert answer.hits[0].memory.content == turns[0]
    for found in answer.hits:
        assert sum(found.explain.contributions.values()) == pytest.approx(found.score, abs=1e-5)
    (alone,) = [found for found in answer.hits if found.memory.session_id is None]
    assert alone.explain.contributions["others"] < -0.01
    just_above = msgspec.structs.replace(question, min_score=alone.score + 0.001)
    fewer = await service.search(just_above, caller)
    assert alone.memory.id not in {found.memory.id for found in fewer.hits}
    assert len(fewer.hits) + fewer.counts.below_min_score == 4
