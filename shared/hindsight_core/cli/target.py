"""Where a command works and for whom: the options that all of them share."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from hindsight_core.cli.options import Options, moment
from hindsight_core.config import NAMESPACE_VARIABLE, TOKEN_VARIABLE, URL_VARIABLE, Settings, load
from hindsight_core.errors import InvalidInput
from hindsight_core.home import data_dir

if TYPE_CHECKING:
    from hindsight_core.client import AsyncHindsight
    from hindsight_core.inprocess import InProcess
    from hindsight_core.service import MemoryService

_PANEL = "Where and whose"


class Target(Options, frozen=True, kw_only=True):
    """Which memories a command talks to, on whose behalf, and in which form it answers."""

    url: Annotated[
        str | None,
        typer.Option(
            "--url", envvar=URL_VARIABLE, help="A server to ask, instead of a local store.", rich_help_panel=_PANEL
        ),
    ] = None
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            envvar=TOKEN_VARIABLE,
            show_envvar=True,
            help="The token of that server.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    store: Annotated[
        str | None,
        typer.Option("--store", help="The local store: a path or an opensearch:// URL.", rich_help_panel=_PANEL),
    ] = None
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            envvar=NAMESPACE_VARIABLE,
            show_envvar=True,
            help="The namespace (tenant).",
            rich_help_panel=_PANEL,
        ),
    ] = None
    user: Annotated[str | None, typer.Option("--user", help="Only this user's memories.", rich_help_panel=_PANEL)] = (
        None
    )
    agent: Annotated[
        str | None,
        typer.Option("--agent", help="The agent that asks: it sees its private ones.", rich_help_panel=_PANEL),
    ] = None
    session: Annotated[
        str | None, typer.Option("--session", help="Only this session's memories.", rich_help_panel=_PANEL)
    ] = None
    now: Annotated[
        str | None,
        typer.Option("--now", help="The time to take for now, such as 2025-06-01T12:00Z.", rich_help_panel=_PANEL),
    ] = None
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what the HTTP interface answers.", rich_help_panel=_PANEL)
    ] = False

    def scope(self) -> dict[str, Any]:
        """The fields that every request has."""
        return {
            "namespace": self.namespace,
            "user_id": self.user,
            "agent_id": self.agent,
            "session_id": self.session,
            "now": moment(self.now, "--now"),
        }

    def settings(self) -> Settings:
        """The settings of a local store: the environment's, with what the options say instead."""
        return load(os.environ, data_dir=data_dir(), store=self.store, namespace=self.namespace)

    def near(self, memories: AsyncHindsight) -> MemoryService | None:
        """The service in this process behind what `open` gave; None for a server."""
        return None if self.url is not None else cast("InProcess", memories.way).service

    @asynccontextmanager
    async def open(self, *, embedder: bool) -> AsyncGenerator[AsyncHindsight]:
        """The memories that the options name; `embedder` says whether a local store will need vectors."""
        if self.url is not None:
            if self.store is not None:
                raise InvalidInput.of("--store", "a server has its own; give either --store or --url")
            # The service and the client are imported where they are needed: `--help` and a remote call stay quick.
            from hindsight_core.client import AsyncHindsight

            async with AsyncHindsight(self.url, namespace=self.namespace, token=self.token) as client:
                yield client
            return
        from hindsight_core.client import AsyncHindsight
        from hindsight_core.inprocess import InProcess
        from hindsight_core.service import open_service

        settings = self.settings()
        way = InProcess(open_service(settings, embedder=embedder), settings.namespace, actor="cli")
        async with AsyncHindsight.by(way) as client:
            yield client
