"""Who may do what: the one place every request passes before any store is touched.

There are no tokens yet: whoever reaches the server may do everything, so only this machine may reach it. A browser is
kept out as well: a page from elsewhere that points a name of its own at 127.0.0.1 (DNS rebinding), or that posts to
it, shows by its `Host` or `Origin`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec

from hindsight_core.errors import ConfigurationError, Forbidden

Verb: TypeAlias = Literal["read", "write", "admin"]


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Who calls. `actor` goes into the audit; `namespace` is the only one it may use, None for any."""

    actor: str
    namespace: str | None = None


def authorize(headers: Mapping[str, str], verb: Verb, namespace: str) -> Principal:
    """The caller behind these headers (names in lower case), allowed to do `verb` in `namespace`.

    Raises `Forbidden`, for requests that did not come from this machine's own programs.
    """
    del verb, namespace  # without tokens every verb in every namespace is allowed
    host = headers.get("host", "")
    if host and not is_loopback(_hostname(f"//{host}")):
        raise Forbidden(
            f"Without tokens only requests to this machine's own address are answered; this one was sent to {host!r}.",
            remedy="Use http://127.0.0.1 or http://localhost.",
        )
    origin = headers.get("origin", "")
    if origin and not is_loopback(_hostname(origin)):
        raise Forbidden(
            f"Without tokens no web page from elsewhere may call; this one is of {origin!r}.",
            remedy="Open the page from http://127.0.0.1 or http://localhost.",
        )
    return Principal(actor="local")


def check_bind(host: str) -> None:
    """Raise `ConfigurationError` unless a server without tokens may listen on `host`."""
    if not is_loopback(host):
        raise ConfigurationError(
            f"HINDSIGHT_HOST / --host: without tokens the server listens on this machine only, and "
            f"{host!r} is reachable from others.",
            remedy="Use 127.0.0.1, ::1 or localhost, behind a proxy that authenticates if others must reach it.",
        )


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine itself, without asking any name server."""
    name = host.strip("[]").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
