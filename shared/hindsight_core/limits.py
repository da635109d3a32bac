"""How often a token may call, and how often a namespace may be called: counted in the cache that processes share."""

from __future__ import annotations

import math

from hindsight_core.access import Principal
from hindsight_core.cache import Cache, Rate
from hindsight_core.config import Settings
from hindsight_core.errors import TooManyRequests


class Limits:
    """Counts calls against the limits of the settings and of each token; a limit of 0 is none.

    A minute's calls may come at once; then they are let in one by one, as they would be spread over the minute.
    """

    def __init__(self, cache: Cache, settings: Settings) -> None:
        self._cache = cache
        self._of_namespaces = settings.rate_limit
        self._of_tokens = settings.token_rate_limit

    async def count(self, principal: Principal, namespace: str) -> None:
        """Count one call of the principal in a namespace; raises `TooManyRequests` when it is one too many."""
        if principal.token is not None:
            limit = self._of_tokens if principal.rate is None else principal.rate
            await self._take(f"rate/token/{principal.token}", limit, f"The token may call {limit} times a minute.")
        limit = self._of_namespaces
        words = f"The namespace {namespace!r} may be called {limit} times a minute."
        await self._take(f"rate/namespace/{namespace}", limit, words)

    async def _take(self, name: str, per_minute: int, words: str) -> None:
        if not per_minute:
            return
        allowance = await self._cache.take(name, Rate(burst=per_minute, per_second=per_minute / 60))
        if not allowance.allowed:
            seconds = max(1, math.ceil(allowance.retry_after))
            raise TooManyRequests(words, retry_after=seconds, remedy=f"Try again in {seconds} s.")
