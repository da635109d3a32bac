"""What every test may ask for: a store, opened as often as a test needs it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from hindsight_core.stores import MemoryStore, open_store
from samples import OpenStore

pytest_plugins = ["conftest_services", "conftest_core"]


@pytest.fixture(params=["sqlite"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place for memories; one parameter a store."""
    return f"sqlite:///{tmp_path / 'hindsight.db'}"


@pytest.fixture
async def opened(store_url: str) -> AsyncGenerator[OpenStore]:
    """Opens the same place once more, as another process would; all are closed after the test."""
    async with AsyncExitStack() as stack:

        async def open_it() -> MemoryStore:
            store = open_store(store_url)
            stack.push_async_callback(store.aclose)
            await store.prepare("model-a")
            return store

        yield open_it


@pytest.fixture
async def store(opened: OpenStore) -> MemoryStore:
    return await opened()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=100, help="processes killed by the test of durability")
