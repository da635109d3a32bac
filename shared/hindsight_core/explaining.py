"""Why a hit stands where it stands: each signal's value and contribution, and one plain sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hindsight_core.caller import millis
from hindsight_core.indexing import index_fields
from hindsight_core.models import Explanation, Hit, Parts
from hindsight_core.question import Question
from hindsight_core.ranking import DAY_MS, Decay, Field, Formula, Lexical, Similarity, Weight

_HAN = re.compile(r"[\u4e00-\u9fff]")


_NOTES = {
    "past": "No longer holds.",
    "replaced": "Was replaced.",
    "pending": "Unconfirmed.",
    "contested": "May be outdated; newer: ",
}
_HAN_NOTES = {
    "past": "已不再成立。",
    "replaced": "已被取代。",
    "pending": "尚未确认。",
    "contested": "可能已过时；较新的是：",
}


def notes_for(question: str) -> Mapping[str, str]:
    """What is said of a hit that may not hold, in the question's language; `contested` goes before the newer text."""
    return _HAN_NOTES if _HAN.search(question) else _NOTES


def explain(
    hit: Hit,
    question: Question,
    formula: Formula,
    now: int,
    *,
    first: Parts | None = None,
    evidence: Mapping[str, float] | None = None,
) -> Explanation:
    """Contributions that add up to the hit's score (what clipping took from relevance stands as `clipped`).

    `first` are the parts before the hits were put in order (see `reranking`): what those that stand before it took is
    `others`, or `contested` where what contests it is among them. `evidence` as `Explanation`.
    `now` in Unix milliseconds is the origin of ages; the sentence is in the question's language.
    """
    memory, parts = hit.memory, hit.parts
    first = first or parts
    fields = index_fields(memory)
    contributions: dict[str, float] = {}
    matched: dict[str, bool] = {}
    scale = formula.relevance_weight / formula.span
    held: dict[str, set[str]] = {
        "speaker": {fields.speaker} if fields.speaker else set(),
        "days": set(fields.days),
        "question": {"1"} if fields.question else set(),
        "memory_type": {memory.memory_type},
    }
    for signal in formula.relevance:
        match signal:
            case Similarity():
                contributions["similarity"] = scale * signal.weight * parts.similarity
            case Lexical():
                contributions["lexical"] = scale * signal.weight * parts.lexical
            case Weight():
                matched[signal.name] = bool(held[signal.field] & set(signal.values))
                contributions[signal.name] = scale * signal.weight * matched[signal.name]
    contributions["offset"] = -scale * formula.offset
    whole = formula.relevance_weight * first.relevance
    contributions["clipped"] = whole - sum(contributions.values())
    contributions["contested" if hit.marked == "contested" else "others"] = (
        formula.relevance_weight * parts.relevance - whole + parts.bias - first.bias
    )
    half_life: float | None = None
    for added in formula.rest:
        match added:
            case Decay():
                contributions["recency"] = added.weight * parts.recency
                half_life = memory.half_life_days or added.half_lives.get(memory.memory_type)
            case Field():
                contributions["confidence"] = added.weight * parts.confidence
            case Weight():
                contributions["bias"] = first.bias
    age = None if memory.observed_at is None else max(0, now - millis(memory.observed_at)) / DAY_MS
    terms = tuple(term for term in question.terms if term in fields.text or term in fields.context)
    return Explanation(
        sentence=_sentence(hit, question, terms, age),
        contributions={name: round(value, 6) for name, value in contributions.items()},
        age_days=None if age is None else round(age, 3),
        half_life_days=half_life,
        matched_terms=terms,
        matched=matched,
        links={
            "supersedes": list(memory.supersedes),
            "superseded_by": [memory.superseded_by] if memory.superseded_by else [],
            "contested_by": [link.id for link in memory.contested_by],
            "derived_from": list(memory.derived_from),
        },
        evidence=dict(evidence or {}),
    )


def _sentence(hit: Hit, question: Question, terms: tuple[str, ...], age: float | None) -> str:
    parts = hit.parts
    if _HAN.search(question.text):
        meaning = (
            "意思很接近" if parts.similarity >= 0.6 else "意思有些接近" if parts.similarity >= 0.3 else "意思不太接近"
        )
        words = f"有 {len(terms)} 个词相同" if terms else "没有相同的词"
        when = "时间不明" if age is None else f"{age:.0f} 天前的记忆"
        return f"{meaning}，{words}，{when}，可信度 {parts.confidence:.2f}。"
    meaning = "Close" if parts.similarity >= 0.6 else "Somewhat close" if parts.similarity >= 0.3 else "Not close"
    words = f"{len(terms)} shared word{'s' if len(terms) != 1 else ''}" if terms else "no shared words"
    when = "of unknown age" if age is None else f"{age:.0f} day{'s' if round(age) != 1 else ''} old"
    return f"{meaning} in meaning, {words}, {when}, confidence {parts.confidence:.2f}."
