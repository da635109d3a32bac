"""Copies of what the store holds, in a cache that processes share: they spare who is about to write the read before.

A copy proves nothing. Whoever writes by one has the store refuse the write unless it is of the store's present version,
then drops it and reads the store; and what a caller is told by a copy, such a write has confirmed. So a copy that is
old, lost or made up costs a second try.
"""

from __future__ import annotations

import hashlib
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

import msgspec

from hindsight_core.cache import versions
from hindsight_core.errors import Conflict, StoreUnavailable

if TYPE_CHECKING:
    from hindsight_core.cache import Cache
    from hindsight_core.stores import MemoryStore

T = TypeVar("T")
Name: TypeAlias = tuple[str, ...]
_NOTE = "copies"
# Whoever comes back to a task or sweeps again an hour later may as well read the store once.
_TTL = 3600.0


class Copy(msgspec.Struct, Generic[T], frozen=True):
    """What the store held at a version of it."""

    value: T
    version: int


class Copies:
    """Copies by names of parts, the first of which says what they are of; without a cache there are none."""

    def __init__(self, store: MemoryStore, cache: Cache | None = None) -> None:
        self._store = store
        self._cache = cache
        self._mark: str | None = None

    @property
    def kept(self) -> bool:
        """Whether there is a point in making any."""
        return self._cache is not None

    async def get(self, name: Name, kind: type[T]) -> Copy[T] | None:
        """The copy under a name; one that is no `kind` is removed and as good as none."""
        if self._cache is None or (key := await self._key(name)) is None:
            return None
        (found,) = await self._cache.get([key])
        if found is None:
            return None
        with suppress(msgspec.MsgspecError):
            if (parts := versions.unpacked(found)) is not None:
                return Copy(msgspec.json.decode(parts[1], type=kind), parts[0])
        await self._cache.delete([key])
        return None

    async def put(self, name: Name, copy: Copy[T]) -> None:
        """Keep a copy, unless there is one of a later version."""
        if self._cache is not None and (key := await self._key(name)) is not None:
            await self._cache.advance(key, copy.version, msgspec.json.encode(copy.value), _TTL)

    async def drop(self, name: Name) -> None:
        """Remove a copy; while the cache does not answer, as soon as it does."""
        if self._cache is not None and (key := await self._key(name)) is not None:
            await self._cache.delete([key])

    async def _key(self, name: Name) -> str | None:
        """What no other copy is called, of whatever tenant and store, and tells of neither; None for want of a mark."""
        try:
            parts = msgspec.json.encode((await self._marked(), *name))
        except StoreUnavailable:  # whoever asks for a copy comes to the store next, and is told there
            return None
        return f"{name[0]}:{hashlib.sha256(parts).hexdigest()}"

    async def _marked(self) -> str:
        """A word of this store alone: in another one, or one begun anew, the same versions are of something else."""
        if self._mark is None:
            note = await self._store.note(_NOTE)
            if not note.version:
                with suppress(Conflict):  # another process was first
                    await self._store.keep(_NOTE, secrets.token_hex(16), expected=0)
                note = await self._store.note(_NOTE)
            self._mark = note.text
        return self._mark


def of_task(namespace: str, task_id: str) -> Name:
    """What the copy of a task's messages is called."""
    return "task", namespace, task_id
