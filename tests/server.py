"""`hindsight serve` as a process of its own, started and stopped the way a user does it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent
STARTUP_SECONDS = 60
_LISTENS = re.compile(r"listens on (http://\S+)")


def environment(**more: str) -> dict[str, str]:
    """This process's environment, without settings of Hindsight's, with the packages of the checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HINDSIGHT_")}
    packages = [str(ROOT / folder) for folder in ("shared", "functions", "scheduler")]
    return {**kept, "PYTHONPATH": os.pathsep.join(packages), "OMP_NUM_THREADS": "1", **more}


def hindsight(*arguments: str, env: Mapping[str, str], stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "hindsight_core.cli", *arguments],
        env=dict(env),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


class Server:
    """A running server; `url` is where it said that it listens."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []
        assert process.stdout is not None
        # Reading blocks until the next line, and ends when the process does.
        while line := process.stdout.readline():
            self.said.append(line)
            if found := _LISTENS.search(line):
                self.url = found[1]
                return
        raise AssertionError(f"the server ended: {''.join(self.said)} {process.communicate()[1]}")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Its exit code, and what it said at last."""
        self.process.send_signal(how)
        assert self.process.stdout is not None
        # Not by `communicate`, which passes over the lines that were read ahead with the first ones.
        out = self.process.stdout.read()
        return self.process.wait(timeout=STARTUP_SECONDS), "".join(self.said) + out


@contextmanager
def server(*arguments: str, env: Mapping[str, str]) -> Generator[Server]:
    """A server on a free port, stopped afterwards if it still runs."""
    command = [sys.executable, "-m", "hindsight_core.cli", "serve", "--port", "0", *arguments]
    process = subprocess.Popen(
        command, env={**env, "PYTHONUNBUFFERED": "1"}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield Server(process)
    finally:
        process.kill()
        process.communicate()
