"""The cache of one process: the default, and what rates fall back to while a server is gone."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence

from hindsight_core.cache import VALUE_BYTES, Allowance, Rate, rates, versions
from hindsight_core.responses import Component

_OVERHEAD = 200  # bytes that a name and its place cost beside the value
_SWEEP_FROM = 1024


class LocalCache:
    """See `Cache`. The least recently used values go first; no verb waits, so each is one atomic step."""

    trouble: str | None = None

    def __init__(self, *, value_bytes: int = VALUE_BYTES, clock: Callable[[], float] = time.monotonic) -> None:
        self._room = value_bytes
        self._clock = clock
        self._values: OrderedDict[str, tuple[bytes, float]] = OrderedDict()
        self._size = 0
        self._full_at: dict[str, float] = {}
        self._sweep_at = _SWEEP_FROM

    async def start(self) -> None:
        return

    async def get(self, names: Sequence[str]) -> list[bytes | None]:
        return [self._get(name) for name in names]

    def _get(self, name: str) -> bytes | None:
        value, until = self._values.get(name, (None, 0.0))
        if value is None:
            return None
        if until <= self._clock():
            self._drop(name)
            return None
        self._values.move_to_end(name)
        return value

    async def put(self, values: Mapping[str, bytes], ttl: float) -> None:
        until = self._clock() + ttl
        for name, value in values.items():
            self._drop(name)
            self._values[name] = value, until
            self._size += len(value) + _OVERHEAD
        while self._size > self._room:
            self._drop(next(iter(self._values)))

    async def advance(self, name: str, version: int, value: bytes, ttl: float) -> None:
        kept = versions.unpacked(self._get(name) or b"")
        if kept is None or kept[0] <= version:
            await self.put({name: versions.packed(version, value)}, ttl)

    async def delete(self, names: Collection[str]) -> bool:
        for name in names:
            self._drop(name)
        return True

    def _drop(self, name: str) -> None:
        value, _ = self._values.pop(name, (None, 0.0))
        if value is not None:
            self._size -= len(value) + _OVERHEAD

    async def take(self, name: str, rate: Rate, cost: int = 1) -> Allowance:
        rates.check(rate, cost)
        self._sweep()
        now = self._clock()
        self._full_at[name], allowed = rates.take(self._full_at.get(name, now), now, rate, cost)
        return allowed

    def _sweep(self) -> None:
        """Forget what has lapsed, each time that twice as much is held as the last time held on to."""
        if len(self._full_at) < self._sweep_at:
            return
        now = self._clock()
        self._full_at = {name: at for name, at in self._full_at.items() if at > now}
        self._sweep_at = max(_SWEEP_FROM, 2 * len(self._full_at))

    async def check(self) -> Component:
        return Component(name="cache", status="ok", detail="in this process")

    async def aclose(self) -> None:
        return
