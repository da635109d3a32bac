"""The formula: its parts, its limits, and that the vectorised evaluation is the plain one."""

from __future__ import annotations

import math
from datetime import timedelta
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hindsight_core.caller import millis
from hindsight_core.config import load
from hindsight_core.embedding import Embedder
from hindsight_core.errors import ConfigurationError
from hindsight_core.indexing import IndexFields
from hindsight_core.models import Memory
from hindsight_core.ranking import DAY_MS, INTENTS, PROFILES, Decay, Formula, Weight, Weights, formula
from hindsight_core.scoring import MEMORY_TYPES, UNDATED, Evidence, evaluate, evaluate_one, holds, moment
from hindsight_core.service import MemoryService
from hindsight_core.stores import open_store
from samples import DAY, START, START_MS, memory, record

PLAIN = formula(calibration=(0.0, 0.6), weights=Weights())
NO_TERMS = IndexFields(text={})


def score(of: Memory, by: Formula = PLAIN, *, cosine: float | None = 0.0, bm25: float = 0.0, now: int = START_MS):
    return evaluate_one(by, of, record(of).index, cosine=cosine, bm25=bm25, now=now)


def test_a_perfect_memory_scores_one() -> None:
    total, parts = score(memory("a", observed_at=START), cosine=0.6, bm25=1000.0)
    assert total == pytest.approx(1.0)
    assert (parts.similarity, parts.lexical, parts.relevance, parts.recency, parts.confidence) == (1, 1, 1, 1, 1)


def test_the_score_is_the_weighted_sum_of_its_parts() -> None:
    by = formula(calibration=(0.0, 0.6), weights=Weights(), intent="recommend")
    of = memory("a", memory_type="semantic", confidence=0.5, half_life_days=7.0, observed_at=START - DAY * 7)
    total, parts = score(of, by, cosine=0.45, bm25=10.0)
    relevance = (0.5 * 0.75 + 0.5 * 1.7 * 10 / 30 - 0.25) / 0.70
    assert parts.relevance == pytest.approx(relevance)
    assert (parts.recency, parts.confidence, parts.bias) == (pytest.approx(0.5), 0.5, pytest.approx(0.05))
    assert total == pytest.approx(0.6 * relevance + 0.2 * 0.5 + 0.2 * 0.5 + 0.05)


def test_similarity_is_clipped_at_both_ends_of_the_calibration() -> None:
    assert score(memory("a"), cosine=-0.4)[1].similarity == 0.0
    assert score(memory("a"), cosine=0.9)[1].similarity == 1.0


def test_a_memory_without_a_vector_has_similarity_zero_even_where_the_calibration_starts_below_zero() -> None:
    by = formula(calibration=(-0.5, 0.5), weights=Weights())
    assert score(memory("a"), by, cosine=None)[1].similarity == 0.0
    assert score(memory("a"), by, cosine=0.0)[1].similarity == 0.5


@pytest.mark.parametrize("profile", ["task", "default", "companion"])
def test_recency_halves_with_every_half_life_of_the_profile(profile: str) -> None:
    by = formula(calibration=(0.0, 0.6), weights=Weights(), profile=profile)
    days = PROFILES[profile]["episodic"]
    assert days is not None
    for halvings in (1, 2, 3):
        of = memory("a", memory_type="episodic", observed_at=START - timedelta(days=days * halvings))
        assert score(of, by)[1].recency == pytest.approx(0.5**halvings)


def test_the_future_is_as_recent_as_now() -> None:
    assert score(memory("a", memory_type="episodic", observed_at=START + DAY * 300))[1].recency == 1.0


@pytest.mark.parametrize("fields", [{"observed_at": None}, {"precision": "month"}, {"precision": "year"}])
def test_an_unknown_age_is_neutral(fields: dict[str, object]) -> None:
    assert score(memory("a", memory_type="episodic", **fields), now=START_MS + 10**11)[1].recency == 0.5


