"""Writes are shut for a moment: a write block on the index of the heads, without which no change can happen.

Who shuts gives that index a name, and who opens takes all such names away first: an exchange that takes its own name
away in the same request does not happen once somebody else has opened writes.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from hindsight_core.errors import StoreUnavailable
from hindsight_core.stores.opensearch.connection import Connection, Json
from hindsight_core.stores.opensearch.failures import Missing
from hindsight_core.stores.opensearch.mapping import alias

# So often, at this pause in seconds, is looked whether somebody else has opened what is shut.
PATIENCE = 20
_PAUSE = 0.5


class Gate:
    """Shuts writes, and opens them, on `state`, the index of the heads."""

    def __init__(self, connection: Connection, state: str) -> None:
        self._connection = connection
        self._state = state
        self._names = f"{alias(connection.address, 'state')}.shut-"

    async def wait(self) -> None:
        """Another process that has shut writes has its turn; one that was killed in it does not open them again."""
        for _ in range(PATIENCE):
            if not await self.is_shut():
                return
            await asyncio.sleep(_PAUSE)
        await self.open()

    async def is_shut(self) -> bool:
        found: Json = await self._connection.request("GET", f"/{self._state}/_settings/index.blocks.write")
        settings: Json = found.get(self._state, {}).get("settings", {})
        return bool(settings.get("index", {}).get("blocks", {}).get("write") == "true")

    @asynccontextmanager
    async def shut(self) -> AsyncGenerator[str]:
        """Nothing is written meanwhile; yields the name that tells that nobody has opened writes since."""
        name = self._names + secrets.token_hex(8)
        try:
            actions = {"actions": [{"add": {"index": self._state, "alias": name}}]}
            await self._connection.request("POST", "/_aliases", actions)
            answer: Json = await self._connection.request("PUT", f"/{self._state}/_block/write")
            if not answer.get("shards_acknowledged"):
                raise StoreUnavailable(
                    f"Not all shards of {self._state} at {self._connection.address} have shut writes in time.",
                    remedy="Look at the state of its shards, and run `hindsight reembed` again.",
                )
            yield name
        finally:
            try:
                await self.open()
            except StoreUnavailable as exc:
                raise StoreUnavailable(
                    f"Writes are still shut, and could not be opened again: {exc.detail}",
                    remedy=f"{exc.remedy} Then run `hindsight reembed` again, or open them by `PUT"
                    f' /{self._state}/_settings {{"index.blocks.write": null}}`.',
                ) from exc

    async def open(self) -> None:
        """Let writes happen again, whoever has shut them."""
        names = {"remove": {"index": self._state, "alias": f"{self._names}*"}}
        with suppress(Missing):  # there are none
            await self._connection.request("POST", "/_aliases", {"actions": [names]})
        body: Json = {"index": {"blocks": {"write": None}}}
        await self._connection.request("PUT", f"/{self._state}/_settings", body)
