"""The score, once: signals as data, evaluated here in Python and rendered by a managed store in its own language.

`score = 0.6 · relevance + 0.2 · recency + 0.2 · confidence + bias`, each part in [0, 1] except the bias.

    similarity = clip((cosine − lo) / (hi − lo), 0, 1)                 the embedder's calibration gives lo and hi
    lexical    = min(1, gain · s / (s + saturation))                   s = max(BM25(text), BM25(context))
    relevance  = clip((α·similarity + (1 − α)·lexical + Σ matched weights − offset) / span, 0, 1)
    recency    = 0.5 ^ (max(0, now − observed_at) / half-life)         no half-life: 1; no date, or one that is known
                                                                       only to the month or year: 0.5

The constants were measured on public conversations (absolute scores beat per-query normalisation and rank fusion).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from hindsight_core.models import MemoryType

Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Push: TypeAlias = Annotated[float, Meta(ge=-1, le=1)]
LARGEST = 10.0
"""What no weight of the second stage goes beyond, either way."""
Evident: TypeAlias = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]

DAY_MS = 86_400_000
NEUTRAL_RECENCY = 0.5


class Similarity(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Calibrated cosine between the query's vector and a memory's `mixed` vector."""

    weight: float
    lo: float
    hi: float


class Lexical(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Saturated BM25 of the query's terms; the better of the memory's text and its context."""

    weight: float
    gain: float = 1.7
    saturation: float = 20.0


class Weight(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A constant for every memory whose `field` holds one of `values`, or whose moment lies in one of `spans`.

    `spans` are half-open and in Unix milliseconds; a memory that is dated only to the month or year has no moment.
    """

    name: str
    field: Literal["speaker", "days", "question", "memory_type"]
    values: tuple[str, ...]
    weight: float
    spans: tuple[tuple[int, int], ...] = ()


class Decay(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """0.5 ^ (age / half-life) of `observed_at`; half-lives in days by memory type, None for no decay.

    A memory's own `half_life_days` goes before its type's.
    """

    weight: float
    half_lives: dict[MemoryType, float | None]


class Field(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A stored number in [0, 1], as it is."""

    field: Literal["confidence"]
    weight: float


Signal: TypeAlias = Similarity | Lexical | Weight | Decay | Field


class Formula(msgspec.Struct, frozen=True, kw_only=True):
    """`relevance_weight · clip((Σ relevance − offset) / span, 0, 1) + Σ rest`; `rest` are decay, field and bias."""

    relevance: tuple[Similarity | Lexical | Weight, ...]
    rest: tuple[Decay | Field | Weight, ...]
    relevance_weight: float = 0.6
    offset: float = 0.25
    span: float = 0.70


class Weights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything about ranking that a setting or an experiment may change.

    Those from `contrast` to `inherited` belong to the second stage, see `reranking`; without any of them there is
    none. `half_lives` in days, by memory type, go before those of the caller's profile; 0 is no decay. The bounds hold
    where weights are read: a score stays a sum of shares, and nothing is divided by 0.
    """

    relevance: Annotated[float, Meta(gt=0, le=1)] = 0.6
    recency: Share = 0.2
    confidence: Share = 0.2
    alpha: Share = 0.5
    speaker: Push = 0.10
    date: Push = 0.18
    question: Push = -0.05
    offset: Push = 0.25
    span: Annotated[float, Meta(ge=0.01, le=10)] = 0.70
    gain: Annotated[float, Meta(gt=0, le=100)] = 1.7
    saturation: Annotated[float, Meta(ge=0.01, le=10_000)] = 20.0
    contrast: Annotated[float, Meta(ge=0, le=LARGEST)] = 1.0
    fade: Share = 0.5
    session: Evident = 0.70
    session_words: Evident = 0.25
    words: Evident = 0.10
    next_turn: Evident = 0.25
    reply: Evident = 0.50
    asked_when: Evident = 0.30
    asked_amount: Evident = 0.30
    asked_where: Evident = 0.35
    window: Evident = 0.20
    part: Evident = 0.14
    own: Evident = 0.05
    remark: Evident = -0.08
    names: Evident = 0.15
    substance: Evident = 0.20
    last: Evident = 0.25
    replaced: Evident = 0.50
    inherited: Evident = 1.0
    half_lives: dict[MemoryType, Annotated[float, Meta(ge=0, le=36_500)]] = {}


PROFILES: dict[str, dict[MemoryType, float | None]] = {
    "task": {"working": 3.0, "episodic": 3.0, "semantic": None},
    "default": {"working": 7.0, "episodic": 7.0, "semantic": None},
    "companion": {"working": 30.0, "episodic": 30.0, "semantic": None},
}

INTENT_BIAS = 0.05
INTENTS: Mapping[str, MemoryType] = {
    "order_status": "episodic",
    "status": "episodic",
    "history": "episodic",
    "recap": "episodic",
    "recommend": "semantic",
    "preference": "semantic",
    "profile": "semantic",
    "personalize": "semantic",
}


def by_words(weights: Weights) -> Weights:
    """The weights of a search without a vector: relevance is what the words alone say, from 0 on."""
    return msgspec.structs.replace(weights, alpha=0.0, offset=0.0)


def formula(
    *,
    calibration: tuple[float, float],
    weights: Weights,
    profile: str = "default",
    intent: str | None = None,
    speakers: tuple[str, ...] = (),
    days: tuple[str, ...] = (),
    spans: tuple[tuple[int, int], ...] = (),
    decays: bool = True,
) -> Formula:
    """The formula of one search: the weights, what its question names, and the caller's profile and intent.

    `calibration` is (lo, hi) of the embedder; `speakers` and `days` are in the form of `IndexFields`, `spans` in
    that of `Weight`. Without `decays` only a memory's own half-life counts, none of its type or the profile.
    """
    relevance: list[Similarity | Lexical | Weight] = [
        Similarity(weight=weights.alpha, lo=calibration[0], hi=calibration[1]),
        Lexical(weight=1.0 - weights.alpha, gain=weights.gain, saturation=weights.saturation),
    ]
    if speakers:
        relevance.append(Weight(name="speaker", field="speaker", values=speakers, weight=weights.speaker))
    if days or spans:
        relevance.append(Weight(name="date", field="days", values=days, spans=spans, weight=weights.date))
    relevance.append(Weight(name="question", field="question", values=("1",), weight=weights.question))
    half_lives = dict(PROFILES[profile])
    half_lives.update((name, half_life or None) for name, half_life in weights.half_lives.items())
    if not decays:
        half_lives = dict.fromkeys(half_lives)
    rest: list[Decay | Field | Weight] = [
        Decay(weight=weights.recency, half_lives=half_lives),
        Field(field="confidence", weight=weights.confidence),
    ]
    if intent is not None:
        rest.append(Weight(name="bias", field="memory_type", values=(INTENTS[intent],), weight=INTENT_BIAS))
    return Formula(
        relevance=tuple(relevance),
        rest=tuple(rest),
        relevance_weight=weights.relevance,
        offset=weights.offset,
        span=weights.span,
    )
