"""The command that agents start: MCP over standard input and output."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hindsight_core.cli.commands import DONE, app, failed
from hindsight_core.config import NAMESPACE_VARIABLE, TOKEN_VARIABLE, URL_VARIABLE, load
from hindsight_core.errors import HindsightError, InvalidInput, MissingExtra
from hindsight_core.home import data_dir

if TYPE_CHECKING:
    from hindsight_core.caller import Caller
    from hindsight_core.tokens import Verb
    from hindsight_functions.tools.connection import Memories


@app.command("mcp")
def mcp(
    url: Annotated[
        str | None, typer.Option("--url", envvar=URL_VARIABLE, help="A server to use, instead of a local store.")
    ] = None,
    token: Annotated[
        str | None, typer.Option("--token", envvar=TOKEN_VARIABLE, help="The token of that server.")
    ] = None,
    store: Annotated[str | None, typer.Option(help="The local store: a path or an opensearch:// URL.")] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", envvar=NAMESPACE_VARIABLE, help="The namespace (tenant).")
    ] = None,
    user: Annotated[str | None, typer.Option(help="Only this user's memories.")] = None,
    agent: Annotated[str | None, typer.Option(help="The agent that asks: it sees its private memories.")] = None,
    session: Annotated[str | None, typer.Option(help="Only this session's memories.")] = None,
) -> None:
    """Serve memories to an MCP client over standard input and output."""
    try:
        asyncio.run(_serve(url, token, store, namespace, {"user_id": user, "agent_id": agent, "session_id": session}))
    except HindsightError as exc:
        raise typer.Exit(failed(exc, as_json=False)) from None
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise typer.Exit(DONE) from None


async def _serve(
    url: str | None, token: str | None, store: str | None, namespace: str | None, scope: dict[str, Any]
) -> None:
    try:
        from hindsight_functions.tools.connection import Connection
        from hindsight_functions.tools.stdio import serve
    except ModuleNotFoundError as exc:
        raise MissingExtra.of("The MCP server", "mcp") from exc
    current = asyncio.current_task()
    assert current is not None
    # A client that is done with its server may as well end it by a signal: what is open is closed then, too.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, current.cancel)
    async with _memories(url, token, store, namespace) as memories:
        if url is None:
            await serve(Connection(memories=memories, **scope))
            return
        from hindsight_functions.tools.elsewhere import ServerMemories

        if scope["agent_id"] is None:
            memories = ServerMemories(memories)
        # With a key of its own a write is sent again where its answer is lost, and still stored once.
        await serve(Connection(memories=memories, new_key=lambda: secrets.token_hex(16), **scope))


@asynccontextmanager
async def _memories(
    url: str | None, token: str | None, store: str | None, namespace: str | None
) -> AsyncGenerator[Memories]:
    """The client of a server, or a service over a local store, both in the one namespace."""
    if url is not None:
        if store is not None:
            raise InvalidInput.of("--store", "a server has its own; give either --store or --url")
        from hindsight_core.client import AsyncHindsight

        async with AsyncHindsight(url, namespace=namespace, token=token) as client:
            yield client
        return
    from hindsight_core.caller import Caller
    from hindsight_core.ids import new_id
    from hindsight_core.service import open_service
    from hindsight_functions import logs
    from hindsight_functions.tools.connection import ServiceMemories

    settings = load(os.environ, data_dir=data_dir(), store=store, namespace=namespace)

    async def allow(verb: Verb) -> Caller:
        del verb  # whoever starts the process owns the store it names
        now = datetime.now(UTC)
        return Caller(
            now=now.replace(microsecond=now.microsecond // 1000 * 1000),
            new_id=new_id,
            namespace=settings.namespace,
            actor="mcp",
            request_id=new_id(now),
        )

    with logs.events(settings.log_level):
        service = open_service(settings)
        try:
            await service.start()
            yield ServiceMemories(service, allow)
        finally:
            await service.aclose()
