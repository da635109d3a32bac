"""Commits: a change set becomes an intent in the head of its namespace, and then documents."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from weakref import WeakValueDictionary

from msgspec.structs import replace

from hindsight_core.errors import Conflict, OutcomeUnknown, StoreUnavailable
from hindsight_core.loops import PerLoop
from hindsight_core.stores import ChangeSet
from hindsight_core.stores.opensearch.dimensions import Dimensions
from hindsight_core.stores.opensearch.failures import Refused
from hindsight_core.stores.opensearch.heads import Heads, Intent, State
from hindsight_core.stores.opensearch.indices import Action, Indices
from hindsight_core.stores.opensearch.intents import Intents
from hindsight_core.stores.opensearch.plans import Planner
from hindsight_core.stores.opensearch.vocabularies import Vocabularies

_ATTEMPTS = 10
_REMEMBERED = 1024


def new_token() -> str:
    """A name that no other intent has."""
    return secrets.token_hex(12)


class Commits:
    """Applies change sets, one after the other in a namespace; between processes the head decides whose turn it is."""

    def __init__(
        self,
        indices: Indices,
        heads: Heads,
        intents: Intents,
        dimensions: Dimensions,
        vocabularies: Vocabularies,
        *,
        token: Callable[[], str] = new_token,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._indices = indices
        self._heads = heads
        self._intents = intents
        self._dimensions = dimensions
        self._vocabularies = vocabularies
        self._token = token
        self._clock = clock
        self._locks: PerLoop[WeakValueDictionary[str, asyncio.Lock]] = PerLoop(WeakValueDictionary)
        # Heads as this process left them: most often they still are, which saves reading them.
        self._left: dict[str, State] = {}

    async def commit(self, namespace: str, changes: ChangeSet, *, expected: int | None, searchable: bool) -> int:
        """See `MemoryStore.commit`."""
        await self._dimensions.admit(changes.puts)
        async with self._locks.get().setdefault(namespace, asyncio.Lock()):
            for _ in range(_ATTEMPTS):
                state = await self._state(namespace, expected)
                plan = await Planner(self._indices, namespace, state).plan(changes)
                intent = Intent(token=self._token(), erases=changes.erases, searchable=searchable)
                intent = replace(intent, piecemeal=plan.piecemeal)
                intent = await self._intents.prepared(namespace, plan.after.version, intent, plan.steps)
                opened = await self._swap(namespace, state, replace(plan.after, intent=intent))
                if opened is not None:
                    await self._finish(namespace, opened, plan.steps)
                    self._vocabularies.written(namespace, state, opened, changes)
                    return opened.sequence
        raise Conflict(
            f"The namespace {namespace!r} is being written so often that this change found no turn.",
            remedy="Try again; nothing of it was stored.",
        )

    async def _state(self, namespace: str, expected: int | None) -> State:
        state = self._left.pop(namespace, None)
        if state is None or expected not in {None, state.sequence}:
            state = await self._intents.settled(namespace)
        if expected not in {None, state.sequence}:
            raise Conflict(
                f"The namespace is at change {state.sequence}, not {expected}.", remedy="Read it again and retry."
            )
        return state if state.place is not None else replace(state, epoch=int(self._clock() * 1_000_000))

    async def _swap(self, namespace: str, state: State, new: State) -> State | None:
        """The open head; None if another process came first."""
        try:
            return await self._heads.swap(namespace, state, new)
        except Refused:
            raise  # OpenSearch itself says so: nothing has happened
        except StoreUnavailable as exc:
            # The answer is lost, the change may have happened.
            try:
                found = await self._heads.read(namespace)
            except StoreUnavailable:
                raise OutcomeUnknown.after(exc) from exc
            assert new.intent is not None
            if found.intent is None or found.intent.token != new.intent.token:
                raise OutcomeUnknown.after(exc) from exc
            return found

    async def _finish(self, namespace: str, opened: State, steps: Sequence[Action]) -> None:
        try:
            await self._intents.apply(namespace, opened, steps)
        except StoreUnavailable as exc:
            raise OutcomeUnknown(
                f"{exc.detail} The change is kept, and takes effect as soon as the namespace can be read again.",
                remedy=f"{exc.remedy} Look before you repeat the request, or repeat it with its idempotency_key.",
            ) from exc
        try:
            closed = await self._intents.close(namespace, opened)
        except StoreUnavailable:
            return  # all is written; the next one to read the head closes it
        if closed.intent is None:
            while len(self._left) >= _REMEMBERED:
                del self._left[next(iter(self._left))]
            self._left[namespace] = closed
