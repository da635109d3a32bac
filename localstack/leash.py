"""Runs a command that is told to end when the process that asked for it is gone, however that one ended.

`python leash.py PARENT_PID COMMAND...`; on Linux. Elsewhere the command just runs.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != int(sys.argv[1]):  # it ended before the leash was on
            sys.exit(1)
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606  the command is the caller's own
