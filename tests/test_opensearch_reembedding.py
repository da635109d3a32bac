"""The exchange of two indices of OpenSearch, broken off in its middle, and what stays of the old one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from opensearchpy.exceptions import ConnectionError as NotConnected

from hindsight_core.errors import Conflict, StoreUnavailable
from hindsight_core.models import Memory
from hindsight_core.stores import ChangeSet, Record
from hindsight_core.stores.opensearch.address import parse
from hindsight_core.stores.opensearch.connection import Connection
from hindsight_core.stores.opensearch.gate import Gate
from hindsight_core.stores.opensearch.store import OpenSearchStore
from opensearch_place import OpenSearchPlace
from samples import EVERYTHING, NAMESPACE, memory, puts, run, search
from test_reembedding import NEW, NEW_DIMENSION, OLD, Embeds, Killed, new, old, record_of, silent, vector

NEVER = "never"
EXCHANGE = "?exchange"
MEMORIES = [memory(f"m{n}", f"Memory {n}.") for n in range(6)]


class Back(Embeds):
    """The old model."""

    async def __call__(self, memories: Sequence[Memory]) -> list[Record]:
        return [old(of) for of in memories]


async def nothing() -> None:
    """Nothing happens."""


class Dies(Connection):
    """A connection of a process that is killed before or after a request, if it is to be.

    Or loses the answer of one, or something happens before one, once.
    """

    def __init__(self, url: str) -> None:
        super().__init__(parse(url))
        self.before = self.after = self.loses = self.does = self.refuses = NEVER
        self.happens: Callable[[], Awaitable[object]] = nothing
        self.survives = 0
        self.slow = False  # shards take no block in time
        self.dead = False

    async def _send(self, method: str, path: str, body: Any, params: Any, within: float) -> Any:
        if path == "/_aliases" and "must_exist" in repr(body):
            path = f"{path}{EXCHANGE}"
        if path.endswith(self.before):
            self.survives -= 1
            self.dead |= self.survives < 0
        if self.dead:  # nothing that cleans up happens
            raise Killed
        if method == "PUT" and path.endswith(self.refuses):
            raise NotConnected("N/A", "no connection", OSError())
        if path.endswith(self.does):
            happens, self.does = self.happens, NEVER
            await happens()
        answer = await super()._send(method, path.removesuffix(EXCHANGE), body, params, within)
        if path.endswith(self.loses):
            self.loses = NEVER
            raise NotConnected("N/A", "the answer is lost", OSError())
        if self.slow and path.endswith("/_block/write"):
            answer = {**answer, "shards_acknowledged": False}
        if path.endswith(self.after):
            self.dead = True
            raise Killed
        return answer


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is shut was left so."""
    monkeypatch.setattr("hindsight_core.stores.opensearch.gate.PATIENCE", 0)


@pytest.fixture
def place(opensearch_url: str) -> Generator[OpenSearchPlace]:
    with OpenSearchPlace(opensearch_url) as place:
        yield place


@pytest.fixture
async def stack() -> AsyncGenerator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def opened(place: OpenSearchPlace, stack: AsyncExitStack, identity: str | None) -> tuple[OpenSearchStore, Dies]:
    connection = Dies(place.store_url)
    store = OpenSearchStore(connection)
    stack.push_async_callback(connection.aclose)
    await store.prepare(identity)
    return store, connection


async def filled(place: OpenSearchPlace, stack: AsyncExitStack) -> OpenSearchStore:
    """A process with the old model, on a place that holds memories."""
    using, _ = await opened(place, stack, OLD)
    await using.commit(NAMESPACE, puts(*map(old, MEMORIES)))
    return using


@pytest.mark.parametrize(
    ("before", "after", "shut", "exchanged"),
    [
        ("/_block/write", NEVER, False, False),
        (NEVER, "/_block/write", True, False),
        (EXCHANGE, NEVER, True, False),
        (NEVER, EXCHANGE, True, True),
    ],
    ids=["before the block", "after it", "before the exchange", "after it, shut"],
)
async def test_a_kill_around_the_exchange_is_mended_by_running_it_again(
    place: OpenSearchPlace, stack: AsyncExitStack, before: str, after: str, shut: bool, exchanged: bool
) -> None:
    using = await filled(place, stack)
    store, connection = await opened(place, stack, None)
    connection.before, connection.after = before, after
    with pytest.raises(Killed):
        await store.reembed(NEW, Embeds(), silent)

    model = new if exchanged else old
    writer = (await opened(place, stack, NEW))[0] if exchanged else using
    write = writer.commit(NAMESPACE, puts(model(memory("late")), run_id="late"))
    if shut:
        with pytest.raises(StoreUnavailable, match="takes no writes") as caught:
            await write
        assert "hindsight reembed" in caught.value.remedy
    else:
        assert await write == 2

    again, _ = await opened(place, stack, None)
    rest = Embeds()
    await again.reembed(NEW, rest, silent)
    assert rest.asked == ([] if shut else ["late"])
    store, _ = await opened(place, stack, NEW)
    await store.commit(NAMESPACE, puts(new(memory("later")), run_id="later"))
    page = await store.rank(NAMESPACE, search([], vector("Memory 3.", 24), limit=1))
    assert page.hits[0].memory.id == "m3"
    assert page.eligible == len(MEMORIES) + (1 if shut else 2)


