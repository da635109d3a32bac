"""Vectors of texts in a cache: under who made them, for which role, and a hash of the text as the model reads it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hindsight_core.cache import Cache
from hindsight_core.embedding.text import clean

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hindsight_core.embedding import Role

_ROLES: tuple[Role, ...] = ("query", "passage")
# Whole floats, little-endian: an answer is the same whether its vectors were kept or made.
_FLOAT = np.dtype("<f4")
_UNIT = 1e-3


class VectorCache:
    """Unit vectors for at most `ttl` seconds; `hits` and `misses` count the texts asked for.

    The text itself is kept nowhere, and what lies there but is no unit vector of its dimension counts as a miss.
    """

    def __init__(self, cache: Cache, *, ttl: float) -> None:
        self._cache = cache
        self.ttl = ttl
        self.hits = 0
        self.misses = 0

    async def get(
        self, identity: str, dimension: int, role: Role, texts: Sequence[str]
    ) -> dict[str, NDArray[np.float32]]:
        """The vectors that are kept, by text."""
        found = await self._cache.get([_name(identity, role, text) for text in texts])
        kept = {
            text: vector
            for text, value in zip(texts, found, strict=True)
            if value is not None and (vector := _unpacked(value, dimension)) is not None
        }
        self.hits += len(kept)
        self.misses += len(texts) - len(kept)
        return kept

    async def put(self, identity: str, role: Role, vectors: Mapping[str, NDArray[np.float32]]) -> None:
        """Keep the vectors of texts."""
        values = {
            _name(identity, role, text): vector.astype(_FLOAT, copy=False).tobytes() for text, vector in vectors.items()
        }
        await self._cache.put(values, self.ttl)

    async def kept(self, identities: Collection[str], texts: Collection[str]) -> int:
        """Of how many of these texts a vector is kept, in either role."""
        kept = 0
        for text in texts:
            found = await self._cache.get([_name(identity, role, text) for identity in identities for role in _ROLES])
            kept += any(value is not None for value in found)
        return kept

    async def erase(self, identities: Collection[str], texts: Collection[str]) -> bool:
        """Remove what is kept of texts, in both roles. False when it may still be there, for `ttl` at most."""
        return await self._cache.delete(
            {_name(identity, role, text) for identity in identities for role in _ROLES for text in texts}
        )


def _name(identity: str, role: Role, text: str) -> str:
    parts = "\0".join((identity, role, clean(text)))
    return f"vector:{hashlib.sha256(parts.encode()).hexdigest()}"


def _unpacked(value: bytes, dimension: int) -> NDArray[np.float32] | None:
    if len(value) != dimension * _FLOAT.itemsize:
        return None
    vector = np.frombuffer(value, _FLOAT).astype(np.float32, copy=False)
    # Anything of the right length: not a number fails this comparison as well.
    return vector if abs(float(vector @ vector) - 1.0) < _UNIT else None
