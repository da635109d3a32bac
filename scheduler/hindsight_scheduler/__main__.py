"""`hindsight-scheduler`: run the policies on their schedules, or one of them once."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from typing import cast, get_args

from hindsight_core.config import load
from hindsight_core.errors import HindsightError
from hindsight_core.home import data_dir
from hindsight_core.requests import Policy
from hindsight_functions.logs import events
from hindsight_scheduler.service import once, serve

_NICENESS = 10


def main() -> None:
    """Exits with 0 when it was stopped or is done, 2 for a wrong setting, 3 when something is not available."""
    parser = argparse.ArgumentParser(prog="hindsight-scheduler", description="Forget on time.")
    parser.add_argument("--once", metavar="POLICY", choices=get_args(Policy), help="run this policy now and end")
    asked = parser.parse_args()
    give_way()
    try:
        settings = load(os.environ, data_dir=data_dir())
        with events(settings.log_level):
            if asked.once is None:
                asyncio.run(serve(settings))
            else:
                asyncio.run(once(settings, cast("Policy", asked.once)))
    except HindsightError as exc:
        print(f"hindsight-scheduler: {exc.detail}\n  {exc.remedy}", file=sys.stderr)  # noqa: T201 (a command prints)
        sys.exit(3 if exc.status == 503 else 2)


def give_way() -> None:
    """From here on this process takes the processor only when no other one on the machine wants it much."""
    if hasattr(os, "nice"):  # not on Windows
        os.nice(_NICENESS)


if __name__ == "__main__":
    main()
