"""What a write does to others on its event loop, and what becomes of what fails within it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hindsight_core import writing
from hindsight_core.caller import Caller
from hindsight_core.config import Settings
from hindsight_core.embedding import Embedder, Role
from hindsight_core.errors import ProviderUnavailable
from hindsight_core.requests import Message, WriteRequest
from hindsight_core.service import MemoryService
from hindsight_core.stores import open_store


@pytest.fixture
async def local(embedder: Embedder, settings: Settings, tmp_path: Path) -> AsyncGenerator[MemoryService]:
    """A service with a store of its own in a file."""
    store = open_store(str(tmp_path / "own.db"))
    await store.prepare(embedder.identity.name)
    yield MemoryService(store, embedder, settings)
    await store.aclose()


async def test_others_have_their_turn_while_many_candidates_are_weighed(
    local: MemoryService, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = 0
    seen: dict[str, list[int]] = {"weigh": [], "judge": []}

    def noting(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*given: Any, **named: Any) -> Any:
            seen[name].append(turns)
            return work(*given, **named)

        return noted

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    for name in seen:
        monkeypatch.setattr(writing, name, noting(name, getattr(writing, name)))
    busy = asyncio.create_task(others())
    messages = tuple(Message(role="user", text=f"My locker at the pool has the number {n}.") for n in range(40))
    await local.write(WriteRequest(messages=messages, extract="none", reconcile="none"), caller)
    busy.cancel()
    for name, at in seen.items():
        assert len(at) >= 40, name
        assert max(at.count(turn) for turn in at) <= 8, name


async def test_nothing_of_a_write_goes_on_once_its_embedding_has_failed(
    local: MemoryService, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def down(_self: object, _texts: Sequence[str], _role: Role) -> NDArray[np.float32]:
        await asyncio.sleep(0)
        raise ProviderUnavailable("down", remedy="wait")

    monkeypatch.setattr("hindsight_core.embedding.cached.CachedEmbedder.embed", down)
    before = asyncio.all_tasks()
    with pytest.raises(ProviderUnavailable):
        await local.write(WriteRequest(content="My locker at the pool has the number 4."), caller)
    assert asyncio.all_tasks() == before
