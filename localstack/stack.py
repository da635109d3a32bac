"""The whole of Hindsight on one machine without Docker: `make stack`, or `python -m localstack.stack`.

Starts OpenSearch, Redis, the gateway and the scheduler, each after those it needs; Ctrl-C or SIGTERM stops them all.

    variable                            default   meaning
    HINDSIGHT_STACK_OPENSEARCH_PORT     9200      where OpenSearch listens, on 127.0.0.1 like all of them
    HINDSIGHT_STACK_REDIS_PORT          6379      where Redis listens
    HINDSIGHT_STACK_GATEWAY_PORT        8100      where the gateway listens
    HINDSIGHT_STACK_OPENSEARCH_HEAP     512m      the Java heap of OpenSearch
    HINDSIGHT_STACK_DATA                .stack    where they keep their data; delete it to start afresh

Every other `HINDSIGHT_…` variable reaches the gateway and the scheduler as it is.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from localstack.layout import LayoutError
from localstack.node import opensearch
from localstack.redis_server import redis
from localstack.service import Service, ServiceError
from localstack.supervision import in_order, supervise

NAMES = ("opensearch", "redis", "gateway", "scheduler")
_SCHEDULER = "hindsight_scheduler"
_PREFIX = "HINDSIGHT_STACK_"
_HIGHEST_PORT = 65535


@dataclass(frozen=True)
class StackSettings:
    """Ports on 127.0.0.1, the heap of OpenSearch, and where the data live."""

    opensearch_port: int = 9200
    redis_port: int = 6379
    gateway_port: int = 8100
    opensearch_heap: str = "512m"
    data: Path = Path(".stack")

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> StackSettings:
        """The settings of an environment, empty variables counting as unset; `ServiceError` names a wrong one."""

        def port(name: str, default: int) -> int:
            text = environ.get(_PREFIX + name) or str(default)
            if not text.isdecimal() or not 0 < int(text) <= _HIGHEST_PORT:
                raise ServiceError(f"{_PREFIX}{name} is {text!r}, not a port: give a number from 1 to {_HIGHEST_PORT}.")
            return int(text)

        return cls(
            opensearch_port=port("OPENSEARCH_PORT", cls.opensearch_port),
            redis_port=port("REDIS_PORT", cls.redis_port),
            gateway_port=port("GATEWAY_PORT", cls.gateway_port),
            opensearch_heap=environ.get(_PREFIX + "OPENSEARCH_HEAP") or cls.opensearch_heap,
            data=Path(environ.get(_PREFIX + "DATA") or cls.data),
        )


def stack(settings: StackSettings, names: tuple[str, ...] = NAMES) -> tuple[Service, ...]:
    """The services of these names. A store that is not among them is expected to run already, on the same port."""
    # One place says how each part is reached; the same variables configure a deployment.
    reach = {
        "HINDSIGHT_STORE": f"opensearch://127.0.0.1:{settings.opensearch_port}",
        "HINDSIGHT_REDIS": f"redis://127.0.0.1:{settings.redis_port}/0",
        "HINDSIGHT_PORT": str(settings.gateway_port),
    }
    gateway = f"http://127.0.0.1:{settings.gateway_port}"
    services: list[Service] = []
    for name in names:
        match name:
            case "opensearch":
                services.append(
                    opensearch(
                        settings.opensearch_port,
                        settings.data / name,
                        heap=settings.opensearch_heap,
                        port_setting=f"{_PREFIX}OPENSEARCH_PORT",
                    )
                )
            case "redis":
                services.append(redis(settings.redis_port, settings.data / name, port_setting=f"{_PREFIX}REDIS_PORT"))
            case "gateway":
                services.append(
                    Service(
                        name=name,
                        command=(hindsight_command(), "serve", "--port", str(settings.gateway_port)),
                        url=gateway,
                        health=f"{gateway}/ready",
                        env=reach,
                        needs=("opensearch", "redis"),
                        port_setting=f"{_PREFIX}GATEWAY_PORT",
                    )
                )
            case "scheduler":
                services.append(
                    Service(
                        name=name,
                        command=(sys.executable, "-m", _SCHEDULER),
                        env=reach,
                        needs=("gateway",),
                    )
                )
            case _:
                raise ServiceError(f"There is no service {name!r}; there are {', '.join(NAMES)}.")
    return in_order(services)


def installed() -> tuple[str, ...]:
    """The names of the services that can run here: all, but for the scheduler where its package has no program."""
    there = find_spec(_SCHEDULER) is not None and find_spec(f"{_SCHEDULER}.__main__") is not None
    return NAMES if there else NAMES[:-1]


def hindsight_command() -> str:
    """The path of the `hindsight` command, preferably the one beside this Python. `ServiceError` when it is absent."""
    beside = Path(sys.executable).with_name("hindsight")
    found = str(beside) if beside.exists() else shutil.which("hindsight")
    if found is None:
        raise ServiceError("Hindsight is not installed in this Python: pip install -e '.[all]'.")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m localstack.stack",
        description="Run OpenSearch, Redis, the gateway and the scheduler on this machine, without Docker.",
        epilog=f"Ports, heap and data directory are settings: {_PREFIX}…; see localstack/README.md.",
    )
    parser.add_argument(
        "services",
        nargs="*",
        metavar="SERVICE",
        help=f"only these; of {', '.join(NAMES)} (default: all that are installed)",
    )
    names = tuple(parser.parse_args().services) or installed()
    try:
        return supervise(stack(StackSettings.read(os.environ), names))
    except (LayoutError, ServiceError) as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
