"""What was derived from other memories, and what becomes of it when those are gone.

A memory that was derived from others says what they say. So it is erased with what it was made of, unless one of the
others says the same words; and it holds only as long as enough of them are left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import date
from typing import Literal, TypeAlias

from hindsight_core.models import Memory, Status
from hindsight_core.retention import Verdict
from hindsight_core.stores import MemoryStore, Where

Loss: TypeAlias = Literal["erased", "suppressed", "retracted"]
"""How a memory stopped being evidence."""

EPISODES = 3
DAYS = 2
STANDING: tuple[Status, ...] = ("active", "pending", "superseded", "archived")
_PAGE = 500


def day_of(memory: Memory) -> date:
    """The day (of UTC) of what a memory tells."""
    return (memory.observed_at or memory.created_at).date()


def enough(evidence: Sequence[Memory]) -> bool:
    """Whether something recurred: at least three times, on at least two days."""
    return len(evidence) >= EPISODES and len({day_of(memory) for memory in evidence}) >= DAYS


def fate(memory: Memory, standing: Sequence[Memory], lost: Collection[str], how: Loss) -> Verdict | None:
    """What becomes of a derived memory that `lost` some of what it was derived from and has `standing` left.

    What is in neither, because it is not kept here, counts as left.
    """
    quoted = any(one.content == memory.content for one in standing)
    if how == "erased" and not quoted:
        return Verdict(action="erased", reason="What it was derived from was erased.")
    if how == "suppressed":
        if memory.status == "suppressed":
            return None
        return Verdict(action="suppressed", reason="What it was derived from was suppressed.")
    left = tuple(origin for origin in memory.derived_from if origin not in lost)
    if how == "retracted" and not quoted and memory.status in {"active", "pending"}:
        reason = "What it was derived from was retracted."
        return Verdict(action="retracted", reason=reason, fields={"derived_from": left})
    if left == memory.derived_from:
        return None
    if enough(standing) or len(standing) < len(left) or memory.pinned or memory.status not in {"active", "pending"}:
        reason = f"Derived from {len(left)} now: others were {how}."
        return Verdict(action="updated", reason=reason, fields={"derived_from": left})
    reason = f"Withdrawn: of what it was derived from, {len(left)} are left."
    return Verdict(action="withdrawn", reason=reason, fields={"derived_from": ()})


async def orphans(
    store: MemoryStore,
    namespace: str,
    gone: Iterable[str],
    how: Loss,
    seen: Callable[[Memory], Memory | None] = lambda memory: memory,
) -> list[tuple[Memory, Verdict]]:
    """What is derived from memories that are `gone` now or about to go, and what becomes of it; and so on from that.

    `seen` says how a run has left a memory, None for an erased one.
    """
    lost = set(gone)
    found: dict[str, tuple[Memory, Verdict]] = {}
    wave = sorted(lost)
    while wave:
        following: list[str] = []
        for memory in await _derived(store, namespace, wave, seen):
            if memory.id in lost:
                continue
            standing = [one for one in await origins(store, namespace, memory, seen) if one.id not in lost]
            verdict = fate(memory, standing, lost, how)
            if verdict is None:
                continue
            found[memory.id] = memory, verdict
            if verdict.action == how:
                lost.add(memory.id)
                following.append(memory.id)
        wave = sorted(following)
    return list(found.values())


async def origins(
    store: MemoryStore, namespace: str, memory: Memory, seen: Callable[[Memory], Memory | None]
) -> list[Memory]:
    """What a memory was derived from, as far as that still stands."""
    held = [seen(record.memory) for record in await store.get(namespace, memory.derived_from)]
    return [one for one in held if one is not None and one.status in STANDING]


async def _derived(
    store: MemoryStore, namespace: str, ids: Sequence[str], seen: Callable[[Memory], Memory | None]
) -> list[Memory]:
    found: list[Memory] = []
    for start in range(0, len(ids), _PAGE):
        where = Where(derived_from=tuple(ids[start : start + _PAGE]))
        after: str | None = None
        while records := await store.scan(namespace, where, after=after, limit=_PAGE, vectors=False):
            after = records[-1].memory.id
            # A dry run may have left one without what it is stored with.
            held = [seen(record.memory) for record in records]
            found += [memory for memory in held if memory is not None and not set(memory.derived_from).isdisjoint(ids)]
    return list({memory.id: memory for memory in found}.values())
