"""The commands that make, list and end tokens. They work on the store itself, on the machine that serves it."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated, get_args

import msgspec
import typer
from rich.table import Table

from hindsight_core import tokens
from hindsight_core.cli import tables
from hindsight_core.cli.commands import NOTHING, command
from hindsight_core.cli.options import Options
from hindsight_core.config import Settings, load
from hindsight_core.durations import duration
from hindsight_core.errors import InvalidInput
from hindsight_core.home import data_dir
from hindsight_core.tokens import Token, Tokens, TokenState, Verb

_PANEL = "Where"
_ID_BYTES, _SECRET_BYTES = 5, 32


class Place(Options, frozen=True, kw_only=True):
    """The store whose tokens these are."""

    store: Annotated[
        str | None, typer.Option("--store", help="The store: a path or an opensearch:// URL.", rich_help_panel=_PANEL)
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.", rich_help_panel=_PANEL)] = False

    def settings(self) -> Settings:
        return load(os.environ, data_dir=data_dir(), store=self.store)

    @asynccontextmanager
    async def open(self, settings: Settings) -> AsyncGenerator[Tokens]:
        """The tokens of the store."""
        if self.store is None and not os.environ.get("HINDSIGHT_STORE") and os.environ.get("HINDSIGHT_URL"):
            raise InvalidInput.of(
                "HINDSIGHT_URL",
                "tokens are made where the store is, not through a server",
                remedy="Run this on the server's machine, or name its store with --store or HINDSIGHT_STORE.",
            )
        # A store takes a while to import, and every command line imports this module.
        from hindsight_core.stores import open_store

        store = open_store(settings.store)
        try:
            await store.prepare(None)
            yield Tokens(store)
        finally:
            await store.aclose()


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A token that was just made: the only time that it is seen."""

    token: str
    id: str
    name: str
    namespaces: tuple[str, ...]
    verbs: tuple[Verb, ...]
    user_id: str | None
    agent_id: str | None
    expires_at: datetime | None


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A token as it is listed; nothing that helps to forge it."""

    id: str
    name: str
    namespaces: tuple[str, ...]
    verbs: tuple[Verb, ...]
    created_at: datetime
    expires_at: datetime | None
    state: TokenState
    user_id: str | None
    agent_id: str | None
    rate: int | None


@command("token create")
async def create(
    target: Place,
    name: Annotated[str, typer.Argument(help="What it is for, such as `dify` or `ci`; the history names it.")],
    namespace: Annotated[
        list[str] | None,
        typer.Option("--namespace", "-n", help="A namespace it is for; repeat for several, `*` for any."),
    ] = None,
    verb: Annotated[
        list[str] | None,
        typer.Option("--verb", metavar="|".join(get_args(Verb)), help="What it allows; repeat. Default: read, write."),
    ] = None,
    user: Annotated[str | None, typer.Option("--user", help="The only user it speaks for.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="The only agent it speaks for.")] = None,
    expires: Annotated[str | None, typer.Option("--expires", metavar="30d", help="How long it is valid.")] = None,
    rate: Annotated[int | None, typer.Option("--rate", min=1, help="Requests a minute it may make.")] = None,
) -> None:
    """Make a token, and print it: it is not kept, and cannot be shown again."""
    settings = target.settings()
    now = datetime.now(UTC).replace(microsecond=0)
    token_id, secret = secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
    token = Token(
        id=token_id,
        name=name,
        digest=tokens.digest_of(secret),
        namespaces=tuple(dict.fromkeys(_split(namespace) or (settings.namespace,))),
        verbs=tuple(dict.fromkeys(_verb(one) for one in _split(verb) or ("read", "write"))),
        created_at=now,
        expires_at=None if expires is None else now + duration(expires, "--expires"),
        user_id=user,
        agent_id=agent,
        rate=rate,
    )
    async with target.open(settings) as kept:
        first = not await kept.all()
        await kept.create(token)
    text = tokens.written(token_id, secret)
    if target.as_json:
        fields = {field: getattr(token, field) for field in Made.__struct_fields__ if field != "token"}
        tables.say_json(Made(token=text, **fields))
        return
    print(text)
    until = "until it is revoked" if token.expires_at is None else f"until {token.expires_at:%Y-%m-%d %H:%M} UTC"
    may, where = ", ".join(token.verbs), ", ".join(token.namespaces)
    print(f"{name} may {may} in {where} {until}. Send it as `Authorization: Bearer …`.", file=sys.stderr)
    if first:
        print(
            f"It is the first one of {settings.store}: from now on every request to a server over it needs a token.",
            file=sys.stderr,
        )


@command("token list")
async def list_tokens(target: Place) -> int:
    """List the tokens that were made; exits with 1 when there are none."""
    async with target.open(target.settings()) as kept:
        found = await kept.all()
    now = datetime.now(UTC)
    if target.as_json:
        tables.say_json([_listed(token, now) for token in found])
    elif not found:
        print("There are no tokens: a server over this store answers this machine only.", file=sys.stderr)
    else:
        columns = ("name", "id", "state", "verbs", "namespaces", "user", "agent", "expires", "rate")
        table = Table(*columns, box=None, pad_edge=False)
        for token in found:
            until = "" if token.expires_at is None else f"{token.expires_at:%Y-%m-%d %H:%M}"
            rate = "" if token.rate is None else f"{token.rate}/min"
            state = token.state(now)
            verbs, namespaces = ", ".join(token.verbs), ", ".join(token.namespaces)
            speaks_for = (token.user_id or "", token.agent_id or "")
            table.add_row(token.name, token.id, state, verbs, namespaces, *speaks_for, until, rate)
        tables.console().print(table)
    return 0 if found else NOTHING


@command("token revoke")
async def revoke(
    target: Place,
    which: Annotated[str, typer.Argument(help="Its id or name.")],
    drop: Annotated[bool, typer.Option("--drop", help="Take it off the list as well.")] = False,
) -> None:
    """End a token, everywhere within about a second."""
    async with target.open(target.settings()) as kept:
        now = datetime.now(UTC).replace(microsecond=0)
        token = await kept.revoke(which, now, drop=drop)
        left = await kept.all()
    if target.as_json:
        tables.say_json(_listed(token, now))
        return
    print(f"{token.name} ({token.id}) is revoked.")
    if not left:
        print("It was the last one: a server over this store answers this machine, without tokens.", file=sys.stderr)


def _listed(token: Token, now: datetime) -> Listed:
    fields = {field: getattr(token, field) for field in Listed.__struct_fields__ if field != "state"}
    return Listed(state=token.state(now), **fields)


def _split(given: list[str] | None) -> list[str]:
    return [item.strip() for text in given or () for item in text.split(",") if item.strip()]


def _verb(text: str) -> Verb:
    verbs: tuple[Verb, ...] = get_args(Verb)
    for verb in verbs:
        if text == verb:
            return verb
    raise InvalidInput.of("--verb", f"{text!r} is none of {', '.join(get_args(Verb))}")
