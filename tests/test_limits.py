"""Who calls too often is told when to come back: each token, each namespace, over HTTP and MCP, in every process."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import msgspec
import pytest

from hindsight_core.access import Principal
from hindsight_core.cache import open_cache
from hindsight_core.cache.local import LocalCache
from hindsight_core.client import AsyncHindsight
from hindsight_core.config import Settings
from hindsight_core.embedding import Embedder
from hindsight_core.errors import TooManyRequests
from hindsight_core.limits import Limits
from hindsight_core.requests import Request
from hindsight_core.service import MemoryService
from hindsight_core.stores import MemoryStore
from hindsight_functions.gateway import gateway
from mcp_clients import Wire
from serving import URL, running
from tokens import bearer, token_for


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'hindsight.db'}"


@pytest.fixture
async def service(store: MemoryStore, embedder: Embedder, settings: Settings) -> AsyncGenerator[MemoryService]:
    """A service whose limits are counted by a clock that stands still."""
    service = MemoryService(store, embedder, settings, LocalCache(clock=lambda: 0.0))
    yield service
    await service.flush()


@pytest.fixture
async def http(service: MemoryService, settings: Settings) -> AsyncGenerator[httpx.AsyncClient]:
    limited = msgspec.structs.replace(settings, rate_limit=4, token_rate_limit=3)
    async with running(gateway(limited, service)) as client:
        yield client


async def statuses(http: httpx.AsyncClient, times: int, **headers: str) -> list[int]:
    return [(await http.get("/v1/stats", headers=headers)).status_code for _ in range(times)]


async def test_a_namespace_over_its_limit_is_429_with_the_time_to_wait_and_others_are_not(http: httpx.AsyncClient):
    assert await statuses(http, 5) == [200] * 4 + [429]
    answer = await http.get("/v1/stats")
    assert answer.json()["code"] == "too_many_requests"
    assert answer.headers["Retry-After"] == "15"
    assert f"{answer.headers['Retry-After']} s" in answer.json()["remedy"]
    assert await statuses(http, 1, **{"Hindsight-Namespace": "other"}) == [200]
    assert (await http.get("/health")).status_code == 200


async def test_a_token_has_a_limit_of_its_own_across_namespaces(http: httpx.AsyncClient, service: MemoryService):
    plain, slow = await token_for(service.tokens, "*"), await token_for(service.tokens, "*", rate=1)
    for token, allowed in ((plain, 3), (slow, 1)):
        spread = [{**bearer(token), "Hindsight-Namespace": f"{token[4:10]}-{n}"} for n in range(allowed + 1)]
        found = [(await http.get("/v1/stats", headers=headers)).status_code for headers in spread]
        assert found == [200] * allowed + [429]


async def test_what_is_refused_is_not_counted_against_the_namespace(http: httpx.AsyncClient, service: MemoryService):
    reader = await token_for(service.tokens, "*", verbs=("read",))
    for _ in range(9):
        assert (await http.post("/v1/forget", json={"ids": ["a"]}, headers=bearer(reader))).status_code == 403
    assert await statuses(http, 2, **bearer(reader)) == [200, 200]


async def test_a_batch_counts_once_in_each_namespace_it_names(http: httpx.AsyncClient):
    items = [{"content": f"Shelf {n} is full.", "force": True, "namespace": name} for n in range(3) for name in "ab"]
    assert (await http.post("/v1/memories/batch", json={"items": items})).status_code == 200
    for name in "ab":
        assert await statuses(http, 4, **{"Hindsight-Namespace": name}) == [200] * 3 + [429]


async def test_an_agent_over_its_limit_is_told_in_words(http: httpx.AsyncClient):
    wire = Wire(http)
    for _ in range(4):
        await wire.call("memory_list")
    words = await wire.fail("memory_list")
    assert "Try again in" in words
    error = (await wire.send("resources/read", {"uri": "hindsight://memories"}))["error"]
    assert error["data"] == {"code": "too_many_requests"}
    assert "Try again in" in error["message"]


async def test_a_tool_of_several_steps_is_one_call(http: httpx.AsyncClient):
    wire = Wire(http)
    written = await wire.call("memory_write", content="The shelf is full.", force=True)
    await wire.call("memory_forget", memory_id=written["memory_id"])
    assert await statuses(http, 3) == [200, 200, 429]


async def test_the_client_says_when_to_come_back(http: httpx.AsyncClient):
    await statuses(http, 4)
    async with AsyncHindsight(URL, transport=http._transport) as client:
        client._wait = lambda *_: None  # type: ignore[method-assign]  # else it waits by itself
        with pytest.raises(TooManyRequests) as limited:
            await client.stats(Request())
    assert limited.value.retry_after >= 1


async def test_processes_share_a_limit_through_redis(redis_url: str, settings: Settings):
    limited = msgspec.structs.replace(settings, rate_limit=4)
    async with AsyncExitStack() as stack:
        processes: list[Limits] = []
        for _ in range(2):
            cache = open_cache(redis_url)
            await cache.start()
            stack.push_async_callback(cache.aclose)
            processes.append(Limits(cache, limited))
        caller, namespace = Principal(actor="local"), "shared-limit"
        for n in range(4):
            await processes[n % 2].count(caller, namespace)
        for process in processes:
            with pytest.raises(TooManyRequests):
                await process.count(caller, namespace)
            await process.count(caller, "another-namespace")


async def test_without_limits_nothing_is_counted(settings: Settings):
    limits = Limits(open_cache(), settings)
    for _ in range(100):
        await limits.count(Principal(actor="token:t", token="t"), "default")
