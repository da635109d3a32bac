"""The one `Embedder`: any model, with clean texts before it and the calibration after it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np

from hindsight_core.embedding import EmbeddingIdentity
from hindsight_core.embedding.calibration import first_axis, measure
from hindsight_core.embedding.text import clean
from hindsight_core.errors import ConfigurationError, ProviderUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hindsight_core.embedding import Role
    from hindsight_core.embedding.calibration import Calibration
    from hindsight_core.embedding.model import Model


class CalibratedEmbedder:
    """See `Embedder` for what each method promises.

    Without a calibration the model is calibrated from the neutral texts before its first vector: always the same
    texts, so every process comes to the same result.
    """

    def __init__(self, model: Model, calibration: Calibration | None) -> None:
        self._model = model
        self._calibration = calibration
        self._ready = False
        self._getting_ready = asyncio.Lock()

    @property
    def identity(self) -> EmbeddingIdentity:
        calibration, revision = self.calibration, self._model.revision
        if revision is None:
            raise self._unknown()
        return EmbeddingIdentity(self._model.name, revision, calibration.dimension, calibration.fingerprint)

    @property
    def calibration(self) -> Calibration:
        if self._calibration is None:
            raise self._unknown()
        return self._calibration

    async def embed(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        if not self._ready:
            await self._get_ready()
        calibration = self.calibration
        out = np.tile(first_axis(calibration.dimension), (len(texts), 1))
        cleaned = [clean(text) for text in texts]
        rows = [row for row, text in enumerate(cleaned) if text]
        if rows:
            raw = await self._model.vectors([cleaned[row] for row in rows], role)
            out[rows] = calibration.centre(self._checked(raw))
        return out

    async def aclose(self) -> None:
        await self._model.aclose()

    async def _get_ready(self) -> None:
        async with self._getting_ready:
            if self._ready:
                return
            await self._model.load()
            if self._calibration is None:
                self._calibration = await measure(self._model)
            self._ready = True

    def _checked(self, raw: NDArray[np.float32]) -> NDArray[np.float32]:
        expected = self.calibration.dimension
        if raw.shape[1] != expected:
            raise ProviderUnavailable(
                f"{self._model.name} makes vectors of {raw.shape[1]} dimensions where {expected} belong.",
                remedy="Another model answers under this name: bring back the one that the calibration was made with.",
            )
        return raw

    def _unknown(self) -> ConfigurationError:
        return ConfigurationError(
            f"{self._model.name} is not loaded yet, so its dimension and calibration are not known.",
            remedy='Await embed([], "passage") first.',
        )
