"""Working memory: what was said in a task, within a token budget, until the task ends.

It has no vectors and no search finds it. The message that is least worth its room goes first, oldest first; pinned
ones stay. What goes, by lack of room or with its task, is offered to the write pipeline, so that what is worth it
becomes an episodic memory. Of the texts there is no copy anywhere: an append needs only their sizes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import datetime

import msgspec
from msgspec.structs import replace

from hindsight_core.cache.copies import Copies, Copy, of_task
from hindsight_core.caller import Caller, instant
from hindsight_core.context import count_tokens
from hindsight_core.drafting import check_metadata
from hindsight_core.errors import Conflict, InvalidInput, NotFound, OutcomeUnknown, Unavailable
from hindsight_core.extraction import Candidate, whole
from hindsight_core.filtering import scope_where
from hindsight_core.forgetting import affected
from hindsight_core.gate import GateSettings, find_secret, judge
from hindsight_core.indexing import index_fields
from hindsight_core.ledger import open_ledger
from hindsight_core.legibility import check_request
from hindsight_core.models import Decision, Memory, Scope
from hindsight_core.requests import EndTaskRequest, Message, Request, TaskRequest, WriteRequest
from hindsight_core.responses import TaskBuffer, TaskEnd, TaskUpdate, WriteResponse
from hindsight_core.stores import MemoryStore, Record

WINDOW = 32_000
_PAGE = 500
_ATTEMPTS = 8
_ROLES = {"user": "user", "agent": "assistant", "tool": "tool"}

Write = Callable[[WriteRequest, Caller], Awaitable[WriteResponse]]


class _Part(msgspec.Struct, frozen=True, array_like=True):
    """What a message takes of its task's room, and how much it is worth it, without what it says."""

    id: str
    tokens: int
    score: float
    pinned: bool
    window: int | None


class _Parts(msgspec.Struct, frozen=True, array_like=True):
    """The messages of a task that a scope sees, in order of their ids; `whose` tells that scope from others."""

    whose: str
    parts: tuple[_Part, ...]


