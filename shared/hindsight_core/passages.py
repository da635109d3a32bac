"""Texts to vectors, each text once."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from hindsight_core.embedding import Embedder
from hindsight_core.errors import ProviderUnavailable
from hindsight_core.indexing import index_fields, mix
from hindsight_core.models import Memory
from hindsight_core.stores import Record, Vector


class Passages:
    """Vectors of texts, each text embedded once however often it is asked for."""

    def __init__(self, embedder: Embedder | None) -> None:
        self._embedder = embedder
        self._known: dict[str, Vector] = {}

    @property
    def model(self) -> str | None:
        return None if self._embedder is None else self._embedder.identity.name

    async def of(self, texts: Sequence[str]) -> list[Vector]:
        """One calibrated unit vector a text; raises `ProviderUnavailable` when the embedder is down."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._known]
        if missing:
            if self._embedder is None:
                raise ProviderUnavailable(
                    "This function has no embedder, and a text is to be embedded.",
                    remedy="Send the call to a function that has one, such as the gateway.",
                )
            self._known.update(zip(missing, await self._embedder.embed(missing, "passage"), strict=True))
        return [self._known[text] for text in texts]

    async def pair(self, embedded: str, content: str, previous: Sequence[Vector]) -> tuple[Vector, Vector]:
        """The vector of a memory's embedded text, and the one that searches use (see `indexing.mix`).

        `embedded` is the summary of a long `content`, else the content; `previous` those of the turns before it,
        latest first.
        """
        (bare,) = await self.of([embedded])
        whole = None if embedded == content else (await self.of([content]))[0]
        return bare, mix(bare, list(previous), whole)

    async def records(self, memories: Sequence[Memory]) -> list[Record]:
        """The memories as they are stored with vectors of this model; working memory has none."""
        searched = [memory for memory in memories if memory.memory_type != "working"]
        texts = [(memory.embedded_text, memory.content, memory.context) for memory in searched]
        await self.of([text for several in texts for text in several if text])
        records: list[Record] = []
        for memory in memories:
            if memory.memory_type == "working":
                records.append(Record(memory=memory, index=index_fields(memory)))
                continue
            previous = await self.of([memory.context] if memory.context else [])
            bare, mixed = await self.pair(memory.embedded_text, memory.content, previous)
            stored = replace(memory, embedding_model=self.model)
            records.append(Record(memory=stored, index=index_fields(stored), bare=bare, mixed=mixed))
        return records
