"""An embedder that asks a cache first, and makes each vector once however many ask for it at the same time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np

from hindsight_core.embedding.text import clean
from hindsight_core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hindsight_core.cache.vectors import VectorCache
    from hindsight_core.embedding import Calibration, Embedder, EmbeddingIdentity, Role

    _Vectors = dict[str, NDArray[np.float32]]


class CachedEmbedder:
    """See `Embedder` for what each method promises. The embedder inside is closed by who opened it."""

    def __init__(self, embedder: Embedder, vectors: VectorCache) -> None:
        self._embedder = embedder
        self._vectors = vectors
        self._flights: dict[tuple[Role, str], asyncio.Task[_Vectors]] = {}

    @property
    def identity(self) -> EmbeddingIdentity:
        return self._embedder.identity

    @property
    def calibration(self) -> Calibration:
        return self._embedder.calibration

    async def embed(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        if not texts:
            return await self._embedder.embed(texts, role)
        cleaned = [clean(text) for text in texts]
        wanted = dict.fromkeys(cleaned)
        identity = await self._known()
        flights = {text: flight for text in wanted if (flight := self._flights.get((role, text))) is not None}
        unasked = [text for text in wanted if text not in flights]
        found = await self._vectors.get(identity.name, identity.dimension, role, unasked) if unasked else {}
        missing = [text for text in unasked if text not in found]
        # Others may have asked for them meanwhile.
        if fresh := [text for text in missing if (role, text) not in self._flights]:
            self._start(identity, fresh, role)
        flights |= {text: self._flights[role, text] for text in missing}
        if flights:
            # A caller that is gone takes no flight down that others wait for.
            await asyncio.wait(set(flights.values()))
            found |= {text: flight.result()[text] for text, flight in flights.items()}
        return np.stack([found[text] for text in cleaned])

    async def aclose(self) -> None:
        return

    def _start(self, identity: EmbeddingIdentity, texts: Sequence[str], role: Role) -> None:
        flight = asyncio.create_task(self._make(identity, texts, role))
        for text in texts:
            self._flights[role, text] = flight

        def landed(flight: asyncio.Task[_Vectors]) -> None:
            for text in texts:
                del self._flights[role, text]
            if not flight.cancelled():
                flight.exception()  # whoever waits for it raises it; nobody may

        flight.add_done_callback(landed)

    async def _make(self, identity: EmbeddingIdentity, texts: Sequence[str], role: Role) -> _Vectors:
        made = dict(zip(texts, await self._embedder.embed(texts, role), strict=True))
        await self._vectors.put(identity.name, role, made)
        return made

    async def _known(self) -> EmbeddingIdentity:
        try:
            return self._embedder.identity
        except ConfigurationError:
            await self._embedder.embed([], "passage")
            return self._embedder.identity