class Tasks:
    """The buffers of a store's tasks, each of a `share` of its context window; `write` is the write pipeline."""

    def __init__(
        self, store: MemoryStore, gate: GateSettings, write: Write, share: float, copies: Copies | None = None
    ) -> None:
        self._store = store
        self._copies = copies or Copies(store)
        self._share = share
        self._gate = gate
        self._write = write

    async def add(self, task_id: str, request: TaskRequest, caller: Caller) -> TaskUpdate:
        """Add messages to a task's buffer and make room for them; secrets are left out."""
        scope, now = _scope(task_id, request, caller), caller.clock(request)
        if not request.messages:
            raise InvalidInput.of("messages", "is empty")
        for i, message in enumerate(request.messages):
            check_metadata(message.metadata, f"messages[{i}].metadata")
        # What goes is offered first: a call that is broken off may be repeated, and then nothing was lost.
        offers = _Offers(self._write, request, caller)
        said = [(candidate, caller.new_id(now)) for candidate in whole(request.messages)]
        name, whose = of_task(scope.namespace, task_id), _whose(scope)
        copy = await self._copies.get(name, _Parts)
        copy = copy if copy and copy.value.whose == whose else None
        for _ in range(_ATTEMPTS):
            held, sequence = ([], -1) if copy else await self._held_since(scope)
            parts = copy.value.parts if copy else tuple(map(_part, held))
            window = request.context_window or _window(parts) or WINDOW
            added, refused = self._records(said, request, scope, now, window)
            kept, out = _fitting([*parts, *map(_part, added)], int(self._share * window), self._gate.threshold)
            if copy and (out or not added):
                copy = None  # what goes, and what a call is told that changes nothing, the store has to say
                await self._copies.drop(name)
                continue
            records = {record.memory.id: record for record in (*held, *added)}
            gone = [records[part.id] for part in out]
            ledger = open_ledger("task", scope.namespace, now, caller, "Said in a task.")
            new = {record.memory.id for record in added}
            going = {part.id for part in out}
            for record in added:
                if record.memory.id not in going:
                    ledger.add(record, "added", "Said in a task.")
            for record in gone:
                if record.memory.id not in new:
                    ledger.erase(record, "Made room in its task.")
            await offers.make(gone)
            try:
                if not ledger.empty:
                    expected = copy.version if copy else None
                    with offers.kept():
                        done = await self._store.commit(scope.namespace, ledger.changes(), expected=expected)
                    if copy or done == sequence + 1:  # nobody else has changed anything meanwhile
                        await self._copies.put(name, Copy(_Parts(whose, tuple(kept)), done))
            except Conflict:
                copy = None
                await self._copies.drop(name)
                continue
            return TaskUpdate(
                task_id=task_id,
                tokens=sum(part.tokens for part in kept),
                budget=int(self._share * window),
                messages=len(kept),
                refused=tuple(refused),
                dropped=tuple(affected(record.memory, "dropped", "Made room in its task.") for record in gone),
                promoted=tuple(offers.decisions(gone)),
            )
        raise Conflict(f"The task {task_id!r} is being written all the time.", remedy="Try again.")

    async def read(self, task_id: str, request: Request, caller: Caller) -> TaskBuffer:
        """What a task's buffer holds, oldest first; `NotFound` for a task that has none."""
        held = await self._existing(_scope(task_id, request, caller))
        return TaskBuffer(
            task_id=task_id,
            tokens=sum(_tokens(record) for record in held),
            budget=int(self._share * (_window(tuple(map(_part, held))) or WINDOW)),
            messages=tuple(record.memory for record in held),
        )

    async def end(self, task_id: str, request: EndTaskRequest, caller: Caller) -> TaskEnd:
        """Promote what is worth it, and forget the rest with its task."""
        scope, now = _scope(task_id, request, caller), caller.clock(request)
        held = await self._existing(scope)
        offers = _Offers(self._write, request, caller)
        await offers.make(held)
        ledger = open_ledger("task", scope.namespace, now, caller, "The task has ended.")
        for record in held:
            ledger.erase(record, "The task has ended.")
        with offers.kept():
            await self._store.commit(scope.namespace, ledger.changes())
        await self._copies.drop(of_task(scope.namespace, task_id))
        decisions = offers.decisions(held)
        stored = [decision for decision in decisions if decision.memory_id is not None]
        return TaskEnd(
            task_id=task_id,
            promoted=tuple(stored),
            dropped=tuple(decision for decision in decisions if decision.memory_id is None),
        )

    def _records(
        self, said: Sequence[tuple[Candidate, str]], request: TaskRequest, scope: Scope, now: datetime, window: int
    ) -> tuple[list[Record], list[int]]:
        """The messages as memories of these ids, each with its score, and which of them hold secrets."""
        records: list[Record] = []
        refused: set[int] = set()
        for candidate, memory_id in said:
            if find_secret(candidate.text) is not None:
                refused.add(candidate.index)
                continue
            scores = judge(candidate, vector=None, settings=self._gate).scores
            given = request.messages[candidate.index].at
            at = now if given is None else instant(given, f"messages[{candidate.index}].at")
            memory = Memory(
                id=memory_id,
                namespace=scope.namespace,
                user_id=scope.user_id,
                agent_id=scope.agent_id,
                session_id=scope.session_id,
                task_id=scope.task_id,
                memory_type="working",
                kind="event",
                content=candidate.text,
                speaker=candidate.speaker,
                source=candidate.source,
                observed_at=at,
                valid_from=at,
                created_at=now,
                updated_at=now,
                pinned=request.pinned,
                metadata={**candidate.metadata, "score": round(scores.total, 3), "context_window": window},
            )
            records.append(Record(memory=memory, index=index_fields(memory)))
        return records, sorted(refused)

    async def _existing(self, scope: Scope) -> list[Record]:
        held = await self._held(scope)
        if not held:
            raise NotFound(f"There is no working memory of the task {scope.task_id!r} in this scope.")
        return held

    async def _held_since(self, scope: Scope) -> tuple[list[Record], int]:
        """The task's messages, and a change of the namespace after which they were read; -1 where nobody needs it."""
        sequence = (await self._store.head(scope.namespace, waiting=False)).sequence if self._copies.kept else -1
        return await self._held(scope), sequence

    async def _held(self, scope: Scope) -> list[Record]:
        where = msgspec.structs.replace(
            scope_where(scope, everything=True), memory_types=("working",), statuses=("active",)
        )
        found: list[Record] = []
        after: str | None = None
        while page := await self._store.scan(scope.namespace, where, after=after, limit=_PAGE):
            found += page
            after = page[-1].memory.id
        return found


