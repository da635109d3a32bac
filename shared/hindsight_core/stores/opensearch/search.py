"""Search: the best by a formula, and the nearest by vector.

Up to a number of memories in scope all of them are scored. Beyond it only the candidates are, in the same way: the
nearest by k-NN, those that share a term or a day with the question, the most recent and the most confident ones. Its
page is the exact one unless a better memory is none of these. A minimum score, whose count is exact, has all scored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from hindsight_core.errors import ConfigurationError
from hindsight_core.loops import both
from hindsight_core.models import Parts
from hindsight_core.ranking import Decay, Formula
from hindsight_core.scoring import evaluate_one
from hindsight_core.stores import Neighbour, Query, Ranked, RankedPage, Vector, Where
from hindsight_core.stores.opensearch.access import Accesses
from hindsight_core.stores.opensearch.address import Options
from hindsight_core.stores.opensearch.conditions import filters
from hindsight_core.stores.opensearch.connection import Json
from hindsight_core.stores.opensearch.dimensions import Dimensions
from hindsight_core.stores.opensearch.documents import (
    MEMORY,
    RECORD,
    Kept,
    kept_impact,
    kept_in_hit,
    memory_of,
    record_of,
)
from hindsight_core.stores.opensearch.formula import (
    NO_COSINE,
    Cosines,
    Question,
    compared,
    cosine_field,
    nearest,
    promising,
    scored,
)
from hindsight_core.stores.opensearch.frequencies import Frequencies
from hindsight_core.stores.opensearch.heads import State
from hindsight_core.stores.opensearch.indices import Indices

NEAREST = 1000
RECENT = 100
# Less than what single precision can lose, so that a memory of exactly the minimum score is found.
_ROUNDING = 5e-7
_IDS: Json = {"stored_fields": "_none_", "docvalue_fields": ["id"], "track_total_hits": False}
_NEWEST: list[Json] = [{"_score": "desc"}, {"id": "desc"}]


class _Survey(NamedTuple):
    """Both counts of a page, and the ids of those whose score may be high whatever the question is."""

    in_scope: int
    eligible: int
    promising: list[str]


class Search:
    """Searches of one store; the caller has seen to it that everything committed is searchable."""

    def __init__(
        self,
        indices: Indices,
        dimensions: Dimensions,
        frequencies: Frequencies,
        accesses: Accesses,
        options: Options,
    ) -> None:
        self._indices = indices
        self._dimensions = dimensions
        self._frequencies = frequencies
        self._accesses = accesses
        self._options = options

    async def rank(self, namespace: str, state: State, query: Query) -> RankedPage:
        """See `MemoryStore.rank`; `state` is the namespace's head."""
        scope = filters(namespace, query.scope, rankable=True)
        where = filters(namespace, query.where, rankable=True)
        weighing = self._frequencies.weights(namespace, state.sequence, query.terms)
        survey: _Survey | None = None
        if state.memories <= self._options.exact_below:
            weights = await weighing
        else:
            weights, survey = await both(weighing, self._surveyed(namespace, query, where, scope))
        question = Question(
            formula=query.formula,
            vector=await self._comparable(query.vector),
            weights=weights,
            where=where,
            now=query.now,
        )
        lowest = query.min_score - _ROUNDING
        bounded = lowest > -question.lift
        aimless = question.vector is None and not question.weights
        if survey is None or survey.eligible <= self._options.exact_below or bounded or aimless:
            return await self._exact(namespace, query, question, scope, lowest if bounded else None)
        return await self._approximate(namespace, query, question, survey)

    async def _exact(
        self, namespace: str, query: Query, question: Question, scope: Sequence[Json], lowest: float | None
    ) -> RankedPage:
        page = _page(query, question, scored(question)) | {"track_total_hits": True}
        bodies = [page, _counting(scope)]
        if lowest is not None:
            page["min_score"] = lowest + question.lift
            bodies.append(_counting(question.where))
        answer, *counts = await self._indices.searches("memories", namespace, bodies)
        reached = _total(answer)
        eligible = reached if lowest is None else _total(counts[1])
        return RankedPage(
            hits=await self._ranked(namespace, query, question, answer),
            in_scope=_total(counts[0]),
            eligible=eligible,
            below=eligible - reached,
        )

    async def _surveyed(self, namespace: str, query: Query, where: Sequence[Json], scope: Sequence[Json]) -> _Survey:
        fading = [kind for signal in query.formula.rest if isinstance(signal, Decay) for kind in _fading(signal)]
        lasting: list[Json] = [{"terms": {"memory_type": fading}}, {"exists": {"field": "half_life_days"}}]
        held: Json = {"bool": {"filter": list(where)}}
        steady: Json = {"bool": {"filter": list(where), "must_not": lasting}}
        bodies: list[Json] = [
            _counting(scope),
            _counting(where),
            {"query": held, "size": RECENT, "sort": [{"moment": "desc"}], **_IDS},
            {"query": held, "size": RECENT, "sort": [{"confidence": "desc"}, {"moment": "desc"}], **_IDS},
            {"query": steady, "size": query.limit, "sort": [{"confidence": "desc"}, {"id": "desc"}], **_IDS},
        ]
        in_scope, eligible, *others = await self._indices.searches("memories", namespace, bodies)
        ids = {hit["fields"]["id"][0] for answer in others for hit in answer["hits"]["hits"]}
        return _Survey(_total(in_scope), _total(eligible), sorted(ids))

    async def _approximate(self, namespace: str, query: Query, question: Question, survey: _Survey) -> RankedPage:
        cosines: Cosines | None = None
        if question.vector is not None:
            cosines = nearest("mixed", question.vector, NEAREST, question.where, self._options.ef_search)
        body = _page(query, question, scored(question, promising(question, cosines, survey.promising)))
        answer = await self._indices.search("memories", namespace, body)
        return RankedPage(
            hits=await self._ranked(namespace, query, question, answer),
            in_scope=survey.in_scope,
            eligible=survey.eligible,
            below=0,
        )

    async def neighbours(
        self, namespace: str, state: State, vectors: Sequence[Vector], where: Where, limit: int
    ) -> list[list[Neighbour]]:
        """See `MemoryStore.neighbours`."""
        conditions = filters(namespace, where)
        asked: dict[int, tuple[Cosines, Json]] = {}
        for n, vector in enumerate(vectors):
            comparable = await self._comparable(vector)
            if comparable is not None:
                asked[n] = self._near(comparable, state, conditions, limit)
        found: list[list[Neighbour]] = [[] for _ in vectors]
        if asked:
            answers = await self._indices.searches("memories", namespace, [body for _, body in asked.values()])
            near = [[(hit["_score"], kept_in_hit(hit)) for hit in answer["hits"]["hits"]] for answer in answers]
            counters = await self._accesses.of(namespace, (kept for page in near for _, kept in page))
            for (n, (cosines, _)), page in zip(asked.items(), near, strict=True):
                found[n] = [_neighbour(cosines.of(score), kept, counters) for score, kept in page]
        return found

    def _near(self, vector: Vector, state: State, conditions: Sequence[Json], limit: int) -> tuple[Cosines, Json]:
        """The search of one vector's neighbours, and what its scores mean."""
        exact = state.memories <= self._options.exact_below
        k, ef_search = max(4 * limit, self._options.ef_search), self._options.ef_search

        def by(which: Literal["mixed", "bare"], kind: str) -> tuple[Cosines, Json]:
            of_kind: Json = {"term": {"vectors": kind}}
            if exact:
                cosines = compared(which, vector)
                return cosines, {"bool": {"filter": [of_kind], "must": [cosines.query]}}
            cosines = nearest(which, vector, k, [*conditions, of_kind], ef_search)
            return cosines, cosines.query

        # A memory whose two vectors are one has it in the field of the mixed ones.
        cosines, shared = by("mixed", "one")
        _, own = by("bare", "two")
        return cosines, {
            "query": {"bool": {"filter": list(conditions), "must": [{"bool": {"should": [shared, own]}}]}},
            "sort": _NEWEST,
            "size": limit,
            "track_total_hits": False,
            **RECORD,
        }

    async def _comparable(self, vector: Vector | None) -> Vector | None:
        """The vector, None where it has no direction or nothing to be compared with."""
        if vector is None or not np.any(vector):
            return None
        known = await self._dimensions.known()
        if known is not None and known != len(vector):
            raise ConfigurationError(
                f"A vector of {len(vector)} dimensions cannot search a store of {known}.",
                remedy="Use the embedder that the store was filled with.",
            )
        return None if known is None else vector

    async def _ranked(self, namespace: str, query: Query, question: Question, answer: Json) -> tuple[Ranked, ...]:
        """The hits, each with OpenSearch's score and the parts that the formula makes it of."""
        hits: list[Json] = answer["hits"]["hits"]
        records = [kept_in_hit(hit) for hit in hits]
        counters = await self._accesses.of(namespace, records)
        return tuple(
            Ranked(
                memory=memory_of(kept, counters.get(kept.memory.id)),
                score=hit["_score"] - question.lift,
                parts=_parts(query.formula, question, kept, hit["fields"].get("cosine", [NO_COSINE])[0]),
            )
            for hit, kept in zip(hits, records, strict=True)
        )


