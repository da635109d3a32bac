"""The few requests that the store is made of, over the aliases of one prefix; each item of an answer is checked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import msgspec

from hindsight_core.errors import StoreUnavailable
from hindsight_core.loops import PerLoop, several
from hindsight_core.stores.opensearch.connection import Connection, Json
from hindsight_core.stores.opensearch.failures import is_blocked, refusal
from hindsight_core.stores.opensearch.mapping import INDICES, Index, alias

# What one request may weigh, in bytes: a body above 1 MB would hold up the event loop while it is sent.
BULK_BYTES = 900_000
_PAGE = 500
# How many requests of one large change are under way: OpenSearch works on each with one processor.
_AT_ONCE = 3
_ATTEMPTS = 5
_PAUSE = 0.1


class Action(msgspec.Struct, frozen=True, array_like=True):
    """One step of a bulk request: `verb` with its fields, and a document, as JSON, where it takes one."""

    index: Index
    verb: Literal["index", "create", "update", "delete"]
    fields: dict[str, Any]
    source: str | None = None

    @property
    def weight(self) -> int:
        """About how many bytes it takes."""
        return 200 + len((self.source or "").encode())

    def encoded(self, name: str) -> bytes:
        head = msgspec.json.encode({self.verb: {"_index": name, **self.fields}})
        return head + b"\n" if self.source is None else head + b"\n" + self.source.encode() + b"\n"


def json(value: object) -> str:
    """A document as an action takes it."""
    return msgspec.json.encode(value).decode()


class Outcome(msgspec.Struct, frozen=True):
    """What became of one action; `info` is OpenSearch's item."""

    status: int
    info: dict[str, Any]


