"""What every test may ask for: a store, opened as often as a test needs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from hindsight_core.stores import MemoryStore, open_store
from opensearch_place import OpenSearchPlace
from samples import OpenStore

pytest_plugins = ["conftest_services", "conftest_core"]


@pytest.fixture(scope="session")
def opensearch_place(opensearch_url: str) -> Generator[OpenSearchPlace]:
    """A prefix of this run with its indices made: making them takes seconds, emptying them does not."""
    with OpenSearchPlace(opensearch_url) as place:
        asyncio.run(place.make())
        yield place


@pytest.fixture(params=["sqlite", "opensearch"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place for memories; one parameter a store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'hindsight.db'}"
    place: OpenSearchPlace = request.getfixturevalue("opensearch_place")
    place.empty()
    return place.store_url


# How many examples a property test may take, by what a call to the store costs.
_EXAMPLES = {"sqlite": 40, "opensearch": 4}


@pytest.fixture
def examples(store_url: str) -> int:
    """How many examples a property test over this store may take."""
    return _EXAMPLES[store_url.partition("://")[0]]


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
    parser.addoption("--slots", type=int, default=4, help="slots that the test of three schedulers waits for")
    parser.addoption("--kills", type=int, default=100, help="processes killed by the test of durability")
