"""What an adapter supplies: a model's own vectors, as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from hindsight_core.embedding import Role


class Model(Protocol):
    """One embedding model. `CalibratedEmbedder` makes an `Embedder` of it; adapters do nothing else."""

    @property
    def name(self) -> str:
        """The model's name, the same on every machine."""
        ...

    @property
    def revision(self) -> str | None:
        """Which version of the weights; None while that is only known after `load`."""
        ...

    async def load(self) -> None:
        """Makes the model ready; does nothing when it is. Raises MissingExtra or ProviderUnavailable."""
        ...

    async def vectors(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        """The vectors of one or more texts, clean and not empty, in their order: (len(texts), dimension), finite.

        Loads first where needed. Raises what `load` raises.
        """
        ...

    async def aclose(self) -> None:
        """Gives back threads and connections. Closing twice is fine."""
        ...
