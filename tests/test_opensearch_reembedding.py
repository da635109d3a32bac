"""The exchange of two indices of OpenSearch, broken off in its middle, and what stays of the old one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from hindsight_core.errors import StoreUnavailable
from hindsight_core.models import Memory
from hindsight_core.stores import ChangeSet, Record
from hindsight_core.stores.opensearch.address import parse
from hindsight_core.stores.opensearch.connection import Connection
from hindsight_core.stores.opensearch.store import OpenSearchStore
from opensearch_place import OpenSearchPlace
from samples import EVERYTHING, NAMESPACE, memory, puts, run, search
from test_reembedding import NEW, OLD, Embeds, Killed, new, old, silent, vector

NEVER = "never"
MEMORIES = [memory(f"m{n}", f"Memory {n}.") for n in range(6)]


class Back(Embeds):
    """The old model."""

    async def __call__(self, memories: Sequence[Memory]) -> list[Record]:
        return [old(of) for of in memories]


class Dies(Connection):
    """A connection of a process that is killed before or after a request, if it is to be."""

    def __init__(self, url: str) -> None:
        super().__init__(parse(url))
        self.before = self.after = NEVER
        self.survives = 0
        self.dead = False

    async def _send(self, method: str, path: str, body: Any, params: Any, within: float) -> Any:
        if path.endswith(self.before):
            self.survives -= 1
            self.dead |= self.survives < 0
        if self.dead:  # nothing that cleans up happens
            raise Killed
        answer = await super()._send(method, path, body, params, within)
        if path.endswith(self.after):
            self.dead = True
            raise Killed
        return answer


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is shut was left so."""
    monkeypatch.setattr("hindsight_core.stores.opensearch.reembedding.PATIENCE", 0)


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
        ("/_aliases", NEVER, True, False),
        (NEVER, "/_aliases", True, True),
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


async def test_the_old_index_stays_until_it_is_to_go(place: OpenSearchPlace, stack: AsyncExitStack) -> None:
    await filled(place, stack)
    store, _ = await opened(place, stack, None)
    await store.reembed(NEW, Embeds(), silent)
    memories = [f"{place.prefix}-memories-00000{n}" for n in (1, 2)]
    assert [name for name in sorted(place.names()) if "memories" in name] == memories
    store, _ = await opened(place, stack, None)
    assert await store.reembed(NEW, Embeds(), silent, delete_old=True) == 0
    assert [name for name in sorted(place.names()) if "memories" in name] == memories[1:]
    # And once more, to a third model.
    store, _ = await opened(place, stack, None)
    assert await store.reembed(OLD, Back(), silent, delete_old=True) == len(MEMORIES)
    assert [name for name in sorted(place.names()) if "memories" in name] == [f"{place.prefix}-memories-000003"]
    store, _ = await opened(place, stack, OLD)
    page = await store.rank(NAMESPACE, search([], vector("Memory 3.", 16), limit=1))
    assert page.hits[0].memory.id == "m3"


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