class Indices:
    """Documents by id (as they are), searches (as of the last refresh), and bulk writes."""

    def __init__(self, connection: Connection, *, memories: str | None = None) -> None:
        """`memories` names the index of memories, where it is another one than that of the generation."""
        self._connection = connection
        self._memories = memories
        self._refreshers: dict[Index, PerLoop[_Refresher]] = {}
        self.generation = 1

    def name(self, index: Index) -> str:
        if index == "memories" and self._memories is not None:
            return self._memories
        return alias(self._connection.address, index, self.generation)

    async def documents(
        self, index: Index, ids: Sequence[str], *, routing: str | None = None, source: Sequence[str] | bool = True
    ) -> list[Json | None]:
        """The documents with these `_id`s in this order, None where there is none; never an older state."""
        found: list[Json | None] = []
        params = {} if routing is None else {"routing": routing}
        if source is not True:
            params["_source"] = ",".join(source) if source else "false"
        path = f"/{self.name(index)}/_mget"
        for start in range(0, len(ids), _PAGE):
            wanted: Json = {"ids": ids[start : start + _PAGE]}
            answer = await self._connection.request("POST", path, wanted, params=params, part="docs")
            for document in answer["docs"]:
                if "error" in document:
                    raise self._refused("does not read a document", document)
                found.append(document if document["found"] else None)
        return found

    async def search(self, index: Index, routing: str | None, body: Json) -> Json:
        """The answer of a search in the shard of one namespace (in all with None), complete or an error."""
        params = {"allow_partial_search_results": "false"} | ({} if routing is None else {"routing": routing})
        path = f"/{self.name(index)}/_search"
        answer = await self._connection.request("POST", path, body, params=params, part="hits")
        return self._complete(answer)

    async def search_in(self, pit: str, keep: str, body: Json) -> Json:
        """The answer of a search in a point in time, which is kept for so long from now on, complete or an error."""
        params = {"allow_partial_search_results": "false"}
        body = {**body, "pit": {"id": pit, "keep_alive": keep}}
        return self._complete(await self._connection.request("POST", "/_search", body, params=params, part="hits"))

    async def searches(self, index: Index, routing: str, bodies: Sequence[Json]) -> list[Json]:
        """Several searches in one request."""
        head = msgspec.json.encode(
            {
                "index": self.name(index),
                "routing": routing,
                "allow_partial_search_results": False,
                # An answer holds for one instant: nobody asks for it again.
                "request_cache": False,
            }
        )
        lines = b"".join(head + b"\n" + msgspec.json.encode(body) + b"\n" for body in bodies)
        answer = await self._connection.request("POST", "/_msearch", lines, part="responses")
        return [self._complete(one) for one in answer["responses"]]

    async def pages(self, index: Index, routing: str, body: Json, *, limit: int | None = None) -> list[Json]:
        """The hits of a search sorted by the keyword `id`, from as many requests as it takes."""
        hits: list[Json] = []
        after: list[Any] | None = body.get("search_after")
        while limit is None or len(hits) < limit:
            size = 1000 if limit is None else min(1000, limit - len(hits))
            page: Json = {**body, "size": size, "sort": [{"id": "asc"}], "track_total_hits": False}
            if after is not None:
                page["search_after"] = after
            found: list[Json] = (await self.search(index, routing, page))["hits"]["hits"]
            hits += found
            if len(found) < size:
                break
            after = found[-1]["sort"]
        return hits

    async def write(
        self, actions: Iterable[Action], *, repeatable: bool = True, at_once: int = _AT_ONCE
    ) -> list[Outcome]:
        """What became of each action, in order; a conflict, or nothing to delete, is an outcome, a refusal an error.

        Actions must be such that they may be applied twice, unless `repeatable` is false. `at_once` is how many
        requests may be under way.
        """
        chunks = chunked(actions)
        # Of two actions on one document the later one must come later.
        places = [(action.index, action.fields["_id"]) for chunk in chunks for action in chunk]
        at_once = at_once if len(set(places)) == len(places) else 1
        jobs = [partial(self._bulk, chunk, repeatable=repeatable) for chunk in chunks]
        return [outcome for outcomes in await several(jobs, at_once) for outcome in outcomes]

    async def admit(self) -> None:
        """Raise what a write to any of the indices would be refused with; nothing is written for that."""
        # Replaces a state that no document ever has: a conflict wherever writing is possible.
        never: Json = {"_id": "/never", "routing": "never", "if_seq_no": 2**53, "if_primary_term": 2**53}
        await self.write([Action(index, "index", never, "{}") for index in INDICES])

    async def refresh(self, index: Index) -> None:
        """What was written before is found by searches; calls at the same time share one refresh."""
        if index not in self._refreshers:
            self._refreshers[index] = PerLoop(lambda: _Refresher(self._connection, lambda: self.name(index)))
        await self._refreshers[index].get().refresh()

    async def scrolled(self, index: Index, body: Json) -> AsyncGenerator[list[Json]]:
        """The hits of a search for all namespaces, in no order, as of one moment; to be closed (`aclosing`)."""
        path, params = f"/{self.name(index)}/_search", {"scroll": "1m"}
        page = await self._connection.request("POST", path, {**body, "sort": ["_doc"]}, params=params)
        try:
            while hits := self._complete(page)["hits"]["hits"]:
                yield hits
                page = await self._connection.request(
                    "POST", "/_search/scroll", {"scroll": "1m", "scroll_id": page["_scroll_id"]}
                )
        finally:
            await self._connection.request("DELETE", "/_search/scroll", {"scroll_id": [page["_scroll_id"]]})

    async def _bulk(self, actions: Sequence[Action], *, repeatable: bool) -> list[Outcome]:
        """One request; what a busy node puts off is sent again."""
        outcomes: dict[int, Outcome] = {}
        waiting = list(range(len(actions)))
        for attempt in range(_ATTEMPTS):
            lines = b"".join(actions[n].encoded(self.name(actions[n].index)) for n in waiting)
            params = {"require_alias": "true"}
            answer = await self._connection.request(
                "POST", "/_bulk", lines, params=params, repeatable=repeatable, part="items"
            )
            put_off: list[int] = []
            for n, item in zip(waiting, answer["items"], strict=True):
                ((_, info),) = item.items()
                outcome = Outcome(info["status"], info)
                if outcome.status == 429 and attempt + 1 < _ATTEMPTS and not is_blocked(429, info):
                    put_off.append(n)
                elif outcome.status >= 300 and outcome.status != 409 and info.get("result") != "not_found":
                    raise self._refused("does not write a document", info)
                else:
                    outcomes[n] = outcome
            if not put_off:
                break
            waiting = put_off
            await asyncio.sleep(_PAUSE * 2**attempt)
        return [outcomes[n] for n in range(len(actions))]

    def _complete(self, answer: Json) -> Json:
        if "error" in answer:
            raise self._refused("does not search", answer)
        if answer["timed_out"] or answer["_shards"]["failed"]:
            raise StoreUnavailable(
                f"OpenSearch at {self._connection.address} answered a search in part only.",
                remedy="Look at the state of its shards.",
            )
        return answer

    def _refused(self, doing: str, info: Mapping[str, Any]) -> StoreUnavailable:
        return refusal(self._connection.address, doing, info)


class _Refresher:
    """Refreshes one index for all who ask: who comes while a refresh runs shares the next one."""

    def __init__(self, connection: Connection, name: Callable[[], str]) -> None:
        self._connection = connection
        self._name = name
        self._lock = asyncio.Lock()
        self._next: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        if self._next is None:
            self._next = asyncio.create_task(self._run())
        # Shielded: one caller that gives up does not take the refresh from the others.
        await asyncio.shield(self._next)

    async def _run(self) -> None:
        try:
            async with self._lock:
                self._next = None
                await self._connection.request("POST", f"/{self._name()}/_refresh")
        finally:
            if self._next is asyncio.current_task():
                self._next = None


def chunked(actions: Iterable[Action]) -> list[list[Action]]:
    """The actions in groups that fit into one request each."""
    chunks: list[list[Action]] = []
    size = BULK_BYTES
    for action in actions:
        if size + action.weight > BULK_BYTES:
            chunks.append([])
            size = 0
        chunks[-1].append(action)
        size += action.weight
    return chunks
