"""Copies of what the store holds: they spare a read and change nothing else, whatever becomes of them; both stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from redis.asyncio import Redis

from hindsight_core.cache import Cache, open_cache
from hindsight_core.cache.copies import Copies, Copy
from hindsight_core.errors import NotFound, StoreUnavailable, UnderWay
from hindsight_core.leases import Leases
from hindsight_core.requests import EndTaskRequest, ForgetRequest, Message, Request, TaskRequest
from hindsight_core.service import MemoryService
from hindsight_core.stores import MemoryStore, Note
from hindsight_core.stores.sqlite import SqliteStore
from hindsight_core.turns import Turns
from samples import NAMESPACE, START

MINUTE = timedelta(minutes=1)
SAID = "The lamp of the harbour is green."


class Asked:
    """The real store, and the verbs that it was asked for."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.verbs: list[str] = []

    def __getattr__(self, verb: str) -> Any:
        self.verbs.append(verb)
        return getattr(self._store, verb)

    def since(self) -> list[str]:
        """What it was asked since the last look."""
        verbs, self.verbs = self.verbs, []
        return verbs


class AsksAtOnce:
    """A clock on which so much time passes between two looks that a failure is always long ago."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        self._now += 2.0
        return self._now


@pytest.fixture
async def cache(redis_url: str) -> AsyncGenerator[Cache]:
    cache = open_cache(redis_url, timeout=10.0)
    cache._clock = AsksAtOnce()  # type: ignore[attr-defined]
    yield cache
    await cache.aclose()


@pytest.fixture
async def redis(redis_url: str) -> AsyncGenerator[Redis]:
    """A client of the test's own over a server without copies, to look at what lies there and to spoil it."""
    async with Redis.from_url(redis_url) as client:
        await emptied(client)
        yield client


async def emptied(redis: Redis) -> None:
    for key in await copies_of(redis, "*"):
        await redis.delete(key)


@pytest.fixture
def asked(store: MemoryStore) -> Asked:
    return Asked(store)


@pytest.fixture
def replica(embedder, settings, redis_url, cache) -> Callable[..., MemoryService]:
    """One more process over a store, with Redis or without."""

    def open_it(store: Any, *, shared: bool = True) -> MemoryService:
        if shared:
            return MemoryService(store, embedder, replace(settings, redis=redis_url), cache)
        return MemoryService(store, embedder, settings)

    return open_it


async def say(service, caller, *texts, task="t", **fields):
    messages = tuple(Message(role="user", text=text) for text in texts)
    return await service.add_to_task(task, TaskRequest(messages=messages, **fields), caller)


async def held(service, caller, task="t", **fields):
    return [one.content for one in (await service.task(task, Request(**fields), caller)).messages]


async def copies_of(redis: Redis, kind: str) -> list[bytes]:
    return [key async for key in redis.scan_iter(match=f"hindsight:value:{kind}:*")]


# Tasks


async def test_an_append_reads_nothing_and_says_what_the_store_then_holds(asked, replica, caller, redis):
    service = replica(asked)
    await say(service, caller, "one", context_window=8000)
    await say(service, caller, "two")
    asked.since()
    answer = await say(service, caller, "three", "four")
    assert asked.since() == ["commit"]
    buffer = await service.task("t", Request(), caller)
    assert [one.content for one in buffer.messages] == ["one", "two", "three", "four"]
    assert (answer.tokens, answer.messages, answer.budget) == (buffer.tokens, 4, 3200)
    assert buffer.budget == 3200


async def test_what_a_caller_reads_is_of_the_store(asked, replica, caller, redis):
    service = replica(asked)
    await say(service, caller, "one")
    asked.since()
    await service.task("t", Request(), caller)
    assert "scan" in asked.since()


async def test_without_a_redis_nothing_is_copied_and_the_store_is_asked_as_ever(asked, replica, caller, redis):
    service = replica(asked, shared=False)
    await say(service, caller, "one")
    asked.since()
    await say(service, caller, "two")
    assert asked.since() == ["scan", "scan", "commit"]
    assert await copies_of(redis, "*") == []


