"""A program that runs beside Hindsight: what it is, and a handle to start, stop and kill it."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

_POLL_SECONDS = 0.05
_READER_SECONDS = 5.0
_TAIL_LINES = 20
# Loopback addresses are never asked through a proxy, whatever the environment says.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_LEASH = Path(__file__).with_name("leash.py")


class ServiceError(Exception):
    """A service does not start, or its port is taken; the message says what to do."""


@dataclass(frozen=True)
class Service:
    """One child process: its `name`, `command`, and how to tell that it is ready.

    `health` is an `http://` address that answers 200, a `redis://` one that answers a ping, or empty for a service
    that listens nowhere and counts as ready once it runs. `needs` names the services that must be ready before it.
    """

    name: str
    command: tuple[str, ...]
    url: str = ""
    health: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    needs: tuple[str, ...] = ()
    port_setting: str = ""


def free_port() -> int:
    """A port on the loopback address that nothing listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_healthy(address: str, *, seconds: float = 2.0) -> bool:
    """Whether what listens at `address` (http or redis) answers as it should, within `seconds`."""
    parts = urlsplit(address)
    if parts.scheme == "redis":
        with contextlib.suppress(OSError), socket.create_connection((parts.hostname, parts.port), seconds) as client:
            client.sendall(b"PING\r\n")
            return client.recv(16).startswith(b"+PONG")
        return False
    with contextlib.suppress(OSError, http.client.HTTPException), _DIRECT.open(address, timeout=seconds) as answer:
        return bool(answer.status == 200)
    return False


class ServiceProcess:
    """The running side of a `Service`, in its own process group.

    It can be started again after `stop` or `kill`, on the same port. Each line it prints goes to `output`; the last
    ones are kept for the error message. On Linux it also ends when the starting process does.
    Start it from a thread that lives as long as it should.
    """

    def __init__(self, service: Service, output: Callable[[str], None] = lambda _line: None) -> None:
        self.service = service
        self._output = output
        self._process: subprocess.Popen[bytes] | None = None
        self._exit_code: int | None = None
        self._reader: threading.Thread | None = None
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)

    @property
    def url(self) -> str:
        return self.service.url

    @property
    def pid(self) -> int | None:
        """Its process id while it runs, else None."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def exit_code(self) -> int | None:
        """None while it runs or before it was ever started; negative after a signal."""
        return self._exit_code if self._process is None else self._process.poll()

    def start(self, *, seconds: float = 60.0) -> None:
        """Start it and wait until it is ready; does nothing when it runs. `ServiceError` if it is not ready in time."""
        if self.pid is not None:
            return
        self.launch()
        try:
            self.wait_ready(seconds=seconds)
        except BaseException:
            self.kill()
            raise

    def launch(self) -> None:
        """Start it without waiting. `ServiceError` if its port is taken."""
        self._require_free_port()
        self._tail.clear()
        self._process = process = subprocess.Popen(  # noqa: S603  the command is a Service's own
            [sys.executable, "-I", "-S", str(_LEASH), str(os.getpid()), *self.service.command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **self.service.env},
            start_new_session=True,  # a Ctrl-C at the terminal reaches only us: we stop them in order
        )
        self._reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        self._reader.start()

    def wait_ready(self, *, seconds: float = 60.0) -> None:
        """Return once it is ready. `ServiceError` if it ends before that, or is not ready in time."""
        deadline = time.monotonic() + seconds
        while True:
            if self.exit_code is not None:
                raise ServiceError(self._report(f"ended with exit code {self.exit_code} before it was ready"))
            if not self.service.health or is_healthy(self.service.health):
                return
            if time.monotonic() > deadline:
                raise ServiceError(self._report(f"is not ready after {seconds:.0f} seconds"))
            time.sleep(_POLL_SECONDS)

    def stop(self, *, seconds: float = 20.0) -> None:
        """Ask it to end and wait; after `seconds` it is killed. Its data are complete when this returns in time."""
        self._signal(signal.SIGTERM)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
        self.kill()

    def kill(self) -> None:
        """End it at once, as a crash would, with everything it started."""
        if self._process is None:
            return
        self._signal(signal.SIGKILL)
        self._exit_code = self._process.wait()
        self._process = None  # from here on its id may be another process's
        if self._reader is not None:
            self._reader.join(_READER_SECONDS)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        with process.stdout or contextlib.nullcontext(()) as lines:
            for raw in lines:
                line = raw.decode("utf-8", "replace").rstrip()
                self._tail.append(line)
                self._output(line)

    def _require_free_port(self) -> None:
        address = urlsplit(self.service.url)
        if address.port is None:
            return
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address.hostname, address.port))
            except OSError as taken:
                remedy = f" or set {self.service.port_setting} to another one" if self.service.port_setting else ""
                raise ServiceError(
                    f"{self.service.name} cannot listen on port {address.port}: {taken.strerror}. "
                    f"End what uses the port{remedy}."
                ) from taken

    def _report(self, what: str) -> str:
        said = "\n".join(f"  | {line}" for line in self._tail)
        return f"{self.service.name} {what}." + (f" Its last lines:\n{said}" if said else "")
