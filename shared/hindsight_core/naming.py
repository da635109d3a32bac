"""What an order to forget means: the memories that its words name, or those of the turn that it points at.

People name such things in passing ("the thing with the neighbours", “挨处分那回”), so nearness to the words alone
misses them. A memory's score joins how near it is to the words that name the thing and to what else the message says of
it, and which rare words it shares with either:

    score = cos(name, m) + 0.5 · cos(message, m) + 0.06 · Σ idf(shared with name) + 0.03 · Σ idf(shared with message)

with idf over the memories compared. An order presupposes that the thing was told, so the best is meant even where it is
not near; others are meant where they score about as well, or where the order is about all of a thing. What has replaced
them, or was replaced by them, is the same thing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.commands import gives_reason
from hindsight_core.cues import present
from hindsight_core.embedding import Embedder
from hindsight_core.errors import ProviderUnavailable
from hindsight_core.lexical import tokens
from hindsight_core.ranking import Weights, by_words, formula
from hindsight_core.stores import MemoryStore, Query, Record, Where

# What the best must reach: named, or pointed at.
NAMED_AT = 0.2
POINTED_AT = 0.6
# What share of the best score another one must reach to be meant too.
NEAR_BEST = 0.93
# An order about the reason for something means what gives one.
REASON = 0.35
# Who speaks of him or her means what tells of somebody.
SOMEBODY = 0.15
_PEOPLE = frozenset({"kin", "third_person"})
MESSAGE = 0.5
SHARED = 0.06
SHARED_WITH_MESSAGE = 0.03
COMPARED = 64
_LONGEST_LINE = 64


class Name(msgspec.Struct, frozen=True, kw_only=True):
    """How a message names something: the words that do, and what else it tells of it.

    `pointed`: the words are a turn that is pointed at; `all`: everything about it is meant; `reason`: the reason for
    it; `somebody`: a person that is not named.
    """

    words: str
    message: str
    pointed: bool = False
    all: bool = False
    reason: bool = False
    somebody: bool = False


async def named(
    name: Name, store: MemoryStore, embedder: Embedder | None, namespace: str, where: Where, now: int
) -> list[str]:
    """The ids of what is meant among the memories that satisfy `where`, the best first; `now` in Unix milliseconds.

    Without an embedder, or while it is down, only shared words tell.
    """
    vectors: NDArray[np.float32] | None = None
    if embedder is not None:
        try:
            vectors = await embedder.embed([name.words, name.message], "query")
        except ProviderUnavailable:
            vectors = None
    records = await _compared(name, vectors, store, namespace, where, now)
    if not records:
        return []
    order = _meant(name, vectors, records)
    return [record.memory.id for record in await _lines([records[i] for i in order], store, namespace)]


def _meant(name: Name, vectors: NDArray[np.float32] | None, records: Sequence[Record]) -> list[int]:
    """The places of the records that are meant, the best first."""
    by_name = _shared(name.words, records)
    scores = SHARED * by_name + SHARED_WITH_MESSAGE * _shared(name.message, records)
    if vectors is not None:
        scores += _nearness(vectors, records) @ np.array([1.0, MESSAGE])
    if name.reason:
        scores += REASON * np.array([gives_reason(record.memory.content) for record in records])
    if name.somebody:
        scores += SOMEBODY * np.array([not _PEOPLE.isdisjoint(present(record.memory.content)) for record in records])
    best = int(scores.argmax())
    least = POINTED_AT if name.pointed else max(NAMED_AT, NEAR_BEST * scores[best])
    meant = scores >= least
    # A single word that names something stands for all about it.
    everything = name.all or len(tokens(name.words)) == 1
    if everything and meant[best] and by_name[best] > 0:
        meant |= by_name >= by_name[best]
    order: list[int] = np.argsort(-scores, kind="stable").tolist()
    return [i for i in order if meant[i]]


async def _compared(
    name: Name,
    vectors: NDArray[np.float32] | None,
    store: MemoryStore,
    namespace: str,
    where: Where,
    now: int,
) -> list[Record]:
    """The nearest to either vector, and those that share the most words."""
    found: dict[str, Record] = {}
    if vectors is not None:
        for row in await store.neighbours(namespace, vectors, where, COMPARED):
            found |= {neighbour.record.memory.id: neighbour.record for neighbour in row}
    terms = tuple(dict.fromkeys((*tokens(name.words), *tokens(name.message))))
    if terms:
        by_word = formula(calibration=(0.0, 1.0), weights=by_words(Weights()))
        page = await store.rank(
            namespace,
            Query(vector=None, terms=terms, formula=by_word, scope=where, where=where, now=now, limit=COMPARED),
        )
        missing = [hit.memory.id for hit in page.hits if hit.parts.lexical > 0 and hit.memory.id not in found]
        found |= {record.memory.id: record for record in await store.get(namespace, missing)}
    return list(found.values())


def _shared(text: str, records: Sequence[Record]) -> NDArray[np.float64]:
    """For each record the rarity of the words that it shares with the text, summed."""
    held = [record.index.text.keys() for record in records]
    frequency = Counter(term for terms in held for term in terms)
    rarity = {term: math.log((len(records) + 1) / (n + 0.5)) for term, n in frequency.items()}
    wanted = dict.fromkeys(tokens(text))
    return np.array([sum(rarity[term] for term in wanted if term in terms) for terms in held])


def _nearness(vectors: NDArray[np.float32], records: Sequence[Record]) -> NDArray[np.float64]:
    """Cosines of each record with each vector, (n, 2); 0 for a record without a vector."""
    nothing = np.zeros(vectors.shape[1], dtype=np.float32)
    bare = np.stack([nothing if record.bare is None else record.bare for record in records])
    return np.asarray(bare @ vectors.T, dtype=np.float64)


async def _lines(chosen: list[Record], store: MemoryStore, namespace: str) -> list[Record]:
    """The records with all that they replaced and that has replaced them."""
    line = {record.memory.id: record for record in chosen}
    fresh = chosen
    while fresh and len(line) < _LONGEST_LINE:
        links = [
            memory_id
            for record in fresh
            for memory_id in (*record.memory.supersedes, record.memory.superseded_by)
            if memory_id is not None and memory_id not in line
        ]
        fresh = await store.get(namespace, list(dict.fromkeys(links)))
        line |= {record.memory.id: record for record in fresh}
    return list(line.values())
