"""The cache's contract, over every adapter; and what the one in Redis does while Redis fails."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import re
import socket
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from localstack.redis_server import redis as redis_service
from localstack.service import ServiceProcess, free_port
from redis.asyncio import Redis

from hindsight_core.cache import Cache, Rate, open_cache, rates
from hindsight_core.cache.local import LocalCache
from hindsight_core.cache.redis import RedisCache, parse
from hindsight_core.errors import ConfigurationError

ROOT = Path(__file__).parent.parent
HOUR = 3600.0
SLOW = Rate(burst=3, per_second=1 / HOUR)


@pytest.fixture(params=["local", "redis", "embedded"])
async def cache(request: pytest.FixtureRequest) -> AsyncGenerator[Cache]:
    match request.param:
        case "redis":
            cache = open_cache(request.getfixturevalue("redis_url"), timeout=10.0)
        case "embedded":
            cache = open_cache("embedded", timeout=10.0)
        case _:
            cache = open_cache()
    await cache.start()
    yield cache
    await cache.aclose()


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"名 {uuid4()}"


@pytest.fixture
async def redis(redis_url: str) -> AsyncGenerator[Redis]:
    """A client of the test's own, to look at what lies there and to spoil it."""
    async with Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
async def fragile(redis_server: ServiceProcess) -> AsyncGenerator[RedisCache]:
    """A cache whose Redis the test may stop; it asks again with every call."""
    cache = RedisCache(parse(redis_server.url), timeout=10.0, clock=asks_at_once())
    await cache.start()
    yield cache
    await cache.aclose()


class asks_at_once:  # noqa: N801 (reads as what it does)
    """A clock on which so much time passes between two looks that a failure is always long ago."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        self._now += 2.0
        return self._now


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Waits for what only passing time brings about."""
    async with asyncio.timeout(10):
        while not await holds():  # noqa: ASYNC110 (nothing tells of it)
            await asyncio.sleep(0.001)


# Values


async def test_values_come_back_in_the_order_asked_for(cache, name):
    await cache.put({f"{name}/a": b"1", f"{name}/b": bytes(range(256))}, HOUR)
    assert await cache.get([f"{name}/b", f"{name}/none", f"{name}/a"]) == [bytes(range(256)), None, b"1"]
    assert await cache.get([]) == []


async def test_the_last_value_counts(cache, name):
    await cache.put({name: b"first"}, HOUR)
    await cache.put({name: b"second"}, HOUR)
    assert await cache.get([name]) == [b"second"]


async def test_a_value_of_a_later_version_stays_and_one_of_the_same_gives_way(cache, name):
    for version in (2, 10, 9):
        await cache.advance(name, version, b"%d\x00:" % version, HOUR)
    assert await cache.get([name]) == [b"10:10\x00:"]
    await cache.advance(name, 10, b"", HOUR)
    assert await cache.get([name]) == [b"10:"]
    assert await cache.delete([name])
    await cache.advance(name, 1, b"x", HOUR)
    assert await cache.get([name]) == [b"1:x"]


@pytest.mark.parametrize("garbage", [b"", b"x", b":9", b" 9:x", b"-9:x", b"9.5:x"])
async def test_what_has_no_version_gives_way(cache, name, garbage):
    await cache.put({name: garbage}, HOUR)
    await cache.advance(name, 1, b"x", HOUR)
    assert await cache.get([name]) == [b"1:x"]


async def test_a_deleted_value_is_gone(cache, name):
    await cache.put({name: b"x", f"{name}/other": b"y"}, HOUR)
    assert await cache.delete([name, f"{name}/never"]) is True
    assert await cache.delete([]) is True
    assert await cache.get([name, f"{name}/other"]) == [None, b"y"]


async def test_a_value_lapses(cache, name):
    await cache.put({name: b"x"}, 0.002)

    async def gone() -> bool:
        return await cache.get([name]) == [None]

    await until(gone)


# Rates


