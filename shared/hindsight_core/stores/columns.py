"""Columns of numbers, one value a slot; a column whose values are all the same takes no memory.

Most namespaces have several such: no agent, no task, no expiry, no half-life of a memory's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Slots = NDArray[np.intp]
Column = NDArray[Any]

_LEAST = 64


class Columns:
    """Columns of these types, which grow together."""

    def __init__(self, kinds: Mapping[str, np.dtype[Any]]) -> None:
        self.size = 0
        self._capacity = 0
        # Of a column that is all the same: its one value, in an array of shape (1,).
        self._arrays: dict[str, Column] = {name: np.zeros(1, kind) for name, kind in kinds.items()}
        self._same = set(kinds)
        self._shown: dict[str, Column] = {}

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self._arrays.values())

    def __getitem__(self, name: str) -> Column:
        """A column of length `size`, to be read only."""
        shown = self._shown.get(name)
        if shown is None:
            column = self._arrays[name]
            shown = np.broadcast_to(column, self.size) if name in self._same else column[: self.size]
            self._shown[name] = shown
        return shown

    def reserve(self, size: int) -> None:
        """Make room for so many slots at once."""
        if size > self._capacity:
            self._capacity = max(size, self._capacity * 5 // 4, _LEAST)
            for name in self._arrays.keys() - self._same:
                self._arrays[name] = self._widened(self._arrays[name][: self.size])
            self._shown.clear()

    def extend(self, count: int) -> Slots:
        """So many new slots; what they hold is not said before it is `put`."""
        slots = np.arange(self.size, self.size + count)
        self.reserve(self.size + count)
        self.size += count
        self._shown.clear()
        return slots

    def put(self, name: str, slots: Slots, values: ArrayLike) -> None:
        """Set the values at `slots`, one each or one for all. Byte strings may be longer than those before."""
        if not len(slots):
            return
        column, given = self._arrays[name], np.asarray(values)
        if column.dtype.kind == "S" and given.dtype.itemsize > column.dtype.itemsize:
            column = self._arrays[name] = column.astype(given.dtype)
            self._shown.pop(name, None)
        if name in self._same:
            given = given.astype(column.dtype, copy=False)
            if len(slots) == self.size:
                column[0] = given.flat[0]
                self._shown.pop(name, None)
            # Compared bit by bit, NaN is NaN.
            if given.tobytes() == column.tobytes() * given.size:
                return
            column = self._arrays[name] = self._widened(np.broadcast_to(column, self.size))
            self._same.discard(name)
            self._shown.pop(name, None)
        column[slots] = given

    def _widened(self, column: Column) -> Column:
        wide = np.zeros(self._capacity, column.dtype)
        wide[: len(column)] = column
        return wide
