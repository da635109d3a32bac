"""Readings over a point in time: what changes meanwhile is not in them, and none is left open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

import httpx
import pytest
from opensearchpy.exceptions import AuthorizationException

from hindsight_core.errors import StoreUnavailable
from hindsight_core.stores import ChangeSet, Record
from hindsight_core.stores.opensearch.address import parse
from hindsight_core.stores.opensearch.connection import Connection
from hindsight_core.stores.opensearch.store import OpenSearchStore
from opensearch_place import OpenSearchPlace
from samples import EVERYTHING, NAMESPACE, memory, puts, record, run, successor, unit

PAGE = 5
RECORDS = [
    record(memory(f"m{n:02}", f"Memory {n}.", user_id=f"u{n}", context=f"Turn {n}."), unit(n)) for n in range(17)
]
CHANGED = [successor(one, confidence=0.25) for one in RECORDS]
NEW = [record(memory(name, context="Turn 3."), unit(99)) for name in ("a", "m07b", "z")]


class Watched(Connection):
    """A connection that may be refused points in time, and tells how many searches it has asked."""

    def __init__(self, url: str) -> None:
        super().__init__(parse(url))
        self.refused = False
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        self.paths: list[tuple[str, str]] = []
        self.opened: list[str] = []

    async def _send(self, method: str, path: str, body: Any, params: Any, within: float) -> Any:
        self.paths.append((method, path))
        if self.refused and path.endswith("point_in_time"):
            raise AuthorizationException(403, "security_exception", {"error": {"reason": "no permissions"}})
        if path == "/_search" and b"after" in repr(body).encode() and self.meanwhile is not None:
            happens, self.meanwhile = self.meanwhile, None
            await happens()
        answer = await super()._send(method, path, body, params, within)
        if method == "POST" and path.endswith("point_in_time"):
            self.opened.append(answer["pit_id"])
        return answer


@pytest.fixture(autouse=True)
def short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hindsight_core.stores.opensearch.moments.PAGE", PAGE)
    monkeypatch.setattr("hindsight_core.stores.opensearch.census._PAGE", PAGE)


@pytest.fixture
async def connection(opensearch_place: OpenSearchPlace) -> Watched:
    opensearch_place.empty()
    return Watched(opensearch_place.store_url)


@pytest.fixture
async def store(connection: Watched) -> AsyncGenerator[OpenSearchStore]:
    store = OpenSearchStore(connection)
    await store.prepare("model-a")
    await store.commit(NAMESPACE, puts(*RECORDS))
    yield store
    await store.aclose()


@pytest.fixture
def left_open(connection: Watched, opensearch_url: str) -> Callable[[], int]:
    """How many points in time of this store's the node still has; there may be others' on it."""

    def count() -> int:
        answer = httpx.get(f"{opensearch_url}/_search/point_in_time/_all")
        there: list[dict[str, str]] = answer.json().get("pits", []) if answer.status_code == 200 else []
        return len({pit["pit_id"] for pit in there} & set(connection.opened))

    return count


def close_all(url: str, pits: Sequence[str]) -> None:
    httpx.request("DELETE", f"{url}/_search/point_in_time", json={"pit_id": pits}).raise_for_status()


async def test_what_changes_while_it_is_read_does_neither_appear_nor_disappear(
    store: OpenSearchStore, left_open: Callable[[], int]
) -> None:
    read: list[Record] = []
    async with aclosing(store.whole(NAMESPACE, EVERYTHING)) as pages:
        async for page in pages:
            if not read:
                assert left_open() == 1
                await store.commit(NAMESPACE, puts(*CHANGED, *NEW, run_id="meanwhile"))
            read += page
    assert [one.memory for one in read] == [one.memory for one in RECORDS]
    assert [one.memory.id for page in [page async for page in store.whole(NAMESPACE, EVERYTHING)] for one in page] == (
        sorted(one.memory.id for one in (*RECORDS, *NEW))
    )
    assert left_open() == 0


async def test_an_erasure_ends_the_moment(store: OpenSearchStore, left_open: Callable[[], int]) -> None:
    read: list[Record] = []
    async with aclosing(store.whole(NAMESPACE, EVERYTHING)) as pages:
        async for page in pages:
            if not read:
                await store.commit(NAMESPACE, puts(*CHANGED, run_id="meanwhile"))
                await store.commit(NAMESPACE, ChangeSet(run=run("e"), erases=("m12",)))
            read += page
    now = [one.memory for one in CHANGED if one.memory.id != "m12"]
    assert [one.memory for one in read] == [*(one.memory for one in RECORDS[:PAGE]), *now[PAGE:]]
    assert left_open() == 0


async def test_a_reading_that_is_broken_off_fails_or_is_cancelled_leaves_no_point_in_time(
    store: OpenSearchStore, connection: Watched, left_open: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aclosing(store.whole(NAMESPACE, EVERYTHING)) as pages:
        await anext(pages)
        assert left_open() == 1
    assert left_open() == 0

    reading = asyncio.Event()

    async def read() -> None:
        async with aclosing(store.whole(NAMESPACE, EVERYTHING)) as pages:
            async for _ in pages:
                reading.set()
                await asyncio.Event().wait()

    task = asyncio.create_task(read())
    await reading.wait()
    assert left_open() == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left_open() == 0

    def fails(*_: object) -> None:
        raise ValueError("undecodable")

    monkeypatch.setattr("hindsight_core.stores.opensearch.hits.turn_in", fails)
    with pytest.raises(ValueError, match="undecodable"):
        await store.following(NAMESPACE, ["Turn 3."])
    assert left_open() == 0


async def test_where_points_in_time_are_refused_each_page_is_of_its_own_moment(
    store: OpenSearchStore, connection: Watched
) -> None:
    connection.refused = True
    read: list[Record] = []
    async with aclosing(store.whole(NAMESPACE, EVERYTHING)) as pages:
        async for page in pages:
            if not read:
                await store.commit(NAMESPACE, puts(*CHANGED, run_id="meanwhile"))
            read += page
    now = [one.memory for one in CHANGED]
    assert [one.memory for one in read] == [*(one.memory for one in RECORDS[:PAGE]), *now[PAGE:]]
    assert await store.following(NAMESPACE, ["Turn 3."]) == ["m03"]
    assert len(await store.census(NAMESPACE, ["active"])) == len(RECORDS)


async def test_a_moment_that_is_gone_is_told_as_that(
    store: OpenSearchStore, connection: Watched, opensearch_url: str
) -> None:
    async with aclosing(store.whole(NAMESPACE, EVERYTHING)) as pages:
        await anext(pages)
        close_all(opensearch_url, connection.opened)
        with pytest.raises(StoreUnavailable, match="no longer has the moment") as caught:
            await anext(pages)
    assert caught.value.remedy == "Begin to read again."


async def test_whom_a_text_is_quoted_by_is_read_without_counters(
    store: OpenSearchStore, connection: Watched, left_open: Callable[[], int]
) -> None:
    connection.paths.clear()
    assert await store.following(NAMESPACE, ["Turn 3."]) == ["m03"]
    assert left_open() == 0
    searches = sum(path == "/_search" for _, path in connection.paths)
    assert searches == len(RECORDS) // PAGE + 1
    # The head, and nothing beside the pages.
    assert sum(path.endswith("_mget") for _, path in connection.paths) == 1


async def test_a_census_of_many_users_is_of_one_moment(
    store: OpenSearchStore, connection: Watched, opensearch_place: OpenSearchPlace, left_open: Callable[[], int]
) -> None:
    expected = {(one.memory.user_id, one.memory.memory_type): 1 for one in RECORDS}
    assert await store.census(NAMESPACE, ["active"]) == expected
    other = OpenSearchStore(Watched(opensearch_place.store_url))

    async def change() -> None:
        new = [record(memory(f"z{n}", user_id=f"u{n}x")) for n in range(17)]
        await other.commit(NAMESPACE, puts(*new, run_id="meanwhile"))

    connection.meanwhile = change
    assert await store.census(NAMESPACE, ["active"]) == expected
    assert connection.meanwhile is None
    assert len(await store.census(NAMESPACE, ["active"])) == 2 * len(expected)
    assert left_open() == 0
    await other.aclose()
