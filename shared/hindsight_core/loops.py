"""One of something for each event loop: clients and locks must not be shared between loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


class PerLoop(Generic[T]):
    """Makes one `T` for each event loop that asks, with the first question."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()

    def get(self) -> T:
        """The running loop's own."""
        loop = asyncio.get_running_loop()
        if loop not in self._made:
            self._made[loop] = self._make()
        return self._made[loop]

    def pop(self) -> T | None:
        """The running loop's own, which is forgotten; None if there is none."""
        return self._made.pop(asyncio.get_running_loop(), None)
