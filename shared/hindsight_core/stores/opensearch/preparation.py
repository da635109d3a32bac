"""Making the indices, and finding out whether they are ours: of this schema, and of this embedder."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection
from typing import cast

from hindsight_core.errors import ConfigurationError, StoreUnavailable
from hindsight_core.stores import moved
from hindsight_core.stores.opensearch.connection import Connection, Json
from hindsight_core.stores.opensearch.documents import renewed
from hindsight_core.stores.opensearch.erasure import versioned
from hindsight_core.stores.opensearch.failures import Foreign, Refused, excerpt, foreign
from hindsight_core.stores.opensearch.indices import Action, Indices, json
from hindsight_core.stores.opensearch.mapping import (
    IDENTITY,
    INDICES,
    OF_GENERATIONS,
    SCHEMA,
    Index,
    added,
    alias,
    creation,
    fact,
)

_SCHEMA = "/schema"
ATTEMPTS = 10
PAUSE = 2.0
GREETING = 2.0
_log = logging.getLogger("hindsight.store")


class Preparation:
    """Prepares the place of a connection; waits for an OpenSearch that is only starting.

    It is asked `attempts` times, every `pause` seconds, and given `greeting` seconds to say anything at all, at the
    last time as long as at all of them together.
    """

    def __init__(
        self,
        connection: Connection,
        indices: Indices,
        *,
        attempts: int = ATTEMPTS,
        pause: float = PAUSE,
        greeting: float = GREETING,
    ) -> None:
        self._connection = connection
        self._indices = indices
        self._attempts = attempts
        self._pause = pause
        self._greeting = greeting
        # Whose vectors there are as far as this process knows.
        self._identity: str | None = None

    async def prepare(self, identity: str | None) -> None:
        """See `MemoryStore.prepare`."""
        generation = self._indices.generation
        try:
            await self._patiently(identity)
        except BaseException:
            self._indices.generation = generation
            raise

    async def _patiently(self, identity: str | None) -> None:
        address = self._connection.address
        loop = asyncio.get_running_loop()
        began = loop.time()
        for attempt in range(self._attempts):
            await asyncio.sleep(began + attempt * self._pause - loop.time())
            try:
                last = attempt + 1 == self._attempts
                return await self._prepare(identity, self._greeting * (self._attempts if last else 1))
            except (Refused, Foreign) as exc:
                raise ConfigurationError(f"HINDSIGHT_STORE: {exc.detail}", remedy=exc.remedy) from exc
            except StoreUnavailable as exc:
                where = {"setting": "HINDSIGHT_STORE", "host": address.host, "port": address.port}
                if attempt + 1 == self._attempts:
                    raise StoreUnavailable(
                        f"{exc.detail} It was asked {self._attempts} times in {loop.time() - began:.0f} s"
                        f" (HINDSIGHT_STORE names host {address.host}, port {address.port}).",
                        remedy=exc.remedy,
                    ) from exc
                if attempt == 0:
                    _log.warning("store.waiting", extra={"detail": exc.detail, **where})
        return None

    async def _prepare(self, identity: str | None, greeting: float) -> None:
        if self._connection.address.options.service == "aoss":
            await self._probe()
        stored = await self._stored(greeting)
        if stored is None:
            await self._create()
            stored = await self._stored(greeting) or {}
        schema = int(stored.get(_SCHEMA, "0"))
        if schema > SCHEMA:
            raise ConfigurationError(
                f"The indices at {self._connection.address} were made by a newer version of Hindsight"
                f" (schema {schema}, known {SCHEMA}).",
                remedy='pip install --upgrade "hindsight-memory[opensearch]"',
            )
        if schema < SCHEMA:
            await self._migrate(schema)
        place = fact(IDENTITY, self._indices.generation)
        self._identity = identity or stored.get(place)
        if identity is None:
            return
        if place not in stored:
            await self._indices.write([_fact(place, identity)])
            stored = await self._stored(greeting) or {}
        if stored.get(place) != identity:
            raise ConfigurationError(
                f"The vectors at {self._connection.address} were made by {stored.get(place)}, not by {identity}.",
                remedy="Use the embedder they were made with, or give the memories new vectors: hindsight reembed.",
            )

    async def identity(self) -> str | None:
        """Whose vectors there are now, in the present generation."""
        place = fact(IDENTITY, self._indices.generation)
        return (await self._facts()).get(place)

    async def moved(self) -> StoreUnavailable | None:
        """What is the matter where the names of this generation are gone: another model's vectors have come."""
        later = Indices(self._connection)
        later.generation = self._latest(await self._aliases(GREETING))
        if later.generation == self._indices.generation:
            return None
        (found,) = await later.documents("state", [fact(IDENTITY, later.generation)])
        stored = None if found is None else found["_source"]["value"]
        return moved(str(self._connection.address), stored, self._identity or "the one before")

    async def _probe(self) -> None:
        """Raise `ConfigurationError` for a serverless collection that lacks what this store is built on.

        Asked of what does not exist, so that nothing is changed.
        """
        lacking: list[str] = []
        try:
            await self._indices.write([Action("state", "create", {"_id": _SCHEMA}, "{}")])
        except StoreUnavailable as exc:
            if "ID is not supported" in exc.detail:
                lacking.append("it takes no ids, so a repeated write would be stored twice")
        try:
            await self._connection.request("POST", f"/{self._connection.address.prefix}-*/_refresh")
        except Refused:
            lacking.append("it knows no refresh, so a search would not see what was just written")
        if lacking:
            raise ConfigurationError(
                f"The serverless collection at {self._connection.address} cannot hold memories: {'; '.join(lacking)}.",
                remedy="Create an OpenSearch domain instead, and use its endpoint with ?service=es.",
            )

    async def _stored(self, greeting: float) -> dict[str, str] | None:
        """What the store is made for; None when its indices are still to be made, or not all of them are.

        Raises `ConfigurationError` when some of them are lost: nothing is made anew beside what others still hold.
        """
        there = await self._there(greeting)
        facts = await self._facts() if "state" in there else {}
        if _SCHEMA not in facts and await self._hold_anything(there):
            # It was made before anything was written: by now it is there, if it ever was.
            there = await self._there(greeting)
            facts = await self._facts() if "state" in there else {}
            if _SCHEMA not in facts:
                raise self._lost("state")
        if _SCHEMA not in facts:
            return None
        for index in INDICES:
            if index not in there:
                raise self._lost(index)
        return facts

    async def _there(self, greeting: float) -> set[Index]:
        """The indices whose names are known."""
        known = await self._aliases(greeting)
        self._indices.generation = self._latest(known)
        return {index for index in INDICES if self._indices.name(index) in known}

    def _latest(self, aliases: Collection[str]) -> int:
        form = re.compile(re.escape(alias(self._connection.address, "state")) + r"\.(\d+)")
        return max([1, *(int(found[1]) for name in aliases if (found := form.fullmatch(name)))])

    async def _aliases(self, greeting: float) -> set[str]:
        """The names that are known, of whatever generation."""
        address = self._connection.address
        names = [alias(address, index) for index in INDICES]
        names += [f"{alias(address, index)}.*" for index in OF_GENERATIONS]
        path, within = f"/_cat/aliases/{','.join(names)}", min(greeting, address.options.timeout)
        known = await self._connection.request("GET", path, params={"format": "json"}, within=within)
        if not isinstance(known, list):
            raise foreign(address, excerpt(known))
        return {found["alias"] for found in cast(list[dict[str, str]], known)}

    async def _facts(self) -> dict[str, str]:
        places = [_SCHEMA, fact(IDENTITY, self._indices.generation)]
        found = await self._indices.documents("state", places)
        return {place: one["_source"]["value"] for place, one in zip(places, found, strict=True) if one is not None}

    async def _hold_anything(self, indices: Collection[Index]) -> bool:
        for index in indices:
            await self._indices.refresh(index)
            found = await self._indices.search(index, None, {"size": 0, "terminate_after": 1})
            if found["hits"]["total"]["value"]:
                return True
        return False

    def _lost(self, index: Index) -> ConfigurationError:
        address = self._connection.address
        return ConfigurationError(
            f"HINDSIGHT_STORE: at {address} the index {self._indices.name(index)} is gone, and others that belong to it"
            " are still there.",
            remedy=f"Restore it from a snapshot. To begin with an empty store instead, delete all indices"
            f" {address.prefix}-* or give another prefix.",
        )

    async def _create(self) -> None:
        # The index with the schema's number comes last: where it is, all are.
        for index in INDICES:
            name, body = creation(self._connection.address, index)
            await self._put(name, body)
        await self._indices.write([_fact(_SCHEMA, str(SCHEMA))])

    async def _migrate(self, schema: int) -> None:
        """Add what the indices of an earlier schema lack; several processes may do so at once."""
        for index, body in added(schema).items():
            await self._connection.request("PUT", f"/{self._indices.name(index)}/_mapping", body)
        await self._renew()
        await self._indices.write([Action("state", "index", {"_id": _SCHEMA}, json({"value": str(SCHEMA)}))])

    async def _renew(self) -> None:
        """Write the documents anew that an earlier schema wrote, unless a later change has."""
        kept: Json = {"exists": {"field": "kept"}}
        body: Json = {"query": {"bool": {"must_not": [kept]}}, "version": True, "size": 200}
        await self._indices.refresh("memories")
        while hits := (await self._indices.search("memories", None, body))["hits"]["hits"]:
            actions: list[Action] = []
            for hit in hits:
                place = {"_id": hit["_id"], "routing": hit["_routing"], **versioned(hit["_version"])}
                actions.append(Action("memories", "index", place, json(renewed(hit["_source"]))))
            await self._indices.write(actions)
            await self._indices.refresh("memories")

    async def _put(self, name: str, body: Json) -> None:
        try:
            await self._connection.request("PUT", f"/{name}", body)
        except Refused as exc:
            # Another process may be as far as we are.
            if "already exists" not in exc.said:
                raise


def _fact(place: str, value: str) -> Action:
    return Action("state", "create", {"_id": place}, json({"value": value}))
