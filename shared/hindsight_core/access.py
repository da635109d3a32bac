"""Who may do what: the one place every request passes before any memory is touched.

Without tokens whoever reaches the server may do everything, so only this machine's own programs may reach it. A
browser is kept out as well: a page from elsewhere that points a name of its own at 127.0.0.1 (DNS rebinding), or that
posts to it, shows by its `Host` or `Origin`. With tokens every request needs one, from wherever it comes.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from datetime import datetime
from urllib.parse import urlsplit

import msgspec

from hindsight_core.config import Settings
from hindsight_core.errors import ConfigurationError, Forbidden, InvalidInput, Unauthenticated
from hindsight_core.loopback import is_loopback
from hindsight_core.tokens import ANY_NAMESPACE, Tokens, Verb

_EVERY_VERB: tuple[Verb, ...] = ("read", "write", "admin")
_SHORTEST_ROOT = 24
# Who a proxy passes a request on for.
_PASSED_ON = ("forwarded", "x-forwarded-for", "x-real-ip")
_MAKE_ONE = "Send `Authorization: Bearer TOKEN`; who runs the server makes one with `hindsight token create`."


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Who calls, and how far they may go. `actor` goes into the audit; `token` is the id of its token, if it has one.

    `namespaces` are the only ones it may use, `user_id` and `agent_id` whom alone it may speak for, None for any;
    `rate` is its own limit in requests a minute.
    """

    actor: str
    namespaces: tuple[str, ...] | None = None
    verbs: tuple[Verb, ...] = _EVERY_VERB
    token: str | None = None
    user_id: str | None = None
    agent_id: str | None = None
    rate: int | None = None

    @property
    def is_narrow(self) -> bool:
        """Whether it speaks for one user or agent only."""
        return self.user_id is not None or self.agent_id is not None

    def narrowed(self, user_id: str | None, agent_id: str | None) -> tuple[str | None, str | None]:
        """The user and the agent of a request that names these; raises `Forbidden` when it may not speak for them."""
        for what, own, named in (("user", self.user_id, user_id), ("agent", self.agent_id, agent_id)):
            if own is not None and named not in {None, own}:
                raise Forbidden(
                    f"The token is for the {what} {own!r}, not for {named!r}.",
                    remedy=f"Leave the {what} out, or use a token for that one.",
                )
        return self.user_id or user_id, self.agent_id or agent_id

    def within(self, named: str | None, default: str) -> str:
        """The namespace a request works in: the one it names, else the token's only one, else the `default`.

        Raises `InvalidInput` when a token for several leaves it open. Whether it may is `authorize`'s to say.
        """
        if named is not None:
            return named
        if self.namespaces is None:
            return default
        if len(self.namespaces) != 1:
            raise InvalidInput.of("namespace", f"is missing: the token is for {', '.join(self.namespaces)}; name one")
        return self.namespaces[0]

    def authorize(self, verb: Verb | None, namespace: str) -> None:
        """Raise `Forbidden` unless it may do `verb` (with None: anything) in `namespace`."""
        if self.namespaces is not None and namespace not in self.namespaces:
            raise Forbidden(
                f"The token is not for the namespace {namespace!r}.",
                remedy=f"Use {' or '.join(self.namespaces)}, or a token for {namespace}.",
            )
        if verb is not None and verb not in self.verbs:
            raise Forbidden(
                f"The token allows {', '.join(self.verbs)}, and this is {verb!r}.",
                remedy=f"Use a token with the verb {verb}.",
            )


