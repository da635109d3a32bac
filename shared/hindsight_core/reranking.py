"""The second stage: what the best hits of a search say about each other.

A hit counts for more when its session holds the best answer, when what was said right after it fits the question too,
and, where the question asks when, when it tells a time. Each hit loses, of its relevance, what it lacks of this against
the hit that has most:

    evidence  = session · (best relevance in its session) + next_turn · (relevance of the turn after it)
                + asked_when · (tells a time, where a time is asked for)
    relevance = max(0, relevance − (largest evidence − evidence))

So no score rises, the score's other parts stay as they are, and both stores give the same, since it is computed from
the hits alone. The weights are round ones that gain on either half of the development conversations.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hindsight_core.models import Memory
from hindsight_core.past import tells_when
from hindsight_core.question import Question
from hindsight_core.ranking import Weights
from hindsight_core.stores import Ranked

DEPTH = 50
"""How many hits are compared with each other, whatever the page's length."""


def compares(weights: Weights) -> bool:
    """Whether there is a second stage at all."""
    return bool(weights.session or weights.next_turn or weights.asked_when)


def rerank(ranked: Sequence[Ranked], question: Question, weights: Weights) -> list[Ranked]:
    """The hits with what they lose to the second stage taken off, best first; equal ones in their old order."""
    if len(ranked) < 2 or not compares(weights):
        return list(ranked)
    evidence = _evidence(ranked, question, weights)
    most = max(evidence[:DEPTH])
    again: list[Ranked] = []
    for hit, found in zip(ranked, evidence, strict=True):
        relevance = max(0.0, hit.parts.relevance - max(0.0, most - found))
        lost = hit.parts.relevance - relevance
        parts = msgspec.structs.replace(hit.parts, relevance=relevance)
        again.append(Ranked(memory=hit.memory, score=hit.score - weights.relevance * lost, parts=parts))
    return sorted(again, key=lambda hit: -hit.score)


def _evidence(ranked: Sequence[Ranked], question: Question, weights: Weights) -> list[float]:
    best: dict[tuple[str | None, ...], float] = {}
    after: dict[tuple[tuple[str | None, ...], str], float] = {}
    sessions = [_session(hit.memory) for hit in ranked]
    for hit, session in zip(ranked[:DEPTH], sessions, strict=False):
        relevance = hit.parts.relevance
        best[session] = max(best.get(session, 0.0), relevance)
        if hit.memory.context:
            turn = (session, hit.memory.context)
            after[turn] = max(after.get(turn, 0.0), relevance)
    return [
        weights.session * best.get(session, 0.0)
        + weights.next_turn * after.get((session, hit.memory.content), 0.0)
        + weights.asked_when * (question.when and tells_when(hit.memory.content))
        for hit, session in zip(ranked, sessions, strict=True)
    ]


def _session(memory: Memory) -> tuple[str | None, ...]:
    """What tells sessions apart; a memory without one stands alone."""
    if memory.session_id is None:
        return (memory.id,)
    return (memory.user_id, memory.session_id)
