"""The indices of memories by their numbers: which one is being filled for a model, which one takes the present place.

The one that is being filled has a name that nothing else ever had. It is written under that name, and loses it in the
same request in which it takes the place of the present one, or before it is deleted: so nobody writes into an index
that was deleted and made anew for another model, and none is deleted that has come into use.
"""

from __future__ import annotations

import re
import secrets
from contextlib import suppress
from typing import NamedTuple, cast

from hindsight_core.errors import StoreUnavailable
from hindsight_core.stores.opensearch.connection import Connection, Json
from hindsight_core.stores.opensearch.dimensions import DIMENSION
from hindsight_core.stores.opensearch.failures import Missing, Refused
from hindsight_core.stores.opensearch.indices import Action, Indices, json
from hindsight_core.stores.opensearch.mapping import IDENTITY, OF_GENERATIONS, alias, creation, fact


class Numbered(NamedTuple):
    """An index of memories, what it is called itself, and its names."""

    number: int
    place: str
    names: frozenset[str]


class Fill(NamedTuple):
    """An index that is being filled; its number is that of its generation, `name` that under which it is written."""

    number: int
    place: str
    name: str


async def numbered(connection: Connection) -> list[Numbered]:
    """All indices of memories of the prefix, of whatever generation, by their numbers."""
    kind = alias(connection.address, "memories")
    form = re.compile(re.escape(kind) + r"-(\d+)")
    found: Json = await connection.request("GET", f"/{kind}-*/_alias")
    return sorted(
        Numbered(int(match[1]), index, frozenset(told["aliases"]))
        for index, told in found.items()
        if (match := form.fullmatch(index))
    )


async def concrete(connection: Connection, generation: int) -> dict[str, str]:
    """The indices behind the names of a generation; `Missing` where they are gone."""
    names = {alias(connection.address, index, generation): index for index in OF_GENERATIONS}
    path = f"/_cat/aliases/{','.join(names)}"
    found = cast(list[dict[str, str]], await connection.request("GET", path, params={"format": "json"}))
    behind: dict[str, str] = {names[one["alias"]]: one["index"] for one in found}
    if len(behind) < len(names):
        raise Missing(
            f"The names {' and '.join(names)} at {connection.address} are gone.",
            remedy="Restore the indices from a snapshot.",
            said="no such names",
        )
    return behind


def _filling(connection: Connection) -> str:
    return f"{alias(connection.address, 'memories')}.next-"


async def begun(connection: Connection, indices: Indices, identity: str) -> Fill:
    """The index that was begun for the vectors of this model, or a new one."""
    there = await numbered(connection)
    for found in reversed(there):
        for name in found.names:
            if name.startswith(_filling(connection)):
                told: Json = await connection.request("GET", f"/{found.place}/_mapping")
                if told[found.place]["mappings"].get("_meta", {}).get("identity") == identity:
                    await _state(indices, Fill(found.number, found.place, name), identity)
                    return Fill(found.number, found.place, name)
    number = max([indices.generation, *(found.number for found in there)])
    while True:
        number += 1
        index, body = creation(connection.address, "memories", number)
        fill = Fill(number, index, _filling(connection) + secrets.token_hex(8))
        body["aliases"] = {fill.name: {}}
        body["mappings"]["_meta"] = {"identity": identity}
        try:
            await connection.request("PUT", f"/{index}", body)
        except Refused as exc:
            if "already exists" not in exc.said:
                raise
        else:
            await indices.write([Action("state", "delete", {"_id": fact(DIMENSION, number)})])
            await _state(indices, fill, identity)
            return fill


async def _state(indices: Indices, fill: Fill, identity: str) -> None:
    place = {"_id": fact(IDENTITY, fill.number)}
    await indices.write([Action("state", "index", place, json({"value": identity}))])


async def exchange(
    connection: Connection, fill: Fill, behind: dict[str, str], generation: int, *, holding: str
) -> bool:
    """Let what was filled take the place of the indices `behind` the names of this generation.

    False, with nothing changed, when the index of the heads does not have the name `holding` any more.
    """
    places = {"memories": fill.place, "state": behind["state"]}
    actions = [_remove(behind["state"], holding), _remove(fill.place, fill.name)]
    for index in OF_GENERATIONS:
        actions.append(_remove(behind[index], alias(connection.address, index, generation)))
        actions.append({"add": {"index": places[index], "alias": alias(connection.address, index, fill.number)}})
    try:
        await connection.request("POST", "/_aliases", {"actions": actions})
    except StoreUnavailable as exc:
        # The answer may be lost, and the request have been sent twice.
        with suppress(Missing):
            if await concrete(connection, fill.number) == places:
                return True
        there = {found.place: found.names for found in await numbered(connection)}
        if isinstance(exc, Missing) and fill.name in there.get(fill.place, frozenset()):
            await concrete(connection, generation)
            return False
        raise
    return True


async def drop_others(connection: Connection, present: str) -> None:
    """Delete all indices of memories but the present one, also one that is being filled."""
    for found in await numbered(connection):
        if found.place == present:
            continue
        if found.names:
            if not all(name.startswith(_filling(connection)) for name in found.names):
                continue
            try:
                actions = [_remove(found.place, name) for name in found.names]
                await connection.request("POST", "/_aliases", {"actions": actions})
            except Missing:  # it has come into use
                continue
        with suppress(Missing):
            await connection.request("DELETE", f"/{found.place}")


def _remove(index: str, name: str) -> Json:
    return {"remove": {"index": index, "alias": name, "must_exist": True}}
