"""One of something for each event loop, which must not be shared between loops; and several things at once in one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")


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


async def both(one: Coroutine[Any, Any, A], other: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """The answers of both, at the same time. When one fails, the other is over too before the failure is raised."""
    tasks = asyncio.create_task(one), asyncio.create_task(other)
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        await _end(tasks)
        raise


async def several(jobs: Sequence[Callable[[], Coroutine[Any, Any, T]]], at_once: int) -> list[T]:
    """The answers of all in their order, begun in their order, `at_once` of them at the same time.

    When one fails, the others are over too before the failure is raised.
    """
    gate = asyncio.Semaphore(at_once)

    async def run(job: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async with gate:
            return await job()

    tasks = [asyncio.create_task(run(job)) for job in jobs]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        await _end(tasks)
        raise


async def pausing(items: Sequence[T], few: int = 4) -> AsyncGenerator[T]:
    """The items, with a turn for others on the event loop after every few, for work of about a millisecond an item."""
    for place, item in enumerate(items):
        if place and place % few == 0:
            await asyncio.sleep(0)
        yield item


async def _end(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """`gather` alone would leave the others running, unknown to everybody."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
