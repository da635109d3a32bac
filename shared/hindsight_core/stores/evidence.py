"""What a formula reads of a resident namespace, for one query."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hindsight_core.ids import stamp
from hindsight_core.lexical import idf
from hindsight_core.ranking import Weight
from hindsight_core.scoring import Evidence, Floats, Mask
from hindsight_core.stores import Query
from hindsight_core.stores.columns import Slots
from hindsight_core.stores.conditions import day_label, speaker_label
from hindsight_core.stores.postings import Piece
from hindsight_core.stores.resident import Resident
from hindsight_core.stores.rows import IMPACT_SCALE


class Reader:
    """Gives the evidence of any of the memories; what is looked up in postings is looked up once."""

    def __init__(self, resident: Resident, query: Query) -> None:
        self._resident = resident
        self._bm25 = _bm25(resident, query.terms)
        self._held: dict[Weight, Mask] = {}

    def evidence(self, slots: Slots | slice, precision: type[np.floating]) -> Evidence:
        """The evidence of the memories at `slots`; without cosines."""

        def pick(column: NDArray[Any]) -> NDArray[Any]:
            picked: NDArray[Any] = column[slots]
            return picked

        def holding(signal: Weight) -> Mask:
            if signal not in self._held:
                self._held[signal] = _holding(self._resident, signal)
            return pick(self._held[signal])

        return Evidence(
            cosine=None,
            bm25=pick(self._bm25).astype(precision, copy=False),
            moment=pick(self._resident["moment"]),
            half_life=pick(self._resident["half_life"]).astype(precision, copy=False),
            memory_type=pick(self._resident["memory_type"]),
            confidence=pick(self._resident["confidence"]).astype(precision, copy=False),
            holding=holding,
        )


def _holding(resident: Resident, signal: Weight) -> Mask:
    match signal.field:
        case "speaker":
            return resident.holding([speaker_label(value) for value in signal.values])
        case "days":
            held = resident.holding([day_label(value) for value in signal.values])
            moment = resident["moment"]
            for start, end in signal.spans:
                held |= (moment >= start) & (moment < end)
            return held
        case "question":
            asks = resident["question"]
            if signal.values == ("1",):
                return asks
            return (asks & ("1" in signal.values)) | (~asks & ("0" in signal.values))
        case "memory_type":
            return resident.one_of("memory_type", signal.values)


def _bm25(resident: Resident, terms: tuple[str, ...]) -> Floats:
    stamps = [stamp(term) for term in terms]
    text, context = list(resident.text.find(stamps)), list(resident.context.find(stamps))
    containing = [0] * len(terms)
    for term, slots, _ in text:
        containing[term] += resident.rankable_among(slots)
    weights = np.array([idf(resident.documents, n) / IMPACT_SCALE for n in containing], np.float32)
    better = _summed(resident.size, text, weights)
    return np.maximum(better, _summed(resident.size, context, weights), out=better)


def _summed(size: int, pieces: list[Piece], weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """The impacts of all terms, weighted, summed up for each slot, term after term."""
    total = np.zeros(size, np.float32)
    if pieces:
        by = np.repeat(weights[[term for term, _, _ in pieces]], [len(slots) for _, slots, _ in pieces])
        shares = np.concatenate([impacts for _, _, impacts in pieces]) * by
        np.add.at(total, np.concatenate([slots for _, slots, _ in pieces]), shares)
    return total
