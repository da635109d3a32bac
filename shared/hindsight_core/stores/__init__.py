"""The store port: where memories, their vectors, events, runs and logs live.

A store keeps every promise of this page or it is not a store; the contract tests run over each. Most verbs are scoped
to one namespace, two are for what belongs to none. Nothing of a client's reaches a query language: conditions are the
typed fields of `Where`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.errors import ConfigurationError, MissingExtra, StoreUnavailable
from hindsight_core.indexing import IndexFields
from hindsight_core.models import (
    AuditEvent,
    Kind,
    Memory,
    MemoryType,
    Parts,
    Retrieval,
    Run,
    Scalar,
    Source,
    Status,
)
from hindsight_core.ranking import Formula
from hindsight_core.responses import Component

Vector: TypeAlias = NDArray[np.float32]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A memory with what the store indexes beside it.

    `bare` is the calibrated unit vector of `memory.embedded_text`, float32 of shape (dimension,); `mixed` the one that
    searches use (the bare one mixed with the turns before it and, where it is a summary's, with the whole text's). Both
    are None for memories that have no vector (working memory, or written while the embedder was down).
    """

    memory: Memory
    index: IndexFields
    bare: Vector | None = None
    mixed: Vector | None = None


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """Typed conditions, all of which must hold; instants are Unix milliseconds.

    `user_id`, `session_id`, `task_id`: equal to. `no_user`: only memories without a user. `reader`: which private
    memories are seen: those of this agent id, all with `"*"`, none with None. `begun_at`: `valid_from` <= it;
    `lasting_at`: it < `valid_to`, and a missing `valid_to` is open (both: what holds at an instant, half-open).
    `alive_at`: not expired at that instant, pinned ones never expire; `expired_at` is its opposite. `observed_from`
    <= observed_at < `observed_to` (a memory without a date never matches a bound). `derived_from`: derived from any
    of these ids. Empty tuples of `ids`, `statuses` … match nothing; None is no condition. `metadata`: key -> any of
    these scalars, compared by type and value (True is not 1); a list-valued entry matches when it contains one of
    them.
    """

    user_id: str | None = None
    no_user: bool = False
    reader: str | None = "*"
    session_id: str | None = None
    task_id: str | None = None
    statuses: tuple[Status, ...] | None = None
    memory_types: tuple[MemoryType, ...] | None = None
    kinds: tuple[Kind, ...] | None = None
    sources: tuple[Source, ...] | None = None
    key: str | None = None
    ids: tuple[str, ...] | None = None
    tags_all: tuple[str, ...] = ()
    tags_any: tuple[str, ...] = ()
    metadata: dict[str, tuple[Scalar, ...]] = {}
    observed_from: int | None = None
    observed_to: int | None = None
    begun_at: int | None = None
    lasting_at: int | None = None
    alive_at: int | None = None
    expired_at: int | None = None
    derived_from: tuple[str, ...] | None = None


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """One ranked search. `vector` is None when there is no embedder: similarity is then 0 everywhere.

    `scope` are the conditions that say whose memories these are, `where` those of the caller's filters (it repeats the
    scope's); the difference of their counts is what was filtered. `terms` are query tokens, without repeats.
    `now` in Unix milliseconds is the origin of decay. Memories of type `working` are never ranked.
    """

    vector: Vector | None
    terms: tuple[str, ...]
    formula: Formula
    scope: Where
    where: Where
    now: int
    limit: int
    min_score: float = 0.0


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    memory: Memory
    score: float
    parts: Parts


class RankedPage(msgspec.Struct, frozen=True, kw_only=True):
    """The best `limit` hits, by score descending, then newer `id` first; and the three counts.

    `in_scope`: memories that satisfy `scope`; `eligible`: those that satisfy `where`; `below`: eligible ones whose
    score is under `min_score`.
    """

    hits: tuple[Ranked, ...]
    in_scope: int
    eligible: int
    below: int


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """A stored memory near a new one: raw cosine of their bare vectors (after centring), in [-1, 1]."""

    record: Record
    cosine: float


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The state a plan was made for: the namespace's change sequence, its size, and who has spoken in it.

    `latest` is the latest instant at which it was changed, by the clocks of those who did, in Unix milliseconds, in
    whatever order they came; 0 where it never was.
    """

    sequence: int
    memories: int
    speakers: frozenset[str] = frozenset()
    latest: int = 0


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The stored answer of a request with an idempotency key; `fingerprint` identifies the body it was made for.

    Both are empty once a memory that the answer names was erased: the key stays used.
    """

    key: str
    fingerprint: str
    answer: bytes


