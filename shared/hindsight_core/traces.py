"""What may be left of a memory beside it: the vectors of every text that it ever was, and searches that quote it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from hindsight_core import readings
from hindsight_core.cache.vectors import VectorCache
from hindsight_core.errors import OutcomeUnknown, Unavailable
from hindsight_core.ids import first_id
from hindsight_core.models import AuditEvent, Memory, Retrieval
from hindsight_core.quoting import Quoted
from hindsight_core.stores import ChangeSet, MemoryStore, Record

_PAGE = 1000
# Searches are logged a moment after they were made, by clocks that differ; so late they are still looked for.
_LATE = timedelta(minutes=5)


class Traces:
    """Collects texts that are about to be erased, while they can still be read, and removes what is left of them.

    Logged searches go before the erasure, which could not be found any more if it broke off after, and once more after
    it: somebody may have asked meanwhile. What other processes have asked but not logged by then the store refuses.
    """

    def __init__(self, vectors: VectorCache) -> None:
        self._vectors = vectors
        self._texts: set[str] = set()
        self._said: set[str] = set()
        self._identities: set[str] = set()
        self._looked_to: str | None = None
        self.left: str | None = None
        """What could not be removed, as a sentence for the caller."""

    async def of(self, store: MemoryStore, namespace: str, records: Sequence[Record]) -> None:
        """Note all texts of these memories, those of earlier versions and the turn before them too."""
        for record in records:
            self._note(record.memory)
        changed = [record.memory.id for record in records if record.memory.version > 1]
        after: str | None = None
        while changed and (page := await store.read(namespace, "events", memory_ids=changed, after=after, limit=_PAGE)):
            for event in page:
                assert isinstance(event, AuditEvent)
                self._note(event.before)
                self._note(event.after)
                after = event.id
        self._looked_to = None
        await self._unlog(store, namespace)

    def turn(self, memory: Memory) -> None:
        """Note the turn before a memory that stays itself."""
        self._texts.add(memory.context or "")
        self._made_by(memory)

    def _note(self, memory: Memory | None) -> None:
        if memory is not None:
            self._said.update(text for text in (memory.content, memory.summary, memory.context) if text)
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
            await self._unlog(store, namespace)
        except OutcomeUnknown:
            raise
        except Unavailable as exc:
            raise OutcomeUnknown.after(exc) from exc
        self._texts.clear()
        self._said.clear()

    async def _uncache(self) -> None:
        readings.forget()
        texts = self._texts | self._said
        if texts and not await self._vectors.erase(self._identities, texts):
            self.left = (
                "The cache does not answer, so vectors of erased texts may stay in it"
                f" until it does, for {self._vectors.ttl:g} s at most."
            )

    async def _unlog(self, store: MemoryStore, namespace: str) -> None:
        """Remove the logged searches that quote one of the texts, of those that were not looked at yet."""
        if not self._said:
            return
        quoted = Quoted(self._said)
        after = self._looked_to
        while page := await store.read(namespace, "retrievals", after=after, limit=_PAGE):
            entries = [entry for entry in page if isinstance(entry, Retrieval)]
            await store.unlog(namespace, [entry.id for entry in entries if quoted.by(entry.query)])
            after = entries[-1].id
            self._looked_to = first_id(entries[-1].at - _LATE)
