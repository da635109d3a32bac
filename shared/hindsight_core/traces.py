"""What may be left of a memory beside it.

The vectors of every text that it ever was, searches that quote it, and the copy of the task that it was said in.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from datetime import timedelta

from hindsight_core import readings
from hindsight_core.cache.copies import Copies, Name, of_task
from hindsight_core.cache.vectors import VectorCache
from hindsight_core.errors import OutcomeUnknown, Unavailable
from hindsight_core.ids import first_id
from hindsight_core.models import AuditEvent, Memory, Retrieval
from hindsight_core.quoting import Quoted
from hindsight_core.stores import ChangeSet, MemoryStore, Record

_PAGE = 1000
_CHUNK = 500
AHEAD = 4000
"""Of so many memories the texts may be looked for at once: they and their words are held meanwhile."""
# Searches are logged a moment after they were made, by clocks that differ; so late they are still looked for.
_LATE = timedelta(minutes=5)


class Traces:
    """Collects texts that are about to be erased, while they can still be read, and removes what is left of them.

    Logged searches go before the erasure, which could not be found any more if it broke off after, and once more after
    it: somebody may have asked meanwhile. What other processes have asked but not logged by then the store refuses.
    """

    def __init__(self, vectors: VectorCache, copies: Copies) -> None:
        self._vectors = vectors
        self._copies = copies
        self._tasks: set[Name] = set()
        self._texts: set[str] = set()
        self._said: set[str] = set()
        self._identities: set[str] = set()
        # What the log was looked through for, from its beginning to this id.
        self._sought: set[str] = set()
        self._quoted = Quoted(())
        self._looked_to: str | None = None
        self.left: str | None = None
        """What could not be removed, as a sentence for the caller."""

    async def ahead(self, store: MemoryStore, namespace: str, memories: Sequence[Memory]) -> None:
        """Remove the logged searches that quote these, which are to be erased soon, in one look for all of them."""
        found = [memory async for memory in _versions(store, namespace, memories)]
        await self._seek(store, namespace, set(_said(found)))

    async def of(self, store: MemoryStore, namespace: str, records: Sequence[Record]) -> None:
        """Note all texts of these memories, those of earlier versions and the turn before them too."""
        tasks = {record.memory.task_id for record in records}
        self._tasks.update(of_task(namespace, task_id) for task_id in tasks if task_id is not None)
        async for memory in _versions(store, namespace, [record.memory for record in records]):
            self._said.update(_said([memory]))
            self._made_by(memory)
        if self._said <= self._sought:
            await self._unlog(store, namespace)
        else:
            await self._seek(store, namespace, self._said | self._sought)

    def turn(self, memory: Memory) -> None:
        """Note the turn before a memory that stays itself."""
        self._texts.add(memory.context or "")
        self._made_by(memory)

    def _made_by(self, memory: Memory) -> None:
        if memory.embedding_model is not None:
            self._identities.add(memory.embedding_model)

    async def commit(
        self, store: MemoryStore, namespace: str, changes: ChangeSet, *, expected: int | None = None
    ) -> None:
        """Erase them with this change, with what is left of them: logged searches, and what is cached anywhere.

        Raises what `MemoryStore.commit` does, and `OutcomeUnknown` when the store fails after that; nothing of them is
        cached even then.
        """
        await self._uncache()
        try:
            await store.commit(namespace, changes, expected=expected)
        finally:
            # A question may have been read meanwhile, and once they are gone nobody knows their texts any more.
            await self._uncache()
        try:
            if self._said:
                await self._unlog(store, namespace)
        except OutcomeUnknown:
            raise
        except Unavailable as exc:
            raise OutcomeUnknown.after(exc) from exc
        self._tasks.clear()
        self._texts.clear()
        self._said.clear()

    async def _uncache(self) -> None:
        for name in self._tasks:
            await self._copies.drop(name)
        texts = self._texts | self._said
        if not texts:
            return
        readings.forget()
        if not await self._vectors.erase(self._identities, texts):
            self.left = (
                "The cache does not answer, so vectors of erased texts may stay in it"
                f" until it does, for {self._vectors.ttl:g} s at most."
            )

    async def _seek(self, store: MemoryStore, namespace: str, texts: set[str]) -> None:
        """Look through the whole log for these texts, and from now on for them."""
        self._sought, self._looked_to = texts, None
        # Many texts and many questions take long to compare: others go on meanwhile.
        self._quoted = await asyncio.to_thread(Quoted, texts)
        await self._unlog(store, namespace)

    async def _unlog(self, store: MemoryStore, namespace: str) -> None:
        """Remove the logged searches that quote what is sought, of those that were not looked at yet."""
        after = self._looked_to
        while page := await store.read(namespace, "retrievals", after=after, limit=_PAGE):
            entries = [entry for entry in page if isinstance(entry, Retrieval)]
            await store.unlog(namespace, await asyncio.to_thread(_quoting, self._quoted, entries))
            after = entries[-1].id
            self._looked_to = first_id(entries[-1].at - _LATE)


async def _versions(store: MemoryStore, namespace: str, memories: Sequence[Memory]) -> AsyncGenerator[Memory]:
    """These memories as they are and as they ever were."""
    for memory in memories:
        yield memory
    changed = [memory.id for memory in memories if memory.version > 1]
    for start in range(0, len(changed), _CHUNK):
        some, after = changed[start : start + _CHUNK], None
        while page := await store.read(namespace, "events", memory_ids=some, after=after, limit=_PAGE):
            for event in page:
                assert isinstance(event, AuditEvent)
                for before in (event.before, event.after):
                    if before is not None:
                        yield before
                after = event.id


def _said(memories: Iterable[Memory]) -> Iterator[str]:
    for memory in memories:
        yield from (text for text in (memory.content, memory.summary, memory.context) if text)


def _quoting(quoted: Quoted, entries: Sequence[Retrieval]) -> list[str]:
    return [entry.id for entry in entries if quoted.by(entry.query)]