async def test_the_old_index_goes_unless_it_is_to_stay(place: OpenSearchPlace, stack: AsyncExitStack) -> None:
    await filled(place, stack)
    store, _ = await opened(place, stack, None)
    await store.reembed(NEW, Embeds(), silent, keep_old=True)
    memories = [f"{place.prefix}-memories-00000{n}" for n in (1, 2)]
    assert [name for name in sorted(place.names()) if "memories" in name] == memories
    store, _ = await opened(place, stack, NEW)
    await store.commit(NAMESPACE, ChangeSet(run=run("e"), erases=("m3",)))
    left = " ".join(await store.remains(["Memory 3."]))
    assert memories[0] in left
    assert memories[1] not in left
    assert "hindsight reembed" in left
    store, _ = await opened(place, stack, None)
    assert await store.reembed(NEW, Embeds(), silent) == 0
    assert not [told for told in await store.remains(["Memory 3."]) if "holds" in told]
    assert [name for name in sorted(place.names()) if "memories" in name] == memories[1:]
    # And once more, to a third model.
    store, _ = await opened(place, stack, None)
    assert await store.reembed(OLD, Back(), silent) == len(MEMORIES) - 1
    assert [name for name in sorted(place.names()) if "memories" in name] == [f"{place.prefix}-memories-000003"]
    store, _ = await opened(place, stack, OLD)
    page = await store.rank(NAMESPACE, search([], vector("Memory 4.", 16), limit=1))
    assert page.hits[0].memory.id == "m4"


async def test_a_change_that_is_under_way_is_waited_for_and_comes_along(
    place: OpenSearchPlace, stack: AsyncExitStack
) -> None:
    await filled(place, stack)
    other, connection = await opened(place, stack, OLD)
    connection.before = "/_bulk"
    connection.survives = 1  # the head is written, and nothing else of the change
    with pytest.raises(Killed):
        await other.commit(NAMESPACE, ChangeSet(run=run("late"), puts=(old(memory("late")),), erases=("m1",)))
    store, _ = await opened(place, stack, None)
    await store.reembed(NEW, Embeds(), silent)
    store, _ = await opened(place, stack, NEW)
    found = await store.scan(NAMESPACE, EVERYTHING, after=None, limit=100)
    assert [one.memory.id for one in found] == ["late", *(of.id for of in MEMORIES if of.id != "m1")]
    assert {one.memory.embedding_model for one in found} == {NEW}


async def ids(store: OpenSearchStore) -> set[str]:
    return {one.memory.id for one in await store.scan(NAMESPACE, EVERYTHING, after=None, limit=10_000)}


