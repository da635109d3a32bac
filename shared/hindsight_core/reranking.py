"""The second stage: what the best hits of a search say about each other.

A hit counts for more when its session holds the best answer; when what was said right after it fits the question too;
when it replies to a question, the more so the better both fit; when it has what is asked for (a time, a number,
something of who is asked about); and a little when it is more than a few words. Relevance counts once more than in the
score, so that neither being new nor being sure outweighs being to the point:

    evidence = session · (best relevance in its session) + next_turn · (relevance of the turn after it)
               + reply · (mean of its relevance and that of the question right before it)
               + asked_when · (tells a time, where a time is asked for)
               + asked_amount · (tells a number, where a number is asked for)
               + part · (was said by the user or the assistant, whom the question calls so)
               + own · (speaks of its speaker, whom the question is about)
               + substance · min(1, ln(1 + its bytes) / ln(200))
    place    = score + 0.6 · (evidence + contrast · (relevance + evidence))

The hits are put in the order of their places, and none keeps a higher score than one that stands before it: what that
takes comes off its relevance, and what relevance does not hold, off the bias. So no score rises, recency and confidence
stay as they are, and both stores give the same, since all of it is computed from the hits. docs/retrieval.md tells what
the weights bring on conversations that were left out when they were chosen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias, TypeVar

import msgspec

from hindsight_core.answers import speaks_of_self, tells_a_number, tells_when
from hindsight_core.indexing import asks, fold_name
from hindsight_core.models import Memory, Parts
from hindsight_core.question import Question
from hindsight_core.ranking import Weights
from hindsight_core.stores import Ranked

DEPTH = 100
"""How many hits are compared with each other, whatever the page's length."""

WEIGHTS = ("contrast", "session", "next_turn", "reply", "asked_when", "asked_amount", "part", "own", "substance")
"""Which of the weights belong to this stage."""

_Session: TypeAlias = tuple[str | None, ...]
_Turn: TypeAlias = tuple[_Session, str]
_Key = TypeVar("_Key")
_LONG = math.log(200.0)


def compares(weights: Weights) -> bool:
    """Whether there is a second stage at all."""
    return any(getattr(weights, name) for name in WEIGHTS)


def rerank(ranked: Sequence[Ranked], question: Question, weights: Weights) -> list[Ranked]:
    """The hits of a search in their new order, `ranked` being best first; equal ones in their old order."""
    return Comparison(ranked, question, weights).hits


class Comparison:
    """The hits of a search, `ranked` best first, compared: the first `DEPTH` of them give the evidence on all."""

    hits: list[Ranked]
    """All of them in their new order."""
    first: dict[str, Parts]
    """By id, the parts of each hit as they were before."""

    def __init__(self, ranked: Sequence[Ranked], question: Question, weights: Weights) -> None:
        self._question = question
        self._weights = weights
        self._best: dict[_Session, float] = {}
        self._before: dict[_Turn, float] = {}
        self._after: dict[_Turn, float] = {}
        self._compares = len(ranked) > 1 and compares(weights)
        self.first = {hit.memory.id: hit.parts for hit in ranked}
        self.hits = list(ranked)
        if not self._compares:
            return
        for hit in ranked[:DEPTH]:
            memory, relevance = hit.memory, hit.parts.relevance
            session = _session(memory)
            _note(self._best, session, relevance)
            _note(self._before, (session, memory.content), relevance)
            if memory.context:
                _note(self._after, (session, memory.context), relevance)
        self._places = {hit.memory.id: self._place(hit) for hit in ranked}
        limit = math.inf
        for n, hit in enumerate(sorted(ranked, key=lambda hit: -self._places[hit.memory.id])):
            limit = min(limit, hit.score)
            self.hits[n] = self._at_most(hit, limit)

    def beside(self, others: Sequence[Ranked]) -> list[Ranked]:
        """What else the same search is to show, with no higher score than the hits that would stand before it."""
        self.first |= {hit.memory.id: hit.parts for hit in others}
        if not self._compares:
            return list(others)
        found: list[Ranked] = []
        for other in others:
            place = self._place(other)
            before = (hit.score for hit in self.hits if self._places[hit.memory.id] > place)
            found.append(self._at_most(other, min(before, default=math.inf)))
        return found

    def _at_most(self, hit: Ranked, limit: float) -> Ranked:
        if hit.score <= limit:
            return hit
        weight = self._weights.relevance
        loss = hit.score - limit
        relevance = max(0.0, hit.parts.relevance - loss / weight) if weight else hit.parts.relevance
        rest = loss - weight * (hit.parts.relevance - relevance)
        parts = msgspec.structs.replace(hit.parts, relevance=relevance, bias=hit.parts.bias - max(0.0, rest))
        return Ranked(memory=hit.memory, score=limit, parts=parts)

    def _place(self, hit: Ranked) -> float:
        evidence, weights = self._evidence(hit), self._weights
        relevance = hit.parts.relevance
        if relevance <= 0.0:
            # Some have nothing above the offset, and yet some of them are nearer to it than others.
            support = weights.alpha * hit.parts.similarity + (1.0 - weights.alpha) * hit.parts.lexical
            relevance = min(0.0, (support - weights.offset) / weights.span)
        return hit.score + weights.relevance * (evidence + weights.contrast * (relevance + evidence))

    def _evidence(self, hit: Ranked) -> float:
        weights, question, memory = self._weights, self._question, hit.memory
        session, content = _session(memory), memory.content
        found = weights.session * self._best.get(session, 0.0)
        found += weights.next_turn * self._after.get((session, content), 0.0)
        if memory.context and asks(memory.context):
            before = self._before.get((session, memory.context), 0.0)
            found += weights.reply * (before + hit.parts.relevance) / 2.0
        if question.when:
            found += weights.asked_when * tells_when(content)
        if question.amount:
            found += weights.asked_amount * tells_a_number(content)
        if memory.source in question.parts:
            found += weights.part
        if self._asked_about(memory):
            found += weights.own * speaks_of_self(content)
        # A Chinese character has three bytes and says about as much as three letters.
        return found + weights.substance * min(1.0, math.log1p(len(content.encode())) / _LONG)

    def _asked_about(self, memory: Memory) -> bool:
        """Whether the question is about who said it: a named speaker, a part that it names, or the user who asks."""
        if self._question.speakers:
            return memory.speaker is not None and fold_name(memory.speaker) in self._question.speakers
        if self._question.parts:
            return memory.source in self._question.parts
        return self._question.own and memory.source == "user"


def _note(best: dict[_Key, float], key: _Key, relevance: float) -> None:
    if relevance > best.get(key, 0.0):
        best[key] = relevance


def _session(memory: Memory) -> _Session:
    """What tells sessions apart; a memory without one stands alone."""
    if memory.session_id is None:
        return (memory.id,)
    return (memory.user_id, memory.session_id)
