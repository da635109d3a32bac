"""The vectors that searches use: what the turns before a memory add to its own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from hindsight_core.caller import Caller
from hindsight_core.indexing import mix, second_turn
from hindsight_core.requests import Message, UpdateRequest, WriteRequest
from hindsight_core.service import MemoryService
from hindsight_core.stores import MemoryStore
from samples import unit

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
DIMENSION = 384


@pytest.mark.parametrize("summarised", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_the_turn_before_the_last_is_read_out_of_a_mix_and_none_where_there_was_none(
    seed: int, summarised: bool
) -> None:
    bare, previous, before, whole = (unit(10 * seed + n, DIMENSION) for n in range(4))
    text = whole if summarised else None
    stored = mix(bare, [previous, before], text).astype(np.float16).astype(np.float32)
    found = second_turn(stored, bare, previous, text)
    assert found is not None
    assert float(found @ before) > 0.999
    alone = mix(bare, [previous], text).astype(np.float16).astype(np.float32)
    assert second_turn(alone, bare, previous, text) is None
    assert second_turn(unit(seed + 99, DIMENSION), bare, previous, text) is None


TURNS = {
    "en": ("Any plans for the garden?", "My uncle wants a pond.", "I ordered two tons of gravel.", "I sold the boat."),
    "zh": ("花园有什么打算？", "我叔叔想要一个池塘。", "我订了两吨碎石。", "我把船卖掉了。"),
}


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_an_edited_memory_stands_where_it_would_had_it_been_said_so(
    service: MemoryService, store: MemoryStore, caller: Caller, language: str
) -> None:
    first, second, third, edited = TURNS[language]

    async def told(session: str, *texts: str) -> str:
        messages = tuple(Message(role="user", text=text, at=NOW + timedelta(minutes=n)) for n, text in enumerate(texts))
        request = WriteRequest(
            messages=messages, session_id=session, now=NOW, extract="none", reconcile="none", force=True
        )
        memory_id = (await service.write(request, caller)).results[-1].memory_id
        assert memory_id is not None
        return memory_id

    ids = [await told("a", first, second, third), await told("b", first, second, edited)]
    await service.update(ids[0], UpdateRequest(content=edited, reason="it was the boat", now=NOW), caller)
    changed, same = await store.get(caller.namespace, ids)
    assert changed.mixed is not None
    assert same.mixed is not None
    assert float(changed.mixed @ same.mixed) > 0.9999
    assert changed.memory.content == same.memory.content == edited
