"""An inverted index in numpy: which rows hold a term, and with what impact.

Segments are immutable. New rows come as a small segment, or one by one into a tail that becomes one, and segments of
similar size are merged, so that adding one memory costs little and a term is looked up in about log(n) of them (the
log-structured merge tree of O'Neil et al., 1996).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.scoring import Mask
from hindsight_core.stores.rows import TERM

# So many rows that came one by one are made a segment.
_TAIL = 32

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


class Tail:
    """The rows that came last, one by one, until they are worth a segment: a dictionary takes a row faster."""

    def __init__(self) -> None:
        self.rows = 0
        self._held: dict[int, tuple[list[int], list[int]]] = {}
        self._size = 0

    @property
    def nbytes(self) -> int:
        """About what it takes."""
        return 200 * len(self._held) + 16 * self._size

    def add(self, stamps: list[int], slot: int, impacts: list[int]) -> None:
        """One row; without impacts it has none."""
        self.rows += 1
        self._size += len(stamps)
        for i, stamp in enumerate(stamps):
            slots, known = self._held.setdefault(stamp, ([], []))
            slots.append(slot)
            known.extend(impacts[i : i + 1])

    def find(self, stamps: Sequence[int]) -> Iterator[Piece]:
        """See `Postings.find`."""
        for position, stamp in enumerate(stamps):
            if (held := self._held.get(stamp)) is not None:
                yield position, np.array(held[0], np.int32), np.array(held[1], np.uint16)

    def emptied(self) -> tuple[Stamps, Slots, Impacts]:
        """All (term, slot, impact) triples, which it no longer holds."""
        held, self._held, self.rows, self._size = self._held, {}, 0, 0
        counts = [len(slots) for slots, _ in held.values()]
        return (
            np.repeat(np.array(list(held), np.uint64), counts),
            np.array([slot for slots, _ in held.values() for slot in slots], np.int32),
            np.array([impact for _, impacts in held.values() for impact in impacts], np.uint16),
        )


class Postings:
    """The segments of one field of one namespace, and their tail."""

    def __init__(self) -> None:
        self._segments: list[Segment] = []
        self._tail = Tail()

    @property
    def nbytes(self) -> int:
        return self._tail.nbytes + sum(segment.nbytes for segment in self._segments)

    def add(self, terms: NDArray[Any], sizes: NDArray[np.int64], first: int, live: Mask) -> None:
        """Index the slots `first`, `first + 1`, …, of which each holds the next `sizes` terms.

        `terms` are of type `TERM`, or bare stamps where there are no impacts; `live` tells which slots still count.
        """
        if not len(terms):
            return
        weighed = terms.dtype == TERM
        stamps: Stamps = terms["stamp"] if weighed else terms
        impacts: Impacts = terms["impact"] if weighed else np.zeros(0, np.uint16)
        if len(sizes) == 1 and self._tail.rows < _TAIL:
            self._tail.add(stamps.tolist(), first, impacts.tolist())
            return
        slots = np.repeat(np.arange(first, first + len(sizes), dtype=np.int32), sizes)
        if self._tail.rows:
            first_stamps, first_slots, first_impacts = self._tail.emptied()
            stamps = np.concatenate((first_stamps, stamps))
            slots = np.concatenate((first_slots, slots))
            impacts = np.concatenate((first_impacts, impacts))
        segment = Segment.of(stamps, slots, impacts)
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
        yield from self._tail.find(stamps)
