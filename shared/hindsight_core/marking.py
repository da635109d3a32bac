"""Which hits of a search may not hold any more: what they stand beneath, and how they are marked."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import msgspec

from hindsight_core.caller import millis
from hindsight_core.contests import standing
from hindsight_core.filtering import readable
from hindsight_core.models import Contest, Hit, Mark, Memory, Scope
from hindsight_core.stores import MemoryStore, Query, Ranked, Where


async def challengers_of(
    store: MemoryStore, scope: Scope, hits: Sequence[Ranked], begun_at: int | None
) -> dict[str, Memory]:
    """By the ids in their links, what contests the hits, as far as this caller may see it and it still holds.

    With `begun_at`, in Unix milliseconds, none that does not hold yet.
    """
    doubted = {link.id for hit in hits for link in hit.memory.contested_by}
    if not doubted:
        return {}
    known = {hit.memory.id: hit.memory for hit in hits}
    found = await standing(store, scope.namespace, doubted, known, waiting=False)
    return {
        challenger: memory
        for challenger, memory in found.items()
        if memory.status == "active"
        and readable(memory, scope)
        and (begun_at is None or millis(memory.valid_from) <= begun_at)
    }


def beneath(
    hits: Sequence[Ranked],
    challengers: Mapping[str, Memory],
    present: datetime,
    *,
    as_it_was: bool,
    then: tuple[datetime, datetime] | None = None,
) -> dict[str, tuple[str, ...]]:
    """By the id of a hit, the ids that it must not stand before.

    What is contested stands beneath what contests it most. But where a question asks for what was (`as_it_was`), it
    does not, and what holds at `present` stands beneath what it replaced. Where it names a time that is over (`then`,
    half-open), what had not begun by its end stands beneath what it replaced or contests, and what had ended before
    it beneath what replaced it.
    """
    found: dict[str, tuple[str, ...]] = {}
    if not as_it_was:
        if then is not None:
            found = _at_that_time(hits, challengers, then)
        for hit in hits:
            if (link := _doubt(hit.memory, challengers, present)) is not None:
                contesting = challengers[link.id].id
                if hit.memory.id not in found.get(contesting, ()):
                    found[hit.memory.id] = (*found.get(hit.memory.id, ()), contesting)
        return found
    holding = {
        hit.memory.id
        for hit in hits
        if hit.memory.status != "pending"
        and _lasts(hit.memory, present)
        and _doubt(hit.memory, challengers, present) is None
    }
    for hit in hits:
        newer = hit.memory.superseded_by
        if newer in holding and not _lasts(hit.memory, present):
            found[newer] = (*found.get(newer, ()), hit.memory.id)
    return found


def _at_that_time(
    hits: Sequence[Ranked], challengers: Mapping[str, Memory], then: tuple[datetime, datetime]
) -> dict[str, tuple[str, ...]]:
    start, end = then
    known = {hit.memory.id: hit.memory for hit in hits}
    found: dict[str, tuple[str, ...]] = {}
    for memory in known.values():
        link = _strongest(memory, challengers)
        newer = known.get(memory.superseded_by or (challengers[link.id].id if link is not None else ""))
        if newer is None:
            continue
        if newer.valid_from >= end:
            found[newer.id] = (*found.get(newer.id, ()), memory.id)
        elif memory.valid_to is not None and memory.valid_to <= start:
            found[memory.id] = (*found.get(memory.id, ()), newer.id)
    return found


def replaced(
    hits: Sequence[Ranked], challengers: Mapping[str, Memory], present: datetime
) -> dict[str, tuple[str, float]]:
    """By the id of a hit that does not hold any more at `present`, or may not: the id of what replaced it, how surely.

    In (0, 1]; 1 where it was superseded.
    """
    found: dict[str, tuple[str, float]] = {}
    for hit in hits:
        memory = hit.memory
        if memory.superseded_by is not None and not _lasts(memory, present):
            found[memory.id] = (memory.superseded_by, 1.0)
        elif (link := _doubt(memory, challengers, present)) is not None:
            found[memory.id] = (challengers[link.id].id, link.probability)
    return found


async def with_replaced(store: MemoryStore, namespace: str, query: Query, ranked: Sequence[Ranked]) -> list[Ranked]:
    """The hits of a question that asks for what was, with the best of what has been replaced, ranked by score.

    “Where did I live before?” says little of an address: what was replaced comes along however weak it is, and so does
    what replaced a hit or was replaced by it.
    """
    found = {hit.memory.id: hit for hit in ranked}

    async def add(where: Where) -> None:
        page = await store.rank(namespace, msgspec.structs.replace(query, where=where, min_score=0.0))
        for hit in page.hits:
            found.setdefault(hit.memory.id, hit)

    await add(msgspec.structs.replace(query.where, statuses=("superseded",)))
    if query.where.ids is None:
        linked = {one for hit in found.values() for one in (*hit.memory.supersedes, hit.memory.superseded_by) if one}
        if missing := sorted(linked - found.keys()):
            await add(msgspec.structs.replace(query.where, ids=tuple(missing)))
    return sorted(found.values(), key=lambda hit: -hit.score)


def standing_back(order: list[int], ids: Sequence[str], beneath: Mapping[str, Collection[str]]) -> list[int]:
    """The order, of places in `ids`, with each one moved down to right behind the last of those it stands beneath.

    `beneath` as the function of that name gives it.
    Of several that stand beneath each other in a circle, the first comes first.
    """
    rank = {ids[n]: place for place, n in enumerate(order)}
    waiting = {
        rank[one]: {rank[other] for other in others if other in rank and other != one}
        for one, others in beneath.items()
        if one in rank
    }
    ready = [place for place in range(len(order)) if not waiting.get(place)]
    done: list[int] = []
    waiting = {place: others for place, others in waiting.items() if others}
    while ready or waiting:
        if not ready:
            ready.append(min(waiting))
            del waiting[ready[0]]
        place = heapq.heappop(ready)
        done.append(place)
        for one in [one for one, others in waiting.items() if place in others]:
            waiting[one].discard(place)
            if not waiting[one]:
                del waiting[one]
                heapq.heappush(ready, one)
    return [order[place] for place in done]


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


def _doubt(memory: Memory, challengers: Mapping[str, Memory], present: datetime) -> Contest | None:
    """What contests most that a memory still holds, as far as it is not over already."""
    if not memory.contested_by or memory.status not in {"active", "superseded"} or not _lasts(memory, present):
        return None
    return _strongest(memory, challengers)


def _strongest(memory: Memory, challengers: Mapping[str, Memory]) -> Contest | None:
    links = [link for link in memory.contested_by if link.id in challengers and challengers[link.id].id != memory.id]
    return max(links, key=lambda link: link.probability, default=None)
