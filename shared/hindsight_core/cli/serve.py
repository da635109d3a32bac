"""The command that serves: every function in this process, on this machine."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from types import FrameType
from typing import Annotated

import typer

from hindsight_core.access import check_bind
from hindsight_core.cli import tables
from hindsight_core.cli.commands import DONE, app, failed
from hindsight_core.config import Settings, load
from hindsight_core.errors import ConfigurationError, HindsightError, MissingExtra
from hindsight_core.home import data_dir, local_path
from hindsight_core.tokens import Tokens

_GRACE = 10
# Longer than clients keep a connection idle, so that none is closed under a request.
_KEEP_ALIVE = 75


@app.command("serve")
def serve(
    host: Annotated[str | None, typer.Option(help="The address to listen on: this machine's own.")] = None,
    port: Annotated[int | None, typer.Option(help="The port to listen on; 0 takes a free one.")] = None,
    store: Annotated[str | None, typer.Option(help="The store: a path or an opensearch:// URL.")] = None,
    tour: Annotated[bool, typer.Option("--tour", help="First show what it does, if the store is empty.")] = False,
) -> None:
    """Serve memories over HTTP until it is stopped."""
    try:
        settings = load(os.environ, data_dir=data_dir(), host=host, port=port, store=store)
        tokens = asyncio.run(tokens_exist(settings))
        check_bind(settings.host, tokens=tokens)
        with listen(settings.host, settings.port) as listening:
            asyncio.run(_serve(settings, listening, tokens=tokens, tour=tour))
    except HindsightError as exc:
        raise typer.Exit(failed(exc, as_json=False)) from None
    except KeyboardInterrupt:
        raise typer.Exit(DONE) from None


async def tokens_exist(settings: Settings, *, wait: bool = True) -> bool:
    """Whether requests will need a token; an embedded store that is not there yet is not made for the question.

    With `wait` a store elsewhere that is only starting is waited for, and made ready.
    """
    if settings.root_token:
        return True
    path = local_path(settings.store)
    if path is not None and not path.exists():
        return False
    from hindsight_core.stores import open_store

    store = open_store(settings.store)
    try:
        if wait:
            await store.prepare(None)
        return bool(await Tokens(store).all())
    finally:
        await store.aclose()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; raises `ConfigurationError` when the port is taken or not ours to take."""
    try:
        family, _, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as exc:
        raise ConfigurationError(
            f"HINDSIGHT_HOST / --host: {host!r} is no address: {exc}.", remedy="Use 127.0.0.1 or ::1."
        ) from exc
    # With its protocol named asyncio turns Nagle's algorithm off; left out, every answer would wait 40 ms for an ACK.
    listening = socket.socket(family, socket.SOCK_STREAM, protocol)
    try:
        # A server that was stopped a moment ago leaves its port waiting; that is no reason to refuse.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(socket.SOMAXCONN)
    except OSError as exc:
        listening.close()
        why = "is taken" if exc.errno == errno.EADDRINUSE else f"cannot be used: {exc.strerror}"
        raise ConfigurationError(
            f"Port {port} of {host} {why}.", remedy="Choose another with --port or HINDSIGHT_PORT (0 takes a free one)."
        ) from exc
    return listening


async def _serve(settings: Settings, listening: socket.socket, *, tokens: bool, tour: bool) -> None:
    from hindsight_core.cli.tour import take_tour
    from hindsight_core.service import open_service

    try:
        import uvicorn

        from hindsight_functions.gateway import gateway
        from hindsight_functions.logs import events
    except ModuleNotFoundError as exc:
        raise MissingExtra.of("The server", "all") from exc
    console = tables.console()
    service = open_service(settings)
    try:
        with events(settings.log_level):  # as the gateway does once it serves
            await service.start()
        if tour:
            await take_tour(service, settings, console)
        config = uvicorn.Config(
            gateway(settings, service),
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=_GRACE,
            timeout_keep_alive=_KEEP_ALIVE,
            # Who calls is who connects: what a proxy says of others must not make them look near.
            proxy_headers=False,
        )
        server = uvicorn.Server(config)

        def stop(signum: int, frame: FrameType | None) -> None:
            del signum, frame
            server.should_exit = True

        # The server has handlers of its own while it runs. These stop it when the signal comes before, and take the
        # signal that it raises once more at its end, so that what follows is still done.
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, stop)
        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        console.print(f"Hindsight listens on http://{shown}:{port} (interface: /schema)")
        console.print(f"Memories are in {settings.store}")
        whom = "Every request needs a token." if tokens else "There are no tokens: only this machine is served."
        console.print(f"{whom} Ctrl-C stops it.")
        await server.serve(sockets=[listening])
    finally:
        await service.aclose()
    console.print("Stopped; everything is stored.")
