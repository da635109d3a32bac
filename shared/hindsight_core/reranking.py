"""The second stage: what the best hits of a search say about each other.

A hit counts for more when its session holds the best answer, or the words of the question; when what was said right
after it fits the question too; when it replies to a question, the more so the better both fit; when it has what is
asked for (a time, a number, a place, something of who is asked about, words of the question that are rare among the
hits); when it calls things by their names; and a little when it is more than a few words. Relevance counts once more
than in the score, and recency less, so that neither being new nor being sure outweighs being to the point:

    evidence = session · (best relevance in its session)
               + session_words · (share of the question's words in the hits of its session)
               + words · (share of the question's words in it and the turn before it)
               + next_turn · (relevance of the turn after it)
               + reply · (mean of its relevance and that of the question right before it)
               + asked_when · (tells a time, where a time is asked for)
               + asked_amount · (tells a number, where a number is asked for)
               + asked_where · (tells a place, where a place is asked for)
               + window · (was said in the range of time that the question names, where that is too long for days)
               + last · (how late among the hits that fit well, where the last one is asked for; how early, the first)
               + part · (was said by the user or the assistant, whom the question calls so)
               + own · (speaks of its speaker, whom the question is about)
               + remark · (is said to whom the question is about, by another)
               + names · (calls things by their names, where something is asked), as far as relevance reaches 0.2
               + substance · min(1, ln(1 + its bytes) / ln(200))
               + replaced · (how sure it is that it has been replaced, where the question asks for what was)
               + inherited · (by how much what replaced it is more relevant, where the question asks for what was)
    place    = score − fade · (recency's contribution) + 0.6 · (evidence + contrast · (relevance + evidence))

where relevance goes on below 0 and words are weighed by how rare they are among the hits. The hits are put in the order
of their places, those that may not hold any more beneath what they stand back for, and none keeps a higher score than
one that stands before it: what that takes comes off its relevance, and what relevance does not hold, off the bias. So
no score rises, recency and confidence stay as they are, and both stores give the same, since all of it is computed from
the hits. docs/retrieval.md tells what the weights bring on conversations that were left out when they were chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

import msgspec

from hindsight_core.answers import (
    names_something,
    speaks_of_self,
    speaks_to_another,
    tells_a_number,
    tells_when,
    tells_where,
)
from hindsight_core.coverage import Coverage
from hindsight_core.indexing import asks, fold_name
from hindsight_core.marking import standing_back
from hindsight_core.models import Memory
from hindsight_core.question import Question
from hindsight_core.ranking import Weights
from hindsight_core.readings import kept
from hindsight_core.stores import Ranked

DEPTH = 100
"""How many hits are compared with each other, whatever the page's length."""

EVIDENCE = (
    "session",
    "session_words",
    "words",
    "next_turn",
    "reply",
    "asked_when",
    "asked_amount",
    "asked_where",
    "window",
    "last",
    "part",
    "own",
    "remark",
    "names",
    "substance",
    "replaced",
    "inherited",
)
"""The kinds of evidence, each with the weight of its name."""

_AT = {name: at for at, name in enumerate(EVIDENCE)}
_SESSION, _SESSION_WORDS, _WORDS = _AT["session"], _AT["session_words"], _AT["words"]
_NEXT_TURN, _REPLY, _WINDOW = _AT["next_turn"], _AT["reply"], _AT["window"]
_LAST, _PART, _OWN, _REMARK, _NAMES = _AT["last"], _AT["part"], _AT["own"], _AT["remark"], _AT["names"]
_REPLACED, _INHERITED = _AT["replaced"], _AT["inherited"]

WEIGHTS = ("contrast", "fade", *EVIDENCE)
"""Which of the weights belong to this stage."""

_Session: TypeAlias = tuple[str | None, ...]
_Turn: TypeAlias = tuple[_Session, str]
_LONG = math.log(200.0)
# The relevance from which on names count in full.
_TO_THE_POINT = 0.2
# How far hits lie apart in relevance, which goes on below 0, that can be asked for the last of, and from which on.
_ALIKE, _NEARLY = 0.2, -0.15


def compares(weights: Weights) -> bool:
    """Whether there is a second stage at all."""
    return any(getattr(weights, name) for name in WEIGHTS)


