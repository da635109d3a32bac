"""The vectors of one namespace in memory, in slabs that grow without copying what is there."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hindsight_core.stores import Vector

Vectors = NDArray[np.float32]

# A matrix-vector product of this size stays on one thread of the BLAS, which is faster than its hand-over to several.
_SLAB_ELEMENTS = 512 * 384


class Matrix:
    """Rows of one dimension, addressed by slot; a slot without a vector holds zeros."""

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._rows = max(1, _SLAB_ELEMENTS // dimension)
        self._slabs: list[Vectors] = []

    @property
    def nbytes(self) -> int:
        return sum(slab.nbytes for slab in self._slabs)

    def put(self, first: int, vectors: Vectors) -> None:
        """Set slots `first`, `first + 1`, … to `vectors` of shape (n, dimension)."""
        while len(self._slabs) * self._rows < first + len(vectors):
            self._slabs.append(np.zeros((self._rows, self._dimension), np.float32))
        done = 0
        while done < len(vectors):
            slab, row = divmod(first + done, self._rows)
            part = vectors[done : done + self._rows - row]
            self._slabs[slab][row : row + len(part)] = part
            done += len(part)

    def dot(self, vector: Vector, size: int) -> Vectors:
        """The products with the first `size` slots; 0 for those beyond the last vector."""
        out = np.zeros(max(size, len(self._slabs) * self._rows), np.float32)
        for number, slab in enumerate(self._slabs):
            start = number * self._rows
            np.dot(slab, vector, out=out[start : start + self._rows])
        return out[:size]

    def take(self, slots: NDArray[np.integer]) -> Vectors:
        """A copy of the rows at `slots`, shape (n, dimension)."""
        out = np.zeros((len(slots), self._dimension), np.float32)
        numbers, rows = np.divmod(slots, self._rows)
        for number in np.unique(numbers):
            if number < len(self._slabs):
                here = numbers == number
                out[here] = self._slabs[number][rows[here]]
        return out
