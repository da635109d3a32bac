"""Sweeps take turns: of one policy in one namespace one sweep runs at a time, in whichever process of a deployment.

Who has which turn stands in a note of the store, which all of them share and which loses nothing; a copy of it spares
reading it before it is changed. A turn is held for a while at a time and renewed meanwhile; of a process that died it
lapses.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Annotated

import msgspec
from msgspec import Meta

from hindsight_core.cache.copies import Copies, Copy
from hindsight_core.errors import Conflict, StoreUnavailable, UnderWay
from hindsight_core.requests import Policy
from hindsight_core.stores import MemoryStore

_ATTEMPTS = 20
_RENEWALS = 3  # in the time for which a turn is held, so that one may fail


class _Turn(msgspec.Struct, frozen=True, array_like=True):
    """Which run sweeps, by which of its calls, until when it is known to, and how many seconds it is held at a time.

    `lasting` is 0 where an earlier version wrote it.
    """

    run_id: str
    call: str
    until: Annotated[datetime, Meta(tz=True)]
    lasting: Annotated[float, Meta(ge=0, le=1e9)] = 0.0


_Turns = dict[Policy, _Turn]


class Turns:
    """Turns that are held for `lasting` at a time. Clocks of a deployment agree to a few seconds."""

    def __init__(self, store: MemoryStore, lasting: timedelta, copies: Copies | None = None) -> None:
        self._store = store
        self._copies = copies or Copies(store)
        self._lasting = lasting

    @asynccontextmanager
    async def taken(
        self, namespace: str, policies: Sequence[Policy], *, run_id: str, call: str, now: datetime
    ) -> AsyncGenerator[None]:
        """Have the turns of these policies while the block runs, as the one `call` of a run that is named so.

        Raises `UnderWay`, and takes none, when another call has one of them.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()

        def at() -> datetime:
            return now + timedelta(seconds=loop.time() - began)

        def mine(others: _Turns) -> _Turns:
            for policy in policies:
                turn = others.get(policy)
                if turn is not None and turn.call != call:
                    raise UnderWay(
                        f"A sweep of {policy!r} is under way in the namespace {namespace!r}: run {turn.run_id}.",
                        remedy="Wait until it is done, or sweep by other policies. Of a process that died it is over in"
                        f" {turn.lasting or self._lasting.total_seconds():g} s.",
                    )
            turn = _Turn(run_id, call, at() + self._lasting, self._lasting.total_seconds())
            return {**others, **dict.fromkeys(policies, turn)}

        def without_mine(others: _Turns) -> _Turns:
            return {policy: turn for policy, turn in others.items() if turn.call != call}

        async def renew() -> None:
            while True:
                await asyncio.sleep(self._lasting.total_seconds() / _RENEWALS)
                # What cannot be renewed lapses: two sweeps at once are a waste, and nothing worse.
                with suppress(StoreUnavailable, Conflict):
                    await self._change(namespace, mine, at)

        await self._change(namespace, mine, at)
        renewing = asyncio.create_task(renew())
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            with suppress(StoreUnavailable, Conflict):
                await self._change(namespace, without_mine, at)

    def _longest(self, turn: _Turn) -> timedelta:
        """For how long a turn is held at a time, in its process or in this one: their settings may differ."""
        return max(self._lasting, timedelta(seconds=turn.lasting))

    async def _change(self, namespace: str, change: Callable[[_Turns], _Turns], at: Callable[[], datetime]) -> None:
        """Replace the turns that have not lapsed, as often as another process comes first."""
        name = ("turns", namespace)
        copy = await self._copies.get(name, _Turns)
        for _ in range(_ATTEMPTS):
            held = copy or await self._held(namespace)
            now = at()
            # By a clock far ahead of this one it would hold for ever.
            standing: _Turns = {
                p: turn for p, turn in held.value.items() if now < turn.until <= now + 2 * self._longest(turn)
            }
            try:
                turns = change(standing)
                text = msgspec.json.encode(turns).decode()
                note = await self._store.keep(_note(namespace), text, expected=held.version)
            except Conflict as exc:
                if copy is None and isinstance(exc, UnderWay):
                    raise
                copy = None  # whose turn it is, the store has to say
                await self._copies.drop(name)
                continue
            await self._copies.put(name, Copy(turns, note.version))
            return
        raise Conflict(
            f"Sweeps of the namespace {namespace!r} begin and end so often that this one found no turn.",
            remedy="Try again; nothing was changed.",
        )

    async def _held(self, namespace: str) -> Copy[_Turns]:
        note = await self._store.note(_note(namespace))
        return Copy(msgspec.json.decode(note.text, type=_Turns) if note.text else {}, note.version)


def _note(namespace: str) -> str:
    return f"turns/{namespace}"
