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
from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import TypeAlias

import msgspec

from hindsight_core.answers import speaks_of_self, tells_a_number, tells_when
from hindsight_core.indexing import asks, fold_name
from hindsight_core.models import Memory, Parts
from hindsight_core.question import Question
from hindsight_core.ranking import Weights
from hindsight_core.readings import kept
from hindsight_core.stores import Ranked

DEPTH = 100
"""How many hits are compared with each other, whatever the page's length."""

WEIGHTS = ("contrast", "session", "next_turn", "reply", "asked_when", "asked_amount", "part", "own", "substance")
"""Which of the weights belong to this stage."""

_Session: TypeAlias = tuple[str | None, ...]
_Turn: TypeAlias = tuple[_Session, str]
_LONG = math.log(200.0)


def compares(weights: Weights) -> bool:
    """Whether there is a second stage at all."""
    return any(getattr(weights, name) for name in WEIGHTS)


def rerank(ranked: Sequence[Ranked], question: Question, weights: Weights) -> list[Ranked]:
    """The hits of a search in their new order, `ranked` being best first; equal ones in their old order."""
    return Comparison(ranked, question, weights).hits


class Comparison:
    """The hits of a search, `ranked` best first, compared: the first `DEPTH` of them give the evidence on all."""

    scores: list[float]
    """Of all of them in their new order; no score is above the one before it."""

    def __init__(self, ranked: Sequence[Ranked], question: Question, weights: Weights) -> None:
        self._question = question
        self._weights = weights
        self._best: dict[_Session, float] = {}
        self._before: dict[_Turn, float] = {}
        self._after: dict[_Turn, float] = {}
        self._compares = len(ranked) > 1 and compares(weights)
        self._ranked = ranked
        self._others: list[Ranked] = []
        self._places: list[float] = []
        self.scores = [hit.score for hit in ranked]
        if not self._compares:
            return
        self._note(ranked[:DEPTH])
        places = self._placed(ranked)
        order = sorted(range(len(ranked)), key=places.__getitem__, reverse=True)
        self._ranked = [ranked[n] for n in order]
        self._places = [places[n] for n in order]
        self.scores = list(accumulate((self.scores[n] for n in order), min))

    @property
    def hits(self) -> list[Ranked]:
        """All of them in their new order."""
        return self.top(len(self.scores))

    @property
    def first(self) -> dict[str, Parts]:
        """By id, the parts of each hit as they were before."""
        return {hit.memory.id: hit.parts for hit in (*self._ranked, *self._others)}

    def top(self, count: int) -> list[Ranked]:
        """The first of them in their new order."""
        return [self._at_most(*each) for each in zip(self._ranked[:count], self.scores, strict=False)]

    def named(self, ids: Collection[str], *, after: int, before: int) -> list[Ranked]:
        """Those with one of these ids whose place in the new order, from 0, is in that range."""
        some = zip(self._ranked[after:before], self.scores[after:before], strict=True)
        return [self._at_most(hit, score) for hit, score in some if hit.memory.id in ids]

    def beside(self, others: Sequence[Ranked]) -> list[Ranked]:
        """What else the same search is to show, with no higher score than the hits that would stand before it."""
        self._others += others
        if not self._compares:
            return list(others)
        found: list[Ranked] = []
        for other, place in zip(others, self._placed(others), strict=True):
            before = (score for score, at in zip(self.scores, self._places, strict=True) if at > place)
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

    def _note(self, hits: Sequence[Ranked]) -> None:
        """What these hits say of others; the best of each kind counts."""
        best, before, after = self._best, self._before, self._after
        for hit in hits:
            memory, relevance = hit.memory, hit.parts.relevance
            session = _session(memory)
            if relevance > best.get(session, 0.0):
                best[session] = relevance
            turn = (session, memory.content)
            if relevance > before.get(turn, 0.0):
                before[turn] = relevance
            if memory.context:
                turn = (session, memory.context)
                if relevance > after.get(turn, 0.0):
                    after[turn] = relevance

    def _placed(self, hits: Sequence[Ranked]) -> list[float]:
        """The places of these hits, as the formula above says; one loop, since most of a search's time goes here."""
        w, question = self._weights, self._question
        best, before, after = self._best, self._before, self._after
        when, amount, parts = question.when, question.amount, question.parts
        whole, contrast, substance = w.relevance, w.contrast, w.substance
        somebody = bool(question.speakers or parts or question.own)
        places: list[float] = []
        for hit in hits:
            memory, relevance = hit.memory, hit.parts.relevance
            session, content, turn = _session(memory), memory.content, memory.context
            evidence = w.session * best.get(session, 0.0)
            evidence += w.next_turn * after.get((session, content), 0.0)
            if turn and _asks(turn):
                evidence += w.reply * (before.get((session, turn), 0.0) + relevance) / 2.0
            if when:
                evidence += w.asked_when * tells_when(content)
            if amount:
                evidence += w.asked_amount * tells_a_number(content)
            if parts and memory.source in parts:
                evidence += w.part
            if somebody and self._asked_about(memory):
                evidence += w.own * speaks_of_self(content)
            evidence += substance * _substance(content)
            if relevance <= 0.0:
                # Some have nothing above the offset, and yet some of them are nearer to it than others.
                support = w.alpha * hit.parts.similarity + (1.0 - w.alpha) * hit.parts.lexical
                relevance = min(0.0, (support - w.offset) / w.span)
            places.append(hit.score + whole * (evidence + contrast * (relevance + evidence)))
        return places

    def _asked_about(self, memory: Memory) -> bool:
        """Whether the question is about who said it: a named speaker, a part that it names, or the user who asks."""
        if self._question.speakers:
            return memory.speaker is not None and fold_name(memory.speaker) in self._question.speakers
        if self._question.parts:
            return memory.source in self._question.parts
        return self._question.own and memory.source == "user"


_asks = kept(4096)(asks)


@kept(4096)
def _substance(text: str) -> float:
    """In [0, 1]: a Chinese character has three bytes and says about as much as three letters."""
    return min(1.0, math.log1p(len(text.encode())) / _LONG)


def _session(memory: Memory) -> _Session:
    """What tells sessions apart; a memory without one stands alone."""
    if memory.session_id is None:
        return (memory.id,)
    return (memory.user_id, memory.session_id)
