"""Episodes that recur become one semantic memory, which says what they say, keeps up with them, and goes with them.

Nothing is made up: the memory takes the words of the episode that speaks best for the others. What the user has
forgotten is not learned again this way: not from suppressed memories, not beside one, and not once it was erased.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from datetime import datetime

import numpy as np
from msgspec.structs import replace

from hindsight_core.caller import millis
from hindsight_core.derivation import day_of, enough, fate
from hindsight_core.induction import induced, induced_id, voice_of, voiced
from hindsight_core.models import Memory
from hindsight_core.passes import LIVE, Found, Page, View
from hindsight_core.reconciliation import reconcile
from hindsight_core.retention import Verdict
from hindsight_core.screening import decide_pair
from hindsight_core.stores import Neighbour, Record, Where

# Two episodes mean the same where the pair judge says so at least as surely, and their vectors are no farther apart.
SAME_AT = 0.4
NEAR_AT = 0.55
# Evidence beyond so many adds nothing; the latest are kept.
EVIDENCE_AT_MOST = 100
_NEIGHBOURS = 32
_PAGE = 100
_REVISING, _INDUCING = "r:", "i:"


async def recurring(view: View, after: str | None) -> AsyncGenerator[Page]:
    """What was induced before and no longer stands, then what episodes say again and again."""
    if view.rules.consolidate_within is None:
        return
    after = after or _REVISING
    if after.startswith(_REVISING):
        async for page in _revised(view, after.removeprefix(_REVISING) or None):
            yield page
        after = _INDUCING
    async for page in Consolidation(view, view.now - view.rules.consolidate_within).pages(
        after.removeprefix(_INDUCING) or None
    ):
        yield page


async def _revised(view: View, after: str | None) -> AsyncGenerator[Page]:
    """Semantic memories that have lost some of what they were induced from, by whatever way."""
    where = Where(statuses=LIVE, memory_types=("semantic",))
    while records := await view.scan(where, after):
        after = records[-1].memory.id
        seen = [view.seen(record.memory) for record in records]
        memories = [memory for memory in seen if memory and memory.derived_from and memory.status in LIVE]
        ids = sorted({origin for memory in memories for origin in memory.derived_from})
        held = {record.memory.id: view.seen(record.memory) for record in await view.store.get(view.namespace, ids)}
        erased = await view.store.erased(view.namespace, [id_ for id_ in ids if held.get(id_) is None])
        found: list[Found] = []
        for memory in memories:
            known = [one for origin in memory.derived_from if (one := held.get(origin)) is not None]
            gone = {origin for origin in memory.derived_from if origin in erased}
            rejected = {one.id for one in known if one.status in {"suppressed", "retracted"}}
            standing = [one for one in known if one.id not in rejected]
            verdict = fate(memory, standing, gone, "erased") if gone else None
            if verdict is None and rejected:
                verdict = fate(memory, standing, gone | rejected, "retracted")
            if verdict is not None:
                found.append(Found(memory=memory, verdict=verdict))
        yield Page(found, len(records), _REVISING + after)


class Consolidation:
    """Looks at the episodes stored since an instant, in order of id, each with what is near it."""

    def __init__(self, view: View, since: datetime) -> None:
        self._view = view
        self._since = since
        # What this run has induced or changed and the store does not show yet, and whose evidence it is.
        self._made: dict[str, Record] = {}
        self._evidence: dict[str, str] = {}

    async def pages(self, after: str | None) -> AsyncGenerator[Page]:
        view = self._view
        where = Where(statuses=("active",), memory_types=("episodic",), alive_at=millis(view.now))
        while records := await view.store.scan(view.namespace, where, after=after, limit=_PAGE):
            after = records[-1].memory.id
            found: dict[str, Found] = {}
            seeds = [record for record in records if self._recent(record)]
            owners = await self._owners(record.memory.id for record in seeds)
            free = [record for record in seeds if record.memory.id not in owners]
            for seed, near in zip(free, await self._near(free, "episodic"), strict=True):
                if seed.memory.id not in self._evidence:
                    await self._consider(seed, near, found)
                if found and view.wording is not None and not view.dry_run:
                    # Asking a model takes long, so each answer is stored before the next: a sweep may stop in between.
                    yield Page(list(found.values()), 0, _INDUCING + seed.memory.id)
                    found.clear()
            yield Page(list(found.values()), len(records), _INDUCING + after)
            if not view.dry_run:
                self._made.clear()
                self._evidence.clear()

    def _recent(self, record: Record) -> bool:
        memory = self._view.seen(record.memory)
        return memory is not None and memory.created_at >= self._since and _tells(record, memory)

    async def _consider(self, seed: Record, near: Sequence[Neighbour], found: dict[str, Found]) -> None:
        """Add the episode to what says the same already, or see whether it recurs."""
        alike = [seed, *(one.record for one in near if _same(seed, one.record, one.cosine))]
        if len(alike) == 1:
            return
        owners = await self._owners(record.memory.id for record in alike[1:])
        for owner in {owner.memory.id: owner for owner in owners.values()}.values():
            if _same(seed, owner, _cosine(seed, owner)):
                if owner.memory.status == "active":
                    self._extend(owner, seed, found)
                # Whatever was decided about it before holds for what says the same.
                return
        group = [record for record in alike if record.memory.id not in owners]
        if enough([record.memory for record in group]):
            await self._induce(group, found)

    def _extend(self, owner: Record, seed: Record, found: dict[str, Found]) -> None:
        memory, episode = owner.memory, seed.memory
        fields: dict[str, object] = {
            "derived_from": (*memory.derived_from, episode.id)[-EVIDENCE_AT_MOST:],
            "observed_at": max(filter(None, (memory.observed_at, episode.observed_at)), default=None),
        }
        after = replace(memory, **fields)
        known = found.get(memory.id)
        if known is not None and known.verdict.action == "induced":
            found[memory.id] = replace(known, memory=after)
        else:
            before = memory if known is None else known.memory
            reason = f"Seen again on {day_of(episode)}."
            found[memory.id] = Found(memory=before, verdict=Verdict(action="updated", reason=reason, fields=fields))
        self._note(replace(owner, memory=after))

    async def _induce(self, group: list[Record], found: dict[str, Found]) -> None:
        view = self._view
        voice = voice_of(group)
        memory = induced(view.namespace, voice, [record.memory for record in group], view.now)
        known = await view.store.get(view.namespace, [memory.id])
        if known and (known[0].memory.status != "archived" or known[0].memory.derived_from):
            return
        # It was erased once, whichever of these had given it its words.
        ids = [induced_id(view.namespace, record.memory) for record in group]
        if await view.store.erased(view.namespace, ids):
            return
        if known:
            memory = replace(memory, version=known[0].memory.version)
        record = voiced(memory, voice)
        if await self._said_or_banned(record):
            return
        worded: Record | None = None
        if view.wording is not None and not view.dry_run:
            worded = await view.wording.of(record, group)
        if worded is not None:
            # Whatever a model makes of them must mean what they mean, and nothing that must not be said.
            means_it = _same(worded, voice, _cosine(worded, voice))
            if means_it and not await self._said_or_banned(worded):
                record, memory = worded, worded.memory
            else:
                worded = None
        days = len({day_of(one.memory) for one in group})
        by = "" if worded is None or view.wording is None else f", in words of {view.wording.name}"
        verdict = Verdict(action="induced", reason=f"Induced from {len(group)} episodes on {days} days{by}.")
        found[memory.id] = Found(memory=memory, verdict=verdict, voice=voice.memory.id, record=worded)
        self._note(record)

    async def _said_or_banned(self, new: Record) -> bool:
        """Whether it is known already, contradicts what is known, or must not be mentioned."""
        for statuses in (("suppressed",), LIVE):
            (near,) = await self._near([new], "semantic" if statuses == LIVE else None, statuses)
            outcome = reconcile(new.memory, new.bare, near, embedding_model=new.memory.embedding_model)
            if outcome.decision not in {"add", "coexist"}:
                return True
        return False

    def _note(self, record: Record) -> None:
        self._made[record.memory.id] = record
        self._evidence.update(dict.fromkeys(record.memory.derived_from, record.memory.id))

    async def _owners(self, ids: Iterable[str]) -> dict[str, Record]:
        """What was induced from which of these memories, the oldest of several."""
        wanted = list(ids)
        found: dict[str, Record] = {}
        after: str | None = None
        where = Where(derived_from=tuple(wanted), memory_types=("semantic",))
        while records := await self._view.store.scan(self._view.namespace, where, after=after, limit=_PAGE):
            after = records[-1].memory.id
            for record in records:
                memory = self._view.seen(record.memory)
                if memory is not None and record.bare is not None:
                    owner = self._made.get(memory.id) or replace(record, memory=memory)
                    for origin in owner.memory.derived_from:
                        found.setdefault(origin, owner)
        for memory_id in wanted:
            if memory_id in self._evidence:
                found[memory_id] = self._made[self._evidence[memory_id]]
        return {memory_id: found[memory_id] for memory_id in wanted if memory_id in found}

    async def _near(
        self, records: Sequence[Record], memory_type: str | None, statuses: tuple[str, ...] = ("active",)
    ) -> list[list[Neighbour]]:
        """The nearest of each, of the same user and readers, as this run has left them."""
        view = self._view
        answers: dict[str, list[Neighbour]] = {}
        whose: dict[tuple[str | None, str | None], list[Record]] = {}
        for record in records:
            whose.setdefault((record.memory.user_id, _reader(record.memory)), []).append(record)
        for (user, reader), some in whose.items():
            where = Where(
                user_id=user,
                no_user=user is None,
                reader=reader,
                statuses=statuses,  # type: ignore[arg-type]
                memory_types=None if memory_type is None else (memory_type,),  # type: ignore[arg-type]
                alive_at=None if statuses == ("suppressed",) else millis(view.now),
            )
            # What a dry run has left out would not be there in a real one.
            limit = _NEIGHBOURS + len(view.left)
            vectors = np.stack([record.bare for record in some if record.bare is not None])
            for record, near in zip(
                some, await view.store.neighbours(view.namespace, vectors, where, limit), strict=True
            ):
                answers[record.memory.id] = self._standing(record, near, memory_type, statuses)
        return [answers[record.memory.id] for record in records]

    def _standing(
        self, record: Record, near: Sequence[Neighbour], memory_type: str | None, statuses: tuple[str, ...]
    ) -> list[Neighbour]:
        found: dict[str, Neighbour] = {}
        for one in near:
            memory = self._view.seen(one.record.memory)
            if memory is None or memory.status not in statuses or memory.id == record.memory.id:
                continue
            if memory_type == "episodic" and not _tells(one.record, memory):
                continue
            if _reader(memory) == _reader(record.memory):
                found[memory.id] = replace(one, record=replace(one.record, memory=memory))
        if memory_type == "semantic":
            for owner in self._made.values():
                if owner.memory.user_id == record.memory.user_id and _reader(owner.memory) == _reader(record.memory):
                    found[owner.memory.id] = Neighbour(record=owner, cosine=_cosine(record, owner))
        nearest = sorted(found.values(), key=lambda one: (-one.cosine, one.record.memory.id))
        return nearest[:_NEIGHBOURS]


def _reader(memory: Memory) -> str | None:
    """Who alone sees it, None for everybody."""
    return memory.agent_id if memory.visibility == "private" else None


def _tells(record: Record, memory: Memory) -> bool:
    """Whether it tells something that happened, and nothing of the kind that is only supposed."""
    told = memory.status == "active" and memory.memory_type == "episodic"
    return told and memory.kind != "speculation" and record.bare is not None


def _cosine(one: Record, other: Record) -> float:
    return 0.0 if one.bare is None or other.bare is None else float(one.bare @ other.bare)


def _same(one: Record, other: Record, cosine: float) -> bool:
    """Whether two memories mean the same, in whichever order they were said; an agent echoes what others said."""
    if cosine < NEAR_AT or (one.memory.source == "agent") != (other.memory.source == "agent"):
        return False
    for new, old in ((one, other), (other, one)):
        odds = decide_pair(
            new.memory,
            old.memory,
            cosine=cosine,
            new_vector=new.bare,
            old_vector=old.bare,
            embedding_model=new.memory.embedding_model,
        ).probabilities
        if odds["duplicate"] + odds["refine"] >= SAME_AT:
            return True
    return False
