"""How many memories of a namespace have a term: what makes a term's weight, remembered until the namespace changes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from hindsight_core.lexical import idf
from hindsight_core.stores import Where
from hindsight_core.stores.opensearch.conditions import filters
from hindsight_core.stores.opensearch.connection import Json
from hindsight_core.stores.opensearch.documents import feature
from hindsight_core.stores.opensearch.indices import Indices

_NAMESPACES = 256
_TERMS = 10_000
# A query of more than 1024 clauses is refused, and a term takes four; the rarest terms say most.
_AT_MOST = 240


class _Known(msgspec.Struct):
    sequence: int
    documents: int = -1
    containing: dict[str, int] = {}


class Frequencies:
    """Counts of terms, from one request for those that are not known for the present sequence."""

    def __init__(self, indices: Indices) -> None:
        self._indices = indices
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def weights(self, namespace: str, sequence: int, terms: Sequence[str]) -> dict[str, float]:
        """The idf of each term (of the rarest, if they are very many); of one that only contexts hold, too."""
        known = self._of(namespace, sequence)
        await self._learn(namespace, known, terms)
        found = {term: known.containing[term] for term in terms}
        rarest = sorted(found, key=lambda term: found[term])[:_AT_MOST] if len(found) > _AT_MOST else found
        return {term: idf(known.documents, found[term]) for term in rarest}

    async def ahead(self, namespace: str, terms: Sequence[str]) -> None:
        """Count what is not known yet while it is still being asked whether the namespace has changed."""
        known = self._known.get(namespace)
        if known is not None:
            await self._learn(namespace, known, terms)

    async def _learn(self, namespace: str, known: _Known, terms: Sequence[str]) -> None:
        missing = [term for term in dict.fromkeys(terms) if term not in known.containing]
        if missing:
            await self._count(namespace, known, missing)

    def _of(self, namespace: str, sequence: int) -> _Known:
        known = self._known.get(namespace)
        if known is None or known.sequence != sequence or len(known.containing) > _TERMS:
            known = self._known[namespace] = _Known(sequence)
        self._known.move_to_end(namespace)
        while len(self._known) > _NAMESPACES:
            self._known.popitem(last=False)
        return known

    async def _count(self, namespace: str, known: _Known, terms: Sequence[str]) -> None:
        # Buckets are named by number: a term may look like anything.
        having: Json = {str(n): _has(term) for n, term in enumerate(terms)}
        body: Json = {
            "size": 0,
            "track_total_hits": True,
            "query": {"bool": {"filter": filters(namespace, Where(), rankable=True)}},
            "aggs": {"terms": {"filters": {"filters": having}}},
        }
        answer = await self._indices.search("memories", namespace, body)
        known.documents = answer["hits"]["total"]["value"]
        buckets = answer["aggregations"]["terms"]["buckets"]
        known.containing.update((term, buckets[str(n)]["doc_count"]) for n, term in enumerate(terms))


def _has(term: str) -> Json:
    return {"rank_feature": {"field": f"text.{feature(term)}", "linear": {}}}
