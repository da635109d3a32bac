"""The cache in Redis (or Valkey): shared by all processes; while it does not answer, each goes on by itself."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlsplit

import msgspec
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterCrossSlotError,
    ClusterDownError,
    NoPermissionError,
    ReadOnlyError,
    ResponseError,
)
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import TimeoutError as NoAnswer

from hindsight_core.cache import Allowance, Rate, rates, versions
from hindsight_core.cache.local import LocalCache
from hindsight_core.errors import ConfigurationError
from hindsight_core.loops import PerLoop
from hindsight_core.responses import Component

ATTEMPTS = 10
PAUSE = 2.0
_ASK_AGAIN = 1.0
_CONNECTIONS = 16
_OWED = 100_000
_PREFIX = "hindsight:"
# As large as a vector: where only a little room is left, a server still takes a word.
_PROBE = {"probe": bytes(1536)}
# Seconds without a refusal after which it is over: a full server takes a value whenever another lapses.
_QUIET = 60.0

T = TypeVar("T")
# What the client's own types leave open.
_Client: TypeAlias = Any
_log = logging.getLogger("hindsight.cache")


class _Unanswered(Exception):
    """Redis did not do it, for whatever reason; `trouble` says why."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where a Redis is; `str()` of it names the place without user and password."""

    url: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}" if self.port else self.host


def parse(url: str) -> Address:
    """The address that a URL names; `ConfigurationError` says what is wrong with it, never its password."""
    parts = urlsplit(url)
    try:
        port = parts.port or 6379
    except ValueError:
        raise _fault("its port is not a number between 0 and 65535") from None
    if parts.scheme not in {"redis", "rediss"}:
        raise _fault(f"the scheme {parts.scheme!r} is not known")
    if not parts.hostname:
        raise _fault("it names no host")
    database = parts.path.strip("/")
    if database and not (database.isascii() and database.isdigit()):
        raise _fault(f"{database!r} is no number of a database")
    for option, _ in parse_qsl(parts.query):
        if not option.startswith("ssl_"):
            raise _fault(f"the option {option!r} is not known; those of TLS begin with ssl_")
    return Address(url=url, host=parts.hostname, port=port)


def _fault(what: str) -> ConfigurationError:
    return ConfigurationError(
        f"HINDSIGHT_REDIS: {what}.", remedy="Give a URL such as redis://localhost:6379/0, or `embedded`."
    )