async def test_a_copy_that_others_have_overtaken_costs_a_second_try_alone(asked, replica, caller, redis):
    service, without = replica(asked), replica(asked, shared=False)
    await say(service, caller, "one", context_window=8000)
    await say(without, caller, "two", context_window=4000)
    asked.since()
    answer = await say(service, caller, "three")
    assert asked.since() == ["commit", "head", "scan", "scan", "commit"]
    assert (answer.messages, answer.budget) == (3, 1600)
    assert await held(service, caller) == ["one", "two", "three"]
    asked.since()
    await say(service, caller, "four")
    assert asked.since() == ["commit"]


async def test_what_goes_is_decided_by_what_the_store_holds(asked, replica, caller, redis):
    """By a copy a message could be kept as a memory that was erased meanwhile."""
    service, without = replica(asked), replica(asked, shared=False)
    worth = "From now on, show me temperatures in Celsius."
    await say(service, caller, worth, context_window=100)
    (message,) = (await service.task("t", Request(), caller)).messages
    await without.forget(ForgetRequest(ids=(message.id,), mode="erase"), caller)
    answer = await say(service, caller, f"{SAID} {SAID} {SAID} {SAID}", SAID, context_window=100)
    assert worth not in {one.excerpt for one in answer.dropped}
    assert worth not in {one.text for one in answer.promoted}


async def test_a_call_that_changes_nothing_is_told_what_the_store_holds(store, replica, caller, redis):
    service, without = replica(store), replica(store, shared=False)
    await say(service, caller, "one")
    await say(without, caller, "two")
    answer = await say(service, caller, "my password is hunter2")
    assert (answer.refused, answer.messages) == ((0,), 2)


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"x",
        b"1:",
        b"\xff:[]",
        b"1:{}",
        b'1:["a"]',
        b"9" * 5000 + b":[]",
        b"999:[]",
        b"999:THE SAME",
        b"0:THE SAME",
    ],
)
async def test_garbage_is_as_good_as_nothing_and_does_not_stay(asked, replica, caller, redis, garbage):
    service = replica(asked)
    await say(service, caller, "one")
    (key,) = await copies_of(redis, "task")
    _, _, copy = (await redis.get(key)).partition(b":")
    await redis.set(key, garbage.replace(b"THE SAME", copy))
    assert (await say(service, caller, "two")).messages == 2
    asked.since()
    assert (await say(service, caller, "three")).messages == 3
    assert asked.since() == ["commit"]
    assert await held(service, caller) == ["one", "two", "three"]


async def test_an_emptied_and_a_stopped_redis_lose_nothing(store, replica, caller, redis_server, redis):
    service = replica(store)
    await say(service, caller, "one")
    await emptied(redis)
    await say(service, caller, "two")
    redis_server.kill()
    assert (await say(service, caller, "three")).messages == 3
    assert service.cache.trouble is not None
    redis_server.start()
    assert (await say(service, caller, "four")).messages == 4
    assert service.cache.trouble is None
    assert await held(service, caller) == ["one", "two", "three", "four"]


async def test_a_redis_that_missed_what_was_said_meanwhile_loses_nothing(store, replica, caller, redis, redis_server):
    """As after a broken network: what it held before is there still."""
    service = replica(store)
    await say(service, caller, "one")
    (key,) = await copies_of(redis, "task")
    before = await redis.get(key)
    redis_server.kill()
    await say(service, caller, "two")
    redis_server.start()
    await redis.connection_pool.disconnect()
    await redis.set(key, before)
    assert (await say(service, caller, "three")).messages == 3


async def test_of_what_processes_append_at_once_nothing_is_lost(opened, replica, caller, redis):
    services = [replica(await opened()) for _ in range(2)]
    await say(services[0], caller, "0")
    await asyncio.gather(*(say(services[i % 2], caller, str(i)) for i in range(1, 9)))
    assert sorted(await held(services[0], caller)) == [str(i) for i in range(9)]
    answer = await say(services[1], caller, "9")
    assert answer.messages == 10
    assert answer.tokens == (await services[0].task("t", Request(), caller)).tokens


