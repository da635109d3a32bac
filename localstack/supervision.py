"""Runs several services in the foreground: in order, with prefixed output, until one ends or the user says stop."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Sequence
from types import FrameType

from localstack.service import Service, ServiceError, ServiceProcess

_COLOURS = (36, 33, 35, 32, 34, 31)  # cyan, yellow, magenta, green, blue, red
_POLL_SECONDS = 0.2


class _Stop(BaseException):
    """Ctrl-C or SIGTERM; not an Exception, so that nothing on the way takes it for a failure."""


def supervise(services: Sequence[Service], *, start_seconds: float = 120.0) -> int:
    """Start `services`, each after those it needs, print what they say, and stop all of them at the end.

    Returns 0 after Ctrl-C or SIGTERM, 1 when a service ended by itself. `ServiceError` if one does not start.
    Whatever happens, none of them runs any more when this returns.
    """
    width = max(len(service.name) for service in services)
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    started: list[ServiceProcess] = []
    with _signals_stop():
        try:
            for position, service in enumerate(services):
                prefix = f"{service.name:<{width}} | "
                if coloured:
                    prefix = f"\033[{_COLOURS[position % len(_COLOURS)]}m{prefix}\033[0m"
                process = ServiceProcess(service, output=_prefixed(prefix))
                started.append(process)
                process.start(seconds=start_seconds)
                _say(f"{prefix}ready{f' at {service.url}' if service.url else ''}")
            _say("Everything runs. Ctrl-C stops it.")
            return _watch(started)
        except _Stop:
            _say("Stopping ...")
            return 0
        finally:
            with _signals_ignored():
                for process in reversed(started):
                    process.stop()


def in_order(services: Sequence[Service]) -> tuple[Service, ...]:
    """The same services, each after those of them that it needs; `ServiceError` when they need each other."""
    waiting, ordered = list(services), list[Service]()
    while waiting:
        blocked = {service.name for service in waiting}
        free = [service for service in waiting if blocked.isdisjoint(service.needs)]
        if not free:
            raise ServiceError(f"These services wait for each other: {', '.join(sorted(blocked))}.")
        ordered += free
        waiting = [service for service in waiting if service not in free]
    return tuple(ordered)


def _watch(processes: Sequence[ServiceProcess]) -> int:
    while True:
        for process in processes:
            if process.exit_code is not None:
                _say(f"{process.service.name} ended with exit code {process.exit_code}; stopping the others ...")
                return 1
        time.sleep(_POLL_SECONDS)


def _prefixed(prefix: str) -> Callable[[str], None]:
    return lambda line: _say(prefix + line)


def _say(line: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody reads any more, which is no reason to stop the services
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


@contextlib.contextmanager
def _signals_stop() -> Generator[None]:
    def stop(_number: int, _frame: FrameType | None) -> None:
        raise _Stop

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _signals_ignored() -> Generator[None]:
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
