"""How fast a sweep goes: so many changes a second, and only a share of the time, so that searches beside it go on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec

# Shorter rests than this cost more than they spare.
_SHORTEST = 0.005


class Pacing(msgspec.Struct, frozen=True, kw_only=True):
    """How many changes a second (0: any number), and which share of the time."""

    rate: int
    share: float


class Pace:
    """At most `rate` changes a second (0: any number), working at most the part `share` of the time, in (0, 1].

    A machine that is busy makes work take longer, and so the rests, too.
    """

    def __init__(
        self,
        rate: int,
        share: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`clock` tells seconds, and `sleep` waits for so many."""
        self._rate = rate
        self._rest_for = 1.0 / share - 1.0
        self._clock = clock
        self._wait = sleep
        self._free_at = 0.0
        self._since = clock()
        self._owed = 0.0

    async def turn(self, changes: int) -> None:
        """Wait until so many changes may be made."""
        if not self._rate:
            return
        await self._sleep(self._free_at - self._clock())
        self._free_at = self._clock() + changes / self._rate

    async def rest(self) -> None:
        """Rest for what was done since the last time, as long as that took where `share` is a half."""
        self._account()
        if self._owed >= _SHORTEST:
            await self._sleep(self._owed)

    async def _sleep(self, seconds: float) -> None:
        self._account()
        if seconds > 0.0:
            await self._wait(seconds)
            self._owed = max(0.0, self._owed - seconds)
            self._since = self._clock()

    def _account(self) -> None:
        """Add the rest that is owed for the work until now."""
        at = self._clock()
        self._owed += (at - self._since) * self._rest_for
        self._since = at
