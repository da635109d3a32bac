"""The managed store: memories in OpenSearch, ranked by its engine with the formula's own scores."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hindsight_core.containing import Contained
from hindsight_core.errors import OutcomeUnknown, StoreUnavailable
from hindsight_core.loops import both
from hindsight_core.models import AuditEvent, MemoryType, Retrieval, Run, Status
from hindsight_core.remains import forms_of
from hindsight_core.responses import Component
from hindsight_core.stores import (
    Access,
    ChangeSet,
    Embed,
    Head,
    Log,
    Neighbour,
    Note,
    Query,
    RankedPage,
    Receipt,
    Record,
    Where,
)
from hindsight_core.stores.opensearch.access import Accesses
from hindsight_core.stores.opensearch.census import census, namespaces
from hindsight_core.stores.opensearch.commits import Commits
from hindsight_core.stores.opensearch.conditions import filters
from hindsight_core.stores.opensearch.connection import Connection, Json
from hindsight_core.stores.opensearch.dimensions import Dimensions
from hindsight_core.stores.opensearch.disk import Disk
from hindsight_core.stores.opensearch.documents import (
    RECORD,
    SOURCE,
    document_id,
    kept_in_document,
    record_of,
)
from hindsight_core.stores.opensearch.erasure import Eraser
from hindsight_core.stores.opensearch.failures import Missing, Refused
from hindsight_core.stores.opensearch.frequencies import Frequencies
from hindsight_core.stores.opensearch.gate import Gate
from hindsight_core.stores.opensearch.generations import concrete, drop_others
from hindsight_core.stores.opensearch.heads import Heads, State
from hindsight_core.stores.opensearch.hits import found_in
from hindsight_core.stores.opensearch.indices import Indices
from hindsight_core.stores.opensearch.intents import Intents
from hindsight_core.stores.opensearch.journal import Journal
from hindsight_core.stores.opensearch.moments import Moments
from hindsight_core.stores.opensearch.notes import Notes
from hindsight_core.stores.opensearch.perusal import Perusal
from hindsight_core.stores.opensearch.preparation import Preparation
from hindsight_core.stores.opensearch.reembedding import Reembedding, given_up
from hindsight_core.stores.opensearch.search import Search
from hindsight_core.stores.opensearch.survey import footing
from hindsight_core.stores.opensearch.vocabularies import Vocabularies

PATIENCE = 1.0
# Seconds for which a search takes a head that was read for granted.
FRESH = 0.1
# A change of so many memories has twice the time, of twice as many three times.
_PIECE = 250
_REMEMBERED = 10_000


class _OutOfTime(StoreUnavailable):
    """A call took longer than it may."""


class _Seen(NamedTuple):
    """A head, everything up to it searchable; when it was asked for, and whether it stood as firm the time before."""

    state: State
    at: float
    steady: bool


class OpenSearchStore:
    """A `MemoryStore` at the address of `connection`; any number of processes may share one.

    `patience` is how many seconds a change that another process has begun is waited for before it is finished here.
    """

    def __init__(
        self, connection: Connection, *, preparation: Preparation | None = None, patience: float = PATIENCE
    ) -> None:
        options = connection.address.options
        self._connection = connection
        self._indices = indices = Indices(connection)
        self._disk = Disk(connection, indices)
        self._moments = Moments(connection, indices)
        self._preparation = preparation or Preparation(connection, indices)
        heads = Heads(indices)
        dimensions = Dimensions(connection, indices)
        self._intents = Intents(indices, heads, Eraser(indices), patience=patience)
        self.vocabularies = Vocabularies(indices)
        self._commits = Commits(indices, heads, self._intents, dimensions, self.vocabularies)
        self._accesses = Accesses(indices)
        self._frequencies = Frequencies(indices, self.vocabularies)
        self._search = Search(indices, dimensions, self._frequencies, self._accesses, options)
        self._journal = Journal(indices)
        self._notes = Notes(indices)
        self._perusal = Perusal(indices, self._moments, self._accesses, self._state, self._erased_since, self._in_time)
        # Sequences that this process has made searchable itself, where a head does not say so.
        self._refreshed: dict[str, int] = {}
        self._seen: dict[str, _Seen] = {}

    async def prepare(self, identity: str | None) -> None:
        await self._preparation.prepare(identity)

    async def head(self, namespace: str, *, waiting: bool = True) -> Head:
        async with self._in_time():
            return (await self._state(namespace, waiting=waiting)).head

    async def commit(
        self, namespace: str, changes: ChangeSet, *, expected: int | None = None, searchable: bool = True
    ) -> int:
        pieces = (len(changes.puts) + len(changes.erases) + len(changes.tombstones)) // _PIECE
        try:
            async with self._in_time(1 + pieces):
                return await self._commits.commit(namespace, changes, expected=expected, searchable=searchable)
        except _OutOfTime as exc:
            raise OutcomeUnknown.after(exc) from exc
        finally:
            self._seen.pop(namespace, None)

    async def get(self, namespace: str, ids: Sequence[str], *, waiting: bool = True) -> list[Record]:
        async with self._in_time():
            await (self._intents.settled(namespace) if waiting else self._intents.passed(namespace))
            wanted = list(dict.fromkeys(ids))
            found = await self._sources(namespace, wanted, SOURCE)
            kept = {memory_id: kept_in_document(source) for memory_id, source in found.items()}
            counters = await self._accesses.of(namespace, {memory_id: one.born for memory_id, one in kept.items()})
            records = {memory_id: record_of(one, counters.get(memory_id)) for memory_id, one in kept.items()}
            return [records[memory_id] for memory_id in ids if memory_id in records]

    async def erased(self, namespace: str, ids: Sequence[str]) -> set[str]:
        async with self._in_time():
            await self._intents.settled(namespace)
            return await self._journal.erased(namespace, ids)

    async def erasures(self, namespace: str, *, after: str | None, limit: int) -> list[str]:
        async with self._in_time():
            await self._intents.settled(namespace)
            return await self._journal.erasures(namespace, after, limit)

    async def rank(self, namespace: str, query: Query) -> RankedPage:
        async with self._in_time():
            seen = self._seen.get(namespace)
            # The counts of a large namespace hold only as long as it has not changed at all.
            if seen is not None and self._is_recent(seen) and not self._search.surveys(seen.state):
                return await self._search.rank(namespace, seen.state, query)
            asked = self._state(namespace, waiting=False)
            if seen is None or not seen.steady:
                state, _ = await both(asked, self._frequencies.ahead(namespace, query.terms))
                return await self._search.rank(namespace, state, query)
            # Most often nothing has changed, which is asked while it is being searched already.
            state, found = await both(asked, self._search.found(namespace, seen.state, query))
            if state.version == seen.state.version:
                return found[0]
            if footing(state, query) == footing(seen.state, query) and state.searchable == state.sequence:
                return await self._search.still(namespace, state, query, found)
            return await self._search.rank(namespace, state, query)

    async def neighbours(
        self, namespace: str, vectors: NDArray[np.float32], where: Where, limit: int
    ) -> list[list[Neighbour]]:
        async with self._in_time():
            state = await self._recent(namespace)
            return await self._search.neighbours(namespace, state, list(vectors), where, limit)

    async def scan(
        self, namespace: str, where: Where, *, after: str | None, limit: int, vectors: bool = True
    ) -> list[Record]:
        async with self._in_time():
            await self._recent(namespace)
            body: Json = {"query": {"bool": {"filter": filters(namespace, where)}}, **RECORD}
            if after is not None:
                body["search_after"] = [after]
            hits = await self._indices.pages("memories", namespace, body, limit=limit)
            (found,) = await found_in(self._indices, self._accesses, namespace, [hits])
            return [record_of(kept, counter, vectors=vectors) for _, kept, counter in found]

    async def following(self, namespace: str, texts: Collection[str]) -> list[str]:
        async with aclosing(self._perusal.turns(namespace)) as pages:
            wanted = Contained(texts)
            return [memory_id async for page in pages for memory_id, turn in page.items() if wanted.within(turn)]

    def whole(self, namespace: str, where: Where, *, vectors: bool = True) -> AsyncGenerator[list[Record]]:
        return self._perusal.records(namespace, where, vectors=vectors)

    async def census(self, namespace: str, statuses: Sequence[Status]) -> dict[tuple[str | None, MemoryType], int]:
        async with self._in_time():
            await self._recent(namespace)
            return await census(self._indices, self._moments, namespace, statuses)

    async def namespaces(self, *, after: str | None = None, limit: int = 1000) -> list[str]:
        async with self._in_time():
            await self._indices.refresh("memories")
            return await namespaces(self._indices, after, limit)

    async def log(
        self,
        namespace: str,
        *,
        accesses: Sequence[Access] = (),
        retrievals: Sequence[Retrieval] = (),
        seen: int | None = None,
    ) -> None:
        async with self._in_time():
            ids = {access.memory_id for access in accesses}
            ids.update(memory_id for entry in retrievals for memory_id, _, _ in entry.hits)
            born = {
                memory_id: source["born"]
                for memory_id, source in (await self._sources(namespace, sorted(ids), ["born"])).items()
            }
            await self._accesses.add(namespace, accesses, born)
            kept = await self._journal.keep(namespace, retrievals, set(born))
            # A hit that was erased meanwhile may have been looked for before its entry was there.
            hits = sorted({memory_id for entry in kept for memory_id, _, _ in entry.hits})
            left = await self._sources(namespace, hits, ["born"])
            late = [entry for entry in kept if any(memory_id not in left for memory_id, _, _ in entry.hits)]
            # Nor does a hit tell of a question that quotes what was erased and has found nothing of it. Whoever erases
            # something after this finds the entry.
            state = await self._intents.settled(namespace) if kept and seen is not None else None
            if state is not None and seen is not None and seen < state.sequence:
                late = kept if await self._journal.erased_after(namespace, state.epoch + seen) else late
            await self._journal.drop(namespace, [entry.id for entry in late])

    async def read(
        self,
        namespace: str,
        log: Log,
        *,
        ids: Sequence[str] | None = None,
        memory_id: str | None = None,
        memory_ids: Sequence[str] | None = None,
        run_id: str | None = None,
        since: int | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[AuditEvent] | list[Run] | list[Retrieval]:
        async with self._in_time():
            await self._intents.settled(namespace)
            return await self._journal.read(
                namespace,
                log,
                ids=ids,
                memory_id=memory_id,
                memory_ids=memory_ids,
                run_id=run_id,
                since=since,
                after=after,
                limit=limit,
            )

    async def receipt(self, namespace: str, key: str) -> Receipt | None:
        async with self._in_time():
            await self._intents.settled(namespace)
            return await self._journal.receipt(namespace, key)

    async def unlog(self, namespace: str, ids: Sequence[str]) -> None:
        async with self._in_time(1 + len(ids) // _PIECE):
            await self._journal.drop(namespace, ids)

    async def prune(
        self,
        namespace: str,
        log: Literal["retrievals", "receipts"],
        before: int,
        *,
        limit: int | None,
        dry_run: bool = False,
    ) -> int:
        async with self._in_time():
            await self._intents.settled(namespace)
            return await self._journal.prune(namespace, log, before, limit=limit, dry_run=dry_run)

    async def count(self, namespace: str) -> dict[str, dict[str, int]]:
        async with self._in_time():
            await self._state(namespace)
            names = ("status", "memory_type", "kind")
            body: Json = {
                "size": 0,
                "query": {"bool": {"filter": filters(namespace, Where())}},
                "aggs": {name: {"terms": {"field": name, "size": 100}} for name in names},
            }
            found: dict[str, Any] = (await self._indices.search("memories", namespace, body))["aggregations"]
            sizes: dict[str, dict[str, int]] = {
                name: {bucket["key"]: bucket["doc_count"] for bucket in found[name]["buckets"]} for name in names
            }
            sizes["log"] = await self._journal.sizes(namespace)
            return sizes

    async def note(self, name: str) -> Note:
        async with self._in_time():
            return await self._notes.read(name)

    async def keep(self, name: str, text: str, *, expected: int) -> Note:
        async with self._in_time():
            return await self._notes.write(name, text, expected)

    async def reembed(
        self, identity: str, embed: Embed, told: Callable[[int, int], None], *, keep_old: bool = False
    ) -> int:
        try:
            count = 0
            if await self._preparation.identity() != identity:
                work = Reembedding(self._connection, self._indices, self._intents, identity, embed, told)
                count = await work.run()
            behind = await concrete(self._connection, self._indices.generation)
            await Gate(self._connection, behind["state"]).wait()
            if not keep_old:
                await drop_others(self._connection, behind["memories"])
            return count
        except Missing as exc:
            if (moved := await self._preparation.moved()) is not None:
                raise moved from exc
            await concrete(self._connection, self._indices.generation)
            raise given_up(identity, exc) from exc  # what is used is there

    async def check(self) -> Component:
        async with self._in_time():
            await self._indices.search("memories", None, {"size": 0, "terminate_after": 1})
            try:
                await self._indices.admit()
            except Refused as exc:  # searches go on
                return Component(name="store", status="degraded", detail=exc.detail, remedy=exc.remedy)
            return Component(name="store", status="ok", detail=f"OpenSearch at {self._connection.address}")

    async def remains(self, texts: Sequence[str]) -> list[str]:
        left = await self._disk.holding(forms_of(texts))
        if deleted := await self._disk.deleted():
            left.append(f"{deleted} deleted documents are still on the disk: run `hindsight expunge` in half a minute.")
        return left

    async def expunge(self) -> None:
        """Take what was erased off the disk, without waiting for the merges that do it in time.

        Costs a rewrite of every segment that holds a deleted document: once after an erasure, a minute later, or daily.
        """
        await self._disk.expunge()

    async def aclose(self) -> None:
        await self.vocabularies.aclose()
        await self._connection.aclose()

    async def _recent(self, namespace: str) -> State:
        """The head as of a moment ago: a search sees later changes too, and asks the less often whether there are any.

        What was acknowledged as searchable is found whatever the head says; the weights of terms may lag a moment.
        """
        seen = self._seen.get(namespace)
        return seen.state if seen is not None and self._is_recent(seen) else await self._state(namespace)

    def _is_recent(self, seen: _Seen) -> bool:
        return asyncio.get_running_loop().time() - seen.at < FRESH

    async def _state(self, namespace: str, *, waiting: bool = True) -> State:
        """The head, closed, with everything up to it searchable.

        Without `waiting` as it was before a piecemeal change that is under way.
        """
        now = asyncio.get_running_loop().time()
        state = await (self._intents.settled(namespace) if waiting else self._intents.passed(namespace))
        if state.intent is not None:
            # Nobody else takes this for the head, not for a moment.
            state, now = state.before, -math.inf
        if max(state.searchable, self._refreshed.get(namespace, 0)) < state.sequence:
            await self._indices.refresh("memories")
            self._refreshed[namespace] = state.sequence
        for remembered in (self._seen, self._refreshed):
            if len(remembered) >= _REMEMBERED:
                remembered.clear()
        before = self._seen.get(namespace)
        steady = before is not None and before.state.footing == state.footing
        self._seen[namespace] = _Seen(state, now, steady)
        return state

    async def _erased_since(self, namespace: str, state: State) -> bool:
        """Whether something was erased after this state."""
        now = await self._intents.settled(namespace)
        return now.version != state.version and await self._journal.erased_after(namespace, state.version)

    async def _sources(self, namespace: str, ids: Sequence[str], source: Sequence[str]) -> dict[str, Json]:
        """The documents of these memories, by id; without those that do not exist."""
        places = [document_id(namespace, memory_id) for memory_id in ids]
        found = await self._indices.documents("memories", places, routing=namespace, source=source)
        return {memory_id: one["_source"] for memory_id, one in zip(ids, found, strict=True) if one is not None}

    @asynccontextmanager
    async def _in_time(self, times: int = 1) -> AsyncGenerator[None]:
        timeout = self._connection.address.options.timeout * times
        try:
            async with asyncio.timeout(timeout):
                yield
        except Missing as exc:
            raise await self._preparation.moved() or exc from exc
        except TimeoutError as exc:
            raise _OutOfTime(
                f"OpenSearch at {self._connection.address} was not done within {timeout:g} s.",
                remedy="Look at its load, or give HINDSIGHT_STORE a longer ?timeout=.",
            ) from exc
