"""The cache in Redis (or Valkey): shared by all processes; while it does not answer, each goes on by itself."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlsplit

import msgspec
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError, ReadOnlyError, ResponseError
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import TimeoutError as NoAnswer

from hindsight_core.cache import Allowance, Rate, rates
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
_PROBE = "probe"

# An owner that holds it extends it, and anybody takes what nobody holds.
_RENEW = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
_RELEASE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""

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
                await pipeline.execute()

        with suppress(_Unanswered):
            if values:
                await self._ask("put", send)

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

    async def claim(self, name: str, owner: str, ttl: float) -> bool:
        key, px = _key("claim", name), _milliseconds(ttl)
        try:
            return bool(
                await self._ask(
                    "claim",
                    lambda client: client.set(key, owner, nx=True, px=px),
                    # Over a connection that broke it may have been done.
                    again=lambda client: client.register_script(_RENEW)(keys=[key], args=[owner, px]),
                )
            )
        except _Unanswered:
            return await self._alone.claim(name, owner, ttl)

    async def renew(self, name: str, owner: str, ttl: float) -> bool:
        try:
            return bool(await self._run("renew", _RENEW, _key("claim", name), owner, _milliseconds(ttl)))
        except _Unanswered:
            return await self._alone.renew(name, owner, ttl)

    async def release(self, name: str, owner: str) -> bool:
        alone = await self._alone.release(name, owner)
        try:
            return bool(await self._run("release", _RELEASE, _key("claim", name), owner))
        except _Unanswered:
            return alone

    async def take(self, name: str, rate: Rate, cost: int = 1) -> Allowance:
        rates.check(rate, cost)
        try:
            allowed, until_full, wait = await self._run(
                "take", rates.TAKE, _key("rate", name), rate.burst, rate.per_second, cost
            )
            return rates.allowance(rate, allowed=bool(allowed), until_full=float(until_full), wait=float(wait))
        except _Unanswered:
            return await self._alone.take(name, rate, cost)

    async def check(self) -> Component:
        """Writes and reads: a full server answers a ping as well."""
        self._ask_at = 0.0
        self._refused.clear()
        await self.put({_PROBE: b"ok"}, 1.0)
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

    async def _run(self, verb: str, script: str, key: str, *arguments: object) -> Any:  # noqa: ANN401 (as Lua answers)
        return await self._ask(verb, lambda client: client.register_script(script)(keys=[key], args=arguments))

    async def _ask(
        self,
        verb: str,
        call: Callable[[_Client], Awaitable[T]],
        *,
        again: Callable[[_Client], Awaitable[T]] | None = None,
    ) -> T:
        """What Redis answers; `_Unanswered` where it does not, or was silent a moment ago.

        `again` is for a call that cannot simply be repeated when its connection turns out to be broken.
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
                    answer = await (again or call)(client)
        except ResponseError as exc:
            if isinstance(exc, ReadOnlyError):  # a replica by now: the next connection finds who took over
                await client.connection_pool.disconnect()
            self._answers()
            self._say(verb, f"refuses to {verb} ({exc})")
            raise _Unanswered from exc
        except Exception as exc:  # whatever is at the other end, and whatever it sends: it is only a cache
            self._ask_at = self._clock() + _ASK_AGAIN
            self._say(None, _why(exc, self._timeout))
            raise _Unanswered from exc
        self._answers(verb)
        await self._settle(client)
        return answer

    def _well(self) -> bool:
        return self._down is None and not self._refused

    def _say(self, verb: str | None, why: str) -> None:
        """Note what does not work, once."""
        well = self._well()
        if verb is None:
            self._down = why
        else:
            self._refused[verb] = why
        if well:
            _log.warning("cache.degraded", extra={"detail": self.trouble, "setting": "HINDSIGHT_REDIS"})

    def _answers(self, verb: str | None = None) -> None:
        """Note that it answers, and does as asked where a `verb` is given."""
        if self._well():
            return
        self._down = None
        if verb is not None:
            self._refused.pop(verb, None)
        if self._well():
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


def _why(exc: Exception, timeout: float) -> str:
    match exc:
        case AuthenticationError() | NoPermissionError():
            return "refuses user or password"
        case TimeoutError() | NoAnswer():
            return f"did not answer within {timeout:g} s"
        case _ if number := _errno(exc):
            return f"cannot be reached ({os.strerror(number)})"
        case _:
            return f"cannot be used ({str(exc).rstrip('.') or type(exc).__name__})"


def _errno(exc: BaseException | None) -> int | None:
    """The number of the system's error that lies beneath."""
    while exc is not None and not (isinstance(exc, OSError) and exc.errno):
        exc = exc.__cause__ or exc.__context__
    return None if exc is None else exc.errno
