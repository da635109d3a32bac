"""What episodes that recur add up to: one semantic memory, in the words of the one that speaks best for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import numpy as np

from hindsight_core.ids import stable_id
from hindsight_core.indexing import index_fields
from hindsight_core.models import Kind, Memory
from hindsight_core.slots import language_of
from hindsight_core.stores import Record
from hindsight_core.temporal import find_ranges


def voice_of(group: Sequence[Record]) -> Record:
    """The episode that speaks for all: of their language, naming no time of its own, and in their middle."""
    languages = Counter(language_of(record.memory.content) for record in group)
    common = languages.most_common(1)[0][0]
    middle = np.sum([record.bare for record in group if record.bare is not None], axis=0)

    def rank(record: Record) -> tuple[bool, bool, float, str]:
        memory = record.memory
        dated = bool(find_ranges(memory.content, memory.observed_at or memory.created_at))
        closeness = 0.0 if record.bare is None else float(record.bare @ middle)
        return language_of(memory.content) == common, not dated, round(closeness, 4), memory.id

    return max(group, key=rank)


def induced_id(namespace: str, voice: Memory) -> str:
    return stable_id(namespace, "induced", voice.id)


def induced(namespace: str, voice: Record, group: Sequence[Memory], now: datetime) -> Memory:
    """The memory that these episodes add up to, in the words of one of them; no surer than they are."""
    memory = voice.memory
    kinds: Counter[Kind] = Counter(one.kind for one in group)
    kind = kinds.most_common(1)[0][0]
    agents = {one.agent_id for one in group}
    return Memory(
        id=induced_id(namespace, memory),
        namespace=namespace,
        user_id=memory.user_id,
        agent_id=memory.agent_id if len(agents) == 1 else None,
        visibility=memory.visibility,
        memory_type="semantic",
        kind="fact" if kind == "event" else kind,
        content=memory.content,
        summary=memory.summary,
        speaker=memory.speaker,
        source=memory.source,
        confidence=round(sum(one.confidence for one in group) / len(group), 4),
        observed_at=max((one.observed_at for one in group if one.observed_at is not None), default=None),
        precision="day",
        valid_from=max(one.valid_from for one in group),
        created_at=now,
        updated_at=now,
        status_reason=f"Induced from {len(group)} episodes.",
        derived_from=tuple(sorted(one.id for one in group)),
        tags=tuple(tag for tag in memory.tags if all(tag in one.tags for one in group)),
        embedding_model=memory.embedding_model,
    )


def voiced(memory: Memory, voice: Record) -> Record:
    """The memory with the vectors of the episode whose words it has."""
    mixed = voice.mixed if voice.memory.context is None else voice.bare
    return Record(memory=memory, index=index_fields(memory), bare=voice.bare, mixed=mixed)
