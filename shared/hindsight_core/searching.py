"""Search: read the question, rank in the store, mark what may not hold any more, explain, log."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from hindsight_core.caller import Caller, instant, millis, time_zone
from hindsight_core.contests import Unsettled, shown
from hindsight_core.context import render
from hindsight_core.embedding import Embedder
from hindsight_core.embedding.text import both_ends
from hindsight_core.errors import InvalidInput, ProviderUnavailable
from hindsight_core.explaining import explain, notes_for
from hindsight_core.filtering import loosened, present_of, scope_where, where_of
from hindsight_core.gate import find_secret
from hindsight_core.journal import Journal
from hindsight_core.marking import beneath, challengers_of, marked, replaced, with_replaced
from hindsight_core.models import Memory, Retrieval
from hindsight_core.question import Question, read
from hindsight_core.ranking import INTENTS, Weights, by_words, formula
from hindsight_core.recall import recall_for
from hindsight_core.requests import RecallRequest, SearchRequest
from hindsight_core.reranking import DEPTH, Comparison, compares
from hindsight_core.responses import ContextBlock, Counts, QueryReading, Recall, SearchResponse
from hindsight_core.stores import Access, Head, MemoryStore, Query, Ranked, RankedPage, Vector

ALWAYS = Recall(needed=True, why="Asked to search always.")
_LEXICAL_ONLY = (0.0, 1.0)
_MILLISECOND = timedelta(milliseconds=1)


class Searcher:
    """Searches one store with one embedder; without one it searches by words alone and says so."""

    def __init__(
        self,
        store: MemoryStore,
        embedder: Embedder | None,
        weights: Weights,
        journal: Journal,
        unsettled: Unsettled = "both",
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._weights = weights
        self._journal = journal
        self._unsettled: Unsettled = unsettled

    async def search(self, request: SearchRequest, caller: Caller) -> SearchResponse:
        """The best memories for a question; a caller's search: it is logged and counted."""
        started = time.perf_counter()
        _check_statuses(request)
        scope = caller.scope(request)
        now = caller.clock(request)
        recall = ALWAYS
        if request.mode == "auto":
            recall = await recall_for(request, self._embedder)
        head = await self._store.head(scope.namespace, waiting=False)
        response, evidence = await self._answer(request, caller, now, recall, head)
        took = round((time.perf_counter() - started) * 1000, 3)
        response = msgspec.structs.replace(response, took_ms=took)
        self._journal.record(
            scope.namespace,
            Retrieval(
                id=response.retrieval_id,
                namespace=scope.namespace,
                at=now,
                query=(loggable := _loggable(request.query)),
                request=_logged(request, loggable),
                hits=tuple((hit.memory.id, hit.score, hit.parts) for hit in response.hits),
                evidence=evidence,
                took_ms=took,
                degraded=response.degraded,
            ),
            [Access(memory_id=hit.memory.id, at=millis(now)) for hit in response.hits],
            seen=head.sequence,
        )
        return response

    async def recall(self, request: RecallRequest) -> Recall:
        """Whether a message needs memory; no store is touched."""
        return await recall_for(request, self._embedder)

    async def _answer(
        self, request: SearchRequest, caller: Caller, now: datetime, recall: Recall, head: Head
    ) -> tuple[SearchResponse, tuple[dict[str, float], ...]]:
        """The answer, and for each of its hits what the other hits say for it."""
        scope = caller.scope(request)
        intent = _intent(request.intent)
        as_of = None if request.as_of is None else instant(request.as_of, "as_of", request.timezone)
        named = request.filters.status not in {None, ()}
        present = present_of(head, now)
        local = (as_of or now).astimezone(time_zone(request.timezone))
        question = read(request.query, local, head.speakers)
        reading = QueryReading(
            time_range=question.window,
            past=question.past,
            intent=intent,
            profile=request.profile,
            recall=recall,
            speakers=question.speakers,
        )
        # Of a time to come that is named, what is announced for it holds, and not what that replaces.
        ahead = question.ahead if question.ahead is not None and question.ahead[0] > present else None
        retrieval_id = caller.new_id(now)
        if not recall.needed:
            nothing = Counts(eligible=0, below_min_score=0, filtered=0)
            response = SearchResponse(
                hits=(), query=reading, counts=nothing, retrieval_id=retrieval_id, took_ms=0.0, context=None
            )
            return response, ()
        vector, calibration, degraded = await self._embed(question)
        weights = by_words(self._weights) if vector is None else self._weights
        # Who names a profile has said how fast things age for them.
        aging = request.profile != "default"
        if aging:
            weights = msgspec.structs.replace(weights, fade=0.0)
        query = Query(
            vector=vector,
            terms=question.terms,
            formula=formula(
                calibration=calibration,
                weights=weights,
                profile=request.profile,
                intent=intent,
                speakers=question.speakers,
                days=question.days,
                spans=question.spans,
                decays=question.decays or aging,
            ),
            scope=scope_where(scope),
            where=where_of(
                scope,
                request.filters,
                statuses=("active", "superseded"),
                alive_at=now,
                begun_at=as_of or (present if ahead is None else ahead[1] - _MILLISECOND),
                lasting_at=as_of or (None if question.past or named else present if ahead is None else ahead[0]),
                zone=request.timezone,
            ),
            now=millis(as_of or now),
            limit=self._breadth(request.top_k),
            # Also hits that score too little tell something about those that do not.
            min_score=0.0 if compares(self._weights) else request.min_score,
        )
        page = await self._store.rank(scope.namespace, query)
        ranked = list(page.hits)
        # Where the conditions kept nothing out, there is nothing pending either.
        if not named and as_of is None and page.eligible < page.in_scope:
            ranked = await self._with_pending(scope.namespace, query, ranked)
        if question.changed and not named and as_of is None and page.eligible > len(page.hits):
            ranked = await with_replaced(self._store, scope.namespace, query, ranked)
        challengers = await challengers_of(self._store, scope, ranked, query.where.begun_at)
        former = replaced(ranked, challengers, present) if question.changed else {}
        comparison = Comparison(ranked, question, weights, former)
        found = await self._with_challengers(scope.namespace, query, ranked, challengers)
        found = [hit for hit in found if hit.score >= request.min_score]
        ordered = comparison.order(
            found,
            beneath(found, challengers, present, as_it_was=question.changed, then=question.then),
            request.top_k if self._unsettled == "both" else None,
        )
        notes, past = notes_for(request.query), question.past or as_of is not None
        hits = shown([marked(hit, challengers, notes, present, past=past) for hit in ordered], self._unsettled)[
            : request.top_k
        ]
        first = {hit.memory.id: hit for hit in found}
        evidence = tuple(comparison.reasons(first[hit.memory.id]) for hit in hits)
        if request.explain:
            hits = [
                msgspec.structs.replace(
                    hit,
                    explain=explain(
                        hit, question, query.formula, query.now, first=first[hit.memory.id].parts, evidence=reasons
                    ),
                )
                for hit, reasons in zip(hits, evidence, strict=True)
            ]
        counts = await self._counts(
            scope.namespace, query, page, request.min_score, detailed=request.explain, as_of=as_of is not None
        )
        context = None
        if request.token_budget is not None:
            context = render(hits, request.token_budget, recall, time_zone(request.timezone), question.terms)
        response = SearchResponse(
            hits=tuple(hits),
            query=reading,
            counts=counts,
            retrieval_id=retrieval_id,
            took_ms=0.0,
            degraded=degraded,
            context=context,
        )
        return response, evidence

    async def _embed(self, question: Question) -> tuple[Vector | None, tuple[float, float], str | None]:
        if self._embedder is None:
            return None, _LEXICAL_ONLY, "No embedder here: words alone were compared."
        try:
            vectors = await self._embedder.embed([both_ends(question.bare)], "query")
        except ProviderUnavailable as exc:
            return None, _LEXICAL_ONLY, f"The embedder is down, words alone were compared: {exc.detail}"
        return vectors[0], (self._embedder.calibration.lo, self._embedder.calibration.hi), None

    async def _with_pending(self, namespace: str, query: Query, ranked: list[Ranked]) -> list[Ranked]:
        """Pending memories appear, marked, where nothing that holds answers better than they do."""
        best = max((hit.parts.relevance for hit in ranked), default=0.0)
        if best >= 1.0:
            return ranked
        where = msgspec.structs.replace(query.where, statuses=("pending",))
        pending = await self._store.rank(namespace, msgspec.structs.replace(query, where=where))
        better = [hit for hit in pending.hits if hit.parts.relevance >= best]
        return sorted([*ranked, *better], key=lambda hit: -hit.score)[: query.limit] if better else ranked

    async def _with_challengers(
        self, namespace: str, query: Query, ranked: list[Ranked], challengers: Mapping[str, Memory]
    ) -> list[Ranked]:
        """A challenger that satisfies the filters comes along with what it contests, with its own score."""
        missing = {memory.id for memory in challengers.values()} - {hit.memory.id for hit in ranked}
        if not missing or query.where.ids is not None:
            return ranked
        where = msgspec.structs.replace(query.where, ids=tuple(sorted(missing)))
        page = await self._store.rank(namespace, msgspec.structs.replace(query, where=where, min_score=0.0))
        return sorted([*ranked, *page.hits], key=lambda hit: -hit.score)

    def _breadth(self, top_k: int) -> int:
        """How many hits are asked of the store; where they are compared always the same, so that pages are alike."""
        # What is not shown of contested pairs leaves room for others.
        room = 1 if self._unsettled == "both" else 2
        return room * (DEPTH if compares(self._weights) else top_k)

    async def _counts(
        self, namespace: str, query: Query, page: RankedPage, min_score: float, *, detailed: bool, as_of: bool
    ) -> Counts:
        """What was in scope and did not come."""
        below = page.below
        if min_score > query.min_score:
            counting = msgspec.structs.replace(query, min_score=min_score, limit=1)
            below = (await self._store.rank(namespace, counting)).below
        by: dict[str, int] = {}
        if detailed and page.in_scope > page.eligible:
            for name, freed in loosened(query.where, query.scope, as_of=as_of).items():
                probe = msgspec.structs.replace(query, where=freed, limit=1)
                more = (await self._store.rank(namespace, probe)).eligible - page.eligible
                if more > 0:  # what was erased meanwhile is not filtered
                    by[name] = more
        return Counts(
            eligible=page.eligible,
            below_min_score=below,
            filtered=page.in_scope - page.eligible,
            filtered_by=by,
        )


