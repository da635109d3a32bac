"""How many memories of a namespace have a term: what makes a term's weight.

Known from the vocabulary of the namespace where the process holds it. Otherwise they are counted, and remembered until
the namespace changes in more than that memories are archived: archived ones count as well.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from hindsight_core.lexical import idf
from hindsight_core.stores import Where
from hindsight_core.stores.opensearch.conditions import filters
from hindsight_core.stores.opensearch.connection import Json
from hindsight_core.stores.opensearch.documents import feature
from hindsight_core.stores.opensearch.heads import State
from hindsight_core.stores.opensearch.indices import Indices
from hindsight_core.stores.opensearch.vocabularies import Vocabularies

_NAMESPACES = 256
_TERMS = 10_000
# A request of more than 1024 clauses is refused, and a term takes two.
_AT_MOST = 400
# From so many terms on it is worth a request to leave out those that nothing holds.
_MANY = 50


class _Known(msgspec.Struct):
    footing: int
    documents: int = -1
    containing: dict[str, int] = {}
    in_contexts: dict[str, bool] = {}


class Frequencies:
    """Counts of terms, from one request for those that are not known for the present footing of a namespace."""

    def __init__(self, indices: Indices, vocabularies: Vocabularies) -> None:
        self._indices = indices
        self._vocabularies = vocabularies
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def weights(self, namespace: str, state: State, terms: Sequence[str]) -> dict[str, float]:
        """The idf of each term, rarest first; of one that only contexts hold, too.

        If very many are held by any memory, of the rarest of those.
        """
        known = self._of(namespace, state.footing)
        unknown = _missing(known, terms)
        vocabulary = await self._vocabularies.of(namespace, state) if unknown else None
        if vocabulary is not None:
            documents, found = len(vocabulary), {term: vocabulary.holding(term) for term in terms}
        else:
            if unknown:
                await self._count(namespace, known, unknown)
            self._vocabularies.consider(namespace, state)
            documents, found = known.documents, {term: known.containing[term] for term in terms}
        if len(found) > _MANY:
            await self._look_in_contexts(namespace, known, [term for term, held in found.items() if not held])
            found = {term: held for term, held in found.items() if held or known.in_contexts[term]}
        rarest = sorted(found, key=lambda term: found[term])[:_AT_MOST]
        return {term: idf(documents, found[term]) for term in rarest}

    async def ahead(self, namespace: str, terms: Sequence[str]) -> None:
        """Count what is not known yet while it is still being asked whether the namespace has changed."""
        known = self._known.get(namespace)
        if known is None or self._vocabularies.has(namespace):
            return
        if unknown := _missing(known, terms):
            await self._count(namespace, known, unknown)

    def _of(self, namespace: str, footing: int) -> _Known:
        known = self._known.get(namespace)
        if known is None or known.footing != footing or len(known.containing) > _TERMS:
            known = self._known[namespace] = _Known(footing)
        self._known.move_to_end(namespace)
        while len(self._known) > _NAMESPACES:
            self._known.popitem(last=False)
        return known

    async def _count(self, namespace: str, known: _Known, terms: Sequence[str]) -> None:
        known.documents, counts = await self._having(namespace, "text", terms)
        known.containing.update(counts)
        self._vocabularies.counted(namespace)

    async def _look_in_contexts(self, namespace: str, known: _Known, terms: Sequence[str]) -> None:
        if missing := [term for term in terms if term not in known.in_contexts]:
            _, counts = await self._having(namespace, "context", missing)
            known.in_contexts.update((term, count > 0) for term, count in counts.items())

    async def _having(self, namespace: str, field: str, terms: Sequence[str]) -> tuple[int, dict[str, int]]:
        """How many memories there are, and how many of them have each term in a field."""
        # Buckets are named by number: a term may look like anything.
        having: Json = {str(n): _has(field, term) for n, term in enumerate(terms)}
        body: Json = {
            "size": 0,
            "track_total_hits": True,
            "query": {"bool": {"filter": filters(namespace, Where(), rankable=True)}},
            "aggs": {"terms": {"filters": {"filters": having}}},
        }
        answer = await self._indices.search("memories", namespace, body)
        total: int = answer["hits"]["total"]["value"]
        buckets = answer["aggregations"]["terms"]["buckets"]
        return total, {term: buckets[str(n)]["doc_count"] for n, term in enumerate(terms)}


def _missing(known: _Known, terms: Sequence[str]) -> list[str]:
    """The terms that were not counted yet."""
    return [term for term in dict.fromkeys(terms) if term not in known.containing]


def _has(field: str, term: str) -> Json:
    return {"rank_feature": {"field": f"{field}.{feature(term)}", "linear": {}}}
