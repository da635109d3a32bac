"""What was read out of texts, kept in this process because the same texts are read again, until one is erased."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])

_kept: list[Callable[[], None]] = []


def kept(maxsize: int) -> Callable[[F], F]:
    """As `functools.lru_cache`, for a pure function of texts: `forget` empties it."""

    def wrap(function: F) -> F:
        cached = lru_cache(maxsize)(function)
        _kept.append(cached.cache_clear)
        return cached  # type: ignore[return-value]  # called like the function itself

    return wrap


def forget() -> None:
    """Keep nothing of any text any more: a text that is erased would stay in memory as a key."""
    for clear in _kept:
        clear()