class ChangeSet(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one call changes; applied whole or not at all.

    `puts` replace or create memories (a put of version v+1 over v; version 1 must not exist yet). `erases` are ids
    whose text, vector, index entries, event bodies, receipts and retrieval-log entries go for good, leaving an id in
    `tombstones` without text, and receipts that say no more than that their key was used. `events` are the audit of
    exactly these changes. `undone` marks a run as undone by `run.run_id`. A long run comes in several change sets with
    the same `run_id`: its latest `run` is kept. With `imported` these come from elsewhere: a put of a memory that does
    not exist may have any version, and those runs, where they are not known, are kept beside `run`. `tombstones` are
    ids of memories that were erased elsewhere: they count as erased here, too, but for those that are held here.
    """

    run: Run
    puts: tuple[Record, ...] = ()
    erases: tuple[str, ...] = ()
    events: tuple[AuditEvent, ...] = ()
    receipt: Receipt | None = None
    undone: str | None = None
    imported: tuple[Run, ...] | None = None
    tombstones: tuple[str, ...] = ()


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """A memory was answered to a caller `count` times, last at `at` (Unix milliseconds)."""

    memory_id: str
    at: int
    count: int = 1


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A small text that belongs to no namespace; `version` rises by one with every change, 0 was never written."""

    text: str = ""
    version: int = 0


Log: TypeAlias = Literal["events", "runs", "retrievals"]
Embed: TypeAlias = Callable[[Sequence[Memory]], Awaitable[list[Record]]]
"""Gives memories the vectors of a model: their records, in this order, named for that model."""


class MemoryStore(Protocol):
    """All verbs raise `StoreUnavailable` when the store cannot be reached or does not answer in time."""

    async def prepare(self, identity: str | None) -> None:
        """Create or migrate what is stored; raise `ConfigurationError` when the stored vectors are of another model.

        `identity` is the embedder's name; None (a function without one) checks nothing. The first identity is kept.
        """
        ...

    async def head(self, namespace: str, *, waiting: bool = True) -> Head:
        """The namespace's present state, after every earlier commit; never written means sequence 0.

        Without `waiting`, for who plans no change, it may be the one before a commit that is not done yet.
        """
        ...

    async def commit(
        self, namespace: str, changes: ChangeSet, *, expected: int | None = None, searchable: bool = True
    ) -> int:
        """Apply all of `changes` durably, or nothing; the new sequence.

        Raises `Conflict` when `expected` is not the present sequence, when a put is not the successor of the stored
        version, or when the receipt's key exists. With `searchable` the next search, in any process, sees it.
        """
        ...

    async def get(self, namespace: str, ids: Sequence[str], *, waiting: bool = True) -> list[Record]:
        """The records with these ids, in this order, missing ones left out; of any status, expired ones included.

        `waiting` as of `head`.
        """
        ...

    async def erased(self, namespace: str, ids: Sequence[str]) -> set[str]:
        """Which of these ids were memories once, and were erased: what is kept of those is no more than that."""
        ...

    async def erasures(self, namespace: str, *, after: str | None, limit: int) -> list[str]:
        """The ids that `erased` knows, in their order, strictly after the id `after`."""
        ...

    async def rank(self, namespace: str, query: Query) -> RankedPage:
        """The exact best of the namespace by the query's formula; see `Query` and `RankedPage`."""
        ...

    async def neighbours(
        self, namespace: str, vectors: NDArray[np.float32], where: Where, limit: int
    ) -> list[list[Neighbour]]:
        """For each row of `vectors` (n, dimension): the nearest records by bare cosine, best first."""
        ...

    async def scan(
        self, namespace: str, where: Where, *, after: str | None, limit: int, vectors: bool = True
    ) -> list[Record]:
        """Records in order of id, strictly after the id `after`; concurrent writes never shift the order.

        Without `vectors` they come without any, which is quicker; such a record must not be put.
        """
        ...

    def whole(self, namespace: str, where: Where, *, vectors: bool = True) -> AsyncGenerator[list[Record]]:
        """All records that satisfy `where`, in pages in order of id, none twice; to be closed (`aclosing`).

        What was there all the while is there. What was erased before a page was asked for is not in it, in no text.
        Each page is of one moment, and the managed store keeps to one for all of them until something is erased.
        `vectors` as of `scan`.
        """
        ...

    async def following(self, namespace: str, texts: Collection[str]) -> list[str]:
        """The ids of the memories, of any status, in whose `context` one of these texts stands word for word."""
        ...

    async def census(self, namespace: str, statuses: Sequence[Status]) -> dict[tuple[str | None, MemoryType], int]:
        """How many memories with one of these statuses each user (None: nobody's) has of each type."""
        ...

    async def namespaces(self, *, after: str | None = None, limit: int = 1000) -> list[str]:
        """The namespaces that hold memories, in order of their names, strictly after the name `after`."""
        ...

    async def log(
        self,
        namespace: str,
        *,
        accesses: Sequence[Access] = (),
        retrievals: Sequence[Retrieval] = (),
        seen: int | None = None,
    ) -> None:
        """Keep statistics and the retrieval log; a memory that is gone stays gone, no version or clock changes.

        No retrieval is kept where something was erased after the sequence `seen`: a question may quote that, and
        whoever erased it has looked through the log already.
        """
        ...

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
        """Entries of a log in order of their ids (which are their order in time), strictly after the id `after`.

        `memory_ids` is for events alone: those of any of these memories.
        """
        ...

    async def receipt(self, namespace: str, key: str) -> Receipt | None:
        """The stored answer under an idempotency key."""
        ...

    async def unlog(self, namespace: str, ids: Sequence[str]) -> None:
        """Remove these logged searches, as an erasure does; unknown ones are none."""
        ...

    async def prune(
        self,
        namespace: str,
        log: Literal["retrievals", "receipts"],
        before: int,
        *,
        limit: int | None,
        dry_run: bool = False,
    ) -> int:
        """Remove at most `limit` entries from before an instant (Unix milliseconds); how many, or would be, it were."""
        ...

    async def count(self, namespace: str) -> dict[str, dict[str, int]]:
        """Sizes: `{"status": {...}, "memory_type": {...}, "kind": {...}, "log": {"events": n, "runs": n}}`."""
        ...

    async def note(self, name: str) -> Note:
        """What is kept under a name (ASCII letters), as it is now in every process."""
        ...

    async def keep(self, name: str, text: str, *, expected: int) -> Note:
        """Put `text` in the place of version `expected`, durably; `Conflict` when another one stands there."""
        ...

    async def remains(self, texts: Sequence[str]) -> list[str]:
        """Where one of these texts still stands, in all that the store keeps, as sentences; reads everything."""
        ...

    async def expunge(self) -> None:
        """Take what was erased off the disk now, where that is left to a later time."""
        ...

    async def reembed(
        self, identity: str, embed: Embed, told: Callable[[int, int], None], *, keep_old: bool = False
    ) -> int:
        """Give every memory the vectors of the model `identity` while others read and write; how many were embedded.

        What it was broken off at, by whatever, it goes on with when it is called again. Only in the end, in one go, the
        new vectors and the new identity take the place of the old ones: whoever was prepared for those is refused with
        `StoreUnavailable` from then on, where vectors are searched or written. `embed` is never given working memory,
        and `told` hears how many memories are done of how many. The old vectors go, and with them what was begun for
        any other model, unless `keep_old`: then texts that are erased later stay beside them. `Conflict` when another
        call has given this one's work up.
        """
        ...

    async def check(self) -> Component:
        """Whether the store answers, in words for an operator."""
        ...

    async def aclose(self) -> None:
        """Release everything; acknowledged commits are on disk already."""
        ...


def moved(place: str, stored: str | None, known: str) -> StoreUnavailable:
    """The error of a process that works with the model `known` where the vectors of `stored` have come in its place."""
    return StoreUnavailable(
        f"The vectors at {place} are those of {stored} by now, and this process works with {known}.",
        remedy="Restart it with the embedder that they were made with (HINDSIGHT_EMBEDDER, and the settings of its"
        " dimension and calibration).",
    )


def open_store(url: str, *, cache_bytes: int = 1 << 30) -> MemoryStore:
    """The store that a URL names: `sqlite:///PATH` (or a bare path). Nothing is opened before the first call.

    Raises `ConfigurationError` for an unknown scheme and `MissingExtra` when a driver is not installed.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "sqlite", "/" + url
    if scheme == "sqlite":
        from hindsight_core.stores.sqlite import SqliteStore

        return SqliteStore(rest.removeprefix("/"), cache_bytes=cache_bytes)
    if scheme.startswith("opensearch"):
        try:
            from hindsight_core.stores.opensearch import open_opensearch
        except ImportError as exc:
            raise MissingExtra.of("The OpenSearch store", "opensearch") from exc
        return open_opensearch(url)
    raise ConfigurationError(
        f"HINDSIGHT_STORE: unknown store {scheme!r}.",
        remedy="Use a file path, sqlite:///PATH, or opensearch://HOST:PORT.",
    )