async def test_tenants_users_and_tasks_have_copies_of_their_own(asked, replica, caller, redis):
    service = replica(asked)
    scopes = [{"user_id": "ann"}, {"user_id": "bob"}, {"session_id": "ann"}, {"namespace": "other"}, {"task": "u"}]
    for scope in scopes:
        await say(service, caller, f"{scope}", **scope)
    assert len(await copies_of(redis, "task")) == 3  # of each task the copy of whose call was last
    for scope in scopes:
        assert (await say(service, caller, "more", **scope)).messages == 2
    assert (await say(service, caller, "more")).messages == 7  # whoever names no user and session means all of them
    asked.since()
    assert (await say(service, caller, "more", user_id="ann")).messages == 3
    assert "scan" in asked.since()


async def test_another_store_has_copies_of_its_own(replica, caller, redis, tmp_path):
    """The same version is of something else there."""
    for task in ("t", "u"):
        store = SqliteStore(tmp_path / f"{task}.db")
        await store.prepare(None)
        service = replica(store)
        await say(service, caller, "one", task=task)
        await say(service, caller, "two", task=task)
        if task == "u":
            assert (await say(service, caller, "three", task="t")).messages == 1
        await store.aclose()


class Hushed(SqliteStore):
    """A store that does not say its mark."""

    async def note(self, name: str) -> Note:
        raise StoreUnavailable("It does not answer.", remedy="Wait.")


async def test_where_a_copy_has_no_name_the_store_is_asked_alone(replica, caller, redis, tmp_path):
    store = Hushed(tmp_path / "hushed.db")
    await store.prepare(None)
    service = replica(store)
    await say(service, caller, "one")
    assert (await say(service, caller, "two")).messages == 2
    await service.end_task("t", EndTaskRequest(), caller)
    assert await copies_of(redis, "task") == []
    await store.aclose()


async def test_no_text_enters_redis_and_a_task_that_ends_leaves_no_copy(store, replica, caller, redis):
    service = replica(store)
    await say(service, caller, SAID, user_id="ann", task="harbour")
    (key,) = await copies_of(redis, "task")
    assert 0 < await redis.ttl(key) <= 3600
    for word in (SAID, "lamp", "ann", "harbour"):
        assert word.encode() not in key + await redis.get(key)
    await service.end_task("harbour", EndTaskRequest(user_id="ann"), caller)
    assert await copies_of(redis, "task") == []
    with pytest.raises(NotFound):
        await service.task("harbour", Request(user_id="ann"), caller)
    assert (await say(service, caller, "anew", user_id="ann", task="harbour")).messages == 1


@pytest.mark.parametrize("selected", [{}, {"user_id": "ann"}, {"task_id": "t"}])
async def test_what_is_erased_leaves_no_copy_whoever_s_call_made_it(store, replica, caller, redis, selected):
    service = replica(store)
    await say(service, caller, SAID, user_id="ann")
    await say(service, caller, "more", session_id="s")
    await service.forget(ForgetRequest(mode="erase", all=True, **selected), caller)
    assert await copies_of(redis, "task") == []
    assert (await say(service, caller, "anew", user_id="ann")).messages == 1


# Turns and slots


async def test_a_turn_is_taken_and_given_up_without_reading_it(asked, cache, redis):
    turns = Turns(asked, MINUTE, Copies(asked, cache))
    async with turns.taken(NAMESPACE, ["expire"], run_id="1", call="a", now=START):
        pass
    asked.since()
    async with turns.taken(NAMESPACE, ["expire"], run_id="2", call="b", now=START):
        assert asked.since() == ["keep"]
    assert asked.since() == ["keep"]


