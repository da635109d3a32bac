"""Vectors in the cache: made once, shared, erased with their memories; and the service while Redis is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from uuid import uuid4

import msgspec
import numpy as np
import pytest
from redis.asyncio import Redis

from hindsight_core.cache import Cache, open_cache
from hindsight_core.cache.vectors import VectorCache
from hindsight_core.config import Settings
from hindsight_core.embedding import Embedder, Role
from hindsight_core.embedding.cached import CachedEmbedder
from hindsight_core.errors import OutcomeUnknown, ProviderUnavailable, StoreUnavailable
from hindsight_core.requests import ForgetRequest, SearchRequest, UpdateRequest, WriteRequest
from hindsight_core.service import MemoryService
from hindsight_core.stores import ChangeSet, Log, open_store
from hindsight_core.stores.sqlite import SqliteStore
from serving import serving

HOUR = 3600.0
_REMEDY = "Wait."


class Counted:
    """The real embedder, and what it was asked for; it can be held up, and be down."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.asked: list[str] = []
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.down = False

    @property
    def identity(self):
        return self._embedder.identity

    @property
    def calibration(self):
        return self._embedder.calibration

    async def embed(self, texts: Sequence[str], role: Role):
        self.asked += texts
        await self.may_go_on.wait()
        if self.down:
            raise ProviderUnavailable("It is down.", remedy=_REMEDY)
        return await self._embedder.embed(texts, role)

    async def aclose(self) -> None:
        return


@pytest.fixture
def counted(embedder: Embedder) -> Counted:
    return Counted(embedder)


@pytest.fixture(params=["local", "redis"])
async def cache(request: pytest.FixtureRequest) -> AsyncGenerator[Cache]:
    cache = open_cache(request.getfixturevalue("redis_url") if request.param == "redis" else "", timeout=10.0)
    yield cache
    await cache.aclose()


@pytest.fixture
def text() -> str:
    """A text that no other test has embedded, and that looks like no secret."""
    return f"The lamp is called {''.join(chr(97 + int(digit, 16)) for digit in uuid4().hex)}"


def cached(counted: Counted, cache: Cache) -> CachedEmbedder:
    return CachedEmbedder(counted, VectorCache(cache, ttl=HOUR))


async def test_a_text_is_embedded_once_and_its_vector_stays_the_same_to_the_bit(counted, cache, text, embedder):
    vectors = VectorCache(cache, ttl=HOUR)
    one, other = CachedEmbedder(counted, vectors), CachedEmbedder(counted, vectors)
    first = await one.embed([text, "又一句话", text], "passage")
    again = await other.embed(["又一句话", text], "passage")
    assert counted.asked.count(text) == 1
    np.testing.assert_array_equal(first[[1, 0]], again)
    np.testing.assert_allclose(first, await embedder.embed([text, "又一句话", text], "passage"), atol=1e-6)
    assert vectors.hits == 2
    assert vectors.misses == 2


async def test_texts_that_the_model_reads_as_the_same_are_one(counted, cache, text):
    await cached(counted, cache).embed([text], "passage")
    await cached(counted, cache).embed([f" {text}\x00\n"], "passage")
    assert counted.asked == [text]


async def test_roles_and_models_have_vectors_of_their_own(counted, cache, text, embedder):
    await cached(counted, cache).embed([text], "passage")
    await cached(counted, cache).embed([text], "query")
    assert counted.asked == [text, text]
    vectors, identity = VectorCache(cache, ttl=HOUR), embedder.identity
    for changed in ({"model": "x"}, {"revision": "x"}, {"dimension": 7}, {"calibration": "x"}):
        name = msgspec.structs.replace(identity, **changed).name
        assert await vectors.get(name, identity.dimension, "passage", [text]) == {}


async def test_nothing_in_a_text_is_the_first_axis_here_too(counted, cache):
    found = await cached(counted, cache).embed(["", " \x00"], "query")
    assert found[:, 0].tolist() == [1.0, 1.0]
    assert (await cached(counted, cache).embed([], "query")).shape == (0, counted.identity.dimension)


async def test_a_call_may_be_answered_while_who_shares_it_looks_other_texts_up(counted, text):
    looked_up, other = asyncio.Event(), f"{text}, too"

    class Waiting(VectorCache):
        async def get(self, identity, dimension, role, texts):
            if other in texts:
                await looked_up.wait()
            return await super().get(identity, dimension, role, texts)

    embedder = CachedEmbedder(counted, Waiting(open_cache(), ttl=HOUR))
    counted.may_go_on.clear()
    first = asyncio.create_task(embedder.embed([text], "passage"))
    while not counted.asked:  # noqa: ASYNC110 (nothing tells of it)
        await asyncio.sleep(0)
    second = asyncio.create_task(embedder.embed([text, other], "passage"))
    await asyncio.sleep(0)
    counted.may_go_on.set()
    (alone,) = await first
    looked_up.set()
    np.testing.assert_array_equal((await second)[0], alone)
    assert counted.asked == [text, other]


