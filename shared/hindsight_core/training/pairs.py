"""Pairs of memories to learn from: read from files, with the vectors of their texts and their features."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.embedding import EmbeddingIdentity, open_embedder
from hindsight_core.likeness import likeness
from hindsight_core.models import Memory, Source
from hindsight_core.pair_model import Floats
from hindsight_core.relations import RELATIONS, Relation
from hindsight_core.slots import read

RIDGE = 0.15
OWN_RIDGE = 0.3
_LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


class Side(msgspec.Struct, frozen=True):
    content: str
    source: Source
    confidence: float

    def memory(self, memory_id: str) -> Memory:
        return Memory(
            id=memory_id,
            namespace="training",
            content=self.content,
            source=self.source,
            confidence=self.confidence,
            valid_from=_LONG_AGO,
            created_at=_LONG_AGO,
            updated_at=_LONG_AGO,
        )


class Pair(msgspec.Struct, frozen=True):
    lang: str
    old: Side
    new: Side
    expect: Relation
    writer: str = ""
    own: bool = False


class Corpus(msgspec.Struct, frozen=True, eq=False):
    """Pairs with their features (n, d), vectors (n, dimension) twice, and labels (n,)."""

    pairs: list[Pair]
    names: tuple[str, ...]
    rows: Floats
    old: Floats
    new: Floats
    labels: NDArray[np.int64]

    @property
    def groups(self) -> NDArray[np.str_]:
        return np.array(["own" if pair.own else pair.writer for pair in self.pairs])

    @property
    def ridge(self) -> NDArray[np.float64]:
        """How little each pair is trusted: our own contrasts half as much as what others wrote."""
        return np.array([OWN_RIDGE if pair.own else RIDGE for pair in self.pairs])


def load(data: list[Path], own: list[Path]) -> list[Pair]:
    """All pairs of these folders, in the order of file names."""
    found: list[Pair] = []
    for folder, ours in [*((d, False) for d in data), *((d, True) for d in own)]:
        for file in sorted(folder.rglob("reconcile*.jsonl")):
            for line in file.read_text("utf-8").splitlines():
                pair = msgspec.json.decode(line, type=Pair)
                found.append(msgspec.structs.replace(pair, writer=file.stem, own=ours))
    return found


def texts_of(pairs: list[Pair]) -> list[str]:
    """Every text, once."""
    return list(dict.fromkeys(text for pair in pairs for text in (pair.old.content, pair.new.content)))


async def embed(texts: list[str]) -> tuple[EmbeddingIdentity, dict[str, Floats]]:
    """The vector of every text, by the default embedder."""
    embedder = open_embedder()
    vectors = await embedder.embed(texts, "passage")
    identity = embedder.identity
    await embedder.aclose()
    return identity, dict(zip(texts, vectors, strict=True))


def corpus(pairs: list[Pair], vectors: dict[str, Floats]) -> Corpus:
    old = np.stack([vectors[pair.old.content] for pair in pairs])
    new = np.stack([vectors[pair.new.content] for pair in pairs])
    each = [
        likeness(pair.new.memory("new"), pair.old.memory("old"), read(pair.old.content), read(pair.new.content))
        for pair in pairs
    ]
    names = tuple(each[0])
    rows = np.array([[row[name] for name in names] for row in each], dtype=np.float32)
    rows = np.hstack([rows, (old * new).sum(1, keepdims=True)]).astype(np.float32)
    labels = np.array([RELATIONS.index(pair.expect) for pair in pairs])
    return Corpus(pairs, (*names, "cosine"), rows, old, new, labels)


def vectors_of(texts: list[str], file: Path | None) -> tuple[EmbeddingIdentity, dict[str, Floats]]:
    """The vector of every text and who made them; kept in `file` between runs."""
    known: dict[str, Floats] = {}
    identity = asyncio.run(embed([]))[0]
    if file is not None and file.is_file():
        with np.load(file) as kept:
            if msgspec.json.decode(kept["identity"].tobytes(), type=EmbeddingIdentity) == identity:
                known = dict(zip(kept["texts"].tolist(), kept["vectors"], strict=True))
    missing = [text for text in texts if text not in known]
    if not missing:
        return identity, known
    found = known | asyncio.run(embed(missing))[1]
    if file is not None:
        np.savez(
            file,
            texts=np.array(list(found)),
            vectors=np.stack(list(found.values())),
            identity=np.frombuffer(msgspec.json.encode(identity), dtype=np.uint8),
        )
    return identity, found
