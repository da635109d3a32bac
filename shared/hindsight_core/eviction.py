"""What makes room where there are more memories than fit: the least worth keeping of each place over its capacity."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import AsyncGenerator, Iterator

import msgspec

from hindsight_core.models import Memory, MemoryType, Status
from hindsight_core.passes import PAGE, STORED, Found, Page, View
from hindsight_core.retention import Rules, Verdict, evict, rank
from hindsight_core.stores import Where

KEPT: tuple[Status, ...] = ("active", "pending", "superseded")


class Place(msgspec.Struct, frozen=True):
    """Whose memories of which types may be at most `capacity`; `held` are counted there before anything makes room."""

    name: str
    where: Where
    held: int
    capacity: int


async def crowded(view: View, after: str | None) -> AsyncGenerator[Page]:
    """What makes room. What was stopped at is looked through anew: what has made room is gone from it."""
    del after
    eviction = Eviction(view)
    for place in await eviction.places():
        # One more than there is room for in this run shows that there are more.
        found, examined = await eviction.chosen(place, view.room + 1)
        for start in range(0, max(1, len(found)), PAGE):
            some = [Found(memory=memory, verdict=verdict) for memory, verdict in found[start : start + PAGE]]
            yield Page(some, 0 if start else examined)


class Eviction:
    """Chooses from a namespace."""

    def __init__(self, view: View) -> None:
        self._store = view.store
        self._namespace = view.namespace
        self._rules = view.rules
        self._now = view.now
        self._seen = view.seen

    async def places(self) -> list[Place]:
        """The places over capacity, narrow ones first: what makes room there makes room in the wider ones, too."""
        if not self._rules.limited:
            return []
        census = await self._store.census(self._namespace, KEPT)
        counted = {whose: held for whose, held in census.items() if whose[1] in STORED}
        return list(_places(counted, self._rules))

    async def chosen(self, place: Place, most: int) -> tuple[list[tuple[Memory, Verdict]], int]:
        """At most `most` memories (and what they superseded) that make room, and how many were looked at.

        Holds about twice as many memories as make room, whatever the place holds.
        """
        most = min(most, place.held - place.capacity)
        lowest: list[Memory] = []
        held = examined = 0
        after: str | None = None
        while records := await self._store.scan(self._namespace, place.where, after=after, limit=PAGE, vectors=False):
            after = records[-1].memory.id
            examined += len(records)
            for record in records:
                memory = self._seen(record.memory)
                if memory is None or memory.status not in KEPT:
                    continue
                held += 1
                if not memory.pinned:
                    lowest.append(memory)
            if len(lowest) > 2 * most + PAGE:
                lowest = self._lowest(most, lowest)
        if held <= place.capacity:
            return [], examined
        victims = self._lowest(min(most, held - place.capacity), lowest)
        found = [(memory, evict(memory, place.name, held, place.capacity, self._now)) for memory in victims]
        return await self._with_predecessors(found), examined

    def _lowest(self, most: int, memories: list[Memory]) -> list[Memory]:
        return heapq.nsmallest(most, memories, key=lambda memory: rank(memory, self._now))

    async def _with_predecessors(self, found: list[tuple[Memory, Verdict]]) -> list[tuple[Memory, Verdict]]:
        """What a memory has superseded goes before it, wherever it is counted."""
        known = {memory.id for memory, _ in found}
        earlier: list[tuple[Memory, Verdict]] = []
        wanted = [old for memory, _ in found for old in memory.supersedes if old not in known]
        while wanted:
            records = await self._store.get(self._namespace, list(dict.fromkeys(wanted)))
            known.update(wanted)
            wanted = list[str]()
            for record in records:
                memory = self._seen(record.memory)
                if memory is None or memory.status != "superseded" or memory.pinned:
                    continue
                earlier.insert(0, (memory, Verdict(action="archived", reason="Went before what superseded it.")))
                wanted += [old for old in memory.supersedes if old not in known]
        return earlier + found


def _places(counted: dict[tuple[str | None, MemoryType], int], rules: Rules) -> Iterator[Place]:
    users: Counter[str | None] = Counter()
    for (user, memory_type), held in sorted(counted.items(), key=lambda item: (item[0][0] or "", item[0][1])):
        users[user] += held
        capacity = rules.of_type.get(memory_type, 0)
        if capacity and held > capacity:
            yield Place(f"{_named(user)} {memory_type} memories", _whose(user, (memory_type,)), held, capacity)
    for user, held in users.items():
        if rules.user and held > rules.user:
            yield Place(f"{_named(user)} memories", _whose(user, STORED), held, rules.user)
    if rules.namespace and users.total() > rules.namespace:
        everyone = Where(statuses=KEPT, memory_types=STORED)
        yield Place("the namespace", everyone, users.total(), rules.namespace)


def _named(user: str | None) -> str:
    return "nobody's" if user is None else f"{user!r}'s"


def _whose(user: str | None, memory_types: tuple[MemoryType, ...]) -> Where:
    return Where(user_id=user, no_user=user is None, statuses=KEPT, memory_types=memory_types)
