"""Which hits of a search may not hold any more: what they stand beneath, and how they are marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from hindsight_core.caller import millis
from hindsight_core.contests import standing
from hindsight_core.filtering import readable
from hindsight_core.models import Contest, Hit, Mark, Memory, Scope
from hindsight_core.stores import MemoryStore, Ranked


async def challengers_of(
    store: MemoryStore, scope: Scope, hits: Sequence[Ranked], begun_at: int | None
) -> dict[str, Memory]:
    """By the ids in their links, what contests the hits, as far as this caller may see it and it still holds.

    With `begun_at`, in Unix milliseconds, none that does not hold yet.
    """
    doubted = {link.id for hit in hits for link in hit.memory.contested_by}
    if not doubted:
        return {}
    found = await standing(store, scope.namespace, doubted, {hit.memory.id: hit.memory for hit in hits})
    return {
        challenger: memory
        for challenger, memory in found.items()
        if memory.status == "active"
        and readable(memory, scope)
        and (begun_at is None or millis(memory.valid_from) <= begun_at)
    }


def beneath(
    hits: Sequence[Ranked], challengers: Mapping[str, Memory], present: datetime, *, as_it_was: bool
) -> dict[str, tuple[str, ...]]:
    """By the id of a hit, the ids that it must not stand before.

    What is contested stands beneath what contests it most; and where a question asks for what was (`as_it_was`), what
    holds at `present` beneath what it replaced.
    """
    found: dict[str, tuple[str, ...]] = {}
    for hit in hits:
        memory = hit.memory
        if (
            memory.status in {"active", "superseded"}
            and _lasts(memory, present)
            and (link := _strongest(memory, challengers)) is not None
        ):
            found[memory.id] = (challengers[link.id].id,)
    if as_it_was:
        lasting = {hit.memory.id for hit in hits if hit.memory.status != "pending" and _lasts(hit.memory, present)}
        holding = lasting - found.keys()
        for hit in hits:
            newer = hit.memory.superseded_by
            if newer in holding and not _lasts(hit.memory, present):
                found[newer] = (*found.get(newer, ()), hit.memory.id)
    return found


def marked(
    hit: Ranked, challengers: Mapping[str, Memory], notes: Mapping[str, str], present: datetime, *, past: bool
) -> Hit:
    """The hit, marked with whether it still holds at `present`; `notes` as `explaining.notes_for`.

    `past` tells that the search was for what was so.
    """
    memory = hit.memory
    mark: Mark | None = None
    newer: str | None = None
    note: str | None = None
    if memory.status == "superseded" and not _lasts(memory, present):
        mark, newer = "superseded", memory.superseded_by
        note = notes["past" if past else "replaced"]
    elif memory.status == "pending":
        mark, note = "pending", notes["pending"]
    elif (link := _strongest(memory, challengers)) is not None:
        mark, newer = "contested", challengers[link.id].id
        note = notes["contested"] + challengers[link.id].content
    return Hit(memory=memory, score=hit.score, parts=hit.parts, marked=mark, newer=newer, note=note)


def _lasts(memory: Memory, present: datetime) -> bool:
    """Whether it was not replaced, or holds until a later instant, from which on the other one does."""
    return memory.status != "superseded" or (memory.valid_to is not None and memory.valid_to > present)


def _strongest(memory: Memory, challengers: Mapping[str, Memory]) -> Contest | None:
    links = [link for link in memory.contested_by if link.id in challengers and challengers[link.id].id != memory.id]
    return max(links, key=lambda link: link.probability, default=None)
