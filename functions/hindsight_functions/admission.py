"""Letting requests in: a guard over all routes, so that one is open only where it says `opt=OPEN`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias, TypeVar

import msgspec
from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

from hindsight_core.access import Access, Principal
from hindsight_core.errors import Forbidden, StoreUnavailable
from hindsight_core.requests import Request

T = TypeVar("T", bound=Request)
Connection: TypeAlias = ASGIConnection[Any, Any, Any, Any]

# What tells nothing of anybody's memories: liveness, the interface, where to get a token.
OPEN: Mapping[str, Any] = {"open": True}
# A protocol that tells an outage in its own words: nothing is let in, and every operation raises what is down.
TELLS_OUTAGES: Mapping[str, Any] = {"tells_outages": True}


async def admit(connection: Connection, handler: BaseRouteHandler) -> None:
    """The guard: finds out who calls, before anything of the request is read; see `Access.principal`."""
    if handler.opt.get("open"):
        return
    try:
        found: Principal | StoreUnavailable = await identify(connection)
    except StoreUnavailable as exc:
        if not handler.opt.get("tells_outages"):
            raise
        found = exc
    connection.scope["state"]["principal"] = found


async def identify(connection: Connection, authorization: str | None = None) -> Principal:
    """Who calls, by `authorization` where it is not in the header of that name.

    Raises the errors of `Access.principal`. What is wrong with the store is told on this machine only.
    """
    access: Access = connection.app.state.access
    headers: Mapping[str, str] = connection.headers
    if authorization is not None:
        headers = {**headers, "authorization": authorization}
    try:
        return await access.principal(headers, _client(connection), datetime.now(UTC))
    except StoreUnavailable as exc:
        if is_near(connection):
            raise
        raise StoreUnavailable("Who may call cannot be found out at the moment.", remedy="Try again later.") from exc


def is_near(connection: Connection) -> bool:
    """Whether a program of this machine calls, which may know what is wrong with it."""
    access: Access = connection.app.state.access
    try:
        access.near(connection.headers, _client(connection))
    except Forbidden:
        return False
    return True


def _client(connection: Connection) -> str | None:
    return connection.client.host if connection.client else None


def narrowed(connection: Connection, data: T) -> T:
    """The request as the caller may make it: with the user and the agent that its token is for."""
    principal = principal_of(connection)
    if isinstance(principal, StoreUnavailable) or not principal.is_narrow:
        return data
    user_id, agent_id = principal.narrowed(data.user_id, data.agent_id)
    return msgspec.structs.replace(data, user_id=user_id, agent_id=agent_id)


def principal_of(connection: Connection) -> Principal | StoreUnavailable:
    """Who was let in, or what kept the store from saying so."""
    found: Principal | StoreUnavailable = connection.scope["state"]["principal"]
    return found
