"""Why a hit stands where it stands: each signal's value and contribution, and one plain sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hindsight_core.indexing import index_fields
from hindsight_core.models import Explanation, Hit, Parts
from hindsight_core.question import Question
from hindsight_core.ranking import DAY_MS, Decay, Field, Formula, Lexical, Similarity, Weight
from hindsight_core.scoring import UNDATED, holds, moment

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


# What a weight or a kind of evidence (see `reranking`) says for a hit.
_REASONS = {
    "date": "of the time asked about",
    "speaker": "from who is asked about",
    "session": "in the conversation of the best hit",
    "session_words": "in a conversation with the question's words",
    "words": "with the question's rarer words",
    "next_turn": "right before a turn that fits",
    "reply": "in reply to a question that fits",
    "asked_when": "tells a time",
    "asked_amount": "tells a number",
    "asked_where": "tells a place",
    "window": "of the time asked about",
    "last": "at the end asked about",
    "part": "said by who is asked about",
    "own": "about who says it",
    "remark": "said to who is asked about",
    "names": "calls things by their names",
    "replaced": "has been replaced since",
    "inherited": "replaced by what fits the question",
}
_HAN_REASONS = {
    "date": "正是所问的时间",
    "speaker": "出自所问的人",
    "session": "与最相关的一条同在一次对话",
    "session_words": "所在的对话里有问题中的词",
    "words": "有问题中较少见的词",
    "next_turn": "紧接着的一句相关",
    "reply": "回答的是相关的问题",
    "asked_when": "说了时间",
    "asked_amount": "说了数量",
    "asked_where": "说了地点",
    "window": "正是所问的时间",
    "last": "正是先后顺序上所问的那一端",
    "part": "是所问的一方说的",
    "own": "说的是说话人自己",
    "remark": "是对所问的人说的",
    "names": "说出了具体的名称",
    "replaced": "后来被取代",
    "inherited": "取代它的那一条相关",
}
_CONVERSATION = {"session", "session_words", "next_turn"}
# From how much on the strongest evidence is worth a word, in points of the score.
_TELLING = 0.1


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
    for signal in formula.relevance:
        match signal:
            case Similarity():
                contributions["similarity"] = scale * signal.weight * parts.similarity
            case Lexical():
                contributions["lexical"] = scale * signal.weight * parts.lexical
            case Weight():
                matched[signal.name] = holds(signal, memory, fields)
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
    at = moment(memory)
    age = None if at == UNDATED else (now - at) / DAY_MS
    terms = tuple(term for term in question.terms if term in fields.text or term in fields.context)
    return Explanation(
        sentence=_sentence(hit, question, terms, age, matched, evidence or {}),
        contributions={name: round(value, 6) for name, value in contributions.items()},
        age_days=None if age is None else round(max(0.0, age), 3),
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


def _sentence(
    hit: Hit,
    question: Question,
    terms: tuple[str, ...],
    age: float | None,
    matched: Mapping[str, bool],
    evidence: Mapping[str, float],
) -> str:
    parts = hit.parts
    reasons = [name for name in ("date", "speaker") if matched.get(name)]
    # A memory that was said in no session is all there is of its conversation.
    told = _REASONS.keys() - (_CONVERSATION if hit.memory.session_id is None else set())
    most = max((name for name in evidence if name in told), key=lambda name: evidence[name], default="")
    if evidence.get(most, 0.0) >= _TELLING:
        reasons.append(most)
    if _HAN.search(question.text):
        meaning = (
            "意思很接近" if parts.similarity >= 0.6 else "意思有些接近" if parts.similarity >= 0.3 else "意思不太接近"
        )
        words = f"有 {len(terms)} 个词相同" if terms else "没有相同的词"
        when = "时间不明" if age is None else "尚未到来" if age < 0 else f"{age:.0f} 天前的记忆"
        more = "".join(f"，{_HAN_REASONS[reason]}" for reason in reasons)
        return f"{meaning}，{words}{more}，{when}，可信度 {parts.confidence:.2f}。"
    meaning = "Close" if parts.similarity >= 0.6 else "Somewhat close" if parts.similarity >= 0.3 else "Not close"
    words = f"{len(terms)} shared word{'s' if len(terms) != 1 else ''}" if terms else "no shared words"
    when = "of unknown age" if age is None else f"{age:.0f} day{'s' if round(age) != 1 else ''} old"
    if age is not None and age < 0:
        when = "still to come"
    more = "".join(f", {_REASONS[reason]}" for reason in reasons)
    return f"{meaning} in meaning, {words}{more}, {when}, confidence {parts.confidence:.2f}."