class _Offers:
    """What the write pipeline makes of messages that go, as episodic memories; each is offered once.

    What one call has stored so stays, whatever becomes of the rest: from then on a failure is `OutcomeUnknown`.
    """

    def __init__(self, write: Write, request: Request, caller: Caller) -> None:
        self._write = write
        self._request = request
        self._caller = caller
        self._made: dict[str, list[Decision]] = {}

    async def make(self, records: Sequence[Record]) -> None:
        """Offer those that were not offered yet; what is worth it is stored when this returns."""
        rest = [record.memory for record in records if record.memory.id not in self._made]
        for start in range(0, len(rest), _PAGE):
            some = rest[start : start + _PAGE]
            messages = tuple(
                Message(role=_ROLES[memory.source], text=memory.content, speaker=memory.speaker, at=memory.observed_at)  # type: ignore[arg-type]
                for memory in some
            )
            scope = {name: getattr(self._request, name) for name in Request.__struct_fields__ if name != "task_id"}
            write = WriteRequest(messages=messages, memory_type="episodic", task_id=some[0].task_id, **scope)
            with self.kept():
                found = (await self._write(write, self._caller)).results
            self._made.update({memory.id: [] for memory in some})
            for decision in found:
                self._made[some[decision.index].id].append(decision)

    def decisions(self, records: Sequence[Record]) -> list[Decision]:
        """What became of these, in their order."""
        return [decision for record in records for decision in self._made[record.memory.id]]

    @contextmanager
    def kept(self) -> Generator[None]:
        """Whatever is not available in here, something may have been stored already."""
        try:
            yield
        except Unavailable as exc:
            if not isinstance(exc, OutcomeUnknown) and self._stored():
                raise OutcomeUnknown.after(exc) from exc
            raise

    def _stored(self) -> bool:
        return any(decision.memory_id is not None for some in self._made.values() for decision in some)


def _fitting(parts: list[_Part], budget: int, threshold: float) -> tuple[list[_Part], list[_Part]]:
    """What fits into the budget, and what has to go: of low score first, and of those the oldest."""
    used = sum(part.tokens for part in parts)
    order = sorted((part for part in parts if not part.pinned), key=lambda part: (part.score >= threshold, part.id))
    gone: list[_Part] = []
    for part in order:
        if used <= budget:
            break
        used -= part.tokens
        gone.append(part)
    out = {part.id for part in gone}
    return sorted((part for part in parts if part.id not in out), key=lambda part: part.id), gone


def _part(record: Record) -> _Part:
    memory = record.memory
    score, window = memory.metadata.get("score"), memory.metadata.get("context_window")
    return _Part(
        id=memory.id,
        tokens=_tokens(record),
        score=float(score) if isinstance(score, int | float) else 0.0,
        pinned=memory.pinned,
        window=window if isinstance(window, int) else None,
    )


def _tokens(record: Record) -> int:
    return count_tokens(record.memory.content)


def _window(held: Sequence[_Part]) -> int | None:
    """The context window that was stated last."""
    return held[-1].window if held else None


def _whose(scope: Scope) -> str:
    return hashlib.sha256(msgspec.json.encode(scope)).hexdigest()


def _scope(task_id: str, request: Request, caller: Caller) -> Scope:
    """The scope of a task's messages; every call of a task passes here, so its request is checked here."""
    if request.task_id not in {None, task_id}:
        raise InvalidInput.of("task_id", "differs from the task that the path names")
    check_request(replace(request, task_id=task_id))
    return replace(caller.scope(request), task_id=task_id)
