"""The terms of a namespace's memories, held by the process: how many memories have one is known without a question.

A namespace that many questions were counted in is read once, beside the searches, which count as before until then.
From there on its vocabulary follows the changes: those of this process as they are committed, those of others by the
version that every document names, of its change. Where that does not bring it up to date (much was changed elsewhere,
or something was erased), it is dropped, and read anew once that pays off again.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import msgspec

from hindsight_core.errors import StoreUnavailable
from hindsight_core.loops import PerLoop
from hindsight_core.stores import ChangeSet, Where
from hindsight_core.stores.opensearch.conditions import filters
from hindsight_core.stores.opensearch.connection import Json
from hindsight_core.stores.opensearch.documents import unpacked
from hindsight_core.stores.opensearch.heads import State
from hindsight_core.stores.opensearch.indices import Indices

# Memories in all vocabularies of a process, at about half a kilobyte each.
_MEMORIES = 100_000
# Read once a question was counted for every so many of its memories, and not for a single question.
_WORTH = 500
_AT_LEAST = 2
_ASKED = 10_000
_PAGE = 1000
# So many changed memories are read while a search waits, which takes no longer than counting.
AT_ONCE = 50
# So many are decoded at a time, which takes half a millisecond.
_AT_A_TIME = 50
_log = logging.getLogger("hindsight.store")


class _Index(msgspec.Struct):
    text: dict[str, float]


class _Kept(msgspec.Struct):
    index: _Index


_kept = msgspec.json.Decoder(_Kept).decode


class Vocabulary:
    """The terms of the memories of one namespace, as of its change `version`.

    `footing` is that of the head it was last brought up to, or later.
    """

    def __init__(self, version: int, footing: int) -> None:
        self.version = version
        self.footing = footing
        self._numbers: dict[str, int] = {}
        self._counts: list[int] = []
        self._held: dict[str, array[int]] = {}

    def __len__(self) -> int:
        """How many memories it knows."""
        return len(self._held)

    def holding(self, term: str) -> int:
        """How many memories have a term."""
        number = self._numbers.get(term)
        return 0 if number is None else self._counts[number]

    def put(self, memory_id: str, terms: Iterable[str]) -> None:
        """A memory has these terms from now on."""
        self.drop(memory_id)
        held = array("I", [self._number(term) for term in terms if term])
        for number in held:
            self._counts[number] += 1
        self._held[memory_id] = held

    def drop(self, memory_id: str) -> None:
        """There is no such memory from now on."""
        for number in self._held.pop(memory_id, ()):
            self._counts[number] -= 1

    def _number(self, term: str) -> int:
        number = self._numbers.setdefault(term, len(self._counts))
        if number == len(self._counts):
            self._counts.append(0)
        return number


class Vocabularies:
    """The vocabularies of one store."""

    def __init__(self, indices: Indices) -> None:
        self._indices = indices
        self._kept: OrderedDict[str, Vocabulary] = OrderedDict()
        # Questions that were counted, by namespace, since it was last read.
        self._counted: OrderedDict[str, int] = OrderedDict()
        self._readings: PerLoop[dict[str, asyncio.Task[None]]] = PerLoop(dict)

    def has(self, namespace: str) -> bool:
        """Whether there is a vocabulary of a namespace, of whatever version."""
        return namespace in self._kept

    async def of(self, namespace: str, state: State) -> Vocabulary | None:
        """The vocabulary of a namespace in this state, all of it searchable; None where terms are to be counted."""
        vocabulary = self._kept.get(namespace)
        if vocabulary is not None:
            self._kept.move_to_end(namespace)
            if vocabulary.footing >= state.footing or await self._followed(namespace, vocabulary, state):
                return vocabulary
        return None

    def counted(self, namespace: str) -> None:
        """The terms of a question were counted."""
        self._counted[namespace] = self._counted.pop(namespace, 0) + 1
        while len(self._counted) > _ASKED:
            self._counted.popitem(last=False)

    def consider(self, namespace: str, state: State) -> None:
        """Begin to read a namespace in this state, or a later one, if that pays off; nothing waits for it."""
        counted, readings = self._counted.get(namespace, 0), self._readings.get()
        pays_off = counted >= _AT_LEAST and counted * _WORTH >= state.memories
        if pays_off and state.memories <= _MEMORIES and not (namespace in self._kept or namespace in readings):
            reading = readings[namespace] = asyncio.create_task(self._read(namespace, state))
            reading.add_done_callback(lambda _: readings.pop(namespace, None))

    def written(self, namespace: str, before: State, after: State, changes: ChangeSet) -> None:
        """Take a change that this process has made, all of which is written."""
        vocabulary = self._kept.get(namespace)
        if vocabulary is None or vocabulary.footing != before.footing:
            return
        erased = set(changes.erases)
        for record in changes.puts:
            if record.memory.memory_type == "working" or record.memory.id in erased:
                vocabulary.drop(record.memory.id)
            else:
                vocabulary.put(record.memory.id, record.index.text)
        for memory_id in erased:
            vocabulary.drop(memory_id)
        vocabulary.version, vocabulary.footing = after.version, after.footing
        self._make_room()

    async def settle(self) -> None:
        """Wait for what is being read beside the searches of the running loop."""
        await asyncio.gather(*self._readings.get().values())

    async def aclose(self) -> None:
        """Give up what is being read beside the searches of the running loop."""
        readings = list((self._readings.pop() or {}).values())
        for reading in readings:
            reading.cancel()
        await asyncio.gather(*readings, return_exceptions=True)

    async def _followed(self, namespace: str, vocabulary: Vocabulary, state: State) -> bool:
        """Whether a vocabulary is brought up to a state that is later than it."""
        since = vocabulary.version
        body = _reading(namespace, AT_ONCE + 1)
        # The condition comes after the aggregation, so that both are of one moment.
        body["post_filter"] = {"range": {"changed": {"gt": since}}}
        body["aggs"] = {"all": {"filter": {"match_all": {}}}}
        answer = await self._indices.search("memories", namespace, body)
        hits: list[Json] = answer["hits"]["hits"]
        if vocabulary.version != since:  # somebody else has, meanwhile
            return vocabulary.footing >= state.footing
        taken = len(hits) <= AT_ONCE and all(_take(vocabulary, hit) for hit in hits)
        if taken and len(vocabulary) == answer["aggregations"]["all"]["doc_count"]:
            vocabulary.version, vocabulary.footing = state.version, state.footing
            return True
        if self._kept.get(namespace) is vocabulary:
            del self._kept[namespace]
        return False

    async def _read(self, namespace: str, state: State) -> None:
        vocabulary = Vocabulary(state.version, state.footing)
        body = _reading(namespace, _PAGE)
        try:
            while hits := (await self._indices.search("memories", namespace, body))["hits"]["hits"]:
                for number, hit in enumerate(hits):
                    if number % _AT_A_TIME == 0:
                        await asyncio.sleep(0)
                    if not _take(vocabulary, hit):
                        return
                body["search_after"] = hits[-1]["sort"]
        except StoreUnavailable as exc:
            _log.info("vocabulary.unread", extra={"namespace": namespace, "detail": exc.detail})
            return
        finally:
            self._counted.pop(namespace, None)
        self._kept[namespace] = vocabulary
        self._make_room()

    def _make_room(self) -> None:
        while sum(map(len, self._kept.values())) > _MEMORIES:
            self._kept.popitem(last=False)


def _reading(namespace: str, size: int) -> dict[str, Any]:
    return {
        "query": {"bool": {"filter": filters(namespace, Where(), rankable=True)}},
        "stored_fields": "_none_",
        "docvalue_fields": ["kept"],
        "sort": [{"id": "asc"}],
        "size": size,
        "track_total_hits": False,
    }


def _take(vocabulary: Vocabulary, hit: Json) -> bool:
    """Put the memory of a hit into a vocabulary; false for a document that a process of an earlier version wrote."""
    if "kept" not in hit.get("fields", {}):
        return False
    kept = _kept(unpacked(hit["fields"]["kept"][0]))
    vocabulary.put(hit["sort"][0], kept.index.text)
    return True