def _page(query: Query, question: Question, of: Json) -> Json:
    """The best of a query, in the order of the port."""
    body: Json = {"query": of, "sort": _NEWEST, "size": query.limit, "track_total_hits": False, **MEMORY}
    return body if question.vector is None else body | cosine_field(question.vector)


def _parts(formula: Formula, question: Question, kept: Kept, cosine: float) -> Parts:
    """What OpenSearch computed with, put into the formula once more: naming the parts would cost it ten times that."""
    words = max(_bm25(question.weights, kept.index.text), _bm25(question.weights, kept.index.context))
    return evaluate_one(
        formula,
        kept.memory,
        kept.index,
        cosine=None if cosine == NO_COSINE else cosine,
        bm25=words,
        now=question.now,
    )[1]


def _bm25(weights: Mapping[str, float], impacts: Mapping[str, float]) -> float:
    return sum(weight * kept_impact(impacts[term]) for term, weight in weights.items() if term in impacts)


def _fading(signal: Decay) -> list[str]:
    """The types whose memories count less as they grow old."""
    return [name for name, days in signal.half_lives.items() if days]


def _counting(conditions: Sequence[Json]) -> Json:
    """A search that counts, beside the others: an aggregation over what another one leaves out reads all tenants."""
    return {"query": {"bool": {"filter": list(conditions)}}, "size": 0, "track_total_hits": True}


def _total(answer: Json) -> int:
    total: int = answer["hits"]["total"]["value"]
    return total


def _neighbour(cosine: float, kept: Kept, counters: dict[str, Json]) -> Neighbour:
    record = record_of(kept, counters.get(kept.memory.id))
    return Neighbour(record=record, cosine=min(1.0, max(-1.0, cosine)))
