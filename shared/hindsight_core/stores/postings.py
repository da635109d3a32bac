"""An inverted index in numpy: which rows hold a term, and with what impact.

Segments are immutable. New rows come as a small segment, and segments of similar size are merged, so that adding
one memory costs little and a term is looked up in about log(n) of them (the log-structured merge tree of O'Neil et
al., 1996).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.stores.rows import TERM

Stamps = NDArray[np.uint64]
Slots = NDArray[np.int32]
Impacts = NDArray[np.uint16]


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """Term `stamps[i]` is held by `slots[starts[i]:starts[i + 1]]`, ascending, with `impacts` beside them."""

    stamps: Stamps
    starts: NDArray[np.int64]
    slots: Slots
    impacts: Impacts

    @property
    def nbytes(self) -> int:
        return self.stamps.nbytes + self.starts.nbytes + self.slots.nbytes + self.impacts.nbytes

    @classmethod
    def of(cls, terms: Stamps, slots: Slots, impacts: Impacts) -> Segment:
        """A segment of (term, slot, impact) triples; those of one term in ascending order of slot."""
        order = np.argsort(terms, kind="stable")
        stamps, starts = np.unique(terms[order], return_index=True)
        return cls(
            stamps=stamps,
            starts=np.append(starts, len(terms)).astype(np.int64),
            slots=slots[order],
            impacts=impacts[order],
        )

    def merged(self, later: Segment, live: NDArray[np.bool_]) -> Segment:
        """Both in one, without the slots that are no longer live; the slots of `later` are all greater."""
        terms = np.concatenate([np.repeat(s.stamps, np.diff(s.starts)) for s in (self, later)])
        slots = np.concatenate([self.slots, later.slots])
        impacts = np.concatenate([self.impacts, later.impacts])
        kept = live[slots]
        return Segment.of(terms[kept], slots[kept], impacts[kept])


class Postings:
    """The segments of one field of one namespace."""

    def __init__(self) -> None:
        self._segments: list[Segment] = []

    @property
    def nbytes(self) -> int:
        return sum(segment.nbytes for segment in self._segments)

    def add(self, blobs: list[bytes], first: int, live: NDArray[np.bool_]) -> None:
        """Index the packed terms of rows `first`, `first + 1`, …; `live` tells which slots still count."""
        terms = np.frombuffer(b"".join(blobs), TERM)
        sizes = np.array([len(blob) for blob in blobs]) // TERM.itemsize
        self._add(terms["stamp"], terms["impact"], sizes, first, live)

    def add_labels(self, blobs: list[bytes], first: int, live: NDArray[np.bool_]) -> None:
        """As `add`, for packed stamps without impacts."""
        stamps = np.frombuffer(b"".join(blobs), "<u8")
        sizes = np.array([len(blob) for blob in blobs]) // 8
        self._add(stamps, np.zeros(len(stamps), np.uint16), sizes, first, live)

    def _add(
        self, stamps: Stamps, impacts: Impacts, sizes: NDArray[np.int64], first: int, live: NDArray[np.bool_]
    ) -> None:
        if not len(stamps):
            return
        slots = np.repeat(np.arange(first, first + len(sizes), dtype=np.int32), sizes)
        segment = Segment.of(stamps, slots, impacts)
        while self._segments and len(self._segments[-1].slots) < 2 * len(segment.slots):
            segment = self._segments.pop().merged(segment, live)
        self._segments.append(segment)

    def holders(self, stamp: int) -> Iterator[tuple[Slots, Impacts]]:
        """The slots that hold a term and its impacts, piece by piece; dead slots included."""
        wanted = np.uint64(stamp)
        for segment in self._segments:
            at = int(np.searchsorted(segment.stamps, wanted))
            if at < len(segment.stamps) and segment.stamps[at] == wanted:
                piece = slice(segment.starts[at], segment.starts[at + 1])
                yield segment.slots[piece], segment.impacts[piece]
