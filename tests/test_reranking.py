"""The second stage: what hits say about each other may put some before others, and never lifts a score."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hindsight_core.models import Parts
from hindsight_core.question import Question, read
from hindsight_core.ranking import Weights
from hindsight_core.requests import Message, SearchRequest, WriteRequest
from hindsight_core.reranking import DEPTH, WEIGHTS, Comparison, compares, rerank
from hindsight_core.stores import Ranked
from samples import memory

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
ALL = Weights()
OFF = msgspec.structs.replace(ALL, **dict.fromkeys(WEIGHTS, 0.0))
PLAIN = read("the kayak", NOW, frozenset())


def only(**weights: float) -> Weights:
    return msgspec.structs.replace(OFF, **weights)


def asked(text: str, *speakers: str) -> Question:
    return read(text, NOW, frozenset(speakers))


def hit(name: str, relevance: float, *, recency: float = 0.5, similarity: float = 0.0, **fields: object) -> Ranked:
    parts = Parts(similarity=similarity, relevance=relevance, recency=recency, confidence=1.0)
    return Ranked(memory=memory(name, **fields), score=0.6 * relevance + 0.2 * recency + 0.2, parts=parts)


def order(hits: list[Ranked]) -> list[str]:
    return [found.memory.id for found in hits]


def test_a_hit_from_the_session_of_the_best_comes_before_one_that_stands_alone():
    hits = [hit("best", 0.8, session_id="s"), hit("alone", 0.42), hit("beside", 0.4, session_id="s")]
    again = rerank(hits, PLAIN, only(session=0.3))
    assert order(again) == ["best", "beside", "alone"]
    assert again[:2] == [hits[0], hits[2]]
    # It stands after another, so it has no higher score, and what it lost is relevance.
    assert again[2].score == hits[2].score
    assert again[2].parts.relevance == pytest.approx(0.4)


def test_a_name_says_nothing_for_a_hit_that_has_nothing_to_do_with_the_question():
    named = "We had lunch at Bella Napoli with Tom"
    hits = [hit("plain", 0.01), hit("named", 0.0, content=named)]
    assert order(rerank(hits, PLAIN, only(names=0.15))) == ["plain", "named"]
    hits = [hit("plain", 0.31), hit("named", 0.3, content=named)]
    assert order(rerank(hits, PLAIN, only(names=0.15))) == ["named", "plain"]


def test_the_last_of_what_has_nothing_to_do_with_the_question_is_as_good_as_the_first():
    early, late = NOW - timedelta(days=9), NOW - timedelta(days=1)
    last = asked("What was my most recent order?")
    for relevance, found in ((0.5, ["late", "early"]), (0.0, ["early", "late"])):
        hits = [hit("early", relevance, observed_at=early), hit("late", relevance, observed_at=late)]
        assert order(rerank(hits, last, only(last=0.25))) == found


def test_the_same_session_of_another_user_is_another_session():
    hits = [
        hit("best", 0.8, session_id="s", user_id="u"),
        hit("other", 0.41, session_id="s", user_id="v"),
        hit("beside", 0.4, session_id="s", user_id="u"),
    ]
    assert order(rerank(hits, PLAIN, only(session=0.3))) == ["best", "beside", "other"]


def test_what_was_answered_to_the_point_counts_for_what_came_before_it():
    hits = [
        hit("reply", 0.8, session_id="s", content="The red one.", context="Which kayak?"),
        hit("stray", 0.41, session_id="s", content="Some kayak."),
        hit("asked", 0.4, session_id="s", content="Which kayak?"),
    ]
    assert order(rerank(hits, PLAIN, only(next_turn=0.1))) == ["reply", "asked", "stray"]


@pytest.mark.parametrize(("question", "remark"), [("Which kayak?", "A kayak."), ("哪条皮划艇？", "有条皮划艇。")])
def test_a_reply_to_a_question_that_fits_comes_before_one_to_a_remark(question: str, remark: str):
    def ask(before: str) -> list[str]:
        hits = [
            hit("said", 0.8, session_id="s", content=before),
            hit("stray", 0.41, session_id="s", content="Some kayak.", context="So."),
            hit("reply", 0.4, session_id="s", content="The red one.", context=before),
        ]
        return order(rerank(hits, PLAIN, only(reply=0.2)))

    assert ask(question) == ["said", "reply", "stray"]
    assert ask(remark) == ["said", "stray", "reply"]


def test_a_reply_counts_where_the_question_itself_was_not_kept():
    hits = [
        hit("stray", 0.41, content="Some kayak."),
        hit("reply", 0.4, content="The red one.", context="Which kayak?"),
    ]
    assert order(rerank(hits, PLAIN, only(reply=0.2))) == ["reply", "stray"]


@pytest.mark.parametrize(
    ("weight", "question", "other", "having", "lacking"),
    [
        ("asked_when", "when did we buy the kayak?", "who bought the kayak?", "Bought it last May.", "Bought it."),
        ("asked_when", "什么时候买的？", "谁买的？", "去年五月买的。", "买的。"),
        ("asked_amount", "How many kayaks are there?", "Which kayaks are there?", "We have four.", "We have some."),
        ("asked_amount", "有多少条？", "有哪些？", "有4条。", "有一些。"),
        ("asked_where", "Where do we paddle?", "What do we paddle?", "We paddle in Kendal.", "We paddle a lot."),
        ("asked_where", "我们在哪里划船？", "我们什么时候划船？", "我们在杭州市划船。", "我们常常划船。"),
        ("own", "What do I paddle?", "What floats?", "I paddle a kayak.", "Kayaks need paddling."),
        ("own", "我划什么？", "划什么？", "我划皮划艇。", "皮划艇要划。"),
    ],
)
def test_what_has_what_is_asked_for_comes_first(weight: str, question: str, other: str, having: str, lacking: str):
    hits = [hit("lacks", 0.41, content=lacking, source="user"), hit("has", 0.4, content=having, source="user")]
    assert order(rerank(hits, asked(question), only(**{weight: 0.2}))) == ["has", "lacks"]
    assert order(rerank(hits, asked(other), only(**{weight: 0.2}))) == ["lacks", "has"]


def test_what_somebody_else_says_to_whom_it_is_about_comes_later():
    hits = [
        hit("bob", 0.41, content="You paddle a lot.", speaker="Bob"),
        hit("ann", 0.4, content="You paddle a lot.", speaker="Ann"),
    ]
    assert order(rerank(hits, asked("What does Ann paddle?", "ann", "bob"), only(remark=-0.2))) == ["ann", "bob"]
    assert order(rerank(hits, asked("Who paddles?", "ann", "bob"), only(remark=-0.2))) == ["bob", "ann"]


@pytest.mark.parametrize(
    ("question", "having", "lacking"),
    [
        ("Where did we buy the kayak?", "We bought two.", "A kayak, a kayak."),
        ("我们在哪里买皮划艇？", "在店里买的。", "皮划艇，皮划艇。"),
    ],
)
def test_a_rare_word_of_the_question_counts_for_more_than_a_common_one(question: str, having: str, lacking: str):
    hits = [hit(f"{n}", 0.9, content=lacking) for n in range(8)]
    hits += [hit("lacks", 0.41, content=lacking), hit("has", 0.4, content=having)]
    assert order(rerank(hits, asked(question), only(words=0.2)))[-2:] == ["has", "lacks"]
    # The turn before it counts as well, and the other turns of its session.
    replies = [*hits[:-1], hit("has", 0.4, content="In May.", context=having)]
    assert order(rerank(replies, asked(question), only(words=0.2)))[-2:] == ["has", "lacks"]
    session = [hit("far", 0.9, content=having, session_id="s"), *hits[1:9], hit("has", 0.4, session_id="s")]
    assert order(rerank(session, asked(question), only(session_words=0.2)))[-2:] == ["has", "lacks"]


@pytest.mark.parametrize("name", ["In the end Ann took the red one.", "《漂流》讲的是这个。"])
def test_what_calls_things_by_their_names_comes_first(name: str):
    hits = [hit("vague", 0.41, content="It was the red one. 那个。"), hit("named", 0.4, content=name)]
    assert order(rerank(hits, PLAIN, only(names=0.2))) == ["named", "vague"]


@pytest.mark.parametrize(
    "text", ["What did we paddle last year?", "去年我们划了什么？", "What did we paddle before 2025?"]
)
def test_a_long_range_of_time_prefers_what_was_said_in_it(text: str):
    question = asked(text)
    assert question.window is not None
    assert question.days == ()
    hits = [hit("now", 0.41, observed_at=NOW), hit("then", 0.4, observed_at=datetime(2024, 8, 1, tzinfo=UTC))]
    assert order(rerank(hits, question, only(window=0.2))) == ["then", "now"]


def test_whom_a_question_names_is_believed_about_himself():
    hits = [
        hit("bob", 0.41, content="I paddle a kayak.", speaker="Bob"),
        hit("ann", 0.4, content="I paddle a kayak.", speaker="Ann"),
    ]
    assert order(rerank(hits, asked("What does Ann paddle?", "ann", "bob"), only(own=0.2))) == ["ann", "bob"]


@pytest.mark.parametrize(("asked_for", "first"), [("the user", "user"), ("the assistant", "agent")])
def test_who_is_called_by_his_part_comes_first(asked_for: str, first: str):
    hits = [hit("user", 0.4, source="user"), hit("agent", 0.4, source="agent")]
    assert order(rerank(hits, asked(f"Which kayak did {asked_for} want?"), only(part=0.1)))[0] == first
    assert rerank(hits, asked("Which kayak did they want?"), only(part=0.1)) == hits


def test_a_piece_of_a_conversation_asks_for_no_kind_of_answer():
    talk = asked("User: I saw one.\nAssistant: When?\nUser: When I was there, how many do you think?")
    assert (talk.when, talk.amount, talk.own) == (False, False, False)


def test_what_has_been_replaced_comes_first_among_weak_ones_as_far_as_that_is_sure():
    hits = [hit("other", 0.1), hit("doubted", 0.02), hit("old", 0.01)]
    replaced = {"old": ("gone", 1.0), "doubted": ("gone", 0.3)}
    comparison = Comparison(hits, PLAIN, ALL, replaced)
    assert order(comparison.order(hits)) == ["old", "doubted", "other"]
    assert comparison.reasons(hits[2])["replaced"] == pytest.approx(1.2 * ALL.replaced)
    assert order(Comparison(hits, PLAIN, ALL).order(hits)) == ["other", "doubted", "old"]


def test_what_has_been_replaced_is_as_relevant_as_what_replaced_it():
    hits = [hit("new", 0.9), hit("other", 0.5), hit("old", 0.1)]
    comparison = Comparison(hits, PLAIN, only(inherited=1.0), {"old": ("new", 1.0)})
    assert comparison.place(hits[2]) == pytest.approx(comparison.place(hits[0]))
    # More relevant than what replaced it, it inherits nothing.
    assert "inherited" not in Comparison(hits, PLAIN, ALL, {"new": ("old", 1.0)}).reasons(hits[0])


def test_what_is_only_new_does_not_come_before_what_is_to_the_point():
    hits = [hit("new", 0.2, recency=1.0), hit("old", 0.45, recency=0.0)]
    assert hits[0].score > hits[1].score
    again = rerank(hits, PLAIN, ALL)
    assert order(again) == ["old", "new"]
    assert again[1].score == again[0].score
    # Where both are about as relevant, the newer one stays first.
    close = [hit("new", 0.42, recency=1.0), hit("old", 0.45, recency=0.0)]
    assert rerank(close, PLAIN, ALL) == close


def test_relevance_that_was_clipped_still_tells_hits_apart():
    hits = [hit("far", 0.0, similarity=0.1), hit("near", 0.0, similarity=0.4)]
    assert order(rerank(hits, PLAIN, ALL)) == ["near", "far"]


def test_what_relevance_does_not_hold_comes_off_the_bias():
    hits = [hit("new", 0.0, recency=1.0, session_id="s"), hit("old", 0.2, recency=0.0, session_id="t")]
    first, second = rerank(hits, PLAIN, only(contrast=2.0))
    assert (first.memory.id, second.memory.id) == ("old", "new")
    assert second.parts.relevance == 0.0
    assert second.parts.bias == pytest.approx(first.score - 0.4)


def test_what_comes_along_later_stands_where_it_would_have_stood():
    hits = [hit(f"{n}", 0.8 - n / 10, recency=0.0) for n in range(4)]
    late = hit("late", 0.25, recency=1.0)
    assert late.score > hits[3].score
    again = Comparison(hits, PLAIN, only(contrast=2.0)).order([*hits, late])
    assert order(again) == ["0", "1", "2", "3", "late"]
    assert again[4].score == hits[3].score


def test_what_stands_beneath_another_comes_right_behind_it_with_no_higher_score():
    hits = [hit(f"{n}", 0.8 - n / 10) for n in range(5)]
    for weights in (OFF, ALL):
        again = Comparison(hits, PLAIN, weights).order(
            hits, {"0": ["2"], "1": ["0", "3"], "4": ["gone"], "gone": ["4"]}
        )
        assert order(again) == ["2", "0", "3", "1", "4"]
        assert [found.score for found in again] == [
            hits[2].score,
            hits[2].score,
            hits[3].score,
            hits[3].score,
            hits[4].score,
        ]
        for found in again:
            parts = found.parts
            assert found.score == pytest.approx(0.6 * parts.relevance + 0.2 * parts.recency + 0.2 + parts.bias)


def test_those_that_stand_beneath_each_other_in_a_circle_come_last_in_their_order():
    hits = [hit(f"{n}", 0.8 - n / 10) for n in range(3)]
    assert order(Comparison(hits, PLAIN, OFF).order(hits, {"0": ["1"], "1": ["0"], "2": ["2"]})) == ["2", "0", "1"]


@given(st.dictionaries(st.integers(0, 20), st.sets(st.integers(0, 20), max_size=3), max_size=12))
def test_whoever_stands_beneath_whom_a_shorter_page_is_the_beginning_of_a_longer_one(links: dict[int, set[int]]):
    hits = [hit(f"{n}", 0.9 - n / 30) for n in range(21)]
    beneath = {f"{one}": [f"{other}" for other in others] for one, others in links.items()}
    again = Comparison(hits, PLAIN, ALL).order(hits, beneath)
    assert sorted(order(again)) == sorted(order(hits))
    places = {name: n for n, name in enumerate(order(again))}
    downwards = {one: others for one, others in links.items() if all(other > one for other in others)}
    if downwards == links:  # no circles
        assert all(places[f"{other}"] < places[f"{one}"] for one, others in links.items() for other in others)


relevances = st.lists(st.floats(0, 1), min_size=0, max_size=120)
recencies = st.lists(st.floats(0, 1), min_size=120, max_size=120)
sessions = st.lists(st.sampled_from([None, "s", "t"]), min_size=120, max_size=120)


@given(relevances, recencies, sessions)
def test_no_score_rises_and_its_parts_still_add_up(values: list[float], fresh: list[float], names: list[str | None]):
    hits = [hit(f"{n:03}", value, recency=fresh[n], session_id=names[n]) for n, value in enumerate(values)]
    hits.sort(key=lambda found: -found.score)
    again = rerank(hits, PLAIN, ALL)
    assert sorted(order(again)) == sorted(order(hits))
    assert [found.score for found in again] == sorted((found.score for found in again), reverse=True)
    first = {found.memory.id: found for found in hits}
    for found in again:
        parts, before = found.parts, first[found.memory.id]
        assert 0 <= found.score <= before.score
        assert 0 <= parts.relevance <= before.parts.relevance
        assert (parts.recency, parts.confidence) == (before.parts.recency, before.parts.confidence)
        assert found.score == pytest.approx(0.6 * parts.relevance + 0.2 * parts.recency + 0.2 + parts.bias)


def test_a_longer_page_begins_like_a_shorter_one():
    hits = [hit(f"{n:03}", 1 - n / 200, session_id=f"s{n % 7}") for n in range(190)]
    assert order(rerank(hits, PLAIN, ALL))[:20] == order(rerank(hits[:DEPTH], PLAIN, ALL))[:20]


def test_without_weights_there_is_no_second_stage():
    hits = [hit("best", 0.8, session_id="s"), hit("alone", 0.42), hit("beside", 0.4, session_id="s")]
    assert not compares(OFF)
    assert rerank(hits, PLAIN, OFF) == hits


async def test_a_search_explains_what_the_others_took_and_counts_what_fell(service, caller):
    turns = ["We bought a red kayak for the lake.", "It leaks a little at the stern.", "The shop was in Kendal."]
    messages = tuple(Message(role="user", text=text, at=NOW - timedelta(days=90)) for text in turns)
    together = WriteRequest(messages=messages, session_id="s", extract="none", force=True, reconcile="none", now=NOW)
    await service.write(together, caller)
    await service.write(WriteRequest(content="A kayak needs a licence.", force=True, reconcile="none", now=NOW), caller)
    question = SearchRequest(query="What leaks in the red kayak for the lake?", explain=True, now=NOW)
    answer = await service.search(question, caller)
    for found in answer.hits:
        assert sum(found.explain.contributions.values()) == pytest.approx(found.score, abs=1e-5)
    (alone,) = [found for found in answer.hits if found.memory.session_id is None]
    assert alone.explain.contributions["others"] < -0.001
    assert alone.explain.evidence["words"] > 0
    for least in sorted(found.score for found in answer.hits):
        fewer = await service.search(msgspec.structs.replace(question, min_score=least + 0.0001), caller)
        assert all(found.score > least for found in fewer.hits)
        assert len(fewer.hits) + fewer.counts.below_min_score == 4
