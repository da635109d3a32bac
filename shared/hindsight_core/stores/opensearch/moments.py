"""Points in time: a reading that takes several requests sees one moment, whatever is written meanwhile.

A reading of one request is of one moment anyway. A longer one asks OpenSearch to keep a moment (it keeps the files of
it until the reading has ended, and no longer than `_KEPT` after its last page). Where that is refused, because it is an
old version or not allowed to the role, each page is of its own moment.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from hindsight_core.errors import StoreUnavailable
from hindsight_core.stores.opensearch.connection import Connection, Json
from hindsight_core.stores.opensearch.failures import Missing, Refused
from hindsight_core.stores.opensearch.indices import Indices
from hindsight_core.stores.opensearch.mapping import Index

_KEPT = "5m"
PAGE = 1000
_PATH = "/_search/point_in_time"
_log = logging.getLogger("hindsight.store")

Keyset: TypeAlias = list[Any]


class Moment:
    """A namespace's part of an index as it is at one moment; as it is now, request for request, without a `pit`."""

    def __init__(self, indices: Indices, connection: Connection, index: Index, routing: str | None) -> None:
        self._indices = indices
        self._connection = connection
        self._index: Index = index
        self._routing = routing
        self.pit: str | None = None

    async def search(self, body: Json) -> Json:
        """The answer of a search, complete or an error."""
        if self.pit is None:
            return await self._indices.search(self._index, self._routing, body)
        try:
            answer = await self._indices.search_in(self.pit, _KEPT, body)
        except Missing as exc:
            raise StoreUnavailable(
                f"OpenSearch at {self._connection.address} no longer has the moment that was being read: it was"
                f" restarted, or nothing was read for {_KEPT.removesuffix('m')} minutes.",
                remedy="Begin to read again.",
            ) from exc
        self.pit = answer["pit_id"]
        return answer


class Moments:
    """Opens moments, and closes every one of them."""

    def __init__(self, connection: Connection, indices: Indices) -> None:
        self._connection = connection
        self._indices = indices

    @asynccontextmanager
    async def opened(self, index: Index, routing: str | None) -> AsyncGenerator[Moment]:
        """The moment at which everything is as searches see it now."""
        moment = Moment(self._indices, self._connection, index, routing)
        params = {"keep_alive": _KEPT, "allow_partial_pit_creation": "false"}
        path = f"/{self._indices.name(index)}{_PATH}"
        try:
            answer = await self._connection.request(
                "POST", path, params=params | ({} if routing is None else {"routing": routing}), part="pit_id"
            )
            moment.pit = answer["pit_id"]
        except Missing:
            raise
        except Refused as exc:
            _log.info("store.no_moment", extra={"detail": exc.detail})
        try:
            yield moment
        finally:
            if moment.pit is not None:
                await self._close(moment.pit)

    async def pages(
        self, index: Index, routing: str, body: Json, *, after: Keyset | None = None
    ) -> AsyncGenerator[list[Json]]:
        """The hits of a search in pages, sorted by the keyword `id`, as of one moment; to be closed (`aclosing`).

        `after` is where to begin, as the `sort` of a hit says it.
        """
        page: Json = {**body, "size": PAGE, "sort": [{"id": "asc"}], "track_total_hits": False}
        async with self.opened(index, routing) as moment:
            while True:
                if after is not None:
                    page["search_after"] = after
                hits: list[Json] = (await moment.search(page))["hits"]["hits"]
                if hits:
                    yield hits
                if len(hits) < PAGE:
                    return
                after = hits[-1]["sort"]

    async def _close(self, pit: str) -> None:
        try:
            await self._connection.request("DELETE", _PATH, {"pit_id": [pit]})
        except StoreUnavailable as exc:  # it ends by itself
            _log.info("store.moment_left", extra={"detail": exc.detail})