async def test_whoever_writes_all_the_while_finds_each_acknowledged_memory_afterwards(
    place: OpenSearchPlace, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hindsight_core.stores.opensearch.reembedding._FEW", 0)
    using = await filled(place, stack)
    acknowledged = {of.id for of in MEMORIES}
    refused: list[str] = []

    async def writes(number: int) -> None:
        count = 0
        while True:
            count += 1
            name = f"w{number}-{count:04}"
            try:
                await using.commit(NAMESPACE, puts(old(memory(name)), run_id=name), searchable=False)
            except StoreUnavailable as exc:
                if NEW in exc.detail:
                    return
                refused.append(name)
            except Conflict:
                refused.append(name)
            else:
                acknowledged.add(name)
            await asyncio.sleep(0.2)

    writers = [asyncio.create_task(writes(number)) for number in range(2)]
    await asyncio.sleep(0.5)
    store, _ = await opened(place, stack, None)
    await store.reembed(NEW, Embeds(), silent)
    await asyncio.gather(*writers)
    store, _ = await opened(place, stack, NEW)
    assert len(acknowledged) > len(MEMORIES) + 2
    assert await ids(store) == acknowledged
    found = await store.scan(NAMESPACE, EVERYTHING, after=None, limit=10_000)
    assert {one.memory.embedding_model for one in found} == {NEW}


@pytest.mark.parametrize("by_hand", [False, True], ids=["another process", "by hand"])
async def test_what_is_written_because_somebody_opened_writes_is_not_lost(
    place: OpenSearchPlace, stack: AsyncExitStack, by_hand: bool
) -> None:
    using = await filled(place, stack)
    store, connection = await opened(place, stack, None)

    async def opens() -> None:
        state = f"{place.prefix}-state-000001"
        if by_hand:
            await connection.request("PUT", f"/{state}/_settings", {"index": {"blocks": {"write": None}}})
        else:
            await Gate(connection, state).open()
        await using.commit(NAMESPACE, ChangeSet(run=run("late"), puts=(old(memory("late")),), erases=("m2",)))

    connection.does, connection.happens = EXCHANGE, opens
    await store.reembed(NEW, Embeds(), silent)
    assert connection.does == NEVER
    store, _ = await opened(place, stack, NEW)
    assert await ids(store) == {"late", *(of.id for of in MEMORIES)} - {"m2"}


async def test_an_exchange_whose_answer_is_lost_has_happened(place: OpenSearchPlace, stack: AsyncExitStack) -> None:
    await filled(place, stack)
    store, connection = await opened(place, stack, None)
    connection.loses = EXCHANGE
    assert await store.reembed(NEW, Embeds(), silent) == len(MEMORIES)
    store, _ = await opened(place, stack, NEW)
    await store.commit(NAMESPACE, puts(new(memory("later")), run_id="later"))


async def test_writes_are_open_after_a_block_whose_answer_is_lost(
    place: OpenSearchPlace, stack: AsyncExitStack
) -> None:
    using = await filled(place, stack)
    store, connection = await opened(place, stack, None)

    async def fails() -> None:
        connection.refuses = "-state-000001/_settings"
        raise asyncio.CancelledError

    async def blocks() -> None:
        await connection.request("PUT", f"/{place.prefix}-state-000001/_block/write")
        raise asyncio.CancelledError

    connection.does, connection.happens = "/_block/write", blocks
    with pytest.raises(asyncio.CancelledError):
        await store.reembed(NEW, Embeds(), silent)
    await using.commit(NAMESPACE, puts(old(memory("late")), run_id="late"))
    # And where they cannot be opened it says how.
    connection.does, connection.happens = "/_block/write", fails
    with pytest.raises(StoreUnavailable, match="Writes are still shut") as caught:
        await store.reembed(NEW, Embeds(), silent)
    assert "index.blocks.write" in caught.value.remedy


async def test_of_two_models_at_once_one_comes_whole_and_the_other_is_told(
    place: OpenSearchPlace, stack: AsyncExitStack
) -> None:
    await filled(place, stack)
    first, _ = await opened(place, stack, None)
    second, _ = await opened(place, stack, None)

    async def meanwhile() -> None:
        await second.reembed(NEW, Embeds(), silent)

    class Third(Embeds):
        async def __call__(self, memories: Sequence[Memory]) -> list[Record]:
            return [record_of(of.memory, NEW_DIMENSION, "third") for of in await super().__call__(memories)]

    with pytest.raises(StoreUnavailable, match=NEW):
        await first.reembed("third", Third(meanwhile), silent)
    store, _ = await opened(place, stack, NEW)
    found = await store.scan(NAMESPACE, EVERYTHING, after=None, limit=100)
    assert {one.memory.embedding_model for one in found} == {NEW}
    assert len(found) == len(MEMORIES)
    assert [name for name in place.names() if "memories" in name] == [f"{place.prefix}-memories-000003"]


async def test_staying_with_the_present_model_ends_a_change_and_leaves_no_texts(
    place: OpenSearchPlace, stack: AsyncExitStack
) -> None:
    using = await filled(place, stack)
    store, _ = await opened(place, stack, None)

    async def stays() -> None:
        assert await (await opened(place, stack, None))[0].reembed(OLD, Back(), silent) == 0

    with pytest.raises(Conflict, match="given up"):
        await store.reembed(NEW, Embeds(stays), silent)
    assert [name for name in place.names() if "memories" in name] == [f"{place.prefix}-memories-000001"]
    assert len(await ids(using)) == len(MEMORIES)


async def test_what_is_erased_while_it_is_embedded_is_copied_nowhere(
    place: OpenSearchPlace, stack: AsyncExitStack
) -> None:
    using = await filled(place, stack)
    store, connection = await opened(place, stack, None)

    async def erases() -> None:
        await using.commit(NAMESPACE, ChangeSet(run=run("e"), erases=("m3",)))
        connection.after = "/_refresh"  # killed right after the page is written

    with pytest.raises(Killed):
        await store.reembed(NEW, Embeds(erases), silent)
    assert place.holding("Memory 4.")
    assert not [told for told in await using.remains(["Memory 3."]) if "holds" in told]
    assert [told for told in await using.remains(["Memory 4."]) if "memories-000002 holds the text" in told]


async def test_a_block_that_not_all_shards_have_taken_is_none(place: OpenSearchPlace, stack: AsyncExitStack) -> None:
    using = await filled(place, stack)
    store, connection = await opened(place, stack, None)
    connection.slow = True
    with pytest.raises(StoreUnavailable, match="Not all shards"):
        await store.reembed(NEW, Embeds(), silent)
    await using.commit(NAMESPACE, puts(old(memory("late")), run_id="late"))
