"""The head of a namespace: its sequence, its size, who has spoken in it, and the change that is being made to it.

There are no transactions over several documents here. So a change is written into the head first, whole, by one
compare-and-set: that is the instant at which it happens. Only then are its documents written, and the head is closed.
Whoever finds a head open writes the documents again, which changes nothing that was written already, and closes it.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from hindsight_core.stores import Head
from hindsight_core.stores.opensearch.connection import Json
from hindsight_core.stores.opensearch.indices import Action, Indices, json


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """A change that has happened and whose documents may not be written yet.

    `token` tells it from every other one. `steps` are its actions, packed; a large change keeps them in `parts`
    documents of their own. `erases` are ids to erase; `searchable`, whether its writer waits until searches see it.
    One that is `piecemeal` takes memories out of sight, each of them for itself: whoever sees some of it written and
    the rest not yet sees nothing wrong.
    """

    token: str
    erases: tuple[str, ...] = ()
    searchable: bool = True
    parts: int = 0
    steps: str = ""
    piecemeal: bool = False


class State(msgspec.Struct, frozen=True, kw_only=True):
    """A head as it was read. `searchable` is the last sequence that searches are known to see, `at` `Head.latest`.

    `basis` is the sequence of the last change that was not piecemeal; None where that is not known.
    `epoch` is when the head was first made, in microseconds of the Unix epoch. `place` is OpenSearch's number of this
    very state, for compare-and-set; None where there is no head yet.
    """

    sequence: int = 0
    epoch: int = 0
    searchable: int = 0
    basis: int | None = None
    memories: int = 0
    speakers: dict[str, int] = {}
    at: int = 0
    intent: Intent | None = None
    place: tuple[int, int] | None = None

    @property
    def version(self) -> int:
        """The version of documents written by the change of this sequence.

        It is higher than that of every earlier change, also of a namespace of the same name that is gone: no namespace
        has seen a change for every microsecond of its life.
        """
        return self.epoch + self.sequence

    @property
    def footing(self) -> int:
        """The version since which memories have come out of sight and nothing else has happened."""
        return self.epoch + (self.sequence if self.basis is None else self.basis)

    @property
    def before(self) -> State:
        """What was before the piecemeal change that an open head tells of."""
        return replace(self, sequence=self.sequence - 1, intent=None, place=None)

    @property
    def head(self) -> Head:
        return Head(sequence=self.sequence, memories=self.memories, speakers=frozenset(self.speakers), latest=self.at)


class Heads:
    """Reads heads and replaces them."""

    def __init__(self, indices: Indices) -> None:
        self._indices = indices

    async def read(self, namespace: str) -> State:
        """The head as it is now, open or not."""
        (found,) = await self._indices.documents("state", [namespace])
        if found is None:
            return State()
        state = msgspec.convert(found["_source"], State)
        return replace(state, place=(found["_seq_no"], found["_primary_term"]))

    async def swap(self, namespace: str, old: State, new: State) -> State | None:
        """Put `new` in the place of `old` for good; None when `old` is not the head any more."""
        fields: dict[str, Any] = {"_id": namespace}
        if old.place is not None:
            fields |= {"if_seq_no": old.place[0], "if_primary_term": old.place[1]}
        source: Json = msgspec.to_builtins(replace(new, place=None))
        del source["place"]
        if source["intent"] is None:
            del source["intent"]
        # Never repeated blindly: the first try may have succeeded unseen, and would look like somebody else's.
        (outcome,) = await self._indices.write(
            [
                Action(
                    "state",
                    "create" if old.place is None else "index",
                    fields,
                    json(source),
                )
            ],
            repeatable=False,
        )
        if outcome.status == 409:
            return None
        return replace(new, place=(outcome.info["_seq_no"], outcome.info["_primary_term"]))
