"""MCP over standard input and output: one client, until it closes its end."""

from __future__ import annotations

import sys
from typing import Any, cast

import anyio
import anyio.to_thread
from mcp.server.stdio import stdio_server

from hindsight_functions.tools.connection import Connection
from hindsight_functions.tools.server import make_server

LINE_LIMIT = 4 << 20


class _Lines:
    """Standard input a line at a time; a line over the limit is read past and given as an empty one, which is junk."""

    def __aiter__(self) -> _Lines:
        return self

    async def __anext__(self) -> str:
        # Left behind when the process ends: nothing can interrupt a read.
        line = await anyio.to_thread.run_sync(_line, abandon_on_cancel=True)
        if line is None:
            raise StopAsyncIteration
        return line


def _line() -> str | None:
    line = sys.stdin.buffer.readline(LINE_LIMIT)
    if not line:
        return None
    if len(line) < LINE_LIMIT or line.endswith(b"\n"):
        return line.decode(errors="replace")
    while line and not line.endswith(b"\n"):
        line = sys.stdin.buffer.readline(LINE_LIMIT)
    return ""


async def serve(connection: Connection) -> None:
    """Answer the messages of standard input until it ends, or until nobody reads the answers any more.

    Nothing but messages of the protocol reaches standard output: what anything else prints goes to standard error.
    """
    server = make_server(lambda _: connection)
    try:
        async with stdio_server(stdin=cast("Any", _Lines())) as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
    except* (BrokenPipeError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass  # the client went away while it was being answered
