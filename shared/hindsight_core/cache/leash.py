"""Ends an embedded server and removes its folder when the process that started them is gone, however that one ended.

`python leash.py FOLDER`. Its standard input is a pipe of that process: the system closes it with its last breath.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import sys

SOCKET = "socket"

if __name__ == "__main__":
    folder = sys.argv[1]
    sys.stdin.buffer.read()
    # Asked by its socket: a process id may be somebody else's by now.
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as server:
        server.connect(f"{folder}/{SOCKET}")
        server.sendall(b"SHUTDOWN NOSAVE\r\n")
        server.recv(1)
    shutil.rmtree(folder, ignore_errors=True)
