"""An inverted index in numpy: which rows hold a term, and with what impact.

Segments are immutable. New rows come as a small segment, and segments of similar size are merged, so that adding
one memory costs little and a term is looked up in about log(n) of them (the log-structured merge tree of O'Neil et
al., 1996).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.scoring import Mask
from hindsight_core.stores.rows import TERM

Stamps = NDArray[np.uint64]
Slots = NDArray[np.int32]
Impacts = NDArray[np.uint16]
Piece: TypeAlias = tuple[int, Slots, Impacts]


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """Term `stamps[i]` is held by `slots[starts[i]:starts[i + 1]]`, with `impacts` beside them."""

    stamps: Stamps
    starts: NDArray[np.int64]
    slots: Slots
    impacts: Impacts

    @property
    def nbytes(self) -> int:
        return self.stamps.nbytes + self.starts.nbytes + self.slots.nbytes + self.impacts.nbytes

    @classmethod
    def of(cls, terms: Stamps, slots: Slots, impacts: Impacts) -> Segment:
        """A segment of (term, slot, impact) triples; `impacts` is empty where nobody asks for them."""
        order = np.argsort(terms)
        terms = terms[order]
        starts = np.flatnonzero(np.concatenate(([True], terms[1:] != terms[:-1])))
        return cls(
            stamps=terms[starts],
            starts=np.append(starts, len(terms)),
            slots=slots[order],
            impacts=impacts[order] if len(impacts) else impacts,
        )

    def merged(self, other: Segment, live: Mask) -> Segment | None:
        """Both in one, without the slots that are no longer live; None when nothing is left."""
        terms = np.concatenate([np.repeat(s.stamps, np.diff(s.starts)) for s in (self, other)])
        slots = np.concatenate([self.slots, other.slots])
        impacts = np.concatenate([self.impacts, other.impacts])
        kept = live[slots]
        if not np.any(kept):
            return None
        return Segment.of(terms[kept], slots[kept], impacts[kept] if len(impacts) else impacts)


class Postings:
    """The segments of one field of one namespace."""

    def __init__(self) -> None:
        self._segments: list[Segment] = []

    @property
    def nbytes(self) -> int:
        return sum(segment.nbytes for segment in self._segments)

    def add(self, terms: NDArray[Any], sizes: NDArray[np.int64], first: int, live: Mask) -> None:
        """Index the slots `first`, `first + 1`, …, of which each holds the next `sizes` terms.

        `terms` are of type `TERM`, or bare stamps where there are no impacts; `live` tells which slots still count.
        """
        if not len(terms):
            return
        slots = np.repeat(np.arange(first, first + len(sizes), dtype=np.int32), sizes)
        if terms.dtype == TERM:
            segment = Segment.of(terms["stamp"], slots, terms["impact"])
        else:
            segment = Segment.of(terms, slots, np.zeros(0, np.uint16))
        while self._segments and len(self._segments[-1].slots) < 2 * len(segment.slots):
            merged = self._segments.pop().merged(segment, live)
            if merged is None:
                return
            segment = merged
        self._segments.append(segment)

    def find(self, stamps: Sequence[int]) -> Iterator[Piece]:
        """The slots that hold each of the terms, and its impacts, as (position of the term, slots, impacts).

        A term comes in as many pieces as segments hold it, dead slots included.
        """
        wanted = np.array(stamps, np.uint64)
        for segment in self._segments:
            places = np.searchsorted(segment.stamps, wanted)
            places[places == len(segment.stamps)] = 0
            found = (segment.stamps[places] == wanted).nonzero()[0]
            places = places[found]
            bounds = (segment.starts[places].tolist(), segment.starts[places + 1].tolist())
            for position, start, end in zip(found.tolist(), *bounds, strict=True):
                yield position, segment.slots[start:end], segment.impacts[start:end]
