"""Search: the best by a formula, and the nearest by vector.

Up to a number of memories in scope all of them are scored. Beyond it only the candidates are, in the same way: the
nearest by k-NN, those that share a rarer term or a day with the question, the most recent and the most confident ones.
Its page is the exact one unless a better memory is none of these. For a minimum score, whose count is exact, all are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from hindsight_core.errors import ConfigurationError
from hindsight_core.loops import both
from hindsight_core.models import Parts
from hindsight_core.ranking import Formula
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
from hindsight_core.stores.opensearch.hits import found_in
from hindsight_core.stores.opensearch.indices import Indices
from hindsight_core.stores.opensearch.survey import SPARE, Survey, Surveys, counting, total

# Among random memories, the hardest case, these find the exact best: the nearest, no fewer than hits (many more where
# there are no words to find others by), and who holds one of the rarest terms, as long as they are not more than so
# many and so many for each hit.
_NEAREST = 100
_NEAREST_ALONE = 1000
_HOLDERS = (3000, 150)
_TELLING = 50
# Less than what single precision can lose, so that a memory of exactly the minimum score is found.
_ROUNDING = 5e-7
_NEWEST: list[Json] = [{"_score": "desc"}, {"id": "desc"}]


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
        self._surveys = Surveys(indices)
        self._options = options

    def surveys(self, state: State) -> bool:
        """Whether a search of the namespace begins with a survey of it."""
        return state.memories > self._options.exact_below

    async def rank(self, namespace: str, state: State, query: Query) -> RankedPage:
        """See `MemoryStore.rank`; `state` is the namespace's head."""
        return (await self.found(namespace, state, query))[0]

    async def found(self, namespace: str, state: State, query: Query) -> tuple[RankedPage, Survey | None]:
        """The page, and the survey that its counts are from; None where they were taken with it."""
        scope = filters(namespace, query.scope, rankable=True)
        where = filters(namespace, query.where, rankable=True)
        weighing = self._frequencies.weights(namespace, state, query.terms)
        survey: Survey | None = None
        if not self.surveys(state):
            weights = await weighing
        else:
            weights, survey = await both(weighing, self._surveys.of(namespace, state, query))
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
            return await self._exact(namespace, query, question, scope, lowest if bounded else None), None
        return await self._approximate(namespace, state, query, question, survey)

    async def still(
        self, namespace: str, state: State, query: Query, found: tuple[RankedPage, Survey | None]
    ) -> RankedPage:
        """What was found in a state that has the same footing as this one, as of this one.

        It was looked for after everything that was acknowledged before, so at most its counts are older.
        """
        page, survey = found
        if survey is None:
            return page
        answers = await self._indices.searches("memories", namespace, self._surveys.counts(namespace, query, survey))
        survey = self._surveys.recounted(namespace, state, query, survey, answers)
        if survey.gone > SPARE:
            return await self.rank(namespace, state, query)
        return _counted(page.hits, survey)

    async def _exact(
        self, namespace: str, query: Query, question: Question, scope: Sequence[Json], lowest: float | None
    ) -> RankedPage:
        page = _page(query, question, scored(question)) | {"track_total_hits": True}
        bodies = [page, counting(scope)]
        if lowest is not None:
            page["min_score"] = lowest + question.lift
            bodies.append(counting(question.where))
        answer, *counts = await self._indices.searches("memories", namespace, bodies)
        reached = total(answer)
        # Searches of one request may see different moments: what was just found counts, though it be gone by now.
        eligible = reached if lowest is None else max(reached, total(counts[1]))
        return RankedPage(
            hits=await self._ranked(namespace, query, question, answer),
            in_scope=max(eligible, total(counts[0])),
            eligible=eligible,
            below=eligible - reached,
        )

    async def _approximate(
        self, namespace: str, state: State, query: Query, question: Question, survey: Survey
    ) -> tuple[RankedPage, Survey | None]:
        cosines: Cosines | None = None
        if question.vector is not None:
            k = max(_NEAREST, query.limit) if question.weights else _NEAREST_ALONE
            cosines = nearest("mixed", question.vector, k, question.where, self._options.ef_search)
        body = _page(
            query,
            question,
            scored(
                question,
                promising(question, cosines, survey.promising, _telling(question, survey.in_scope, query.limit)),
            ),
        )
        if survey.version == state.version:
            answer = await self._indices.search("memories", namespace, body)
        else:
            counts = self._surveys.counts(namespace, query, survey)
            answer, *answers = await self._indices.searches("memories", namespace, [body, *counts])
            survey = self._surveys.recounted(namespace, state, query, survey, answers)
            if survey.gone > SPARE:
                return await self.found(namespace, state, query)
        return _counted(await self._ranked(namespace, query, question, answer), survey), survey

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
            pages = [answer["hits"]["hits"] for answer in answers]
            near = await found_in(self._indices, self._accesses, namespace, pages)
            for (n, (cosines, _)), page in zip(asked.items(), near, strict=True):
                found[n] = [_neighbour(cosines.of(hit["_score"]), kept, counter) for hit, kept, counter in page]
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
        parts: dict[str, Parts] = {}

        def explain(hit: Json, kept: Kept) -> None:
            cosine: float = hit.get("fields", {}).get("cosine", [NO_COSINE])[0]
            parts[kept.memory.id] = _parts(query.formula, question, kept, cosine)

        pages = [answer["hits"]["hits"]]
        (found,) = await found_in(self._indices, self._accesses, namespace, pages, meanwhile=explain)
        lift = question.lift
        return tuple(
            Ranked(memory=memory_of(kept, counter), score=hit["_score"] - lift, parts=parts[kept.memory.id])
            for hit, kept, counter in found
        )


def _counted(hits: tuple[Ranked, ...], survey: Survey) -> RankedPage:
    """The page with its counts; what was just found counts, though it be gone by now."""
    eligible = max(len(hits), survey.eligible)
    return RankedPage(hits=hits, in_scope=max(eligible, survey.in_scope), eligible=eligible, below=0)


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


def _telling(question: Question, memories: int, limit: int) -> list[str]:
    """The rarest terms: what many hold says little of any of them, and would have too many of them scored."""
    least, each = _HOLDERS
    room, telling = float(least + each * limit), list[str]()
    for term, weight in list(question.weights.items())[:_TELLING]:
        # So many hold a term of this weight, and about as many in the turn before.
        room -= 2 * memories / math.exp(weight)
        if room < 0 and telling:
            break
        telling.append(term)
    return telling


def _bm25(weights: Mapping[str, float], impacts: Mapping[str, float]) -> float:
    return sum(weight * kept_impact(impacts[term]) for term, weight in weights.items() if term in impacts)


def _neighbour(cosine: float, kept: Kept, counter: Json | None) -> Neighbour:
    return Neighbour(record=record_of(kept, counter), cosine=min(1.0, max(-1.0, cosine)))