async def test_that_a_turn_is_taken_the_store_has_to_say(asked, cache, redis):
    copies = Copies(asked, cache)
    with_redis, without = Turns(asked, MINUTE, copies), Turns(asked, MINUTE)
    async with with_redis.taken(NAMESPACE, ["expire"], run_id="1", call="a", now=START):
        (key,) = await copies_of(redis, "turns")
        taken = await redis.get(key)
        asked.since()
        with pytest.raises(UnderWay, match="run 1"):
            async with with_redis.taken(NAMESPACE, ["expire"], run_id="2", call="b", now=START):
                pass
        assert asked.since() == ["note"]
    await redis.set(key, taken)
    async with with_redis.taken(NAMESPACE, ["expire"], run_id="3", call="c", now=START):
        await redis.delete(key)
    async with without.taken(NAMESPACE, ["expire"], run_id="4", call="d", now=START):
        await redis.set(key, b'1:{"expire":["1","a","2020-01-01T00:00:00Z",60]}')  # lapsed, as it says
        with pytest.raises(UnderWay, match="run 4"):
            async with with_redis.taken(NAMESPACE, ["expire"], run_id="5", call="e", now=START):
                pass


@pytest.mark.parametrize("turn", ['["1","a","2024-05-01T12:00:00",60]', '["1","a","2024-05-01T12:00:30Z",1e300]', "1"])
async def test_a_turn_that_is_none_is_a_miss(asked, cache, redis, turn):
    turns = Turns(asked, MINUTE, Copies(asked, cache))
    async with turns.taken(NAMESPACE, ["expire"], run_id="1", call="a", now=START):
        pass
    (key,) = await copies_of(redis, "turns")
    await redis.set(key, f'2:{{"expire":{turn}}}')
    async with turns.taken(NAMESPACE, ["expire"], run_id="2", call="b", now=START):
        pass


async def test_of_turns_that_are_taken_at_once_over_one_redis_one_is_had(opened, cache, redis):
    alone, refused = asyncio.Event(), []

    async def sweep(store: MemoryStore, call: str) -> None:
        try:
            turns = Turns(store, MINUTE, Copies(store, cache))
            async with turns.taken(NAMESPACE, ["expire"], run_id=call, call=call, now=START):
                await alone.wait()
        except UnderWay:
            refused.append(call)
            if len(refused) == 3:
                alone.set()

    async with asyncio.timeout(60):
        await asyncio.gather(*[sweep(await opened(), f"{i}") for i in range(4)])
    assert len(refused) == 3


async def test_a_slot_is_taken_by_its_copy_and_that_it_is_not_to_be_had_the_store_says(asked, cache, redis):
    ours, theirs = (Leases(asked, name, MINUTE, Copies(asked, cache)) for name in ("ours", "theirs"))
    lease = await ours.take("expire", START, START)
    assert await ours.end(lease, START, done=True)
    asked.since()
    tomorrow = START + timedelta(days=1)
    lease = await ours.take("expire", tomorrow, tomorrow)
    assert lease is not None
    assert asked.since() == ["commit"]
    assert await theirs.take("expire", tomorrow, tomorrow) is None
    assert "get" in asked.since()
    await Leases(asked, "elsewhere", MINUTE).end(lease, tomorrow, done=False)  # unseen by Redis
    resumed = await theirs.take("expire", tomorrow, tomorrow)
    assert resumed is not None
    assert resumed.resumed


async def test_a_slot_that_a_copy_says_is_free_is_not_taken_from_who_has_it(store, cache, redis):
    copied = Leases(store, "copied", MINUTE, Copies(store, cache))
    lease = await copied.take("expire", START, START)
    await copied.end(lease, START, done=True)
    tomorrow = START + timedelta(days=1)
    assert await Leases(store, "elsewhere", MINUTE).take("expire", tomorrow, tomorrow) is not None
    assert await copied.take("expire", tomorrow, tomorrow) is None


async def test_a_later_copy_is_never_replaced_by_an_earlier_one(store, cache):
    copies = Copies(store, cache)
    for version in (2, 10, 9, 1):
        await copies.put(("test", store.__class__.__name__), Copy(f"{version}", version))
    assert await copies.get(("test", store.__class__.__name__), str) == Copy("10", 10)
