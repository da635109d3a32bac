"""The vectors of one namespace in memory, in slabs that grow without copying what is there."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hindsight_core.stores import Vector

Vectors = NDArray[np.float32]

# A product of this size stays on one thread of the BLAS, which is faster than handing it over to several.
_SLAB_ELEMENTS = 512 * 384
# So many slabs are allocated at once when there are as many already.
_BLOCK = 8
# Reading a whole slab in order beats picking its rows when more than this share of them is wanted.
_DENSE = 0.5
# With more rows than this a slab, to go through all slabs beats going through the rows.
_MANY = 8


class Matrix:
    """Rows of one dimension, addressed by slot; a slot without a vector holds zeros."""

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._rows = max(1, _SLAB_ELEMENTS // dimension)
        self._slabs: list[Vectors] = []

    @property
    def dimension(self) -> int:
        return self._dimension

    @property
    def nbytes(self) -> int:
        return sum(slab.nbytes for slab in self._slabs)

    def put(self, first: int, vectors: Vectors) -> None:
        """Set slots `first`, `first + 1`, … to `vectors` of shape (n, dimension)."""
        while len(self._slabs) * self._rows < first + len(vectors):
            # Larger pieces lie on larger pages of memory, which are read a tenth faster; a small namespace has none.
            count = 1 if len(self._slabs) < _BLOCK else _BLOCK
            block = np.zeros((count * self._rows, self._dimension), np.float32)
            self._slabs.extend(np.split(block, count))
        done = 0
        while done < len(vectors):
            slab, row = divmod(first + done, self._rows)
            part = vectors[done : done + self._rows - row]
            self._slabs[slab][row : row + len(part)] = part
            done += len(part)

    def products(self, vectors: Vectors, slots: NDArray[np.intp]) -> Vectors:
        """The products of the rows at `slots`, which ascend, with `vectors`; 0 beyond the last row.

        `vectors` has shape (dimension,) or (dimension, n), the answer (slots,) or (slots, n).
        """
        vectors = np.ascontiguousarray(vectors, np.float32)
        out = np.zeros((len(slots), *vectors.shape[1:]), np.float32)
        picked: Vectors | None = None
        bounds = np.searchsorted(slots, np.arange(len(self._slabs) + 1) * self._rows).tolist()
        for number, slab in enumerate(self._slabs):
            some = slice(bounds[number], bounds[number + 1])
            count = some.stop - some.start
            if not count:
                continue
            first = int(slots[some.start]) - number * self._rows
            if slots[some.stop - 1] == slots[some.start] + count - 1:  # no gaps
                np.dot(slab[first : first + count], vectors, out=out[some])
            elif count > _DENSE * self._rows:
                out[some] = np.dot(slab, vectors)[slots[some] - number * self._rows]
            else:
                if picked is None:
                    picked = np.empty((self._rows, self._dimension), np.float32)
                rows = picked[:count]
                # The mode spares numpy a copy; no index is out of bounds.
                slab.take(slots[some] - number * self._rows, axis=0, out=rows, mode="clip")
                np.dot(rows, vectors, out=out[some])
        return out

    def exact(self, vector: Vector, slots: NDArray[np.intp]) -> NDArray[np.float64]:
        """As `products`, in double precision, and bit for bit the same wherever a row lies."""
        wide = vector.astype(np.float64)
        out = np.empty(len(slots))
        for start in range(0, len(slots), self._rows):
            some = slice(start, start + self._rows)
            # Not by the BLAS, whose order of adding up depends on how many rows there are.
            out[some] = np.einsum("ij,j->i", self.take(slots[some]).astype(np.float64), wide)
        return out

    def take(self, slots: NDArray[np.intp]) -> Vectors:
        """A copy of the rows at `slots`, shape (n, dimension)."""
        out = np.zeros((len(slots), self._dimension), np.float32)
        numbers, rows = np.divmod(slots, self._rows)
        if len(slots) > _MANY * len(self._slabs):
            for number, slab in enumerate(self._slabs):
                there = (numbers == number).nonzero()[0]
                out[there] = slab[rows[there]]
            return out
        for at, (number, row) in enumerate(zip(numbers.tolist(), rows.tolist(), strict=True)):
            if number < len(self._slabs):
                out[at] = self._slabs[number][row]
        return out
