"""Another model's vectors: a new index of memories is filled beside the present one, and takes its place in one step.

Whatever is written meanwhile is copied after, by the versions of the heads: every change of a namespace raises its
own. For the last of it writes are shut for a moment (a write block on the index of the heads, without which no change
can happen). Then the names of the present generation go and those of the next one come, in one request: a process that
works with the old vectors finds nothing under its names any more, neither to search nor to write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import aclosing, suppress
from typing import NamedTuple, cast

from hindsight_core.errors import Conflict
from hindsight_core.models import Memory
from hindsight_core.stores import Embed, Record, Where
from hindsight_core.stores.opensearch.census import namespaces
from hindsight_core.stores.opensearch.conditions import filters
from hindsight_core.stores.opensearch.connection import Connection, Json
from hindsight_core.stores.opensearch.dimensions import DIMENSION
from hindsight_core.stores.opensearch.documents import Kept, document, document_id, kept_in, vectors
from hindsight_core.stores.opensearch.erasure import versioned
from hindsight_core.stores.opensearch.failures import Missing, Refused
from hindsight_core.stores.opensearch.hits import columns_of
from hindsight_core.stores.opensearch.indices import Action, Indices, json
from hindsight_core.stores.opensearch.intents import Intents
from hindsight_core.stores.opensearch.mapping import OF_GENERATIONS, alias, creation, fact, vector_fields
from hindsight_core.stores.opensearch.moments import Moments
from hindsight_core.stores.opensearch.preparation import IDENTITY

# So many memories get their new vectors at once.
_AT_ONCE = 100
# Writes are shut once no more than so many had changed since the last look.
_FEW = 50
_ROUNDS = 20
_SCROLLED = 5000
# So often, at this pause in seconds, is looked whether somebody else has opened what is shut.
PATIENCE = 20
_PAUSE = 0.5


class _Head(NamedTuple):
    """The version up to which all of a namespace is written, and whether a change of it is under way."""

    version: int
    open: bool


class Reembedding:
    """Gives the memories of one store the vectors of the model `identity`."""

    def __init__(
        self,
        connection: Connection,
        indices: Indices,
        intents: Intents,
        identity: str,
        embed: Embed,
        told: Callable[[int, int], None],
    ) -> None:
        self._connection = connection
        self._indices = indices
        self._intents = intents
        self._identity = identity
        self._embed = embed
        self._told = told
        self._generation = indices.generation + 1
        self._name, self._body = creation(connection.address, "memories", self._generation)
        self._target = Indices(connection, memories=self._name)
        self._target.generation = indices.generation
        self._source = Moments(connection, indices)
        self._dimension: int | None = None
        self._followed: dict[str, int] = {}
        self._done = self._count = self._total = 0

    async def run(self) -> int:
        """How many memories were embedded; see `MemoryStore.reembed`."""
        behind = await concrete(self._connection, self._indices.generation)
        state = behind["state"]
        await self._wait_while_shut(state)
        await self._begin()
        heads = await self._heads()
        left = await namespaces(self._target, None, 10**9)
        await self._follow(heads, {*heads, *left})
        for _ in range(_ROUNDS):
            heads = await self._heads()
            if await self._follow(heads, heads) > _FEW:
                continue
            await self._wait_while_shut(state)
            await self._connection.request("PUT", f"/{state}/_block/write")
            try:
                heads = await self._heads()
                under_way = [name for name, head in heads.items() if head.open]
                # The first vector of all would have its dimension written, which is shut.
                if not under_way and (self._dimension is not None or not self._changed(heads, heads)):
                    await self._follow(heads, heads)
                    if await self._is_shut(state):
                        await self._exchange(behind)
                        return self._count
            finally:
                await unshut(self._connection, state)
            for name in under_way:
                await self._intents.settled(name)
        raise Conflict(
            "So much is being written that the new vectors do not catch up.", remedy="Run it again at a quieter time."
        )

    async def _is_shut(self, state: str) -> bool:
        found: Json = await self._connection.request("GET", f"/{state}/_settings/index.blocks.write")
        settings: Json = found.get(state, {}).get("settings", {})
        return bool(settings.get("index", {}).get("blocks", {}).get("write") == "true")

    async def _wait_while_shut(self, state: str) -> None:
        """Another process that does the same has its turn; one that was killed in it does not open it again."""
        for _ in range(PATIENCE):
            if not await self._is_shut(state):
                return
            await asyncio.sleep(_PAUSE)
        await unshut(self._connection, state)

    async def _begin(self) -> None:
        """Go on with the index that was begun for this model, or begin one."""
        place = fact(IDENTITY, self._generation)
        (planned,) = await self._indices.documents("state", [place])
        path = f"/{self._name}"
        if planned is None or planned["_source"]["value"] != self._identity:
            with suppress(Missing):
                await self._connection.request("DELETE", path)
            dimension = Action("state", "delete", {"_id": fact(DIMENSION, self._generation)})
            await self._indices.write(
                [dimension, Action("state", "index", {"_id": place}, json({"value": self._identity}))]
            )
        try:
            await self._connection.request("PUT", path, self._body)
        except Refused as exc:
            if "already exists" not in exc.said:
                raise
        await self._target.refresh("memories")
        everything: Json = {"size": 0, "track_total_hits": True}
        self._total = (await self._indices.search("memories", None, everything))["hits"]["total"]["value"]

    async def _heads(self) -> dict[str, _Head]:
        """The heads of all namespaces; what is written up to them is searchable."""
        await self._indices.refresh("state")
        found: dict[str, _Head] = {}
        body: Json = {"size": _SCROLLED, "_source": ["sequence", "epoch", "intent.token"]}
        async with aclosing(self._indices.scrolled("state", body)) as pages:
            async for hits in pages:
                for hit in hits:
                    source: Json = hit["_source"]
                    if "sequence" in source:
                        under_way = source.get("intent") is not None
                        version = source["epoch"] + source["sequence"] - under_way
                        found[hit["_id"]] = _Head(version, under_way)
        await self._indices.refresh("memories")
        return found

    def _changed(self, heads: dict[str, _Head], names: Collection[str]) -> list[str]:
        gone = _Head(0, open=False)
        return sorted(name for name in names if self._followed.get(name) != heads.get(name, gone).version)

    async def _follow(self, heads: dict[str, _Head], names: Collection[str]) -> int:
        """Bring the new index up to these heads; how many memories had changed."""
        changed = 0
        for name in self._changed(heads, names):
            version = heads[name].version if name in heads else 0
            changed += await self._copy(name, self._followed.get(name))
            changed += await self._purge(name, version)
            self._followed[name] = version
        return changed

    async def _copy(self, namespace: str, since: int | None) -> int:
        """Copy what has changed after this version, of all what the new index does not have yet."""
        conditions = filters(namespace, Where())
        if since is not None:
            conditions.append({"range": {"changed": {"gt": since}}})
        body: Json = {"query": {"bool": {"filter": conditions}}, "_source": False, "version": True}
        copied = 0
        async with aclosing(
            self._source.pages("memories", namespace, {**body, "docvalue_fields": ["kept", "changed"]})
        ) as pages:
            async for hits in pages:
                places = [document_id(namespace, hit["sort"][-1]) for hit in hits]
                there = await self._target.documents("memories", places, routing=namespace, source=False)
                stale = [
                    hit
                    for hit, one in zip(hits, there, strict=True)
                    if one is None or one["_version"] != hit["_version"]
                ]
                self._tell(len(hits) - len(stale))
                for start in range(0, len(stale), _AT_ONCE):
                    some = stale[start : start + _AT_ONCE]
                    await self._write(namespace, some)
                    self._tell(len(some))
                copied += len(stale)
        return copied

    async def _write(self, namespace: str, hits: Sequence[Json]) -> None:
        columns = await columns_of(self._indices, namespace, hits)
        held = {name: kept_in(one) for name, one in columns.items()}
        fresh = await self._embedded([kept.memory for kept in held.values()])
        await self._decide(fresh.values())
        actions: list[Action] = []
        for hit in hits:
            name = hit["sort"][-1]
            if name not in held:  # gone by now
                continue
            kept: Kept = held[name]
            record = fresh.get(name, Record(memory=kept.memory, index=kept.index))
            changed = hit.get("fields", {}).get("changed", [hit["_version"]])[0]
            body = document(namespace, record, born=kept.born, changed=changed)
            place = {"_id": hit["_id"], "routing": namespace, **versioned(hit["_version"])}
            actions.append(Action("memories", "index", place, json(body)))
        await self._target.write(actions)

    async def _embedded(self, memories: Sequence[Memory]) -> dict[str, Record]:
        searched = [memory for memory in memories if memory.memory_type != "working"]
        records = await self._embed(searched) if searched else []
        self._count += len(records)
        return {record.memory.id: record for record in records}

    async def _decide(self, records: Collection[Record]) -> None:
        """Map the fields of the first vector; their dimension is known to who works with the next generation."""
        lengths = {len(vector) for record in records for vector in vectors(record) if vector is not None}
        if self._dimension is None and lengths:
            dimension = min(lengths)
            await self._connection.request("PUT", f"/{self._name}/_mapping", vector_fields(dimension))
            place = fact(DIMENSION, self._generation)
            await self._indices.write([Action("state", "index", {"_id": place}, json({"value": str(dimension)}))])
            self._dimension = dimension

    async def _purge(self, namespace: str, version: int) -> int:
        """Take out of the new index what is not in the present one any more."""
        await self._target.refresh("memories")
        query: Json = {"query": {"bool": {"filter": filters(namespace, Where())}}}
        counting: Json = {**query, "size": 0, "track_total_hits": True}
        here, there = [
            (await indices.search("memories", namespace, counting))["hits"]["total"]["value"]
            for indices in (self._indices, self._target)
        ]
        if here == there:
            return 0
        held, copied = [
            {
                hit["sort"][-1]: hit["_id"]
                for hit in await indices.pages("memories", namespace, query | {"_source": False})
            }
            for indices in (self._indices, self._target)
        ]
        gone = [place for name, place in copied.items() if name not in held]
        fields = {"routing": namespace} | (versioned(version) if version else {})
        await self._target.write([Action("memories", "delete", {"_id": place, **fields}) for place in gone])
        await self._target.refresh("memories")
        return len(gone)

    async def _exchange(self, behind: dict[str, str]) -> None:
        await self._target.refresh("memories")
        address, generation = self._connection.address, self._generation
        places = {"memories": self._name, "state": behind["state"]}
        actions: list[Json] = []
        for index in OF_GENERATIONS:
            old = {"index": behind[index], "alias": alias(address, index, generation - 1), "must_exist": True}
            new = {"index": places[index], "alias": alias(address, index, generation)}
            actions += [{"remove": old}, {"add": new}]
        await self._connection.request("POST", "/_aliases", {"actions": actions})
        self._indices.generation = generation

    def _tell(self, count: int) -> None:
        self._done += count
        self._told(self._done, max(self._done, self._total))


async def concrete(connection: Connection, generation: int) -> dict[str, str]:
    """The indices behind the names of a generation."""
    names = {alias(connection.address, index, generation): index for index in OF_GENERATIONS}
    path = f"/_cat/aliases/{','.join(names)}"
    found = cast(list[dict[str, str]], await connection.request("GET", path, params={"format": "json"}))
    return {names[one["alias"]]: one["index"] for one in found}


async def unshut(connection: Connection, state: str) -> None:
    """Let writes happen again."""
    await connection.request("PUT", f"/{state}/_settings", {"index": {"blocks": {"write": None}}})


async def drop_old(connection: Connection, present: str) -> None:
    """Delete the indices of memories that have no name any more."""
    kind = alias(connection.address, "memories")
    for name in await connection.request("GET", f"/{kind}-*/_alias"):
        number = name.removeprefix(f"{kind}-")
        if number.isdigit() and number < present.removeprefix(f"{kind}-"):
            await connection.request("DELETE", f"/{name}")
