"""Contested pairs: who stands for a challenger by now, and what further evidence makes of a pair."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Literal, TypeAlias

import msgspec

from hindsight_core.ledger import Ledger
from hindsight_core.models import Contest, Hit, Memory
from hindsight_core.stores import MemoryStore, Record

Unsettled: TypeAlias = Literal["both", "newest", "old"]
_HOPS = 8
_MILLISECOND = timedelta(milliseconds=1)
_AGAIN = "Said again."


async def standing(
    store: MemoryStore,
    namespace: str,
    ids: Iterable[str],
    known: Mapping[str, Memory] | None = None,
    *,
    waiting: bool = True,
) -> dict[str, Memory]:
    """By the id of a challenger, the memory that stands for it: itself, or what has replaced it since.

    Those that are `known`, by id, are not read again. `waiting` as of the store's `head`.
    """
    heads = {challenger: challenger for challenger in ids}
    found: dict[str, Memory] = dict(known or {})
    for _ in range(_HOPS):
        missing = sorted(set(heads.values()) - found.keys())
        if missing:
            found |= {
                record.memory.id: record.memory for record in await store.get(namespace, missing, waiting=waiting)
            }
        moved = {challenger: found[head].superseded_by or head for challenger, head in heads.items() if head in found}
        if moved == heads:
            break
        heads = moved
    return {challenger: found[head] for challenger, head in heads.items() if head in found}


def link(ledger: Ledger, old: Record, new: Memory, probability: float, reason: str, action: str) -> None:
    """Keep on the old memory that the new one may have replaced it."""
    contest = Contest(id=new.id, probability=probability, reason=reason)
    current = ledger.get(old)
    links = (*(found for found in current.memory.contested_by if found.id != new.id), contest)
    ledger.change(current, action, reason, contested_by=links, updated_at=ledger.run.at)


def settle(ledger: Ledger, old: Record, challenger: Record, reason: str) -> Memory:
    """The challenger has replaced the old one, from when it holds itself; the challenger as it is then."""
    before, memory = ledger.get(old), ledger.get(challenger).memory
    ledger.change(
        before,
        "superseded",
        reason,
        status="superseded",
        status_reason=reason,
        superseded_by=memory.id,
        contested_by=_without(before.memory, memory),
        valid_to=max(memory.valid_from, before.memory.valid_from + _MILLISECOND),
        updated_at=ledger.run.at,
    )
    supersedes = tuple(dict.fromkeys((*memory.supersedes, before.memory.id)))
    return ledger.change(ledger.get(challenger), "resolved", reason, supersedes=supersedes).memory


def restore(ledger: Ledger, old: Record, challenger: Record, reason: str) -> None:
    """The old one holds: the challenger contests it no more."""
    before = ledger.get(old)
    links = _without(before.memory, challenger.memory)
    ledger.change(before, "resolved", reason, contested_by=links, updated_at=ledger.run.at)


def _without(old: Memory, challenger: Memory) -> tuple[Contest, ...]:
    """Its links but those to the challenger, or to what that has replaced."""
    gone = {challenger.id, *challenger.supersedes}
    return tuple(found for found in old.contested_by if found.id not in gone)


def settle_by_repetition(ledger: Ledger, said: Record, around: Sequence[Record]) -> None:
    """What a memory that was said again contests is outdated, and what contests it is in doubt itself."""
    memory = ledger.get(said).memory
    for record in around:
        old = ledger.get(record)
        if old.memory.status == "active" and any(found.id == memory.id for found in old.memory.contested_by):
            memory = settle(ledger, record, said, _AGAIN)
    active = {record.memory.id: record for record in around if ledger.get(record).memory.status == "active"}
    doubts = [found for found in memory.contested_by if found.id in active]
    if not doubts:
        return
    rest = tuple(found for found in memory.contested_by if found.id not in active)
    ledger.change(ledger.get(said), "resolved", _AGAIN, contested_by=rest, updated_at=ledger.run.at)
    for doubt in doubts:
        link(ledger, active[doubt.id], memory, doubt.probability, _AGAIN, "contested")


def shown(hits: Sequence[Hit], unsettled: Unsettled) -> list[Hit]:
    """Which of contested pairs a search answers with: both, marked; only what is newer; or only what it contests.

    Where only one of the two is among the hits, it is answered with.
    """
    if unsettled == "newest":
        found = {hit.memory.id for hit in hits}
        return [hit for hit in hits if hit.marked != "contested" or hit.newer not in found]
    if unsettled == "old":
        challengers = {hit.newer for hit in hits if hit.marked == "contested"}
        return [
            msgspec.structs.replace(hit, marked=None, newer=None, note=None) if hit.marked == "contested" else hit
            for hit in hits
            if hit.memory.id not in challengers
        ]
    return list(hits)