async def test_a_burst_is_allowed_and_what_follows_waits(cache, name):
    found = [await cache.take(name, SLOW) for _ in range(4)]
    assert [one.allowed for one in found] == [True, True, True, False]
    assert [one.remaining for one in found] == [2, 1, 0, 0]
    assert [one.retry_after for one in found[:3]] == [0.0, 0.0, 0.0]
    assert found[3].retry_after == pytest.approx(HOUR, abs=60)
    assert (await cache.take(f"{name}/other", SLOW)).allowed


async def test_what_is_refused_is_not_counted(cache, name):
    assert (await cache.take(name, SLOW, 2)).remaining == 1
    assert not (await cache.take(name, SLOW, 2)).allowed
    assert (await cache.take(name, SLOW)).allowed


async def test_a_bucket_fills_again(cache, name):
    fast = Rate(burst=1, per_second=200)

    async def allowed() -> bool:
        return (await cache.take(name, fast)).allowed

    for _ in range(5):
        await until(allowed)


async def test_of_many_at_once_no_more_than_the_burst_are_allowed(cache, name):
    found = await asyncio.gather(*(cache.take(name, SLOW) for _ in range(50)))
    assert sum(one.allowed for one in found) == 3


async def test_a_rate_and_a_value_may_have_one_name(cache, name):
    await cache.put({name: b"x"}, HOUR)
    assert (await cache.take(name, SLOW)).allowed
    assert await cache.get([name]) == [b"x"]


async def test_a_narrower_rate_holds_at_once(cache, name):
    """A rate that is changed while its bucket is far from full does not lock anybody out for longer than its own."""
    for _ in range(3):
        await cache.take(name, SLOW)
    refused = await cache.take(name, Rate(burst=1, per_second=0.5))
    assert not refused.allowed
    assert refused.retry_after <= 2.0


@pytest.mark.parametrize("cost", [0, -1, 4])
async def test_a_cost_that_can_never_be_allowed_is_an_error_of_the_program(cache, name, cost):
    with pytest.raises(ValueError, match="never allowed by a burst of 3"):
        await cache.take(name, SLOW, cost)


@pytest.mark.parametrize(("burst", "per_second"), [(0, 1.0), (1, 0.0), (1, -1.0), (1, float("nan"))])
def test_a_rate_that_allows_nothing_is_an_error(burst, per_second):
    with pytest.raises(ConfigurationError):
        Rate(burst=burst, per_second=per_second)


@given(
    st.integers(1, 20),
    st.floats(0.1, 50),
    st.lists(st.tuples(st.floats(0, 3), st.integers(1, 20)), min_size=1, max_size=60),
)
def test_no_more_is_ever_allowed_than_burst_and_rate_give(burst, per_second, asked):
    rate, now, full_at, allowed = Rate(burst=burst, per_second=per_second), 0.0, 0.0, 0
    for pause, cost in asked:
        now += pause
        full_at, found = rates.take(full_at, now, rate, min(cost, burst))
        allowed += min(cost, burst) if found.allowed else 0
        assert allowed <= burst + per_second * now + 1e-6
        assert 0 <= found.remaining <= burst
        if not found.allowed:
            again, later = rates.take(full_at, now + found.retry_after + 1e-9, rate, min(cost, burst))
            assert later.allowed
            assert again >= full_at


# The cache of a process


async def test_the_values_used_longest_ago_make_room():
    cache = LocalCache(value_bytes=3 * (1000 + 200))
    for value in ("a", "b", "c"):
        await cache.put({value: bytes(1000)}, HOUR)
    await cache.get(["a"])
    await cache.put({"d": bytes(1000)}, HOUR)
    assert [value is not None for value in await cache.get(["a", "b", "c", "d"])] == [True, False, True, True]


async def test_a_value_larger_than_the_room_is_not_kept():
    cache = LocalCache(value_bytes=1000)
    await cache.put({"large": bytes(2000)}, HOUR)
    assert await cache.get(["large"]) == [None]


async def test_rates_that_lapsed_are_forgotten():
    clock = asks_at_once()
    cache = LocalCache(clock=clock)
    for i in range(3000):
        await cache.take(f"rate {i}", Rate(burst=1, per_second=1))
    assert len(cache._full_at) <= 1025


# Redis


