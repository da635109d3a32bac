"""What a formula reads of a resident namespace."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from hindsight_core.lexical import idf
from hindsight_core.ranking import Weight
from hindsight_core.scoring import MEMORY_TYPES, Evidence, Floats, Mask
from hindsight_core.stores import Query
from hindsight_core.stores.conditions import day_label, speaker_label, stamp
from hindsight_core.stores.postings import Postings
from hindsight_core.stores.resident import Resident, Slots
from hindsight_core.stores.rows import IMPACT_SCALE


def gather(resident: Resident, query: Query, slots: Slots | None) -> Evidence:
    """The evidence of the memories at `slots` (None: of all), without cosines."""
    pick = slice(None) if slots is None else slots
    known: dict[Weight, Mask] = {}

    def holding(signal: Weight) -> Mask:
        if signal not in known:
            known[signal] = _holding(resident, signal)[pick]
        return known[signal]

    return Evidence(
        cosine=None,
        bm25=_bm25(resident, query.terms)[pick],
        moment=resident["moment"][pick],
        half_life=resident["half_life"][pick],
        memory_type=resident["memory_type"][pick],
        confidence=resident["confidence"][pick],
        holding=holding,
    )


def subset(evidence: Evidence, at: Slots) -> Evidence:
    """The evidence of some of its memories, by position."""

    def holding(signal: Weight) -> Mask:
        return evidence.holding(signal)[at]

    return replace(
        evidence,
        cosine=None if evidence.cosine is None else evidence.cosine[at],
        bm25=evidence.bm25[at],
        moment=evidence.moment[at],
        half_life=evidence.half_life[at],
        memory_type=evidence.memory_type[at],
        confidence=evidence.confidence[at],
        holding=holding,
    )


def _holding(resident: Resident, signal: Weight) -> Mask:
    match signal.field:
        case "speaker":
            return resident.holding([speaker_label(value) for value in signal.values])
        case "days":
            return resident.holding([day_label(value) for value in signal.values])
        case "question":
            asks = resident["question"]
            return (asks & ("1" in signal.values)) | (~asks & ("0" in signal.values))
        case "memory_type":
            chosen = [code for code, name in enumerate(MEMORY_TYPES) if name in signal.values]
            return np.isin(resident["memory_type"], chosen)


def _bm25(resident: Resident, terms: tuple[str, ...]) -> Floats:
    text, context = np.zeros(resident.size), np.zeros(resident.size)
    for term in terms:
        token = stamp(term)
        weight = idf(resident.documents, resident.containing(token)) / IMPACT_SCALE
        _add(resident.text, token, weight, text)
        _add(resident.context, token, weight, context)
    return np.maximum(text, context)


def _add(postings: Postings, token: int, weight: float, sums: Floats) -> None:
    for slots, impacts in postings.holders(token):
        sums[slots] += weight * impacts
