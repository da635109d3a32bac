"""Signs of life: the scheduler serves no port that could be asked, so it touches a file while its loop runs.

``python -m hindsight_scheduler.heartbeat`` ends with 0 where those of this machine and user have done so lately, else
with 1 and a line that says since when not: for the health checks of containers. It loads nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

_log = logging.getLogger("hindsight.scheduler")

EVERY = 10.0
"""Seconds between two signs."""
LATE = 60.0
"""Seconds without one after which it counts as dead: a loop that is held up for so long runs no slots in time."""


def place(process: int | str) -> Path:
    """The file of a scheduler in the folder for temporary files, which `TMPDIR` names."""
    user = os.getuid() if hasattr(os, "getuid") else "user"  # not on Windows
    return Path(tempfile.gettempdir()) / f"hindsight-scheduler-{user}-{process}.alive"


@asynccontextmanager
async def beating() -> AsyncGenerator[None]:
    """Signs of life from within the event loop, as long as the block runs.

    Where none can be left, as in a container without a writable folder, it runs without and says so once.
    """
    sign = place(os.getpid())
    try:
        sign.touch()
    except OSError as exc:
        _log.warning("heartbeat.none", extra={"detail": f"{sign} cannot be written ({exc.strerror}): set TMPDIR."})
        yield
        return
    task = asyncio.create_task(_beat(sign))
    try:
        yield
    finally:
        task.cancel()
        with suppress(OSError):
            sign.unlink(missing_ok=True)


async def _beat(sign: Path) -> None:
    while True:
        with suppress(OSError):
            sign.touch()  # noqa: ASYNC240 (takes no time)
        await asyncio.sleep(EVERY)


def main() -> None:
    """Exits with 0 where every scheduler of this user that runs here has given a sign lately, else with 1."""
    pattern = place("*")
    running = [sign for sign in pattern.parent.glob(pattern.name) if _runs(sign.stem.rpartition("-")[2])]
    if not running:
        sys.exit("hindsight-scheduler: none has given a sign of life, or it was stopped")
    ago = time.time() - min(sign.stat().st_mtime for sign in running)
    if ago > LATE:
        sys.exit(f"hindsight-scheduler: no sign of life for {ago:.0f} s")


def _runs(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (OSError, ValueError):
        return False
    return True


if __name__ == "__main__":
    main()