def context_of(response: SearchResponse) -> ContextBlock:
    """The block of a search that asked for one; an empty one where recall was not needed."""
    block = response.context or ContextBlock(text="", tokens=0, memory_ids=(), recall=response.query.recall)
    return msgspec.structs.replace(block, degraded=response.degraded)


def _logged(request: SearchRequest, query: str) -> dict[str, object]:
    """The request as the log keeps it: without the turns before the question, which no forgetting would find there."""
    kept = msgspec.structs.replace(request, query=query, recent=(), task=None, previous_task=None)
    builtins: dict[str, object] = msgspec.to_builtins(kept)
    return builtins


def _loggable(query: str) -> str:
    """The log keeps no secret that someone asked with."""
    return query if find_secret(query) is None else "(a secret)"


def _intent(intent: str | None) -> str | None:
    if intent is None:
        return None
    name = "_".join(intent.casefold().replace("-", " ").replace("_", " ").split())
    if name not in INTENTS:
        raise InvalidInput.of("intent", f"{intent!r} is not known; one of: {', '.join(sorted(INTENTS))}")
    return name


def _check_statuses(request: SearchRequest) -> None:
    asked = request.filters.status
    if asked is not None and "suppressed" in (asked if isinstance(asked, tuple) else (asked,)):
        raise InvalidInput.of("filters.status", "suppressed memories are found by no search; list them instead")
