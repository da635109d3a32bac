"""Memories move from one embedding model to another through an export: a place for vectors takes those of one alone."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from hindsight_core.caller import Caller
from hindsight_core.config import Settings
from hindsight_core.embedding import Calibration, Embedder, EmbeddingIdentity, Role
from hindsight_core.errors import ConfigurationError
from hindsight_core.requests import ExportRequest, Request, SearchRequest, WriteRequest
from hindsight_core.service import MemoryService
from hindsight_core.stores import open_store
from opensearch_place import OpenSearchPlace

DIMENSION = 128


class Shorter:
    """Another model than the one it is made of: the first numbers of its vectors."""

    def __init__(self, whole: Embedder) -> None:
        self._whole = whole

    @property
    def identity(self) -> EmbeddingIdentity:
        return msgspec.structs.replace(self._whole.identity, model="shorter", dimension=DIMENSION)

    @property
    def calibration(self) -> Calibration:
        return self._whole.calibration

    async def embed(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        vectors = (await self._whole.embed(texts, role))[:, :DIMENSION]
        lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-6)
        return (vectors / lengths).astype(np.float32)

    async def aclose(self) -> None:
        """The model belongs to others."""


@asynccontextmanager
async def serving(url: str, embedder: Embedder, settings: Settings) -> AsyncGenerator[MemoryService]:
    store = open_store(url)
    try:
        await store.prepare(embedder.identity.name)
        service = MemoryService(store, embedder, settings)
        yield service
        await service.flush()
    finally:
        await store.aclose()


async def test_an_export_is_imported_with_another_models_vectors(
    opensearch_place: OpenSearchPlace, opensearch_url: str, embedder: Embedder, settings: Settings, caller: Caller
) -> None:
    opensearch_place.empty()
    shorter = Shorter(embedder)
    texts = {"What does Ann drink?": "Ann drinks green tea.", "船停在哪里？": "船停在北边的港口。"}
    with OpenSearchPlace(opensearch_url) as other:
        async with serving(opensearch_place.store_url, embedder, settings) as old:
            for text in texts.values():
                await old.write(WriteRequest(content=text, force=True, reconcile="none"), caller)
            lines = [line async for line in old.export(ExportRequest(history=True), caller)]
        with pytest.raises(ConfigurationError) as caught:
            async with serving(opensearch_place.store_url, shorter, settings):
                pass
        assert "shorter" in caught.value.detail
        async with serving(other.store_url, shorter, settings) as new:
            report = await new.import_lines(lines, Request(), caller)
            assert (report.stored, report.problems) == (2, ())
            for question, text in texts.items():
                page = await new.search(SearchRequest(query=question), caller)
                assert page.hits[0].memory.content == text
                assert page.hits[0].parts.similarity > 0.3
                assert page.hits[0].memory.embedding_model == shorter.identity.name