def test_without_a_half_life_nothing_decays_whether_or_not_the_date_is_known() -> None:
    assert score(memory("a"), now=START_MS + 10**12)[1].recency == 1.0
    assert score(memory("a", observed_at=None))[1].recency == 1.0


def test_the_half_life_of_a_memory_goes_before_that_of_its_type() -> None:
    of = memory("a", memory_type="semantic", half_life_days=1.0, observed_at=START - DAY)
    assert score(of)[1].recency == pytest.approx(0.5)


@pytest.mark.parametrize("intent", sorted(INTENTS))
def test_an_intent_lifts_one_type_of_memory(intent: str) -> None:
    by = formula(calibration=(0.0, 0.6), weights=Weights(), intent=intent)
    bias = {name: score(memory("a", memory_type=name), by)[1].bias for name in ("episodic", "semantic")}
    assert bias.pop(INTENTS[intent]) == pytest.approx(0.05)
    assert set(bias.values()) == {0.0}


def test_naming_the_speaker_or_the_day_raises_relevance_and_being_a_question_lowers_it() -> None:
    by = formula(calibration=(0.0, 0.6), weights=Weights(), speakers=("ann",), days=("05-01",))
    plain = memory("a", observed_at=None)
    base = score(plain, by, cosine=0.5, bm25=5.0)[1].relevance

    def gain(**fields: object) -> float:
        return (
            score(memory("a", **({"observed_at": None} | fields)), by, cosine=0.5, bm25=5.0)[1].relevance - base
        ) * 0.7

    assert gain(speaker="ANN") == pytest.approx(0.10)
    assert gain(observed_at=START) == pytest.approx(0.18)
    assert gain(content="Is the kettle blue?") == pytest.approx(-0.05)
    assert gain(content="茶壶是蓝色的吗") == pytest.approx(-0.05)


@pytest.mark.parametrize(
    ("ranking", "field"),
    [
        ('{"span": 0}', "span"),
        ('{"saturation": 0}', "saturation"),
        ('{"relevance": 5}', "relevance"),
        ('{"relevance": 0}', "relevance"),
        ('{"recency": -3}', "recency"),
        ('{"alpha": 7}', "alpha"),
        ('{"contrast": -1}', "contrast"),
        ('{"reply": 1000}', "reply"),
        ('{"half_lives": {"episodic": -1}}', "half_lives"),
        ('{"half_lives": {"episodic": 1e9}}', "half_lives"),
    ],
)
def test_a_weight_out_of_bounds_is_refused_at_the_start(
    ranking: str, field: str, tmp_path: Path, embedder: Embedder
) -> None:
    store = open_store(str(tmp_path / "hindsight.db"))
    with pytest.raises(ConfigurationError, match=field):
        MemoryService(store, embedder, load({}, data_dir=tmp_path, ranking=ranking))


def test_the_defaults_are_within_their_bounds() -> None:
    assert msgspec.json.decode(msgspec.json.encode(Weights()), type=Weights) == Weights()


def test_a_half_life_of_next_to_nothing_gives_numbers() -> None:
    by = formula(calibration=(0.0, 0.6), weights=Weights(half_lives={"episodic": 1e-300}))
    now = np.array([START_MS, START_MS - DAY_MS], np.int64)
    rows = np.zeros(2, np.float32)
    evidence = Evidence(
        cosine=None, bm25=rows, moment=now, half_life=np.full(2, np.nan, np.float32),
        memory_type=np.full(2, MEMORY_TYPES.index("episodic"), np.int8), confidence=rows,
        holding=lambda signal: np.zeros(2, np.bool_),
    )  # fmt: skip
    assert evaluate(by, evidence, START_MS).recency.tolist() == [1.0, 0.0]


def test_an_unknown_profile_or_intent_is_an_error_of_the_program() -> None:
    with pytest.raises(KeyError):
        formula(calibration=(0.0, 0.6), weights=Weights(), profile="nosuch")
    with pytest.raises(KeyError):
        formula(calibration=(0.0, 0.6), weights=Weights(), intent="nosuch")


