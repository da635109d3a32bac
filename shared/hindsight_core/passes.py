"""What the policies of a sweep share: how they look at a namespace, and how they say what they found there."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from datetime import datetime
from typing import TypeAlias

import msgspec

from hindsight_core.models import Memory, MemoryType, Status
from hindsight_core.retention import Rules, Verdict
from hindsight_core.stores import MemoryStore, Record, Where
from hindsight_core.wordings import Wording

PAGE = 500
LIVE: tuple[Status, ...] = ("active", "pending")
STORED: tuple[MemoryType, ...] = ("episodic", "semantic")

Judge: TypeAlias = Callable[[Memory], Verdict | None]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A memory as it was looked at, and what is to be done to it.

    `mark` is where a sweep goes on that stops after it; without one it looks through the page again. One that is new
    takes the vectors of the memory `voice`, or stands in `record` with its own.
    """

    memory: Memory
    verdict: Verdict
    mark: str | None = None
    voice: str | None = None
    record: Record | None = None


class Page(msgspec.Struct, frozen=True):
    """What a policy found, how many it looked at, where it goes on, and what it has done to logs."""

    found: list[Found]
    examined: int
    after: str | None = None
    actions: dict[str, int] = {}


class View:
    """A namespace as a run sees it.

    A dry run changes nothing in the store; how it would have left memories is kept in `left` (None for erased ones).
    `room` is how many more memories the run may change; `wording` words what it induces.
    """

    def __init__(
        self,
        store: MemoryStore,
        namespace: str,
        rules: Rules,
        now: datetime,
        *,
        dry_run: bool,
        wording: Wording | None = None,
    ) -> None:
        self.store = store
        self.namespace = namespace
        self.rules = rules
        self.now = now
        self.dry_run = dry_run
        self.wording = wording
        self.room = 0
        self.left: dict[str, Memory | None] = {}

    def seen(self, memory: Memory) -> Memory | None:
        """The memory as this run has left it."""
        return self.left.get(memory.id, memory)

    async def scan(self, where: Where, after: str | None) -> list[Record]:
        """A page without vectors, in order of id."""
        return await self.store.scan(self.namespace, where, after=after, limit=PAGE, vectors=False)

    async def walk(self, where: Where, after: str | None, judge: Judge) -> AsyncGenerator[Page]:
        """Everything that satisfies `where`, page by page, judged one by one."""
        while records := await self.scan(where, after):
            after = records[-1].memory.id
            yield Page(list(self.judged(records, judge)), len(records), after)

    def judged(self, records: list[Record], judge: Judge) -> list[Found]:
        """Those of a page that something is to be done to."""
        found: list[Found] = []
        for record in records:
            memory = self.seen(record.memory)
            if memory is not None and (verdict := judge(memory)) is not None:
                found.append(Found(memory=memory, verdict=verdict, mark=memory.id))
        return found


Pass: TypeAlias = Callable[[View, str | None], AsyncGenerator[Page]]
"""A policy: what it finds from a place on, None for the start."""
