"""What is known of a large namespace before it is searched: counts, and whom age and doubt take least from.

It takes a look at every memory, and holds until the namespace changes or the time comes at which one of its memories
begins to hold, ends to hold or expires. So it is kept until then.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from hindsight_core.ranking import Decay
from hindsight_core.stores import Query, Where
from hindsight_core.stores.opensearch.conditions import filters
from hindsight_core.stores.opensearch.connection import Json
from hindsight_core.stores.opensearch.indices import Indices

RECENT = 100
_KEPT = 256
# The conditions that time alone may turn.
_INSTANTS = [name for name in Where.__struct_fields__ if name.endswith("_at")]
_BOUNDARIES = ("valid_from", "valid_to", "expires_at")
_IDS: Json = {"stored_fields": "_none_", "docvalue_fields": ["id"], "track_total_hits": False}

_Key: TypeAlias = tuple[str, int, bytes]


class Survey(NamedTuple):
    """Both counts of a page, and the ids of those whose score may be high whatever the question is.

    `instants` are those of the conditions; it holds for later ones before `until`. All in Unix milliseconds.
    """

    in_scope: int
    eligible: int
    promising: list[str]
    instants: tuple[int, ...]
    until: float


class Surveys:
    """The surveys of one store."""

    def __init__(self, indices: Indices) -> None:
        self._indices = indices
        self._kept: OrderedDict[_Key, Survey] = OrderedDict()

    async def of(self, namespace: str, version: int, query: Query) -> Survey:
        """The survey for a search of a namespace that is now at this version."""
        fading = _fading(query)
        timeless = [replace(where, **dict.fromkeys(_INSTANTS)) for where in (query.scope, query.where)]
        shape = [timeless, [name for name, _ in _instants(query)], fading, query.limit]
        key = (namespace, version, msgspec.json.encode(shape))
        instants = tuple(at for _, at in _instants(query))
        survey = self._kept.get(key)
        if survey is not None and all(
            old <= new < survey.until for old, new in zip(survey.instants, instants, strict=True)
        ):
            self._kept.move_to_end(key)
            return survey
        survey = self._kept[key] = await self._made(namespace, query, fading, instants)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return survey

    async def _made(self, namespace: str, query: Query, fading: Sequence[str], instants: tuple[int, ...]) -> Survey:
        scope = filters(namespace, query.scope, rankable=True)
        where = filters(namespace, query.where, rankable=True)
        lasting: list[Json] = [{"terms": {"memory_type": list(fading)}}, {"exists": {"field": "half_life_days"}}]
        held: Json = {"bool": {"filter": where}}
        steady: Json = {"bool": {"filter": where, "must_not": lasting}}
        turning, *others = await self._indices.searches(
            "memories",
            namespace,
            [
                _turning(filters(namespace, Where(), rankable=True), min(instants, default=0)),
                counting(scope),
                counting(where),
                {"query": held, "size": RECENT, "sort": [{"moment": "desc"}], **_IDS},
                {"query": held, "size": RECENT, "sort": [{"confidence": "desc"}, {"moment": "desc"}], **_IDS},
                {"query": steady, "size": query.limit, "sort": [{"confidence": "desc"}, {"id": "desc"}], **_IDS},
            ],
        )
        in_scope, eligible, *promising = others
        ids = {hit["fields"]["id"][0] for answer in promising for hit in answer["hits"]["hits"]}
        ends = [turning["aggregations"][name]["next"]["value"] for name in _BOUNDARIES]
        until = min((end for end in ends if end is not None), default=float("inf")) if instants else float("inf")
        # Each of these searches may see another moment.
        counts = max(total(in_scope), total(eligible)), total(eligible)
        return Survey(*counts, sorted(ids), instants, until)


def counting(conditions: Sequence[Json]) -> Json:
    """A search that counts, beside the others: an aggregation over what another one leaves out reads all tenants."""
    return {"query": {"bool": {"filter": list(conditions)}}, "size": 0, "track_total_hits": True}


def total(answer: Json) -> int:
    """How many memories a search found."""
    found: int = answer["hits"]["total"]["value"]
    return found


def _turning(conditions: Sequence[Json], since: int) -> Json:
    """The next instants after `since` at which conditions turn for any memory."""
    return {
        "query": {"bool": {"filter": list(conditions)}},
        "size": 0,
        "track_total_hits": False,
        "aggs": {
            name: {"filter": {"range": {name: {"gt": since}}}, "aggs": {"next": {"min": {"field": name}}}}
            for name in _BOUNDARIES
        },
    }


def _instants(query: Query) -> list[tuple[str, int]]:
    named: list[tuple[str, Any]] = [
        (f"{place}.{name}", getattr(where, name))
        for place, where in (("scope", query.scope), ("where", query.where))
        for name in _INSTANTS
    ]
    return [(name, at) for name, at in named if at is not None]


def _fading(query: Query) -> list[str]:
    """The types whose memories count less as they grow old."""
    decays = [signal for signal in query.formula.rest if isinstance(signal, Decay)]
    return sorted({name for signal in decays for name, days in signal.half_lives.items() if days})