async def test_everything_in_redis_has_a_lifetime(redis_url, redis, name):
    cache = open_cache(redis_url, timeout=10.0)
    await cache.put({name: b"x"}, HOUR)
    await cache.advance(f"of a version/{name}", 1, b"x", HOUR)
    await cache.take(name, SLOW)
    keys = [key async for key in redis.scan_iter(match=f"hindsight:*{name}")]
    assert len(keys) == 3
    assert all([0 < await redis.ttl(key) <= HOUR + 1 for key in keys])
    await cache.aclose()


async def test_two_caches_on_one_redis_share_everything(redis_url, name):
    one, other = open_cache(redis_url, timeout=10.0), open_cache(redis_url, timeout=10.0)
    await one.put({name: b"x"}, HOUR)
    assert await other.get([name]) == [b"x"]
    assert [(await cache.take(name, SLOW)).allowed for cache in (one, other, one, other)] == [True, True, True, False]
    await one.aclose()
    await other.aclose()


async def test_one_cache_serves_several_event_loops(redis_url, name):
    cache = open_cache(redis_url, timeout=10.0)
    await cache.put({name: b"x"}, HOUR)

    async def elsewhere() -> list[bytes | None]:
        try:
            return await cache.get([name])
        finally:
            await cache.aclose()

    assert await asyncio.to_thread(asyncio.run, elsewhere()) == [b"x"]
    assert await cache.get([name]) == [b"x"]
    await cache.aclose()


async def test_garbage_in_redis_is_a_miss(redis_url, redis, name):
    cache = open_cache(redis_url, timeout=10.0)
    for kind in ("value", "rate"):
        await redis.rpush(f"hindsight:{kind}:{name}", "a", "b")
    await redis.set(f"hindsight:rate:{name}/text", "not a number")
    assert await cache.get([name]) == [None]
    assert (await cache.take(name, SLOW)).remaining == 2
    assert (await cache.take(f"{name}/text", SLOW)).remaining == 2
    await cache.advance(name, 1, b"x", HOUR)
    assert await cache.get([name]) == [b"1:x"]
    assert cache.trouble is None
    await cache.put({name: b"x"}, HOUR)
    assert await cache.get([name]) == [b"x"]
    await cache.aclose()


async def test_without_redis_every_verb_goes_on(fragile, redis_server, name):
    redis_server.kill()
    assert await fragile.get([name, name]) == [None, None]
    await fragile.put({name: b"x"}, HOUR)
    await fragile.advance(name, 1, b"x", HOUR)
    assert await fragile.delete([name]) is False
    assert [(await fragile.take(name, SLOW)).allowed for _ in range(4)] == [True, True, True, False]
    assert f"Redis at {fragile.address} cannot be reached (Connection refused)" in fragile.trouble
    assert (await fragile.check()).status == "degraded"


async def test_when_redis_is_back_it_is_used_again(fragile, redis_server, name, caplog):
    caplog.set_level(logging.INFO, "hindsight.cache")
    redis_server.kill()
    for _ in range(5):
        await fragile.put({name: b"x"}, HOUR)
        await fragile.get([name])
    redis_server.start()
    await fragile.put({name: b"y"}, HOUR)
    assert await fragile.get([name]) == [b"y"]
    assert fragile.trouble is None
    assert (await fragile.check()).status == "ok"
    assert [record.message for record in caplog.records] == ["cache.degraded", "cache.recovered"]


async def test_what_could_not_be_deleted_is_deleted_when_redis_is_back(fragile, redis_server, name):
    """As after a broken network: what was there is there still."""
    await fragile.delete([name])
    redis_server.kill()
    assert await fragile.delete([name]) is False
    redis_server.start()
    async with Redis.from_url(redis_server.url) as client:
        await client.set(f"hindsight:value:{name}", b"erased text")
        await fragile.get(["anything"])
        assert await client.get(f"hindsight:value:{name}") is None


