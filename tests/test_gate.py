"""What the gate keeps, refuses and leaves, with and without the vector, in both languages."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from hindsight_core.cues import language_of
from hindsight_core.embedding import Embedder
from hindsight_core.extraction import Candidate
from hindsight_core.gate import GateSettings, Verdict, find_secret, judge, weigh
from hindsight_core.handover import is_handed_over
from hindsight_core.hearing import hear
from hindsight_core.learned import shipped
from hindsight_core.models import Source
from hindsight_core.requests import Role

SOURCES: dict[Role, Source] = {"user": "user", "assistant": "agent", "tool": "tool"}


def candidate(text: str, role: Role = "user", context: str | None = None) -> Candidate:
    return Candidate(index=0, text=text, role=role, source=SOURCES[role], context=context)


@pytest.fixture(params=["by meaning", "by wording alone"])
def gate(request: pytest.FixtureRequest, embedder: Embedder):
    """Judges a text as a write does, and as one does whose embedder the weights do not know."""

    async def one(text: str, role: Role = "user", context: str | None = None, **more: object) -> Verdict:
        if request.param == "by wording alone":
            return judge(candidate(text, role, context), vector=None, **more)  # type: ignore[arg-type]
        vector = (await embedder.embed([candidate(text, role).statement], "passage"))[0]
        verdict = judge(candidate(text, role, context), vector=vector, embedding_model=embedder.identity.name, **more)  # type: ignore[arg-type]
        assert verdict.refused or verdict.evidence["by_meaning"]
        return verdict

    return one


@pytest.mark.parametrize(
    "text",
    [
        "我对花生过敏，点餐时请一定避开。",
        "I'm allergic to peanuts, so please leave them out of whatever you order.",
        "我妈有糖尿病，别推荐甜的",
    ],
)
async def test_what_harms_when_it_is_forgotten_is_kept_whatever_else_is_said_with_it(gate, text: str) -> None:
    verdict = await gate(text)
    assert verdict.keep
    assert verdict.evidence["density"]["vital"]


@pytest.mark.parametrize(
    "text",
    [
        "What can I eat if I'm allergic to peanuts?",
        "如果我对花生过敏，那就不能吃什么？",
        "帮我写一封对猫毛过敏的请假条",
        "Write a story about a girl who is allergic to cats",
    ],
)
async def test_what_only_speaks_of_an_illness_is_not_kept_for_it(gate, text: str) -> None:
    verdict = await gate(text)
    assert not verdict.keep


@pytest.mark.parametrize("text", ["What's the weather in Beijing tomorrow", "北京明天天气怎么样"])
async def test_a_question_about_the_weather_is_skipped(gate, text: str) -> None:
    verdict = await gate(text)
    assert not verdict.keep
    assert not verdict.refused
    assert verdict.scores.total < verdict.scores.threshold == 0.6


@pytest.mark.parametrize("text", ["from now on show temperatures in Celsius", "我以后查天气都默认用摄氏度"])
async def test_how_temperatures_are_shown_is_a_lasting_preference(gate, text: str) -> None:
    verdict = await gate(text)
    assert verdict.keep
    assert (verdict.kind, verdict.memory_type, verdict.status) == ("preference", "semantic", "active")
    assert verdict.ttl_seconds is None


@pytest.mark.parametrize("text", ["maybe the user likes window seats", "用户可能喜欢靠窗的座位"])
async def test_an_agents_guess_is_pending_and_never_sure(gate, text: str) -> None:
    verdict = await gate(text, "assistant")
    assert verdict.keep
    assert (verdict.kind, verdict.status) == ("speculation", "pending")
    assert verdict.confidence <= 0.5


@pytest.mark.parametrize(
    "text",
    [
        "My shipping address is 12 Elm Street, Leeds.",
        "I've moved, my new address is 4 Oak Road, York.",
        "我的收货地址是上海市徐汇区漕溪北路8号",
        "我搬家了，新地址是杭州市西湖区文三路9号",
        "I am allergic to peanuts",
        "我对花生过敏",
        "I live in Berlin",
        "我叫小明",
        "By the way, I'm allergic to cats.",
        "And btw I'm vegetarian.",
        "对了，我对猫过敏。",
        "顺便说一下，我吃素",
    ],
)
async def test_plain_facts_are_kept_as_facts(gate, text: str) -> None:
    verdict = await gate(text)
    assert verdict.keep
    assert (verdict.kind, verdict.memory_type, verdict.status) == ("fact", "semantic", "active")


async def test_everyday_messages_are_kept_and_skipped_as_anyone_would(embedder: Embedder) -> None:
    lines = (Path(__file__).parent / "data" / "gate_everyday.jsonl").read_text("utf-8").splitlines()
    items = [json.loads(line) for line in lines]
    vectors = await embedder.embed([item["text"] for item in items], "passage")
    wrong: list[str] = []
    for item, vector in zip(items, vectors, strict=True):
        verdict = judge(candidate(item["text"], item["role"]), vector=vector, embedding_model=embedder.identity.name)
        kept, kind = item["expect"]["keep"], item["expect"]["kind"]
        if verdict.keep is not kept or (kept and kind not in {None, verdict.kind}):
            wrong.append(f"{item['text']} ({'kept' if verdict.keep else 'skipped'}, {verdict.kind})")
    assert not wrong


@pytest.mark.parametrize("text", ["We signed the lease yesterday afternoon", "我们昨天下午签了租约"])
async def test_what_happened_is_episodic(gate, text: str) -> None:
    verdict = await gate(text)
    assert verdict.keep
    assert (verdict.kind, verdict.memory_type) == ("event", "episodic")


@pytest.mark.parametrize(
    ("text", "role"),
    [
        ("ok, thanks", "user"),
        ("哈哈哈好的", "user"),
        ("I'm so tired right now", "user"),
        ("好饿啊", "user"),
        ("Would you like me to book a table?", "assistant"),
        ("需要我帮您预订吗？", "assistant"),
        ("Downloading 43% 12.1 MB/s eta 0:09", "tool"),
        ("正在加载，请稍候", "tool"),
    ],
)
async def test_talk_passing_states_offers_and_noise_are_skipped(gate, text: str, role: Role) -> None:
    assert not (await gate(text, role)).keep


@pytest.mark.parametrize(
    "text",
    [
        'Translate into Italian: "I am allergic to peanuts and I live in Berlin."',
        "Summarise this: I have always preferred window seats and I hate aisle seats.",
        "润色下面这段：我住在北京，我最喜欢靠窗的座位。",
        "把“我对花生过敏”翻译成英文",
        "Check my spelling\n\nI am allergic to peanuts and I live in Berlin.",
        "I am allergic to peanuts and I live in Berlin. Please translate this into Italian.",
        "帮我润色一下\n我住在北京，对花生过敏。",
        "我住在北京，对花生过敏。请把上面这段译成英文。",
    ],
)
async def test_a_text_handed_over_is_nobodys_fact(gate, text: str) -> None:
    verdict = await gate(text)
    assert not verdict.keep
    assert verdict.scores.density == verdict.scores.durability == 0
    assert not (await gate(text, settings=GateSettings(threshold=0.0))).keep


@pytest.mark.parametrize(
    ("text", "sort"),
    [
        ("the wifi password is kestrel!88two", "password"),
        ("DB_PASSWORD=quilt#7Falcon", "password"),
        ("use this api key: zk_test_f93Hq0PpTe72LmXw", "API key"),
        ("AKIAIOSFODNN7EXAMPLE", "API key"),
        ("token eyJhbGciOiJIUzI1NiJ9.eyJ1aWQiOjd9.k3fJx", "access token"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----", "private key"),
        ("postgres://svc:Tr0ub4dor@db.internal:5432/app", "password"),
        ("pay with 4111 1111 1111 1111", "card number"),
        ("my bank PIN is 4071", "PIN"),
        ("the door code's 5-5-0-9-1", "PIN"),
        ("我的密码是 Xiaoman@2020", "password"),
        ("支付密码 860913", "PIN"),
        ("短信验证码 493022", "PIN"),
        ("银行卡号 6222 0210 0112 3456 788", "card number"),
        ("密钥：ak93kd02ldPq8s7Xz1", "API key"),
    ],
)
async def test_secrets_are_refused_by_name_and_never_repeated(gate, text: str, sort: str) -> None:
    assert find_secret(text) == sort
    verdict = await gate(text)
    assert verdict.refused
    assert not verdict.keep
    value = max(text.replace("：", " ").split(), key=len)
    assert value not in msgspec.json.encode(verdict).decode()


@pytest.mark.parametrize(
    "text",
    [
        "my password is too long to type",
        "The password policy: change it every 90 days",
        "passwords live in the vault",
        "order 48213-B was delivered at 16:42",
        "call me on 0161 555 0177",
        "the meeting code of conduct is on page 12",
        "我们公司密码强制90天一换",
        "部署用的密钥存在 1Password 的 ci-bot 条目里",
        "我的手机号是13800000000",
        "工号 10346，户号 300418925",
    ],
)
def test_talk_about_secrets_and_plain_numbers_are_no_secrets(text: str) -> None:
    assert find_secret(text) is None


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("What size shoes do you wear?", "43"),
        ("How often does she take her thyroid tablets?", "half a tablet twice a day"),
        ("您穿多大码的鞋？", "43码"),
        ("她的甲状腺药怎么吃？", "一天两次，每次半片"),
        ("Any allergies I should know about, for you or your husband?", "penicillin, him"),
    ],
)
async def test_a_short_answer_about_somebody_is_kept_for_its_question(gate, asked: str, answer: str) -> None:
    verdict = await gate(answer, context=asked)
    assert verdict.keep
    assert verdict.kind != "event"


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("Would you like the red or the blue one?", "the red one"),
        ("Shall I book it for you?", "43"),
        ("What is 6 times 7 plus 1?", "43"),
        ("What size shoes do you wear?", "hang on, one sec"),
        ("您穿多大码的鞋？", "等一下"),
        ("What size shoes do you wear?", "why do you ask?"),
    ],
)
async def test_an_answer_to_an_offer_or_about_nobody_gains_nothing(gate, asked: str, answer: str) -> None:
    assert (await gate(answer, context=asked)).scores == (await gate(answer)).scores


async def test_each_score_names_what_it_is_made_of(gate) -> None:
    verdict = await gate("I think we moved the standup to Tuesdays", task_similarity=0.5)
    shown = verdict.evidence
    assert set(shown) == {"density", "relevance", "durability", "explicitness", "kinds", "by_meaning"}
    assert {"worth", "needed", "words", "cues"} <= set(shown["density"])
    assert shown["relevance"] == {"similarity": 0.5}
    assert {"lasting", "cues"} == set(shown["durability"])
    assert shown["explicitness"]["cues"] == ["hedge"]
    assert sum(shown["kinds"].values()) == pytest.approx(1, abs=1e-3)


async def test_a_hedge_lowers_the_confidence_and_a_plain_word_does_not(gate) -> None:
    plain, hedged = await gate("We meet on Tuesdays"), await gate("I think we meet on Tuesdays")
    assert plain.confidence == 1.0
    assert hedged.confidence < 1.0
    assert hedged.scores.explicitness < plain.scores.explicitness
    assert (await gate("I think we meet on Tuesdays", kind="fact", confidence=0.9)).confidence == 0.9


async def test_the_total_is_the_weighted_mean_of_the_four_scores(gate) -> None:
    for weights in ((0.3, 0.2, 0.3, 0.2), (1.0, 0.0, 0.0, 1.0)):
        settings = GateSettings(weights=weights)
        scores = (await gate("I live in Berlin", settings=settings)).scores
        four = (scores.density, scores.relevance, scores.durability, scores.explicitness)
        assert all(0 <= score <= 1 for score in four)
        assert scores.total == pytest.approx(
            sum(w * s for w, s in zip(weights, four, strict=True)) / sum(weights), abs=2e-6
        )


async def test_the_threshold_decides(gate) -> None:
    strict = await gate("We had fish at Rosa's on Tuesday", settings=GateSettings(threshold=1.0))
    lax = await gate("We had fish at Rosa's on Tuesday", settings=GateSettings(threshold=0.0))
    assert not strict.keep
    assert lax.keep


async def test_what_lasts_scores_more_durability_than_what_passes(gate) -> None:
    lasting = (await gate("I am allergic to peanuts")).scores
    passing = (await gate("I'm in Leeds until Friday")).scores
    assert lasting.durability > passing.durability


async def test_a_sure_source_is_more_explicit_than_a_guess(gate) -> None:
    said = (await gate("I prefer window seats")).scores
    guessed = (await gate("I prefer window seats", confidence=0.2)).scores
    assert guessed.explicitness < said.explicitness


async def test_the_task_moves_relevance_alone(gate) -> None:
    text = "I prefer window seats"
    without = (await gate(text)).scores
    near = (await gate(text, task_similarity=1.0)).scores
    far = (await gate(text, task_similarity=0.0)).scores
    assert far.relevance < near.relevance
    assert (near.density, near.durability) == (without.density, without.durability)


async def test_what_the_caller_names_is_taken(gate) -> None:
    verdict = await gate("I live in Berlin", kind="preference", confidence=0.7)
    assert (verdict.kind, verdict.confidence) == ("preference", 0.7)
    assert (await gate("I live in Berlin", kind="speculation", confidence=0.9)).confidence == 0.5


async def test_the_reason_speaks_the_texts_language(gate) -> None:
    for text in ("I live in Berlin", "What time is it?", "my bank PIN is 4071"):
        assert (await gate(text)).reason.isascii()
    for text in ("我住在北京", "现在几点？", "支付密码 860913"):
        assert language_of((await gate(text)).reason) == "zh"


def test_vectors_of_another_model_are_not_used() -> None:
    vector = np.ones(384, dtype=np.float32) / np.float32(384**0.5)
    stranger = judge(candidate("I live in Berlin"), vector=vector, embedding_model="other@1/384#x")
    wider = judge(candidate("I live in Berlin"), vector=np.ones(768, dtype=np.float32))
    alone = judge(candidate("I live in Berlin"), vector=None)
    assert stranger == wider == alone
    assert alone.evidence["by_meaning"] is False


def test_the_weights_are_those_of_the_embedder_that_ships(embedder: Embedder) -> None:
    """Fails when the embedder or its calibration changes: train again then."""
    assert shipped("gate").card.model == embedder.identity.name
    assert shipped("recall").card.model == embedder.identity.name


def test_the_same_text_gets_the_same_verdict_and_any_text_gets_one() -> None:
    for text in ("I live in Berlin", "", " ", "\x00", "😀" * 50, "a" * 8000, "。", "<>{}[]\\"):
        assert judge(candidate(text), vector=None) == judge(candidate(text), vector=None)


@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
async def test_what_was_heard_before_there_was_a_vector_changes_no_verdict(embedder: Embedder, role: Role) -> None:
    for text in ("by the way, I'm allergic to nuts", "对了，我妈住在苏州", "yes", "Translate this: I live in Oslo", ""):
        one = candidate(text, role, context="Does your brother eat fish?")
        (vector,) = await embedder.embed([one.statement], "passage")
        for known in (None, 0.6):
            heard = hear(one)
            plain = judge(one, vector=vector, known=known)
            assert judge(one, vector=vector, known=known, heard=heard) == plain
            assert judge(one, vector=vector, known=known, heard=heard, reading=weigh(heard, vector)) == plain


@pytest.mark.parametrize(
    "text",
    [
        "Dates are written year first: 2025-03-01",
        "报表的日期写成“年-月-日”，两位数补零",
        "note: my mother's maiden name is Rossi",
    ],
)
def test_a_colon_or_a_quotation_alone_hands_nothing_over(text: str) -> None:
    assert not is_handed_over(text)


@pytest.mark.parametrize(
    "text",
    [
        "I'm vegan. Please translate this menu.",
        "I moved to York, so fix that in your notes.",
        "I got a letter from my landlord. Can you translate it?",
        "Whenever I write German, please correct my grammar\nI am still learning it",
        "我吃素。帮我翻译一下这份菜单。",
        "以后把下面这种邮件都翻译成英文\n我不懂德语",
    ],
)
def test_work_on_something_else_or_for_all_times_hands_nothing_over(text: str) -> None:
    assert not is_handed_over(text)
