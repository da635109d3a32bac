"""An OpenSearch that is busy is asked again as often as is said here, and then the error says that it is busy."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hindsight_core.errors import Conflict, OutcomeUnknown, StoreUnavailable
from hindsight_core.stores import MemoryStore, open_store
from hindsight_core.stores.opensearch import commits, connection, indices
from hindsight_core.stores.opensearch.address import parse
from hindsight_core.stores.opensearch.connection import Connection
from hindsight_core.stores.opensearch.indices import Action, Indices, json
from hindsight_core.stores.opensearch.store import OpenSearchStore
from opensearch_place import OpenSearchPlace
from opensearch_proxy import Busy, Full, serving
from samples import EVERYTHING, NAMESPACE, memory, puts, record, scanned

BUSY = [429, 502, 503, 504]
# How often a request is made, an action of a bulk request, and a change whose turn another process takes.
REQUESTS, ACTIONS, TURNS = 6, 5, 10
PAUSES = connection._WHILE_BUSY


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are as many pauses as ever, and they take no time."""
    monkeypatch.setattr(connection, "_WHILE_BUSY", (0.0,) * len(PAUSES))
    monkeypatch.setattr(indices, "_PAUSE", 0.0)


def test_there_are_so_many_tries_and_their_pauses_fit_into_the_time_of_a_call() -> None:
    assert (1 + len(PAUSES), indices._ATTEMPTS, commits._ATTEMPTS) == (REQUESTS, ACTIONS, TURNS)
    assert sum(PAUSES) < parse("opensearch://h/p").options.timeout / 2


@asynccontextmanager
async def closing(store: MemoryStore) -> AsyncGenerator[MemoryStore]:
    try:
        yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def behind(proxy: Busy | Full, place: OpenSearchPlace) -> AsyncGenerator[str]:
    """The URL of an empty store that is reached through a proxy."""
    place.empty()
    async with serving(proxy) as address:
        yield f"opensearch://{address}/{place.prefix}"


@pytest.mark.parametrize("status", BUSY)
async def test_a_request_that_a_busy_node_refuses_is_made_again_until_the_last_try(
    opensearch_place: OpenSearchPlace, opensearch_url: str, status: int
) -> None:
    proxy = Busy(opensearch_url, "/_search", status=status, times=REQUESTS - 1)
    async with behind(proxy, opensearch_place) as url, closing(open_store(url)) as store:
        assert await scanned(store, EVERYTHING) == []
    assert proxy.asked == REQUESTS


@pytest.mark.parametrize("status", BUSY)
async def test_what_refuses_the_last_try_as_well_is_told_to_be_busy(
    opensearch_place: OpenSearchPlace, opensearch_url: str, status: int
) -> None:
    proxy = Busy(opensearch_url, "/_search", status=status, times=REQUESTS)
    async with behind(proxy, opensearch_place) as url, closing(open_store(url)) as store:
        with pytest.raises(StoreUnavailable, match=r"is busy or starting: the queue of the node is full\.") as caught:
            await store.scan(NAMESPACE, EVERYTHING, after=None, limit=5)
    assert caught.value.remedy == "Try again in a moment."
    assert proxy.asked == REQUESTS


async def test_a_change_is_sent_again_only_where_nothing_of_it_was_done(
    opensearch_place: OpenSearchPlace, opensearch_url: str
) -> None:
    """A full queue has done nothing; of what stands in between that is not known."""
    change = puts(record(memory("a")))
    proxy = Busy(opensearch_url, "/_bulk", status=429, times=REQUESTS - 1)
    async with behind(proxy, opensearch_place) as url, closing(open_store(url)) as store:
        assert await store.commit(NAMESPACE, change) == 1
        assert await scanned(store, EVERYTHING) == ["a"]
    proxy = Busy(opensearch_url, "/_bulk", status=503, times=1)
    async with behind(proxy, opensearch_place) as url, closing(open_store(url)) as store:
        with pytest.raises(OutcomeUnknown):
            await store.commit(NAMESPACE, change)
    assert proxy.asked == 1


def facts(count: int) -> list[Action]:
    return [Action("state", "create", {"_id": f"/{n}"}, json({"value": str(n)})) for n in range(count)]


async def test_of_a_bulk_request_only_what_was_refused_is_sent_again_until_the_last_try(
    opensearch_place: OpenSearchPlace, opensearch_url: str
) -> None:
    for times in (ACTIONS - 1, ACTIONS):
        proxy = Full(opensearch_url, times=times)
        async with behind(proxy, opensearch_place) as url:
            of = Connection(parse(url))
            try:
                if times < ACTIONS:
                    # Had one been sent twice that was written, it would be a conflict.
                    assert [outcome.status for outcome in await Indices(of).write(facts(3))] == [201, 201, 201]
                else:
                    with pytest.raises(StoreUnavailable, match="is busy or starting: the queue of the node is full"):
                        await Indices(of).write(facts(3))
            finally:
                await of.aclose()
        assert proxy.sent == [3, 1, 1, 1, 1]


class Overtaken(Connection):
    """A connection of a process whose turn another one takes, as often as `overtake` is given."""

    def __init__(self, url: str, overtake: list[Callable[[], Awaitable[object]]]) -> None:
        super().__init__(parse(url))
        self.overtake = overtake

    async def _send(self, method: str, path: str, body: Any, params: Any, within: float) -> Any:
        if path == "/_bulk" and b'"intent":{' in body and self.overtake:
            await self.overtake.pop()()
        return await super()._send(method, path, body, params, within)


@pytest.mark.parametrize("times", [TURNS - 1, TURNS])
async def test_a_change_that_others_overtake_finds_its_turn_or_is_refused_whole_after_the_last_try(
    opensearch_place: OpenSearchPlace, times: int
) -> None:
    opensearch_place.empty()
    async with closing(open_store(opensearch_place.store_url)) as other:

        def overtaking(number: int) -> Callable[[], Awaitable[object]]:
            return lambda: other.commit(NAMESPACE, puts(record(memory(f"other-{number}")), run_id=str(number)))

        slow = OpenSearchStore(Overtaken(opensearch_place.store_url, [overtaking(n) for n in range(times)]))
        async with closing(slow):
            change = puts(record(memory("mine")), run_id="mine")
            if times < TURNS:
                assert await slow.commit(NAMESPACE, change) == TURNS
            else:
                with pytest.raises(Conflict, match="found no turn") as caught:
                    await slow.commit(NAMESPACE, change)
                assert caught.value.remedy == "Try again; nothing of it was stored."
        assert ("mine" in await scanned(other, EVERYTHING)) == (times < TURNS)
        assert (await other.head(NAMESPACE)).sequence == TURNS
