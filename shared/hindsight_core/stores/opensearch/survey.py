"""What is known of a large namespace before it is searched: counts, and whom age and doubt take least from.

It takes a look at every memory, and holds until the namespace changes or the time comes at which one of its memories
begins to hold, ends to hold or expires. So it is kept until then. Where memories are only archived, it holds on for
whoever does not look for archived ones: only the counts are taken anew, which is quick, and it has ids to spare.
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
from hindsight_core.stores.opensearch.heads import State
from hindsight_core.stores.opensearch.indices import Indices

RECENT = 100
# So many promising memories may be gone before others are looked for in their places.
SPARE = 16
_KEPT = 256
# The conditions that time alone may turn.
_INSTANTS = [name for name in Where.__struct_fields__ if name.endswith("_at")]
_BOUNDARIES = ("valid_from", "valid_to", "expires_at")
_IDS: Json = {"stored_fields": "_none_", "docvalue_fields": ["id"], "track_total_hits": False}

_Key: TypeAlias = tuple[str, int, bytes]


class Survey(NamedTuple):
    """Both counts of a page, and the ids of those whose score may be high whatever the question is.

    The counts are those of the namespace at `version`; `gone` are so many of the ids as did not satisfy the conditions
    any more then. `instants` are those of the conditions; it holds for later ones before `until`. All in Unix
    milliseconds.
    """

    in_scope: int
    eligible: int
    promising: list[str]
    version: int
    gone: int
    instants: tuple[int, ...]
    until: float


class Surveys:
    """The surveys of one store."""

    def __init__(self, indices: Indices) -> None:
        self._indices = indices
        self._kept: OrderedDict[_Key, Survey] = OrderedDict()

    async def of(self, namespace: str, state: State, query: Query) -> Survey:
        """The survey for a search of a namespace that is now in this state; its counts may be of an earlier version."""
        key, instants = _key(namespace, state, query)
        survey = self._kept.get(key)
        if (
            survey is not None
            and survey.gone <= SPARE
            and all(old <= new < survey.until for old, new in zip(survey.instants, instants, strict=True))
        ):
            self._kept.move_to_end(key)
            return survey
        survey = self._keep(key, await self._made(namespace, state.version, query, instants))
        return survey

    def counts(self, namespace: str, query: Query, survey: Survey) -> list[Json]:
        """The searches that take its counts anew."""
        where = filters(namespace, query.where, rankable=True)
        left: Json = {"terms": {"id": survey.promising}}
        return [counting(filters(namespace, query.scope, rankable=True)), counting(where), counting([*where, left])]

    def recounted(self, namespace: str, state: State, query: Query, survey: Survey, answers: Sequence[Json]) -> Survey:
        """The survey as it is in this state, by the answers to `counts`."""
        in_scope, eligible, left = (total(answer) for answer in answers)
        survey = survey._replace(
            in_scope=max(in_scope, eligible),
            eligible=eligible,
            version=state.version,
            gone=len(survey.promising) - left,
        )
        return self._keep(_key(namespace, state, query)[0], survey)

    def _keep(self, key: _Key, survey: Survey) -> Survey:
        self._kept[key] = survey
        self._kept.move_to_end(key)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return survey

    async def _made(self, namespace: str, version: int, query: Query, instants: tuple[int, ...]) -> Survey:
        scope = filters(namespace, query.scope, rankable=True)
        where = filters(namespace, query.where, rankable=True)
        lasting: list[Json] = [{"terms": {"memory_type": _fading(query)}}, {"exists": {"field": "half_life_days"}}]
        held: Json = {"bool": {"filter": where}}
        steady: Json = {"bool": {"filter": where, "must_not": lasting}}
        turning, *others = await self._indices.searches(
            "memories",
            namespace,
            [
                _turning(filters(namespace, Where(), rankable=True), min(instants, default=0)),
                counting(scope),
                counting(where),
                {"query": held, "size": RECENT + SPARE, "sort": [{"moment": "desc"}], **_IDS},
                {"query": held, "size": RECENT + SPARE, "sort": [{"confidence": "desc"}, {"moment": "desc"}], **_IDS},
                {
                    "query": steady,
                    "size": query.limit + SPARE,
                    "sort": [{"confidence": "desc"}, {"id": "desc"}],
                    **_IDS,
                },
            ],
        )
        in_scope, eligible, *promising = others
        ids = {hit["fields"]["id"][0] for answer in promising for hit in answer["hits"]["hits"]}
        ends = [turning["aggregations"][name]["next"]["value"] for name in _BOUNDARIES]
        until = min((end for end in ends if end is not None), default=float("inf")) if instants else float("inf")
        # Each of these searches may see another moment.
        counts = max(total(in_scope), total(eligible)), total(eligible)
        return Survey(*counts, sorted(ids), version, 0, instants, until)


def footing(state: State, query: Query) -> int:
    """The version since which what a query looks for has only become less, if anything.

    Whoever looks for archived memories finds more of them with each that is archived.
    """
    return state.version if "archived" in (query.where.statuses or ()) else state.footing


def counting(conditions: Sequence[Json]) -> Json:
    """A search that counts, beside the others: an aggregation over what another one leaves out reads all tenants."""
    return {"query": {"bool": {"filter": list(conditions)}}, "size": 0, "track_total_hits": True}


def total(answer: Json) -> int:
    """How many memories a search found."""
    found: int = answer["hits"]["total"]["value"]
    return found


def _key(namespace: str, state: State, query: Query) -> tuple[_Key, tuple[int, ...]]:
    """What a survey is kept under, and the instants of its conditions."""
    timeless = [replace(where, **dict.fromkeys(_INSTANTS)) for where in (query.scope, query.where)]
    shape = [timeless, [name for name, _ in _instants(query)], _fading(query), query.limit]
    key = (namespace, footing(state, query), msgspec.json.encode(shape))
    return key, tuple(at for _, at in _instants(query))


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
