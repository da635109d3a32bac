"""Keeps access counts and the retrieval log off the way of a search: collected here, written a moment later.

What is lost with a killed process is at most the last half second of statistics; no memory depends on them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from hindsight_core.errors import HindsightError
from hindsight_core.models import Retrieval
from hindsight_core.stores import Access, MemoryStore

FLUSH_AFTER = 0.5
HOLD_AT_MOST = 10_000

_log = logging.getLogger("hindsight.journal")


class Journal:
    """Buffers per namespace; `flush` writes them. A failed write is logged and dropped, never raised to a search."""

    def __init__(self, store: MemoryStore, *, retrievals: bool) -> None:
        self._store = store
        self._keep_retrievals = retrievals
        self._accesses: dict[str, dict[str, Access]] = {}
        self._retrievals: dict[str, list[Retrieval]] = {}
        self._seen: dict[str, int] = {}
        self._size = 0
        self._timer: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()

    def record(self, namespace: str, retrieval: Retrieval | None, accesses: Sequence[Access], *, seen: int = 0) -> None:
        """Note one search of the namespace at sequence `seen`, or accesses alone; returns at once."""
        if self._size >= HOLD_AT_MOST:
            return
        counts = self._accesses.setdefault(namespace, {})
        for access in accesses:
            known = counts.get(access.memory_id)
            counts[access.memory_id] = (
                access
                if known is None
                else Access(memory_id=access.memory_id, at=max(known.at, access.at), count=known.count + access.count)
            )
        if retrieval is not None and self._keep_retrievals:
            self._retrievals.setdefault(namespace, []).append(retrieval)
            self._seen[namespace] = min(seen, self._seen.get(namespace, seen))
        self._size += 1
        if self._timer is None or self._timer.done():
            self._timer = asyncio.create_task(self._later())

    async def flush(self) -> None:
        """Write what was collected so far; afterwards every earlier search of this process can be read."""
        async with self._writing:
            await self._write()

    async def _write(self) -> None:
        accesses, self._accesses = self._accesses, {}
        retrievals, self._retrievals = self._retrievals, {}
        seen, self._seen = self._seen, {}
        self._size = 0
        for namespace in accesses.keys() | retrievals.keys():
            try:
                await self._store.log(
                    namespace,
                    accesses=list(accesses.get(namespace, {}).values()),
                    retrievals=retrievals.get(namespace, []),
                    seen=seen.get(namespace),
                )
            except HindsightError as exc:
                _log.warning("journal.dropped", extra={"namespace": namespace, "detail": exc.detail})

    async def aclose(self) -> None:
        await self.flush()
        if self._timer is not None:
            self._timer.cancel()

    async def _later(self) -> None:
        await asyncio.sleep(FLUSH_AFTER)
        while self._size:
            await self.flush()