async def test_a_redis_that_hangs_costs_its_timeout_once(redis_url, name):
    """It accepts and says nothing; the second call does not wait at all."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        cache = RedisCache(parse(f"redis://127.0.0.1:{mute.getsockname()[1]}"), timeout=0.05, clock=lambda: 0.0)
        assert await cache.get([name]) == [None]
        assert cache.trouble is not None
        assert "did not answer within 0.05 s" in cache.trouble
        mute.close()
        assert await cache.get([name]) == [None]
        assert "did not answer" in cache.trouble  # a refused connection would say so
        await cache.aclose()


async def test_what_is_no_redis_is_as_good_as_none(name):
    async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(web, "127.0.0.1", 0) as server:
        cache = RedisCache(parse(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"), timeout=10.0)
        assert await cache.get([name]) == [None]
        assert cache.trouble is not None
        await cache.aclose()


@asynccontextmanager
async def full(client: Redis) -> AsyncGenerator[None]:
    """The server has no room, and makes none by evicting anything."""
    before = {name: (await client.config_get(name))[name] for name in ("maxmemory", "maxmemory-policy")}
    await client.config_set("maxmemory-policy", "noeviction", "maxmemory", "1")
    try:
        yield
    finally:
        await client.config_set("maxmemory", before["maxmemory"], "maxmemory-policy", before["maxmemory-policy"])


async def test_a_full_redis_still_gives_what_it_has(redis_server, name):
    """It refuses to keep more, and says so; reads go on, rates are kept here."""
    cache = open_cache(redis_server.url, timeout=10.0)
    await cache.put({f"{name}/before": b"x"}, HOUR)
    async with Redis.from_url(redis_server.url) as client, full(client):
        await cache.put({name: b"y"}, HOUR)
        assert await cache.get([f"{name}/before", name]) == [b"x", None]
        assert (await cache.take(name, SLOW)).allowed
        assert "refuses to put" in (cache.trouble or "")
        assert (await cache.check()).status == "degraded"
    assert (await cache.check()).status == "ok"
    await cache.put({name: b"y"}, HOUR)
    assert await cache.get([name]) == [b"y"]
    await cache.aclose()


async def test_a_cluster_is_told_for_what_it_is(tmp_path: Path, name: str):
    service = redis_service(free_port(), tmp_path)
    # Its second port is 10 000 above the first unless said, which not every free port allows.
    command = (*service.command, "--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    server = ServiceProcess(dataclasses.replace(service, command=command))
    server.start()
    cache = open_cache(server.url, timeout=10.0)
    try:
        await cache.start()
        assert await cache.get([name]) == [None]
        await cache.put({name: b"x", f"{name}/2": b"y"}, HOUR)
        assert await cache.get([name]) == [None]
        assert "cluster mode is disabled" in (cache.trouble or "")
        assert name not in (cache.trouble or "")
    finally:
        await cache.aclose()
        server.kill()


async def test_what_is_told_of_a_full_redis_holds_nothing_that_was_to_be_kept(redis_server, name, caplog):
    """Answers and the log name it in its own words, without keys and values."""
    cache = open_cache(redis_server.url, timeout=10.0)
    async with Redis.from_url(redis_server.url) as client, full(client):
        await cache.put({f"{name}/{i}": f"secret {i}".encode() for i in range(3)}, HOUR)
        trouble = cache.trouble or ""
    assert "refuses to put (command not allowed when used memory > 'maxmemory')" in trouble
    (event,) = caplog.records
    for said in (trouble, event.detail):
        assert "secret" not in said
        assert name not in said
    await cache.aclose()


async def test_a_full_redis_is_one_event_however_often_it_is_looked_at_and_takes_a_value_in_between(
    redis_server, name, caplog
):
    now = 0.0
    cache = RedisCache(parse(redis_server.url), timeout=10.0, clock=lambda: now)
    async with Redis.from_url(redis_server.url) as client:
        for turn in range(5):
            async with full(client):
                assert (await cache.check()).status == "degraded"
                await cache.put({f"{name}/{turn}": b"x"}, HOUR)
                assert cache.trouble is not None
            # As when something lapses.
            await cache.put({f"{name}/{turn}": b"x"}, HOUR)
            assert (await cache.check()).status == "ok"
            assert cache.trouble is None
    assert [record.message for record in caplog.records] == ["cache.degraded"]
    now = 120.0
    await cache.get([name])
    assert [record.message for record in caplog.records] == ["cache.degraded", "cache.recovered"]
    await cache.aclose()


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="the embedded server listens on a socket of Unix")
async def test_an_embedded_server_ends_with_its_process_and_leaves_nothing_also_when_that_is_killed():
    program = """
