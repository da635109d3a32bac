"""What is loaded once in the life of a process, whichever threads ask for it first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def once(load: Callable[P, T]) -> Callable[P, T]:
    """As `functools.cache`, where who asks while it is being loaded waits, and does not load it again.

    Arguments are hashable and given by position. What `load` raises is raised, and not kept.
    """
    loaded: dict[tuple[object, ...], T] = {}
    lock = threading.Lock()

    @wraps(load)
    def get(*args: P.args, **kwargs: P.kwargs) -> T:
        if args not in loaded:
            with lock:
                if args not in loaded:
                    loaded[args] = load(*args, **kwargs)
        return loaded[args]

    return get