finite = st.floats(-1.0, 1.0)
memories = st.builds(
    memory,
    st.just("a"),
    st.sampled_from(["The kettle is blue.", "Is it?", "茶壶是蓝色的吗"]),
    memory_type=st.sampled_from(MEMORY_TYPES),
    confidence=st.floats(0.0, 1.0),
    speaker=st.sampled_from([None, "Ann", "李雷"]),
    observed_at=st.none() | st.integers(-4000, 4000).map(lambda days: START + DAY * days / 7),
    precision=st.sampled_from(["instant", "day", "month", "year"]),
    half_life_days=st.none() | st.floats(1e-300, 36_500.0),
)
rest_weights = st.lists(
    st.one_of(
        st.builds(
            Weight,
            name=st.just("bias"),
            field=st.sampled_from(["memory_type", "speaker", "days", "question"]),
            values=st.sampled_from([(), ("ann",), ("semantic", "working"), ("1",), ("0",), ("05-01", "2024-05-01")]),
            weight=finite,
        ),
        st.builds(Decay, weight=st.floats(0.0, 1.0), half_lives=st.sampled_from(list(PROFILES.values()))),
    ),
    max_size=3,
)
formulas = st.builds(
    lambda lo, profile, speakers, days, rest: Formula(
        relevance=(
            base := formula(calibration=(lo, 0.7), weights=Weights(), profile=profile, speakers=speakers, days=days)
        ).relevance,
        rest=base.rest + tuple(rest),
    ),
    st.sampled_from([-0.5, 0.0, 0.3]),
    st.sampled_from(sorted(PROFILES)),
    st.sampled_from([(), ("ann", "李雷")]),
    st.sampled_from([(), ("05-01", "2024-05-01")]),
    rest_weights,
)


@given(
    by=formulas,
    rows=st.lists(st.tuples(memories, finite, st.floats(0.0, 80.0)), min_size=1, max_size=6),
    with_vectors=st.booleans(),
    now=st.integers(START_MS - 10**11, START_MS + 10**11),
)
def test_many_memories_at_once_score_as_each_one_alone(
    by: Formula, rows: list[tuple[Memory, float, float]], with_vectors: bool, now: int
) -> None:
    records = [record(of) for of, _, _ in rows]

    def holding(signal: Weight):
        return np.array([holds(signal, r.memory, r.index) for r in records])

    many = evaluate(
        by,
        Evidence(
            cosine=np.array([cosine for _, cosine, _ in rows]) if with_vectors else None,
            bm25=np.array([bm25 for _, _, bm25 in rows]),
            moment=np.array([moment(of) for of, _, _ in rows]),
            half_life=np.array([of.half_life_days or math.nan for of, _, _ in rows]),
            memory_type=np.array([MEMORY_TYPES.index(of.memory_type) for of, _, _ in rows], np.int8),
            confidence=np.array([of.confidence for of, _, _ in rows]),
            holding=holding,
        ),
        now,
    )
    shown = many.parts()
    for row, (r, (of, cosine, bm25)) in enumerate(zip(records, rows, strict=True)):
        total, parts = evaluate_one(by, of, r.index, cosine=cosine if with_vectors else None, bm25=bm25, now=now)
        assert many.score[row] == pytest.approx(total, abs=1e-12)
        assert shown[row] == parts or all(
            getattr(shown[row], name) == pytest.approx(getattr(parts, name), abs=1e-12)
            for name in parts.__struct_fields__
        )


def test_the_moment_of_a_memory_is_its_date_unless_it_is_vague() -> None:
    assert moment(memory("a")) == millis(START)
    assert moment(memory("a", precision="day")) == millis(START)
    assert {moment(memory("a", precision="month")), moment(memory("a", observed_at=None))} == {UNDATED}
