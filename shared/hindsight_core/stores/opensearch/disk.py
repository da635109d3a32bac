"""What is on the disk: texts wherever they stand, also in indices that nothing reads, and deleted documents."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Sequence
from contextlib import aclosing

import msgspec

from hindsight_core.errors import StoreUnavailable
from hindsight_core.stores.opensearch.connection import Connection, Json
from hindsight_core.stores.opensearch.failures import Missing, refusal
from hindsight_core.stores.opensearch.generations import numbered
from hindsight_core.stores.opensearch.indices import Indices
from hindsight_core.stores.opensearch.mapping import INDICES, Index

_PAGE = 500
_PAUSE = 0.1
_LONG_PAUSE = 5.0
_FLUSH = 600.0


class Disk:
    """All indices of a prefix: those that are used, and those of memories with the vectors of another model."""

    def __init__(self, connection: Connection, indices: Indices) -> None:
        self._connection = connection
        self._indices = indices

    async def expunge(self) -> None:
        """Deleted documents leave the disk: the log of recent writes is emptied, and segments are written anew.

        OpenSearch keeps them for its own recovery until about half a minute after they were deleted. The merge may take
        hours: it is waited for, whatever a call may take.
        """
        names = ",".join(await self._names())
        await self._connection.request("POST", f"/{names}/_flush", within=_FLUSH)
        params = {"only_expunge_deletes": "true", "wait_for_completion": "false"}
        task = (await self._connection.request("POST", f"/{names}/_forcemerge", params=params))["task"]
        pause = _PAUSE
        while not (merge := await self._merge(task))["completed"]:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONG_PAUSE)
        if "error" in merge:
            raise refusal(self._connection.address, "does not merge", merge)
        if merge["response"]["_shards"]["failed"]:
            raise StoreUnavailable(
                f"OpenSearch at {self._connection.address} merged a part of its shards only.",
                remedy="Look at the state of its shards, and run it again.",
            )

    async def _merge(self, task: str) -> Json:
        """The task of a merge as it is."""
        try:
            found: Json = await self._connection.request("GET", f"/_tasks/{task}")
        except Missing as exc:
            raise StoreUnavailable(
                f"OpenSearch at {self._connection.address} does not know any more how far its merge is: {exc.said}. It"
                " was probably restarted meanwhile.",
                remedy="Run it again: what was merged stays merged, and nothing was lost.",
            ) from exc
        return found

    async def holding(self, forms: Sequence[bytes]) -> list[str]:
        """The documents that hold one of these forms of a text, wherever and whosever they are, as sentences."""
        left: list[str] = []
        for index in INDICES:
            left += await self._held(self._indices, index, forms)
        for name in await self._others():
            found = await self._held(Indices(self._connection, memories=name), "memories", forms)
            if found:
                remedy = "which no search reads: `hindsight reembed` with the model that is used deletes that index."
                left += [*found, f"{name} holds memories with the vectors of another embedding model, {remedy}"]
        return left

    async def _held(self, indices: Indices, index: Index, forms: Sequence[bytes]) -> list[str]:
        left: list[str] = []
        await indices.refresh(index)
        async with aclosing(indices.scrolled(index, {"size": _PAGE})) as pages:
            async for hits in pages:
                for hit in hits:
                    source: Json = hit["_source"]
                    held = msgspec.json.encode(source) + b64decode(source.get("kept", ""))
                    held += source.get("record", "").encode()  # of an earlier schema
                    if any(form in held for form in forms):
                        left.append(f"The document {hit['_id']} of {indices.name(index)} holds the text.")
        return left

    async def deleted(self) -> int:
        """How many deleted documents are still on the disk."""
        names = ",".join(await self._names())
        answer = await self._connection.request("GET", f"/{names}/_stats/docs")
        return int(answer["_all"]["total"]["docs"]["deleted"])

    async def _names(self) -> list[str]:
        return [*(self._indices.name(index) for index in INDICES), *await self._others()]

    async def _others(self) -> list[str]:
        """The indices of memories that are not used: replaced, or begun for another model."""
        present = self._indices.name("memories")
        return [found.place for found in await numbered(self._connection) if present not in found.names]
