"""The lines of a file descriptor, without a thread that could keep the process alive."""

from __future__ import annotations

import asyncio
import os
import threading

LINE_LIMIT = 4 << 20
_CHUNK = 1 << 16
_AHEAD = 4


class Lines:
    """What a file descriptor says, a line at a time; one over `LINE_LIMIT` bytes is read past and given as None."""

    def __init__(self, descriptor: int) -> None:
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue(_AHEAD)
        self._loop = asyncio.get_running_loop()
        self._held = bytearray()
        self._over = False
        self._ended = False
        # A read cannot be interrupted. A daemon that holds no lock of Python's meanwhile is left behind at the end.
        threading.Thread(target=self._pump, args=(descriptor,), daemon=True).start()

    def _pump(self, descriptor: int) -> None:
        while True:
            try:
                chunk = os.read(descriptor, _CHUNK)
            except OSError:
                chunk = b""
            put = self._chunks.put(chunk)
            try:
                asyncio.run_coroutine_threadsafe(put, self._loop).result()
            except (RuntimeError, asyncio.CancelledError):  # the loop is gone, and with it whoever would read this
                put.close()
                return
            if not chunk:
                return

    def __aiter__(self) -> Lines:
        return self

    async def __anext__(self) -> bytes | None:
        while True:
            end = self._held.find(b"\n")
            if end >= 0 or (self._ended and (self._held or self._over)):
                return self._taken(len(self._held) if end < 0 else end + 1)
            if self._ended:
                raise StopAsyncIteration
            if len(self._held) > LINE_LIMIT:
                self._over = True
                self._held.clear()
            chunk = await self._chunks.get()
            self._ended = not chunk
            self._held += chunk

    def _taken(self, size: int) -> bytes | None:
        line = bytes(self._held[:size])
        del self._held[:size]
        over, self._over = self._over, False
        return None if over or size > LINE_LIMIT else line
