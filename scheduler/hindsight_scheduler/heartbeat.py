"""Signs of life: the scheduler serves no port that could be asked, so it touches a file while its loop runs.

``python -m hindsight_scheduler.heartbeat`` ends with 0 where a scheduler of this machine and user has done so lately,
else with 1 and a line that says since when not: for the health checks of containers. It loads nothing else.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

EVERY = 10.0
"""Seconds between two signs."""
LATE = 60.0
"""Seconds without one after which it counts as dead: a loop that is held up for so long runs no slots in time."""


def place() -> Path:
    """The file; one for all schedulers of a user on a machine."""
    user = os.getuid() if hasattr(os, "getuid") else "user"  # not on Windows
    return Path(tempfile.gettempdir()) / f"hindsight-scheduler-{user}.alive"


@asynccontextmanager
async def beating() -> AsyncGenerator[None]:
    """Signs of life from within the event loop, as long as the block runs; where none can be left, it runs without."""
    task = asyncio.create_task(_beat())
    try:
        yield
    finally:
        task.cancel()
        with suppress(OSError):
            place().unlink(missing_ok=True)


async def _beat() -> None:
    while True:
        with suppress(OSError):
            place().touch()
        await asyncio.sleep(EVERY)


def main() -> None:
    """Exits with 0 or 1."""
    try:
        ago = time.time() - place().stat().st_mtime
    except FileNotFoundError:
        sys.exit("hindsight-scheduler: none has given a sign of life, or it was stopped")
    if ago > LATE:
        sys.exit(f"hindsight-scheduler: no sign of life for {ago:.0f} s")


if __name__ == "__main__":
    main()
