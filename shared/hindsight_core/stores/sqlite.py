"""The embedded store: one SQLite file, exact search in memory, safe with many processes."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from hindsight_core.errors import ConfigurationError, HindsightError, StoreUnavailable
from hindsight_core.models import AuditEvent, MemoryType, Retrieval, Run, Status
from hindsight_core.remains import forms_of, in_files
from hindsight_core.responses import Component
from hindsight_core.stores import (
    Access,
    ChangeSet,
    Embed,
    Head,
    Log,
    Neighbour,
    Note,
    Query,
    RankedPage,
    Receipt,
    Record,
    Where,
    exact,
    moved,
    near,
    notes,
    reading,
    reembedding,
)
from hindsight_core.stores.changes import Transaction, prune, unlog, write_log
from hindsight_core.stores.connections import Connections
from hindsight_core.stores.resident import Resident
from hindsight_core.stores.residents import Residents
from hindsight_core.stores.schema import migrate
from hindsight_core.stores.selection import Selection

T = TypeVar("T")
_log = logging.getLogger("hindsight.store")
_READERS = 4
# So many vectors are read from the file in a moment; more of them by another thread.
_READ_AT_ONCE = 64
_PAGE = 500
# So many memories get their new vectors at once.
_AT_ONCE = 100


class SqliteStore:
    """A `MemoryStore` in the file `path`, holding at most about `cache_bytes` of vectors and postings in memory.

    `timeout` is how many seconds a call waits for another process's lock before it raises `StoreUnavailable`, and
    `erase_wait` how many an erasure waits for readers of the state before it; what they keep from being wiped is wiped
    with the next change.
    """

    def __init__(
        self, path: str | Path, *, cache_bytes: int = 1 << 30, timeout: float = 30.0, erase_wait: float = 2.0
    ) -> None:
        self._path = Path(path)
        self._connections = Connections(self._path, timeout=timeout, create=migrate)
        self._residents = Residents(cache_bytes)
        self._erase_wait = erase_wait
        self._wiped = True
        # Whose vectors are in the file as far as this process knows.
        self._identity: str | None = None
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="hindsight-read")
        # SQLite has one writer at a time anyway, so the others wait here, in order, rather than for its lock.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="hindsight-write")

    async def prepare(self, identity: str | None) -> None:
        def run() -> None:
            stored = self._connections.read(_identity)
            if identity is not None and identity != stored:
                expected = identity
                self._connections.write(lambda connection: _identify(connection, self._path, expected))
            self._identity = identity or stored
            self._wiped = self._connections.wipe()

        await self._on(self._writer, run)

    async def head(
        self,
        namespace: str,
        *,
        waiting: bool = True,  # noqa: ARG002 - a commit here is never seen under way
    ) -> Head:
        found = self._at_hand(namespace, lambda connection, resident: resident.head(connection))
        if found is not None:
            return found
        return await self._read(lambda connection: reading.head(connection, namespace))

    async def commit(
        self,
        namespace: str,
        changes: ChangeSet,
        *,
        expected: int | None = None,
        searchable: bool = True,  # noqa: ARG002 - a commit here is always searchable
    ) -> int:
        def run() -> int:
            sequence = self._connections.write(lambda open_one: self._apply(open_one, namespace, changes, expected))
            if changes.erases:
                self._residents.bodies.clear()
            if changes.erases or not self._wiped:
                self._wiped = self._connections.wipe(wait=self._erase_wait if changes.erases else 0.0)
            return sequence

        sequence = await self._on(self._writer, run)
        self._follow(namespace)
        return sequence

    async def get(self, namespace: str, ids: Sequence[str], *, waiting: bool = True) -> list[Record]:  # noqa: ARG002
        return await self._read(lambda connection: reading.get(connection, namespace, ids))

    async def erased(self, namespace: str, ids: Sequence[str]) -> set[str]:
        return await self._read(lambda connection: reading.erased(connection, namespace, ids))

    async def erasures(self, namespace: str, *, after: str | None, limit: int) -> list[str]:
        return await self._read(lambda connection: reading.erasures(connection, namespace, after, limit))

    async def rank(self, namespace: str, query: Query) -> RankedPage:
        def work(connection: sqlite3.Connection, resident: Resident) -> RankedPage:
            return exact.rank(resident, connection, query)

        found = self._at_hand(namespace, work)
        return await self._caught_up(namespace, work) if found is None else found

    async def neighbours(
        self, namespace: str, vectors: NDArray[np.float32], where: Where, limit: int
    ) -> list[list[Neighbour]]:
        def work(most: int | None, connection: sqlite3.Connection, resident: Resident) -> list[list[Neighbour]] | None:
            return near.neighbours(resident, self._residents.bare, connection, vectors, where, limit, most)

        found = self._at_hand(namespace, partial(work, _READ_AT_ONCE)) if len(vectors) == 1 else None
        return found or await self._caught_up(namespace, partial(work, None)) or []

    async def scan(
        self, namespace: str, where: Where, *, after: str | None, limit: int, vectors: bool = True
    ) -> list[Record]:
        def nothing(connection: sqlite3.Connection, resident: Resident) -> bool:
            return not Selection(resident, connection).matching(where, resident["live"]).any()

        # A write asks for what is suppressed, of which there is mostly nothing.
        if limit == 1 and self._at_hand(namespace, nothing):
            return []
        return await self._read(lambda connection: reading.scan(connection, namespace, where, after, limit, vectors))

    async def whole(self, namespace: str, where: Where, *, vectors: bool = True) -> AsyncGenerator[list[Record]]:
        # To keep to one moment would keep what is erased meanwhile in the write-ahead log.
        after: str | None = None
        while page := await self.scan(namespace, where, after=after, limit=_PAGE, vectors=vectors):
            yield page
            after = page[-1].memory.id

    async def following(self, namespace: str, texts: Collection[str]) -> list[str]:
        return await self._read(lambda connection: reading.following(connection, namespace, texts))

    async def census(self, namespace: str, statuses: Sequence[Status]) -> dict[tuple[str | None, MemoryType], int]:
        return await self._read(lambda connection: reading.census(connection, namespace, statuses))

    async def namespaces(self, *, after: str | None = None, limit: int = 1000) -> list[str]:
        return await self._read(lambda connection: reading.namespaces(connection, after, limit))

    async def log(
        self,
        namespace: str,
        *,
        accesses: Sequence[Access] = (),
        retrievals: Sequence[Retrieval] = (),
        seen: int | None = None,
    ) -> None:
        def run() -> None:
            # Statistics are not worth a wait for the disk.
            self._connections.write(
                lambda open_one: write_log(open_one, namespace, accesses, retrievals, seen), durable=False
            )

        await self._on(self._writer, run)

    async def read(
        self,
        namespace: str,
        log: Log,
        *,
        ids: Sequence[str] | None = None,
        memory_id: str | None = None,
        memory_ids: Sequence[str] | None = None,
        run_id: str | None = None,
        since: int | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[AuditEvent] | list[Run] | list[Retrieval]:
        return await self._read(
            lambda connection: reading.read(
                connection,
                namespace,
                log,
                ids=ids,
                memory_id=memory_id,
                memory_ids=memory_ids,
                run_id=run_id,
                since=since,
                after=after,
                limit=limit,
            )
        )

    async def receipt(self, namespace: str, key: str) -> Receipt | None:
        return await self._read(lambda connection: reading.receipt(connection, namespace, key))

    async def unlog(self, namespace: str, ids: Sequence[str]) -> None:
        def run() -> None:
            self._connections.write(lambda open_one: unlog(open_one, namespace, ids))
            self._wiped = self._connections.wipe(wait=self._erase_wait)

        if ids:
            await self._on(self._writer, run)

    async def prune(
        self,
        namespace: str,
        log: Literal["retrievals", "receipts"],
        before: int,
        *,
        limit: int | None,
        dry_run: bool = False,
    ) -> int:
        if dry_run:
            return await self._read(lambda connection: reading.outdated(connection, namespace, log, before))

        def run() -> int:
            gone = self._connections.write(lambda open_one: prune(open_one, namespace, log, before, limit))
            self._wiped = not gone or self._connections.wipe()
            return gone

        return await self._on(self._writer, run)

    async def count(self, namespace: str) -> dict[str, dict[str, int]]:
        return await self._read(lambda connection: reading.count(connection, namespace))

    async def note(self, name: str) -> Note:
        return await self._read(lambda connection: notes.read(connection, name))

    async def keep(self, name: str, text: str, *, expected: int) -> Note:
        return await self._on(
            self._writer,
            lambda: self._connections.write(lambda connection: notes.write(connection, name, text, expected)),
        )

    async def remains(self, texts: Sequence[str]) -> list[str]:
        return await self._on(self._readers, lambda: in_files(self._path, forms_of(texts)))

    async def reembed(
        self,
        identity: str,
        embed: Embed,
        told: Callable[[int, int], None],
        *,
        keep_old: bool = False,  # noqa: ARG002 - the new vectors lie in the same place
    ) -> int:
        if await self._read(_identity) == identity:
            return 0
        await self._written(lambda connection: reembedding.begin(connection, identity))
        count = 0
        while True:
            done, wanted = await self._read(reembedding.sizes)
            told(done, wanted)
            after = 0
            while some := await self._read(partial(reembedding.lacking, after=after, limit=_AT_ONCE)):
                rows, memories = [row for row, _ in some], [memory for _, memory in some]
                records = await embed(memories)
                await self._written(partial(reembedding.add, rows=rows, records=records))
                after, done, count = rows[-1], done + len(rows), count + len(rows)
                told(done, max(done, wanted))
            if await self._written(partial(reembedding.exchange, identity=identity)):
                break
        self._identity = identity
        self._residents.clear()
        return count

    async def expunge(self) -> None:
        def run() -> None:
            self._wiped = self._connections.wipe(wait=self._erase_wait)

        await self._on(self._writer, run)

    async def check(self) -> Component:
        await self._read(lambda connection: connection.execute("SELECT count(*) FROM meta").fetchone())
        return Component(name="store", status="ok", detail=f"SQLite file {self._path}")

    async def aclose(self) -> None:
        def run() -> None:
            self._readers.shutdown()
            self._writer.shutdown()
            self._connections.close()
            self._residents.clear()

        await asyncio.get_running_loop().run_in_executor(None, run)

    async def _caught_up(self, namespace: str, work: Callable[[sqlite3.Connection, Resident], T]) -> T:
        """The answer of `work` over a namespace in memory."""

        def run(connection: sqlite3.Connection) -> T:
            with self._residents.caught_up(connection, namespace, self._guard) as resident:
                return work(connection, resident)

        return await self._read(run)

    def _at_hand(self, namespace: str, work: Callable[[sqlite3.Connection, Resident], T | None]) -> T | None:
        """The answer of `work`, here and now, where a namespace is small and in memory almost as it is; else None.

        A change of thread there and back takes longer than a search among a thousand memories. None as well where the
        file has got another model's vectors.
        """

        def run(connection: sqlite3.Connection) -> T | None:
            if self._moved(connection) is not None:
                return None
            with self._residents.at_hand(connection, namespace) as resident:
                return None if resident is None else work(connection, resident)

        return self._connections.read_at_once(run)

    def _follow(self, namespace: str) -> None:
        """Have a namespace in memory catch up with a commit behind its back, so that the next call need not."""

        def read(connection: sqlite3.Connection) -> None:
            self._guard(connection)
            self._residents.follow(connection, namespace)

        def run() -> None:
            try:
                self._connections.read(read)
            except HindsightError:
                pass  # the next call says so
            except Exception:
                _log.debug("store.not_followed", exc_info=True)

        # By the writer, so that nobody reads while what was erased is wiped; not where the store is closing.
        with suppress(RuntimeError):
            self._writer.submit(run)

    def _apply(self, connection: sqlite3.Connection, namespace: str, changes: ChangeSet, expected: int | None) -> int:
        self._guard(connection)
        return Transaction(connection, namespace).apply(changes, expected)

    def _guard(self, connection: sqlite3.Connection) -> None:
        """Raise `StoreUnavailable` where the file has got another model's vectors since it was prepared."""
        if (error := self._moved(connection)) is not None:
            raise error

    def _moved(self, connection: sqlite3.Connection) -> StoreUnavailable | None:
        if self._identity is None or (stored := _identity(connection)) == self._identity:
            return None
        return moved(str(self._path), stored, self._identity)

    async def _written(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._on(self._writer, lambda: self._connections.write(work))

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._on(self._readers, lambda: self._connections.read(work))

    async def _on(self, threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        try:
            running = asyncio.get_running_loop().run_in_executor(threads, work)
        except RuntimeError as exc:
            raise StoreUnavailable(f"The store {self._path} is closed.", remedy="Open it again.") from exc
        return await running


def _identity(connection: sqlite3.Connection) -> str | None:
    found = connection.execute("SELECT value FROM meta WHERE name = 'identity'").fetchone()
    return None if found is None else str(found[0])


def _identify(connection: sqlite3.Connection, path: Path, identity: str) -> None:
    connection.execute("INSERT OR IGNORE INTO meta VALUES ('identity', ?)", (identity,))
    if (stored := _identity(connection)) != identity:
        raise ConfigurationError(
            f"The vectors in {path} were made by {stored}, not by {identity}.",
            remedy="Use the embedder they were made with, or give the memories new vectors: hindsight reembed.",
        )
