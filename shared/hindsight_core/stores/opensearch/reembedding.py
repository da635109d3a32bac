"""Another model's vectors: a new index of memories is filled beside the present one, and takes its place in one step.

Whatever is written meanwhile is copied after, by the versions of the heads: every change of a namespace raises its
own. For the last of it writes are shut for a moment (see `gate`). Then the names of the present generation go and those
of the next one come, in one request (see `generations`): a process that works with the old vectors finds nothing under
its names any more, neither to search nor to write.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import aclosing
from typing import NamedTuple

from hindsight_core.errors import Conflict
from hindsight_core.models import Memory
from hindsight_core.stores import Embed, Record, Where
from hindsight_core.stores.opensearch.census import namespaces
from hindsight_core.stores.opensearch.conditions import filters
from hindsight_core.stores.opensearch.connection import Connection, Json
from hindsight_core.stores.opensearch.dimensions import DIMENSION
from hindsight_core.stores.opensearch.documents import Kept, document, kept_in, vectors
from hindsight_core.stores.opensearch.erasure import versioned
from hindsight_core.stores.opensearch.failures import Missing
from hindsight_core.stores.opensearch.gate import Gate
from hindsight_core.stores.opensearch.generations import Fill, begun, concrete, exchange
from hindsight_core.stores.opensearch.hits import columns_of
from hindsight_core.stores.opensearch.indices import Action, Indices, json
from hindsight_core.stores.opensearch.intents import Intents
from hindsight_core.stores.opensearch.mapping import IDENTITY, fact, vector_fields

# So many memories get their new vectors at once.
_AT_ONCE = 100
# Writes are shut once no more than so many had changed since the last look.
_FEW = 50
_ROUNDS = 20
_SCROLLED = 5000


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
        self._indices = self._source = self._target = indices
        self._fill = Fill(0, "", "")
        self._intents = intents
        self._identity = identity
        self._embed = embed
        self._told = told
        self._dimension: int | None = None
        self._followed: dict[str, int] = {}
        self._done = self._count = self._total = 0

    async def run(self) -> int:
        """How many memories were embedded; see `MemoryStore.reembed`."""
        behind = await concrete(self._connection, self._indices.generation)
        gate = Gate(self._connection, behind["state"])
        await gate.wait()
        self._fill = await begun(self._connection, self._indices, self._identity)
        self._target = Indices(self._connection, memories=self._fill.name)
        self._target.generation = self._indices.generation
        await self._target.refresh("memories")
        everything: Json = {"size": 0, "track_total_hits": True}
        self._total = (await self._indices.search("memories", None, everything))["hits"]["total"]["value"]
        heads = await self._heads()
        left = await namespaces(self._target, None, 10**9)
        await self._follow(heads, {*heads, *left})
        for _ in range(_ROUNDS):
            heads = await self._heads()
            if await self._follow(heads, heads) > _FEW:
                continue
            await gate.wait()
            exchanged = False
            async with gate.shut() as name:
                heads = await self._heads()
                under_way = [name for name, head in heads.items() if head.open]
                # The first vector of all would have its dimension written, which is shut.
                if not under_way and (self._dimension is not None or not self._changed(heads, heads)):
                    await self._follow(heads, heads)
                    exchanged = await self._exchange(behind, gate, name)
            if exchanged:
                await self._catch_up(behind["memories"])
                return self._count
            for name in under_way:
                await self._intents.settled(name)
        raise Conflict(
            "So much is being written that the new vectors do not catch up.", remedy="Run it again at a quieter time."
        )

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
        """Copy what has changed after this version, of all what the new index does not have yet.

        Each page is of its own moment, however long its memories are embedded: what changes meanwhile is followed.
        """
        conditions = filters(namespace, Where())
        if since is not None:
            conditions.append({"range": {"changed": {"gt": since}}})
        body: Json = {"query": {"bool": {"filter": conditions}}, "_source": False, "version": True}
        body["docvalue_fields"] = ["kept", "changed"]
        copied = 0
        while hits := await self._source.pages("memories", namespace, body, limit=_AT_ONCE):
            places = [hit["_id"] for hit in hits]
            there = await self._target.documents("memories", places, routing=namespace, source=False)
            stale = [
                hit for hit, one in zip(hits, there, strict=True) if one is None or one["_version"] < hit["_version"]
            ]
            if stale:
                await self._write(namespace, stale)
            self._tell(len(hits))
            copied += len(stale)
            body["search_after"] = hits[-1]["sort"]
        return copied

    async def _write(self, namespace: str, hits: Sequence[Json]) -> None:
        columns = await columns_of(self._source, namespace, hits)
        held = {name: kept_in(one) for name, one in columns.items()}
        fresh = await self._embedded([kept.memory for kept in held.values()])
        await self._decide(fresh.values())
        # What was erased while its vectors were made comes nowhere.
        places = [hit["_id"] for hit in hits]
        found = await self._source.documents("memories", places, routing=namespace, source=False)
        actions: list[Action] = []
        for hit, one in zip(hits, found, strict=True):
            name = hit["sort"][-1]
            if name not in held or one is None:
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
            await self._connection.request("PUT", f"/{self._fill.place}/_mapping", vector_fields(dimension))
            place = fact(DIMENSION, self._fill.number)
            await self._indices.write([Action("state", "index", {"_id": place}, json({"value": str(dimension)}))])
            self._dimension = dimension

    async def _purge(self, namespace: str, version: int) -> int:
        """Take out of the new index what is not in the present one any more."""
        await self._target.refresh("memories")
        query: Json = {"query": {"bool": {"filter": filters(namespace, Where())}}}
        counting: Json = {**query, "size": 0, "track_total_hits": True}
        here, there = [
            (await indices.search("memories", namespace, counting))["hits"]["total"]["value"]
            for indices in (self._source, self._target)
        ]
        return 0 if here == there else await self._purged(namespace, filters(namespace, Where()), version)

    async def _purged(self, namespace: str, conditions: list[Json], version: int) -> int:
        """Delete what meets these conditions in the new index and is not in the source; how many there were."""
        query: Json = {"_source": False}
        copied = await self._target.pages("memories", namespace, query | {"query": {"bool": {"filter": conditions}}})
        places = [hit["_id"] for hit in copied]
        held = await self._source.documents("memories", places, routing=namespace, source=False)
        gone = [place for place, one in zip(places, held, strict=True) if one is None]
        fields = {"routing": namespace} | (versioned(version) if version else {})
        await self._target.write([Action("memories", "delete", {"_id": place, **fields}) for place in gone])
        await self._target.refresh("memories")
        return len(gone)

    async def _exchange(self, behind: dict[str, str], gate: Gate, name: str) -> bool:
        """Whether the new index has taken its place; not when somebody has opened writes, the gate's `name` being gone.

        All is refreshed before it is asked whether writes are shut, so that nothing lies between.
        """
        await self._target.refresh("memories")
        (known,) = await self._indices.documents("state", [fact(IDENTITY, self._fill.number)])
        if known is None or known["_source"]["value"] != self._identity:
            raise given_up(self._identity)
        if not await gate.is_shut():
            return False
        generation = self._indices.generation
        done = await exchange(self._connection, self._fill, behind, generation, holding=name)
        if done:
            self._indices.generation = self._fill.number
        return done

    async def _catch_up(self, old: str) -> None:
        """Copy what has changed although writes were shut: whoever may set the block may have taken it away.

        Others write with the new model by now, and what they have written stays as it is.
        """
        self._target, self._source = self._indices, Indices(self._connection, memories=old)
        await self._source.refresh("memories")
        heads = await self._heads()
        for name in self._changed(heads, heads):
            since = self._followed.get(name)
            await self._copy(name, since)
            if since is not None:
                before: Json = {"range": {"changed": {"lte": since}}}
                await self._purged(name, [*filters(name, Where()), before], heads[name].version)
        await self._target.refresh("memories")

    def _tell(self, count: int) -> None:
        self._done += count
        self._told(self._done, max(self._done, self._total))


def given_up(identity: str, exc: Missing | None = None) -> Conflict:
    """The error of one whose new index is gone, or another's by now."""
    return Conflict(
        f"The change to {identity} was given up by another `hindsight reembed`"
        + (f" ({exc.said})." if exc is not None else "."),
        remedy="Run one at a time; this one may be run again.",
    )