async def test_who_asks_at_the_same_time_shares_one_call(counted, text):
    embedder = cached(counted, open_cache())
    counted.may_go_on.clear()
    asking = [asyncio.create_task(embedder.embed([text, f"{text} {i}"], "passage")) for i in range(3)]
    await asyncio.sleep(0)
    asking[0].cancel()
    await asyncio.sleep(0)
    counted.may_go_on.set()
    _, second, third = await asyncio.gather(*asking, return_exceptions=True)
    np.testing.assert_array_equal(second[0], third[0])
    assert counted.asked.count(text) == 1
    assert embedder._flights == {}


async def test_a_failure_reaches_all_who_wait_and_is_not_kept(counted, cache, text):
    embedder = cached(counted, cache)
    counted.down = True
    found = await asyncio.gather(*(embedder.embed([text], "query") for _ in range(2)), return_exceptions=True)
    assert [type(one) for one in found] == [ProviderUnavailable, ProviderUnavailable]
    counted.down = False
    assert (await embedder.embed([text], "query")).shape == (1, 384)


@pytest.mark.parametrize(
    "garbage",
    [b"", b"x", bytes(4 * 384), b"\xff" * 4 * 384, np.full(384, 0.5, "<f4").tobytes(), np.ones(1, "<f4").tobytes()],
)
async def test_what_is_no_unit_vector_of_the_dimension_is_a_miss(counted, redis_url, text, garbage):
    cache = open_cache(redis_url, timeout=10.0)
    right = await cached(counted, cache).embed([text], "passage")
    async with Redis.from_url(redis_url) as client:
        for key in await client.keys("hindsight:value:vector:*"):
            await client.set(key, garbage)
    np.testing.assert_array_equal(await cached(counted, cache).embed([text], "passage"), right)
    assert counted.asked == [text, text]
    await cache.aclose()


async def test_an_erased_text_leaves_no_vector_in_either_role(counted, cache, text):
    vectors = VectorCache(cache, ttl=HOUR)
    embedder = CachedEmbedder(counted, vectors)
    for role in ("query", "passage"):
        await embedder.embed([text, "bystander"], role)
    assert await vectors.erase({counted.identity.name}, {text})
    for role in ("query", "passage"):
        assert set(await vectors.get(counted.identity.name, 384, role, [text, "bystander"])) == {"bystander"}


# The service


@pytest.fixture
async def served(redis_url: str, embedder: Embedder, settings: Settings) -> AsyncGenerator[MemoryService]:
    """A service with a Redis, which a test may stop; it asks it again with every call."""
    settings = msgspec.structs.replace(settings, redis=redis_url)
    cache = open_cache(redis_url, timeout=10.0)
    cache._clock = _Leaping()  # type: ignore[attr-defined]
    service = MemoryService(open_store(settings.store), Counted(embedder), settings, cache)
    await service.start()
    yield service
    await service.aclose()


