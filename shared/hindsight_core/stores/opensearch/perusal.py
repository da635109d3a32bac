"""Readings of a namespace from its beginning to its end, as it is at one moment."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing

from hindsight_core.stores import Record, Where
from hindsight_core.stores.opensearch.access import Accesses
from hindsight_core.stores.opensearch.conditions import filters
from hindsight_core.stores.opensearch.connection import Json
from hindsight_core.stores.opensearch.documents import MEMORY, RECORD, record_of
from hindsight_core.stores.opensearch.heads import State
from hindsight_core.stores.opensearch.hits import found_in, turns_before
from hindsight_core.stores.opensearch.indices import Indices
from hindsight_core.stores.opensearch.moments import Moments


class Perusal:
    """Reads the memories of one store.

    `state` is the head of a namespace with everything up to it searchable, `erased_since` whether something was erased
    in it after that; `in_time` ends what takes longer than a call may.
    """

    def __init__(
        self,
        indices: Indices,
        moments: Moments,
        accesses: Accesses,
        state: Callable[[str], Awaitable[State]],
        erased_since: Callable[[str, State], Awaitable[bool]],
        in_time: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        self._indices = indices
        self._moments = moments
        self._accesses = accesses
        self._state = state
        self._erased_since = erased_since
        self._in_time = in_time

    async def records(self, namespace: str, where: Where, *, vectors: bool) -> AsyncGenerator[list[Record]]:
        """See `MemoryStore.whole`: an erasure ends the moment, the rest is read as of a later one."""
        after: str | None = None
        whole = False
        while not whole:
            async with self._in_time():
                state = await self._state(namespace)
            async with aclosing(self._pages(namespace, where, RECORD if vectors else MEMORY, after)) as pages:
                whole = True
                async for hits in pages:
                    async with self._in_time():
                        (found,) = await found_in(self._indices, self._accesses, namespace, [hits])
                        whole = not await self._erased_since(namespace, state)
                    if not whole:
                        break
                    yield [record_of(kept, counter, vectors=vectors) for _, kept, counter in found]
                    after = hits[-1]["sort"][0]

    async def turns(self, namespace: str) -> AsyncGenerator[dict[str, str]]:
        """Of each memory the turn before it, by id, in pages; without those that have none. To be closed."""
        async with self._in_time():
            await self._state(namespace)
        async with aclosing(self._pages(namespace, Where(), MEMORY, None)) as pages:
            async for hits in pages:
                async with self._in_time():
                    turns = await turns_before(self._indices, namespace, hits)
                yield turns

    async def _pages(
        self, namespace: str, where: Where, bringing: Json, after: str | None
    ) -> AsyncGenerator[list[Json]]:
        """The hits of all that satisfy `where` and follow `after`, each page within the time of a call."""
        body: Json = {"query": {"bool": {"filter": filters(namespace, where)}}, **bringing}
        begin = None if after is None else [after]
        async with aclosing(self._moments.pages("memories", namespace, body, after=begin)) as pages:
            while True:
                async with self._in_time():
                    hits = await anext(pages, None)
                if hits is None:
                    return
                yield hits
