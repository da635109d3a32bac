"""Making a change that has happened come true: its documents are written, as often as it takes, and its head closed."""

from __future__ import annotations

import asyncio
import base64
import zlib
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from hindsight_core.errors import StoreUnavailable
from hindsight_core.stores.opensearch.connection import Json
from hindsight_core.stores.opensearch.documents import document_id, renewed
from hindsight_core.stores.opensearch.erasure import Eraser
from hindsight_core.stores.opensearch.heads import Heads, Intent, State
from hindsight_core.stores.opensearch.indices import Action, Indices, chunked, json

# How much longer a search does without a piecemeal change than others wait for it, before it finishes it.
_LENIENT = 10.0
_REMEMBERED = 1024
# Packed steps up to this size travel in the head, which is written twice with every change.
_INLINE = 64 << 10

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Action]).decode


def pack(steps: Sequence[Action]) -> str:
    return base64.b64encode(zlib.compress(_encode(steps), 1)).decode()


def unpack(text: str) -> list[Action]:
    return _decode(zlib.decompress(base64.b64decode(text)))


class Intents:
    """Writes intents down, and finishes them: its own, and those that another process has left behind.

    `patience` is how many seconds another process is given to finish its own.
    """

    def __init__(self, indices: Indices, heads: Heads, eraser: Eraser, *, patience: float) -> None:
        self._indices = indices
        self._heads = heads
        self._eraser = eraser
        self._patience = patience
        # By namespace the piecemeal change that searches have met last, and when they did first.
        self._met: dict[str, tuple[str, float]] = {}

    async def prepared(self, namespace: str, version: int, intent: Intent, steps: Sequence[Action]) -> Intent:
        """The intent with its steps; what is too large for a head is written down beside it first."""
        parts = [pack(part) for part in chunked(steps)]
        if len(parts) <= 1 and len("".join(parts)) <= _INLINE:
            return replace(intent, steps="".join(parts))
        await self._indices.write(
            Action(
                "state",
                "index",
                {"_id": _part_id(namespace, intent, number)},
                json({"namespace": namespace, "part_of": version, "part": part}),
            )
            for number, part in enumerate(parts)
        )
        return replace(intent, parts=len(parts))

    async def settled(self, namespace: str) -> State:
        """The head with no change under way; one that was left unfinished is finished first."""
        return await self._settled(namespace, await self._heads.read(namespace))

    async def passed(self, namespace: str) -> State:
        """The same for who may see a change by halves: a piecemeal one is not waited for unless it was left behind."""
        state = await self._heads.read(namespace)
        if state.intent is not None and state.intent.piecemeal and self._is_young(namespace, state.intent):
            return state
        return await self._settled(namespace, state)

    def _is_young(self, namespace: str, intent: Intent) -> bool:
        now = asyncio.get_running_loop().time()
        token, since = self._met.get(namespace, ("", now))
        if token != intent.token:
            if len(self._met) >= _REMEMBERED:
                self._met.clear()
            self._met[namespace] = intent.token, now
            since = now
        return now < since + _LENIENT * self._patience

    async def _settled(self, namespace: str, state: State) -> State:
        loop = asyncio.get_running_loop()
        waited_for: str | None = None
        give_up = pause = 0.0
        while (intent := state.intent) is not None:
            if intent.token != waited_for:
                waited_for, give_up, pause = intent.token, loop.time() + self._patience, 0.01
            if loop.time() < give_up:
                await asyncio.sleep(pause)
                pause = min(2 * pause, 0.2)
                state = await self._heads.read(namespace)
            else:
                state = await self._finished(namespace, state)
        return state

    async def _finished(self, namespace: str, state: State) -> State:
        """The head once a change is finished that somebody else has begun."""
        try:
            await self.apply(namespace, state)
            return await self.close(namespace, state)
        except StoreUnavailable as exc:
            # Half of it may be written, and no half is ever shown.
            raise StoreUnavailable(
                f"A change of the namespace {namespace!r} has begun and cannot be finished, so that it cannot be read:"
                f" {exc.detail}",
                remedy=exc.remedy,
            ) from exc

    async def apply(self, namespace: str, state: State, steps: Sequence[Action] | None = None) -> None:
        """Make the change of an open head come true; its `steps` are read where they are not given."""
        intent = state.intent
        assert intent is not None
        steps = await self._steps(namespace, intent) if steps is None else steps
        if intent.piecemeal:  # no search waits for it: the other processors are left to them
            await self._indices.write(steps, at_once=1)
        else:
            await self._indices.write(steps)
        if intent.erases:
            await self._eraser.erase(namespace, intent.erases, state.version)
        if _searchable(intent):
            await self._indices.refresh("memories")
        if intent.erases or intent.parts:
            await self._drop_parts(namespace, state.version)

    async def close(self, namespace: str, state: State) -> State:
        """The head once its change has come true, whoever closes it."""
        assert state.intent is not None
        searchable = state.sequence if _searchable(state.intent) else state.searchable
        closed = replace(state, intent=None, searchable=searchable)
        return await self._heads.swap(namespace, state, closed) or await self._heads.read(namespace)

    async def _steps(self, namespace: str, intent: Intent) -> list[Action]:
        if not intent.parts:
            return _of_now(unpack(intent.steps)) if intent.steps else []
        ids = [_part_id(namespace, intent, number) for number in range(intent.parts)]
        found = await self._indices.documents("state", ids)
        # Parts are dropped only when their change is finished: whoever still works on it has nothing left to do.
        return [step for part in found if part is not None for step in _of_now(unpack(part["_source"]["part"]))]

    async def _drop_parts(self, namespace: str, version: int) -> None:
        """Remove the parts of this change and of any that did not come to happen."""
        await self._indices.refresh("state")
        filters = [{"term": {"namespace": namespace}}, {"range": {"part_of": {"lte": version}}}]
        body = {"query": {"bool": {"filter": filters}}, "_source": False, "size": 1000}
        while hits := (await self._indices.search("state", None, body))["hits"]["hits"]:
            await self._indices.write([Action("state", "delete", {"_id": hit["_id"]}) for hit in hits])
            await self._indices.refresh("state")


def _of_now(steps: Sequence[Action]) -> list[Action]:
    """The steps with documents of this schema, also where an earlier version has left them behind."""
    return [replace(step, source=_renewed(step.source)) if step.index == "memories" else step for step in steps]


def _renewed(source: str | None) -> str | None:
    if source is None or '"record":' not in source:
        return source
    document: Json = msgspec.json.decode(source)
    return json(renewed(document)) if "record" in document else source


def _searchable(intent: Intent) -> bool:
    return intent.searchable or bool(intent.erases)


def _part_id(namespace: str, intent: Intent, number: int) -> str:
    return document_id(namespace, "part", intent.token, str(number))