class Access:
    """Lets requests in, or not."""

    def __init__(self, tokens: Tokens, settings: Settings) -> None:
        if settings.root_token and len(settings.root_token) < _SHORTEST_ROOT:
            raise ConfigurationError(
                f"HINDSIGHT_ROOT_TOKEN is shorter than {_SHORTEST_ROOT} characters and could be guessed.",
                remedy="Take a random one, such as from `openssl rand -hex 32`.",
            )
        self._tokens = tokens
        self._root = settings.root_token.encode()
        self._hosts = frozenset(_listed(settings.allowed_hosts))
        self._origins = frozenset(_listed(settings.allowed_origins))

    async def principal(self, headers: Mapping[str, str], client: str | None, now: datetime) -> Principal:
        """Who sends a request with these headers (names in lower case) from the address `client`.

        Raises `Forbidden` for a host or an origin that is not allowed, `Unauthenticated` without a valid token where
        one is needed, and `StoreUnavailable` when the store cannot say.
        """
        if not (self._root or await self._tokens.exist()):
            return self.near(headers, client)
        self._check_host(headers.get("host", ""), tokens=True)
        self._check_origin(headers, tokens=True)
        return await self._bearer(headers.get("authorization", ""), now)

    def near(self, headers: Mapping[str, str], client: str | None) -> Principal:
        """Who sends a request that needs no token; raises `Forbidden` unless it is a program of this machine."""
        self._check_host(headers.get("host", ""), tokens=False)
        self._check_origin(headers, tokens=False)
        if client is None or not is_loopback(client):
            where = "a place that is not told (a socket file, a load balancer)" if client is None else client
            raise Forbidden(
                f"Without tokens only this machine is answered, and this request is from {where}.",
                remedy="Make a token with `hindsight token create`.",
            )
        named = ",".join(value for name in _PASSED_ON for value in _every(headers, name))
        if not all(is_loopback(one.strip()) for one in named.split(",") if one.strip()):
            raise Forbidden(
                "Without tokens only this machine is answered, and this request was passed on for another.",
                remedy="Make a token with `hindsight token create`.",
            )
        return Principal(actor="local")

    async def _bearer(self, header: str, now: datetime) -> Principal:
        scheme, _, presented = header.strip().partition(" ")
        presented = presented.strip()
        if scheme.lower() != "bearer" or not presented:
            raise Unauthenticated("This server wants a token.", remedy=_MAKE_ONE)
        if self._root and hmac.compare_digest(self._root, presented.encode("utf-8", "surrogatepass")):
            return Principal(actor="root", token="root")  # noqa: S106 (a name)
        token = await self._tokens.find(presented)
        if token is None:
            raise Unauthenticated("The token is not known.", remedy=_MAKE_ONE)
        state = token.state(now)
        if state != "valid":
            raise Unauthenticated(f"The token {token.name!r} is {state}.", remedy=_MAKE_ONE)
        return Principal(
            actor=f"token:{token.name}",
            namespaces=None if ANY_NAMESPACE in token.namespaces else token.namespaces,
            verbs=token.verbs,
            token=token.id,
            user_id=token.user_id,
            agent_id=token.agent_id,
            rate=token.rate,
        )

    def _check_host(self, host: str, *, tokens: bool) -> None:
        name = _hostname(f"//{host}")
        if not host or is_loopback(name) or name in self._hosts or (tokens and not self._hosts):
            return
        why = "This server is not known by the name" if tokens else "Without tokens requests are not answered under"
        raise Forbidden(
            f"{why} {host!r}.",
            remedy="Use http://127.0.0.1 or http://localhost, or add the name to HINDSIGHT_ALLOWED_HOSTS.",
        )

    def admits_page(self, origin: str) -> bool:
        """Whether a page of this origin may call, and read the answers."""
        return origin.lower() in self._origins or is_loopback(_hostname(origin))

    def _check_origin(self, headers: Mapping[str, str], *, tokens: bool) -> None:
        origin = headers.get("origin", "").lower()
        # A page that this server itself sends has its own name; without tokens that could be a stranger's name.
        own = tokens and _netloc(origin) == headers.get("host", "").lower()
        if not origin or own or self.admits_page(origin):
            return
        raise Forbidden(
            f"Web pages of {origin!r} may not call this server.",
            remedy="Open the page from http://127.0.0.1 or http://localhost, or add it to HINDSIGHT_ALLOWED_ORIGINS.",
        )


def _every(headers: Mapping[str, str], name: str) -> list[str]:
    """The values of a header, which may be sent more than once."""
    getall = getattr(headers, "getall", None)
    if getall is None:
        return [headers[name]] if name in headers else []
    found: list[str] = getall(name, [])
    return found


def check_bind(host: str, *, tokens: bool) -> None:
    """Raise `ConfigurationError` unless a server with or without `tokens` may listen on `host`."""
    if not tokens and not is_loopback(host):
        raise ConfigurationError(
            f"HINDSIGHT_HOST / --host: without tokens the server listens on this machine only, and "
            f"{host!r} is reachable from others.",
            remedy="Make a token first with `hindsight token create`, or use 127.0.0.1, ::1 or localhost.",
        )


def _listed(text: str) -> list[str]:
    return [item.strip().rstrip("/").lower() for item in text.split(",") if item.strip()]


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _netloc(url: str) -> str:
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""