class RedisCache:
    """See `Cache`. One call waits at most `timeout` seconds for Redis.

    After a failure the next `_ASK_AGAIN` seconds do without it, so that a slow server slows one call a second. While
    starting it is asked `attempts` times, every `pause` seconds; then the log says which setting names it.
    """

    def __init__(
        self,
        address: Address,
        *,
        timeout: float = 0.5,
        attempts: int = ATTEMPTS,
        pause: float = PAUSE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = address
        self._timeout = timeout
        self._attempts = attempts
        self._pause = pause
        self._clock = clock
        self._alone = LocalCache(clock=clock)
        self._clients: PerLoop[_Client] = PerLoop(self._open)
        self._connecting: asyncio.Task[None] | None = None
        self._down: str | None = None
        self._refused: dict[str, str] = {}
        self._refused_at = -_QUIET
        self._told = False
        self._ask_at = 0.0
        self._owed: set[str] = set()

    @property
    def trouble(self) -> str | None:
        why = self._down or next(iter(self._refused.values()), None)
        return None if why is None else f"Redis at {self.address} {why}: every process goes on by itself."

    async def start(self) -> None:
        try:
            await self._ask("start", lambda client: client.ping())
        except _Unanswered:
            self._connecting = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        for _ in range(self._attempts - 1):
            await asyncio.sleep(self._pause)
            self._ask_at = 0.0
            with suppress(_Unanswered):
                await self._ask("start", lambda client: client.ping())
                return
        _log.error(
            "cache.unreachable",
            extra={
                "setting": "HINDSIGHT_REDIS",
                "host": self.address.host,
                "port": self.address.port,
                "detail": self.trouble,
                "attempts": self._attempts,
                "remedy": "Start it, or correct HINDSIGHT_REDIS; it is used as soon as it answers.",
            },
        )

    async def get(self, names: Sequence[str]) -> list[bytes | None]:
        if not names:
            return []
        keys = [_key("value", name) for name in names]
        try:
            found: list[bytes | None] = await self._ask("get", lambda client: client.mget(keys))
        except _Unanswered:
            return [None] * len(names)
        return found

    async def put(self, values: Mapping[str, bytes], ttl: float) -> None:
        async def send(client: _Client) -> None:
            async with client.pipeline(transaction=False) as pipeline:
                for name, value in values.items():
                    pipeline.set(_key("value", name), value, px=_milliseconds(ttl))
                answers = await pipeline.execute(raise_on_error=False)
            for answer in answers:
                if isinstance(answer, Exception):  # the client's own words for it hold what was to be kept
                    raise answer

        with suppress(_Unanswered):
            if values:
                await self._ask("put", send)

    async def advance(self, name: str, version: int, value: bytes, ttl: float) -> None:
        async def script(client: _Client) -> None:
            await client.register_script(versions.ADVANCE)([_key("value", name)], [version, value, _milliseconds(ttl)])

        with suppress(_Unanswered):
            await self._ask("put", script)

    async def delete(self, names: Collection[str]) -> bool:
        keys = [_key("value", name) for name in names]
        if not keys:
            return True
        try:
            await self._ask("delete", lambda client: client.unlink(*keys))
        except _Unanswered:
            self._owed.update(keys[: _OWED - len(self._owed)])
            return False
        return True

    async def take(self, name: str, rate: Rate, cost: int = 1) -> Allowance:
        rates.check(rate, cost)

        async def script(client: _Client) -> tuple[int, bytes, bytes]:
            arguments = [rate.burst, rate.per_second, cost]
            found: tuple[int, bytes, bytes] = await client.register_script(rates.TAKE)([_key("rate", name)], arguments)
            return found

        try:
            allowed, until_full, wait = await self._ask("take", script)
            return rates.allowance(rate, allowed=bool(allowed), until_full=float(until_full), wait=float(wait))
        except _Unanswered:
            return await self._alone.take(name, rate, cost)

    async def check(self) -> Component:
        """Does all that is ever asked of it: a full server answers a ping as well."""
        self._ask_at = 0.0
        await self.put(_PROBE, 1.0)
        await self.get(list(_PROBE))
        await self.delete(_PROBE)
        await self.take("probe", Rate(burst=1, per_second=1000.0))
        if self.trouble is not None:
            remedy = "Start it, give it memory, or correct HINDSIGHT_REDIS; it is used as soon as it answers."
            return Component(name="cache", status="degraded", detail=self.trouble, remedy=remedy)
        return Component(name="cache", status="ok", detail=f"Redis at {self.address}")

    async def aclose(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        client = self._clients.pop()
        if client is not None:
            await client.aclose()

    async def _ask(self, verb: str, call: Callable[[_Client], Awaitable[T]]) -> T:
        """What Redis answers; `_Unanswered` where it does not, or was silent a moment ago.

        Over a connection that turns out to be broken it is asked once more.
        """
        if self._down is not None:
            if self._clock() < self._ask_at:
                raise _Unanswered
            self._ask_at = self._clock() + _ASK_AGAIN  # one call finds out, the others go on
        client = self._clients.get()
        try:
            try:
                async with asyncio.timeout(self._timeout):
                    answer = await call(client)
            except Disconnected:  # by a restart, or because it was idle for long; so are the others
                await client.connection_pool.disconnect(inuse_connections=False)
                async with asyncio.timeout(self._timeout):
                    answer = await call(client)
        except ResponseError as exc:
            if isinstance(exc, ReadOnlyError):  # a replica by now: the next connection finds who took over
                await client.connection_pool.disconnect()
            self._answers()
            self._say(verb, f"refuses to {verb} ({_reason(exc)})")
            raise _Unanswered from exc
        except Exception as exc:  # whatever is at the other end, and whatever it sends: it is only a cache
            self._ask_at = self._clock() + _ASK_AGAIN
            self._say(None, _why(exc, self._timeout))
            raise _Unanswered from exc
        self._answers(verb)
        await self._settle(client)
        return answer

    def _say(self, verb: str | None, why: str) -> None:
        """Note what does not work; the log is told when it begins."""
        if verb is None:
            self._down = why
        else:
            self._refused[verb] = why
            self._refused_at = self._clock()
        if not self._told:
            self._told = True
            _log.warning("cache.degraded", extra={"detail": self.trouble, "setting": "HINDSIGHT_REDIS"})

    def _answers(self, verb: str | None = None) -> None:
        """Note that it answers, and does as asked where a `verb` is given."""
        if not self._told:
            return
        self._down = None
        if verb is not None:
            self._refused.pop(verb, None)
        if not self._refused and self._clock() - self._refused_at >= _QUIET:
            self._told = False
            _log.warning("cache.recovered", extra={"detail": f"Redis at {self.address} answers again."})

    async def _settle(self, client: _Client) -> None:
        """Delete what could not be deleted before."""
        if not self._owed:
            return
        owed, self._owed = self._owed, set()
        try:
            async with asyncio.timeout(self._timeout):
                await client.unlink(*owed)
        except Exception:  # as in `_ask`; the next answer is the next occasion
            self._owed |= owed

    def _open(self) -> _Client:
        pool: Any = BlockingConnectionPool.from_url(  # pyright: ignore[reportUnknownMemberType] (untyped keywords)
            self.address.url,
            max_connections=_CONNECTIONS,
            timeout=self._timeout,
            socket_timeout=self._timeout,
            socket_connect_timeout=self._timeout,
            protocol=2,
            retry=Retry(NoBackoff(), 0),  # what may be repeated is known here, not there
        )
        return Redis.from_pool(pool)


def _key(kind: str, name: str) -> str:
    return f"{_PREFIX}{kind}:{name}"


def _milliseconds(ttl: float) -> int:
    return max(1, round(ttl * 1000))


def _reason(exc: ResponseError) -> str:
    """What Redis says, without the names and values that it may repeat."""
    if isinstance(exc, (ClusterDownError, ClusterCrossSlotError, AskError)):  # a MovedError is an AskError
        return "it is a cluster, whose keys lie on several servers: name one whose cluster mode is disabled"
    return str(exc).partition(", with args")[0].rstrip(".")


def _why(exc: Exception, timeout: float) -> str:
    match exc:
        case AuthenticationError() | NoPermissionError():
            return "refuses user or password"
        case TimeoutError() | NoAnswer():
            return f"did not answer within {timeout:g} s"
        case _:
            beneath = _of_the_system(exc)
    if isinstance(beneath, ssl.SSLCertVerificationError):
        why = beneath.verify_message.rstrip(".")
        return f"shows a certificate that is not trusted ({why}; `?ssl_ca_certs=FILE` names its authority)"
    if isinstance(beneath, ssl.SSLError):
        return f"does not speak TLS as it should ({beneath.reason or beneath})"
    if beneath is not None and beneath.errno:
        return f"cannot be reached ({os.strerror(beneath.errno)})"
    return f"cannot be used ({str(exc).rstrip('.') or type(exc).__name__})"


def _of_the_system(exc: BaseException | None) -> OSError | None:
    """The system's error that lies beneath."""
    while exc is not None and not (isinstance(exc, OSError) and exc.errno):
        exc = exc.__cause__ or exc.__context__
    return exc
