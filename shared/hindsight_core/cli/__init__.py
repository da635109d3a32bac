"""The command line, `hindsight`: the service's operations, over a store in this process or a server elsewhere.

Exit codes: 0 done, 1 nothing was found or stored (or `doctor` found a fault), 2 the command or its input is wrong,
3 the store, a provider or the server is not available.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command that the arguments name."""
    try:
        from hindsight_core.cli.commands import run
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.startswith("hindsight_core"):
            raise
        print(f'hindsight: {exc.name} is not installed.\n  pip install "hindsight-memory[cli]"', file=sys.stderr)
        sys.exit(2)
    sys.exit(run(sys.argv[1:]))