def rerank(ranked: Sequence[Ranked], question: Question, weights: Weights) -> list[Ranked]:
    """The hits of a search in their new order, `ranked` being best first; equal ones in their old order."""
    return Comparison(ranked, question, weights).order(ranked)


class Comparison:
    """The hits of a search, `ranked` best first, compared: the first `DEPTH` of them give the evidence on any.

    `replaced`, where the question asks for what was, as `marking.replaced`.
    """

    def __init__(
        self,
        ranked: Sequence[Ranked],
        question: Question,
        weights: Weights,
        replaced: Mapping[str, tuple[str, float]] | None = None,
    ) -> None:
        self._question = question
        self._weights = weights
        self._weighed: list[float] = [getattr(weights, name) for name in EVIDENCE]
        self._compares = len(ranked) > 1 and compares(weights)
        self._concerned = bool(question.speakers or question.parts or question.own)
        # What is asked of the text of a hit alone: the place in `EVIDENCE`, and what finds it.
        self._asked: list[tuple[int, Callable[[str], float]]] = [
            (_AT[name], tells)
            for name, wanted, tells in (
                ("asked_when", question.when, tells_when),
                ("asked_amount", question.amount, tells_a_number),
                ("asked_where", question.place, tells_where),
                ("substance", True, _substance),
            )
            if wanted
        ]
        self._best: dict[_Session, float] = {}
        self._before: dict[_Turn, float] = {}
        self._after: dict[_Turn, float] = {}
        self._said: dict[_Session, int] = {}
        self._late: dict[str, float] = {}
        self._replaced = replaced or {}
        newer = {newer for newer, _ in self._replaced.values()}
        self._supports = {hit.memory.id: self.support(hit) for hit in ranked if hit.memory.id in newer}
        best = ranked[:DEPTH]
        self._coverage = Coverage(question.words, [hit.memory.content for hit in best] if self._compares else ())
        if not self._compares:
            return
        for hit in best:
            memory, relevance = hit.memory, hit.parts.relevance
            session = _session(memory)
            if relevance > self._best.get(session, 0.0):
                self._best[session] = relevance
            turn = (session, memory.content)
            if relevance > self._before.get(turn, 0.0):
                self._before[turn] = relevance
            if memory.context:
                turn = (session, memory.context)
                if relevance > self._after.get(turn, 0.0):
                    self._after[turn] = relevance
            self._said[session] = self._said.get(session, 0) | self._coverage.held(memory.content)
        if question.last:
            self._late = self._lateness(best)

    def order(
        self,
        hits: Sequence[Ranked],
        beneath: Mapping[str, Collection[str]] | None = None,
        count: int | None = None,
    ) -> list[Ranked]:
        """The first `count` (None for all) hits of this search in their new order, with their new scores.

        `beneath` gives for the id of a hit the ids of those that it must not stand before.
        """
        places = [self.place(hit) for hit in hits]
        order = sorted(range(len(hits)), key=places.__getitem__, reverse=True)
        if beneath:
            order = standing_back(order, [hit.memory.id for hit in hits], beneath)
        limit = math.inf
        found: list[Ranked] = []
        for n in order[:count]:
            limit = min(limit, hits[n].score)
            found.append(self._at_most(hits[n], limit))
        return found

    def place(self, hit: Ranked) -> float:
        """What a hit of this search is put in its order by; the score where there is no second stage."""
        if not self._compares:
            return hit.score
        weights, parts = self._weights, hit.parts
        weighed = self._weighed
        evidence = math.fsum([weighed[at] * value for at, value in self._evidence(hit)])
        score = hit.score - weights.relevance * parts.relevance - weights.fade * weights.recency * parts.recency
        return score + (1.0 + weights.contrast) * weights.relevance * (self.support(hit) + evidence)

    def support(self, hit: Ranked) -> float:
        """The relevance of a hit, going on below 0.

        Some have nothing above the offset, and yet some of them are nearer to it than others.
        """
        weights, parts = self._weights, hit.parts
        if parts.relevance > 0.0:
            return parts.relevance
        support = weights.alpha * parts.similarity + (1.0 - weights.alpha) * parts.lexical
        return min(0.0, (support - weights.offset) / weights.span)

    def _evidence(self, hit: Ranked) -> list[tuple[int, float]]:
        """What there is of each kind before it is weighed, by its place in `EVIDENCE`; of what is left out, nothing."""
        question, memory, coverage = self._question, hit.memory, self._coverage
        session, content, before = _session(memory), memory.content, memory.context
        found: list[tuple[int, float]] = [(at, tells(content)) for at, tells in self._asked]
        # A name that has nothing to do with the question says nothing for a hit.
        if question.words and (share := min(1.0, hit.parts.relevance / _TO_THE_POINT)) > 0.0:
            found.append((_NAMES, share * names_something(content)))
        if best := self._best.get(session):
            found.append((_SESSION, best))
        if said := self._said.get(session, 0) | (held := coverage.held(content)):
            found.append((_SESSION_WORDS, coverage.share(said)))
        if before:
            held |= coverage.held(before)
            if _asks(before):
                relevance = self._before.get((session, before), 0.0) + hit.parts.relevance
                found.append((_REPLY, relevance / 2.0))
        if held:
            found.append((_WORDS, coverage.share(held)))
        if after := self._after.get((session, content)):
            found.append((_NEXT_TURN, after))
        if question.window is not None and _within(memory, question):
            found.append((_WINDOW, 1.0))
        if (late := self._late.get(memory.id)) is not None:
            found.append((_LAST, late))
        if self._concerned:
            if memory.source in question.parts:
                found.append((_PART, 1.0))
            if self._asked_about(memory):
                found.append((_OWN, speaks_of_self(content)))
            else:
                found.append((_REMARK, speaks_to_another(content)))
        if (by := self._replaced.get(memory.id)) is not None:
            newer, sure = by
            found.append((_REPLACED, sure))
            if (gain := self._supports.get(newer, -math.inf) - self.support(hit)) > 0.0:
                found.append((_INHERITED, sure * gain))
        return found

    def reasons(self, hit: Ranked) -> dict[str, float]:
        """What each kind of evidence adds to the place of a hit, as far as there is any, by name."""
        if not self._compares:
            return {}
        scale = self._weights.relevance * (1.0 + self._weights.contrast)
        found = {at: scale * self._weighed[at] * value for at, value in sorted(self._evidence(hit))}
        return {EVIDENCE[at]: round(value, 6) for at, value in found.items() if value}

    def _lateness(self, hits: Sequence[Ranked]) -> dict[str, float]:
        """By id, in [0, 1], where a memory stands in time among those that are about as relevant as the best.

        1 is last, or first where that is asked for. What has no date has no place, nor has any where none is relevant.
        """
        supports = [self.support(hit) for hit in hits]
        least = max(supports) - _ALIKE
        if max(supports) < _NEARLY:
            return {}
        alike = [hit.memory for hit, support in zip(hits, supports, strict=True) if support >= least]
        dated = [(one.observed_at, one.id) for one in alike if one.observed_at is not None]
        order = sorted(dated, reverse=self._question.last < 0)
        steps = {at: step for step, at in enumerate(dict.fromkeys(at for at, _ in order))}
        return {one: steps[at] / max(1, len(steps) - 1) for at, one in order}

    def _at_most(self, hit: Ranked, limit: float) -> Ranked:
        if hit.score <= limit:
            return hit
        weight = self._weights.relevance
        loss = hit.score - limit
        relevance = max(0.0, hit.parts.relevance - loss / weight) if weight else hit.parts.relevance
        rest = loss - weight * (hit.parts.relevance - relevance)
        parts = msgspec.structs.replace(hit.parts, relevance=relevance, bias=hit.parts.bias - max(0.0, rest))
        return Ranked(memory=hit.memory, score=limit, parts=parts)

    def _asked_about(self, memory: Memory) -> bool:
        """Whether the question is about who said it: a named speaker, a part that it names, or the user who asks."""
        if self._question.speakers:
            return memory.speaker is not None and fold_name(memory.speaker) in self._question.speakers
        if self._question.parts:
            return memory.source in self._question.parts
        return self._question.own and memory.source == "user"


def _within(memory: Memory, question: Question) -> bool:
    window = question.window
    if window is None or question.days or question.spans or memory.observed_at is None:
        return False
    at = memory.observed_at
    return (window.start is None or window.start <= at) and (window.end is None or at < window.end)


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