import asyncio
from hindsight_core.cache import open_cache

async def main():
    cache = open_cache("embedded", timeout=10.0)
    await cache.start()
    print(cache._folder.name, cache._server._process.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    folder, pid = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().split()
    os.kill(int(pid), 0)  # it runs
    assert Path(folder).exists()  # noqa: ASYNC240 (on this machine)
    process.kill()
    await process.wait()

    async def gone() -> bool:
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            return not Path(folder).exists()  # noqa: ASYNC240 (on this machine)
        return False

    await until(gone)


async def test_a_wrong_password_is_told_without_it(redis_server):
    async with Redis.from_url(redis_server.url) as client:
        await client.config_set("requirepass", "right")
        cache = open_cache(redis_server.url.replace("//", "//:wrong@"), timeout=10.0)
        await cache.start()
        found = await cache.check()
        await client.config_set("requirepass", "")
    assert found.status == "degraded"
    assert "refuses user or password" in found.detail
    assert "wrong" not in f"{found}"
    await cache.aclose()


async def test_the_rights_that_the_docs_name_are_enough(redis_url, redis, name):
    (rights,) = re.findall(r"`(~hindsight:\* [^`]*)`", (ROOT / "deploy" / "README.md").read_text("utf-8"))
    await redis.execute_command("ACL", "SETUSER", "least", "on", ">secret", *rights.split())
    cache = open_cache(redis_url.replace("//", "//least:secret@"), timeout=10.0)
    await cache.start()
    await cache.put({name: b"x"}, HOUR)
    assert await cache.get([name]) == [b"x"]
    await cache.advance(name, 1, b"x", HOUR)
    assert await cache.get([name]) == [b"1:x"]
    assert await cache.delete([name])
    assert (await cache.take(name, SLOW)).allowed
    assert (await cache.check()).status == "ok"
    assert cache.trouble is None
    await cache.aclose()


async def test_a_start_without_redis_tells_host_port_and_setting_and_goes_on(caplog, name):
    port = free_port()
    cache = RedisCache(parse(f"redis://127.0.0.1:{port}"), timeout=10.0, attempts=3, pause=0.0)
    await cache.start()
    await cache._connecting
    (event,) = [record for record in caplog.records if record.message == "cache.unreachable"]
    assert (event.setting, event.host, event.port, event.attempts) == ("HINDSIGHT_REDIS", "127.0.0.1", port, 3)
    await cache.aclose()


def test_a_start_without_redis_asks_as_often_as_the_docs_say():
    docs = " ".join((ROOT / "docs" / "redis.md").read_text("utf-8").split())
    assert "A process that starts without it asks ten times, every two seconds, and then logs" in docs
    cache = open_cache("redis://127.0.0.1:1")
    assert (cache._attempts, cache._pause) == (10, 2.0)


async def test_a_redis_that_starts_late_is_found(redis_server, name):
    redis_server.kill()
    cache = RedisCache(parse(redis_server.url), timeout=10.0, attempts=1000, pause=0.01)
    await cache.start()
    assert cache.trouble is not None
    redis_server.start()
    await cache._connecting
    assert cache.trouble is None
    await cache.aclose()


# URLs


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("http://host", "scheme 'http'"),
        ("redis://", "names no host"),
        ("redis://host:port", "port"),
        ("redis://host/memories", "'memories' is no number"),
        ("redis-host:6379", "scheme"),
        ("redis://host?decode_responses=true", "option 'decode_responses'"),
    ],
)
def test_a_wrong_url_is_an_error_that_names_the_setting(url, fault):
    with pytest.raises(ConfigurationError, match=rf"HINDSIGHT_REDIS: .*{fault}"):
        open_cache(url)


def test_an_address_is_told_without_its_password():
    address = parse("rediss://ana:s%20cret@cache.example:6380/1")
    assert str(address) == "cache.example:6380"
    assert "cret" not in f"{address}"
