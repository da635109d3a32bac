"""MCP over standard input and output: one client, until it closes its end."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any, cast

from mcp.server.stdio import stdio_server

from hindsight_functions.tools.connection import Connection
from hindsight_functions.tools.server import make_server

LINE_LIMIT = 4 << 20
_CHUNK = 1 << 16
_AHEAD = 4


class _Lines:
    """What a file descriptor says, a line at a time; one over the limit is read past and given as an empty one."""

    def __init__(self, descriptor: int) -> None:
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue(_AHEAD)
        self._loop = asyncio.get_running_loop()
        self._held = bytearray()
        self._over = False
        self._ended = False
        # A read cannot be interrupted. A daemon that holds no lock of Python's meanwhile is left behind at the end.
        threading.Thread(target=self._pump, args=(descriptor,), daemon=True).start()

    def _pump(self, descriptor: int) -> None:
        while True:
            try:
                chunk = os.read(descriptor, _CHUNK)
            except OSError:
                chunk = b""
            put = self._chunks.put(chunk)
            try:
                asyncio.run_coroutine_threadsafe(put, self._loop).result()
            except (RuntimeError, asyncio.CancelledError):  # the loop is gone, and with it whoever would read this
                put.close()
                return
            if not chunk:
                return

    def __aiter__(self) -> _Lines:
        return self

    async def __anext__(self) -> str:
        while True:
            end = self._held.find(b"\n")
            if end >= 0 or (self._ended and self._held):
                return self._taken(len(self._held) if end < 0 else end + 1)
            if self._ended:
                raise StopAsyncIteration
            if len(self._held) > LINE_LIMIT:
                self._over = True
                self._held.clear()
            chunk = await self._chunks.get()
            self._ended = not chunk
            self._held += chunk

    def _taken(self, size: int) -> str:
        line = bytes(self._held[:size])
        del self._held[:size]
        if self._over:
            self._over = False
            return ""
        return line.decode(errors="replace")


async def serve(connection: Connection) -> None:
    """Answer the messages of standard input until it ends, or until nobody reads the answers any more.

    Nothing but messages of the protocol reaches standard output: what anything else prints goes to standard error.
    """
    server = make_server(lambda _: connection)
    try:
        async with stdio_server(stdin=cast("Any", _Lines(0))) as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
    except* BrokenPipeError:
        pass  # the client went away while it was being answered