class _Leaping:
    """A clock on which so much time passes between two looks that a failure is always long ago."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        self._now += 2.0
        return self._now


async def keep(service: MemoryService, caller, content: str, **fields: object) -> str:
    request = WriteRequest(content=content, force=True, reconcile="none", **fields)
    (decision,) = (await service.write(request, caller)).results
    return decision.memory_id


async def kept(service: MemoryService, *texts: str) -> set[str]:
    """Which of the texts have a vector in the cache, in whatever role."""
    identity = service._embedder.identity
    found = [await service.vectors.get(identity.name, identity.dimension, role, texts) for role in ("query", "passage")]
    return {text for texts in found for text in texts}


async def test_writing_updating_and_asking_use_the_cache(served, caller, text):
    memory_id = await keep(served, caller, text)
    newer = f"{text}, as of today"
    await served.update(memory_id, UpdateRequest(content=newer, reason="moved"), caller)
    await served.search(SearchRequest(query=text), caller)
    await served.search(SearchRequest(query=text), caller)
    assert served._embedder.asked.count(text) == 2  # once as a passage, once as a question
    assert await kept(served, text, newer) == {text, newer}


async def test_erasing_removes_the_vectors_of_everything_a_memory_ever_said(served, caller, text):
    first, second = f"{text} at first", f"{text} by now"
    memory_id = await keep(served, caller, first)
    await served.update(memory_id, UpdateRequest(content=second, reason="moved"), caller)
    await keep(served, caller, f"{text} of a neighbour")
    answer = await served.forget(ForgetRequest(ids=(memory_id,), mode="erase", dry_run=True), caller)
    assert await kept(served, first, second) == {first, second}
    answer = await served.forget(ForgetRequest(ids=(memory_id,), mode="erase"), caller)
    assert answer.degraded is None
    assert await kept(served, first, second, f"{text} of a neighbour") == {f"{text} of a neighbour"}


async def test_erasing_removes_the_vector_of_the_turn_before_another_memory(served, caller, text):
    messages = [{"role": "user", "text": text}, {"role": "user", "text": f"And {text} is the one of the shed"}]
    request = msgspec.convert({"messages": messages, "extract": "none", "force": True}, WriteRequest)
    first, second = [found.memory for found in (await served.write(request, caller)).results]
    assert second.context is not None
    await served.forget(ForgetRequest(ids=(first.id,), mode="erase"), caller)
    assert await kept(served, text, second.context) == set()
    assert await kept(served, second.content) == {second.content}


class GoneAfterErasing(SqliteStore):
    """A store whose log cannot be read any more once something was erased."""

    gone = False

    async def commit(
        self, namespace: str, changes: ChangeSet, *, expected: int | None = None, searchable: bool = True
    ) -> int:
        done = await super().commit(namespace, changes, expected=expected, searchable=searchable)
        self.gone = self.gone or bool(changes.erases)
        return done

    async def read(self, namespace: str, log: Log, **which: object):
        if self.gone and log == "retrievals":
            raise StoreUnavailable("It is gone.", remedy=_REMEDY)
        return await super().read(namespace, log, **which)  # type: ignore[arg-type]


async def test_what_was_erased_is_cached_nowhere_though_the_store_fails_just_after(
    embedder: Embedder, settings: Settings, tmp_path, caller, text
):
    service = MemoryService(GoneAfterErasing(str(tmp_path / "h.db")), Counted(embedder), settings)
    await service.start()
    memory_id = await keep(service, caller, text)
    await service.search(SearchRequest(query=text), caller)
    assert await kept(service, text) == {text}
    with pytest.raises(OutcomeUnknown):
        await service.forget(ForgetRequest(ids=(memory_id,), mode="erase"), caller)
    assert await kept(service, text) == set()
    await service.aclose()


async def test_without_redis_the_service_goes_on_says_so_and_recovers(served, caller, text, redis_server):
    memory_id = await keep(served, caller, text)
    redis_server.kill()
    written = await served.write(WriteRequest(content=f"{text} too", force=True), caller)
    assert written.results[0].memory_id
    found = await served.search(SearchRequest(query=text), caller)
    assert memory_id in {hit.memory.id for hit in found.hits}
    for answer in (written, found):
        assert "Redis at 127.0.0.1" in (answer.degraded or "")
    redis_server.start()
    assert (await served.search(SearchRequest(query=text), caller)).degraded is None


async def test_an_erasure_without_redis_says_what_is_left_and_makes_it_good(served, caller, text, redis_server):
    memory_id = await keep(served, caller, text)
    async with Redis.from_url(redis_server.url) as client:
        held = {key: await client.get(key) for key in await client.keys("hindsight:value:vector:*")}
    redis_server.kill()
    answer = await served.forget(ForgetRequest(ids=(memory_id,), mode="erase"), caller)
    assert answer.count == 1
    assert "vectors of erased texts may stay" in (answer.degraded or "")
    redis_server.start()
    async with Redis.from_url(redis_server.url) as client:
        await client.mset(held)  # as after a broken network: what was there is there still
    await served.search(SearchRequest(query="anything"), caller)
    assert await kept(served, text) == set()


async def test_ready_and_metrics_tell_of_the_cache(served, caller, text, redis_server, settings):
    await served.search(SearchRequest(query=text), caller)
    await served.search(SearchRequest(query=text), caller)
    async with serving(served, settings) as client:
        metrics = (await client.get("/metrics")).text
        assert 'hindsight_vectors_total{found="yes"} 1.0' in metrics
        assert 'hindsight_vectors_total{found="no"} 1.0' in metrics

        async def component():
            answer = await client.get("/ready")
            assert answer.status_code == 200
            (found,) = [one for one in answer.json()["components"] if one["name"] == "cache"]
            return found

        assert (await component())["status"] == "ok"
        redis_server.kill()
        found = await component()
        assert found["status"] == "degraded"
        assert "HINDSIGHT_REDIS" in found["remedy"]
        redis_server.start()
        assert (await component())["status"] == "ok"
