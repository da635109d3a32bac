"""A lock over a cache: held while something runs, renewed meanwhile, given up at its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from hindsight_core.cache import Cache

_RENEWALS = 3  # in the time of one claim, so that one may fail


class Claim:
    """A claim that is held, unless `lost`: then another may have it, and what is not idempotent must stop."""

    def __init__(self) -> None:
        self.lost = False


@asynccontextmanager
async def claimed(cache: Cache, name: str, owner: str, *, ttl: float) -> AsyncGenerator[Claim | None]:
    """Hold `name` as `owner` (a name that nobody else has) while the block runs; None when another holds it.

    A process that dies holds it for at most `ttl` seconds more.
    """
    if not await cache.claim(name, owner, ttl):
        yield None
        return
    claim = Claim()
    renewing = asyncio.create_task(_renew(claim, cache, name, owner, ttl))
    try:
        yield claim
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        await cache.release(name, owner)


async def _renew(claim: Claim, cache: Cache, name: str, owner: str, ttl: float) -> None:
    while not claim.lost:
        await asyncio.sleep(ttl / _RENEWALS)
        claim.lost = not await cache.renew(name, owner, ttl)
