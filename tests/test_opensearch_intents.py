"""A change of several documents happens whole, wherever the process that makes it stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from opensearchpy.exceptions import ConnectionError as NotConnected
from opensearchpy.exceptions import TransportError

from hindsight_core.errors import Conflict, OutcomeUnknown
from hindsight_core.lexical import tokens
from hindsight_core.stores import Access, ChangeSet, Receipt, Where
from hindsight_core.stores.opensearch.address import parse
from hindsight_core.stores.opensearch.connection import Connection
from hindsight_core.stores.opensearch.store import OpenSearchStore
from opensearch_place import OpenSearchPlace
from samples import EVERYTHING, NAMESPACE, START_MS, event, memory, puts, record, retrieval, run, search, unit

OLD = record(memory("old", "I live in Leeds.", key="user.home", status="active"), unit(1))
NEW = record(memory("new", "I live in York.", key="user.home", status="active"), unit(2))
GONE = replace(OLD, memory=replace(OLD.memory, status="superseded", superseded_by="new", version=2))
MOVE = ChangeSet(
    run=run("move"),
    puts=(GONE, NEW),
    events=(event("e2", "old", "move", after=GONE.memory), event("e3", "new", "move", after=NEW.memory)),
    receipt=Receipt(key="k", fingerprint="f", answer=b'{"id":"new"}'),
)


class Stopped(BaseException):
    """The process is gone: nothing of it runs any more."""


class Mortal(Connection):
    """A connection whose process stops as soon as `last` requests are done."""

    def __init__(self, url: str) -> None:
        super().__init__(parse(url))
        self.last: int | None = None
        self.sent: list[str] = []

    async def _send(self, method: str, path: str, body: Any, params: Any, within: float) -> Any:
        if len(self.sent) == self.last:
            raise Stopped
        self.sent.append(f"{method} {path}")
        return await super()._send(method, path, body, params, within)


OpenMortal = Callable[..., Awaitable[tuple[OpenSearchStore, Mortal]]]


@pytest.fixture
async def mortal(opensearch_place: OpenSearchPlace) -> AsyncGenerator[OpenMortal]:
    """Opens the one place once more; the first one finds it empty."""
    opensearch_place.empty()
    async with AsyncExitStack() as stack:

        async def open_it(*, patience: float = 0.0) -> tuple[OpenSearchStore, Mortal]:
            connection = Mortal(opensearch_place.store_url)
            stack.push_async_callback(connection.aclose)
            store = OpenSearchStore(connection, patience=patience)
            await store.prepare("model-a")
            return store, connection

        yield open_it


async def stopped_after(mortal: OpenMortal, changes: ChangeSet, requests: int) -> bool:
    """Let a process stop while it makes the changes, between two requests; False when it is done before."""
    store, connection = await mortal()
    connection.last = len(connection.sent) + requests
    try:
        await store.commit(NAMESPACE, changes)
    except Stopped:
        return True
    return False


async def test_a_supersession_stopped_between_any_two_requests_has_happened_or_not_at_all(
    mortal: OpenMortal, opensearch_place: OpenSearchPlace
) -> None:
    outcomes: list[int] = []
    for requests in range(100):
        opensearch_place.empty()
        store, _ = await mortal()
        await store.commit(NAMESPACE, puts(OLD, run_id="first"))
        stopped = await stopped_after(mortal, MOVE, requests)
        reader, _ = await mortal()
        head = await reader.head(NAMESPACE)
        happened = head.sequence == 2
        outcomes.append(head.sequence)
        active = await reader.scan(NAMESPACE, Where(key="user.home", statuses=("active",)), after=None, limit=9)
        assert [r.memory.id for r in active] == (["new"] if happened else ["old"])
        assert head.memories == (2 if happened else 1)
        assert [e.id for e in await reader.read(NAMESPACE, "events")] == (["e2", "e3"] if happened else [])
        assert (await reader.receipt(NAMESPACE, "k") is not None) == happened
        page = await reader.rank(NAMESPACE, search(tokens("live York"), unit(2), where=Where(statuses=("active",))))
        assert [hit.memory.id for hit in page.hits] == (["new"] if happened else ["old"])
        if not happened:  # what did not happen can be done again
            assert await reader.commit(NAMESPACE, MOVE) == 2
        if not stopped:
            break
    # Every place was tried; from the one compare-and-set on, and not before, the change has happened.
    assert 4 < len(outcomes) < 20
    assert outcomes == sorted(outcomes)
    assert (outcomes[0], outcomes[-1]) == (1, 2)


async def test_an_erasure_stopped_between_any_two_requests_leaves_nothing_or_everything(
    mortal: OpenMortal, opensearch_place: OpenSearchPlace
) -> None:
    secret = memory("secret", "My locker code is kumquat.")
    later = replace(secret, content="My locker code is quince.", version=2)
    erase = ChangeSet(run=run("erase"), erases=("secret",), events=(event("e9", "secret", "erase", action="erased"),))
    places = 0
    for requests in range(100):
        opensearch_place.empty()
        store, _ = await mortal()
        added = (
            event("e1", "secret", after=secret, reason="not: My locker code is quince."),
            event("e2", "secret", before=secret, after=later, reason="was: My locker code is kumquat."),
            event("e3", "secret", before=later, reason="said My locker code is kumquat. and so on"),
        )
        receipt = Receipt(key="k", fingerprint="f", answer=b'{"id":"secret","text":"My locker"}')
        await store.commit(NAMESPACE, ChangeSet(run=run("1"), puts=(record(secret, unit(1)),), receipt=receipt))
        await store.commit(NAMESPACE, ChangeSet(run=run("2"), puts=(record(later, unit(1)),), events=added))
        await store.log(
            NAMESPACE,
            accesses=[Access(memory_id="secret", at=START_MS)],
            retrievals=[retrieval("q", ["secret"], "Which locker?")],
        )
        stopped = await stopped_after(mortal, erase, requests)
        reader, _ = await mortal()
        happened = (await reader.head(NAMESPACE)).sequence == 3
        assert (await reader.get(NAMESPACE, ["secret"]) == []) == happened
        kept = await reader.receipt(NAMESPACE, "k")
        assert kept is not None
        assert (kept.answer == b"") == happened
        assert (await reader.read(NAMESPACE, "retrievals") == []) == happened
        if happened:
            assert opensearch_place.holding("locker") == []
            events = await reader.read(NAMESPACE, "events")
            assert [(e.id, e.before, e.after) for e in events] == [
                (name, None, None) for name in ("e1", "e2", "e3", "e9")
            ]
        places += 1
        if not stopped:
            break
    assert 8 < places < 60


async def test_a_large_change_stopped_between_any_two_requests_is_finished_whole(
    mortal: OpenMortal, opensearch_place: OpenSearchPlace
) -> None:
    many = puts(*(record(memory(f"{n:04}", f"{n} " + "The kettle is blue. " * 300)) for n in range(200)))
    outcomes: list[int] = []
    for requests in range(100):
        opensearch_place.empty()
        stopped = await stopped_after(mortal, many, requests)
        reader, _ = await mortal()
        head = await reader.head(NAMESPACE)
        assert head.memories == 200 * head.sequence
        assert len(await reader.scan(NAMESPACE, EVERYTHING, after=None, limit=1000)) == head.memories
        outcomes.append(head.sequence)
        if head.sequence:
            assert opensearch_place.ids("state", "part") == []
        if not stopped:
            break
    assert outcomes == sorted(outcomes)
    assert outcomes[0] == 0
    assert outcomes[-1] == 1


@pytest.mark.parametrize("size", [1, 200], ids=["in the head", "in parts"])
async def test_a_change_that_an_earlier_version_left_unfinished_is_written_in_the_form_of_now(
    mortal: OpenMortal, opensearch_place: OpenSearchPlace, size: int
) -> None:
    store, connection = await mortal()
    send = connection._send

    async def stops_before_the_documents(method: str, path: str, body: Any, *sent: Any) -> Any:
        if path == "/_bulk" and b'-memories"' in body:
            raise Stopped
        return await send(method, path, body, *sent)

    connection._send = stops_before_the_documents  # type: ignore[method-assign]
    told = ["The kettle is blue. " * (300 if size > 1 else 1) + str(n) for n in range(size)]
    many = [record(memory(f"{n:04}", text), unit(n)) for n, text in enumerate(told)]
    with pytest.raises(Stopped):
        await store.commit(NAMESPACE, puts(*many))
    assert (len(opensearch_place.ids("state", "part")) > 0) == (size > 1)
    opensearch_place.as_before_schema_3()
    reader, _ = await mortal()
    found = await reader.scan(NAMESPACE, EVERYTHING, after=None, limit=1000)
    assert [one.memory.content for one in found] == told
    assert all(one.bare is not None for one in found)
    assert opensearch_place.of_before_schema_3() == []


async def test_a_writer_that_was_held_up_changes_nothing_that_came_after_it(
    mortal: OpenMortal, opensearch_place: OpenSearchPlace
) -> None:
    store, connection = await mortal()
    await store.commit(NAMESPACE, puts(OLD, run_id="first"))
    go_on = asyncio.Event()
    arrived = asyncio.Event()
    send = connection._send
    first = len(connection.sent)

    async def held_up(method: str, path: str, *sent: Any) -> Any:
        # The documents of the change are the second bulk request of a commit, after its head.
        if path == "/_bulk" and sum(one.endswith("/_bulk") for one in connection.sent[first:]) == 1:
            arrived.set()
            await go_on.wait()
        return await send(method, path, *sent)

    connection._send = held_up  # type: ignore[method-assign]
    slow = asyncio.create_task(store.commit(NAMESPACE, MOVE))
    await arrived.wait()
    other, _ = await mortal()
    (found,) = await other.get(NAMESPACE, ["new"])  # finishes what the slow one began
    newest = replace(found, memory=replace(found.memory, content="I live in Hull.", version=2))
    assert await other.commit(NAMESPACE, puts(newest, run_id="later")) == 3
    await other.commit(NAMESPACE, ChangeSet(run=run("erase"), erases=("old",)))
    go_on.set()
    assert await slow == 2
    reader, _ = await mortal()
    assert [r.memory.content for r in await reader.get(NAMESPACE, ["new", "old"])] == ["I live in Hull."]
    assert [r.memory.id for r in await reader.scan(NAMESPACE, EVERYTHING, after=None, limit=9)] == ["new"]
    assert (await reader.head(NAMESPACE)).sequence == 4


async def test_a_reader_waits_for_a_change_under_way_and_need_not_repeat_it(mortal: OpenMortal) -> None:
    store, _ = await mortal()
    reader, watched = await mortal(patience=30.0)
    before = len(watched.sent)
    writing = asyncio.gather(*(store.commit(NAMESPACE, puts(record(memory(str(n))), run_id=str(n))) for n in range(8)))
    while not writing.done():
        await reader.head(NAMESPACE)
    await writing
    assert not [sent for sent in watched.sent[before:] if sent.endswith("/_bulk")]
    assert (await reader.head(NAMESPACE)).sequence == 8


@pytest.mark.parametrize("nth", [0, 1, 2], ids=["the head", "the documents", "the closed head"])
async def test_a_change_whose_answer_is_lost_on_the_way_is_acknowledged_all_the_same(
    mortal: OpenMortal, nth: int
) -> None:
    store, connection = await mortal()
    await store.commit(NAMESPACE, puts(OLD))
    send = connection._send
    writes: list[str] = []

    async def lossy(method: str, path: str, *sent: Any) -> Any:
        answer = await send(method, path, *sent)
        if path == "/_bulk":
            writes.append(path)
            if len(writes) == nth + 1:
                raise NotConnected("N/A", "the connection broke", OSError())
        return answer

    connection._send = lossy  # type: ignore[method-assign]
    assert await store.commit(NAMESPACE, MOVE, expected=1) == 2
    assert len(writes) > nth
    reader, _ = await mortal()
    assert (await reader.head(NAMESPACE)).memories == 2
    found = await reader.scan(NAMESPACE, Where(statuses=("active",)), after=None, limit=9)
    assert [r.memory.id for r in found] == ["new"]


# What a proxy says in its own words, of a request that it may have passed on.
WORDS = {
    "its own error": TransportError(500, "Internal Server Error", "<html>Internal Server Error</html>"),
    "a status of its own": TransportError(520, "error code: 520", "error code: 520"),
    "too late": TransportError(408, "Request Timeout", "Request Timeout"),
    "not found": TransportError(404, "<html>no</html>", "<html>no</html>"),
    "half an answer": msgspec.DecodeError("Input data was truncated"),
    "no answer": "",
    "something else": {"status": "ok"},
}


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
async def test_an_answer_that_is_not_openSearchs_tells_nothing_of_a_change(  # noqa: N802
    mortal: OpenMortal, words: Exception | str | dict[str, str]
) -> None:
    """It has happened if the head can be read and says so, else that is not known; never has nothing happened."""
    store, connection = await mortal()
    await store.commit(NAMESPACE, puts(OLD))
    send = connection._send
    foreign = 0
    swapped: list[str] = []

    async def through_a_proxy(method: str, path: str, *sent: Any) -> Any:
        nonlocal foreign
        answer = await send(method, path, *sent)
        if path == "/_bulk" and not swapped:
            swapped.append(path)
            foreign = answers
        if not foreign:
            return answer
        foreign -= 1
        if isinstance(words, Exception):
            raise words
        return words

    connection._send = through_a_proxy  # type: ignore[method-assign]
    answers = 1
    assert await store.commit(NAMESPACE, MOVE) == 2
    assert swapped
    swapped.clear()
    answers = 100
    with pytest.raises(OutcomeUnknown) as caught:
        await store.commit(NAMESPACE, puts(record(memory("third")), run_id="third"))
    assert "Look before you repeat it" in caught.value.remedy
    reader, _ = await mortal()
    assert (await reader.head(NAMESPACE)).sequence == 3


async def test_writers_of_several_processes_take_turns_and_lose_nothing(mortal: OpenMortal) -> None:
    stores = [(await mortal(patience=5.0))[0] for _ in range(3)]

    async def write(number: int) -> None:
        change = puts(record(memory(f"{number:02}")), run_id=str(number))
        for _ in range(50):
            try:
                await stores[number % 3].commit(NAMESPACE, change)
            except Conflict:
                continue
            return
        raise AssertionError("no turn found")

    await asyncio.gather(*(write(number) for number in range(18)))
    head = await stores[0].head(NAMESPACE)
    assert (head.sequence, head.memories) == (18, 18)
    found = await stores[1].scan(NAMESPACE, EVERYTHING, after=None, limit=100)
    assert [r.memory.id for r in found] == [f"{number:02}" for number in range(18)]


class Interrupted(Connection):
    """A connection over which something happens after so many searches of one request."""

    def __init__(self, url: str) -> None:
        super().__init__(parse(url))
        self.after = 0
        self.happens: Callable[[], Awaitable[object]] | None = None

    async def _send(self, method: str, path: str, body: Any, params: Any, within: float) -> Any:
        if path != "/_msearch" or self.happens is None:
            return await super()._send(method, path, body, params, within)
        happens, self.happens = self.happens, None
        lines = body.splitlines(keepends=True)
        first = await super()._send(method, path, b"".join(lines[: 2 * self.after]), params, within)
        await happens()
        second = await super()._send(method, path, b"".join(lines[2 * self.after :]), params, within)
        return {**first, "responses": first["responses"] + second["responses"]}


@pytest.mark.parametrize(
    ("options", "lowest", "after", "change"),
    [
        ("", 0.0, 1, ChangeSet(run=run("erase"), erases=("old",))),
        ("", 0.01, 1, ChangeSet(run=run("erase"), erases=("old",))),
        ("?exact_below=0", 0.0, 2, puts(NEW, run_id="second")),
    ],
    ids=["filtered", "below the minimum", "surveyed"],
)
async def test_no_count_is_below_nothing_when_a_change_comes_between_two_searches_of_one_request(
    mortal: OpenMortal, opensearch_place: OpenSearchPlace, options: str, lowest: float, after: int, change: ChangeSet
) -> None:
    other, _ = await mortal()
    await other.commit(NAMESPACE, puts(OLD, run_id="first"))
    connection = Interrupted(opensearch_place.store_url + options)
    store = OpenSearchStore(connection)
    try:
        connection.after, connection.happens = after, lambda: other.commit(NAMESPACE, change)
        page = await store.rank(NAMESPACE, search(vector=unit(1), min_score=lowest))
    finally:
        await store.aclose()
    assert connection.happens is None
    assert page.in_scope >= page.eligible >= len(page.hits) > 0
    assert page.below == 0


async def test_a_change_that_need_not_be_searchable_is_seen_by_whoever_plans_on_the_head_that_tells_of_it(
    mortal: OpenMortal,
) -> None:
    (store, connection), (planner, _) = await mortal(), await mortal()
    await planner.commit(NAMESPACE, puts(OLD, run_id="first"))
    before = len(connection.sent)
    await store.commit(NAMESPACE, puts(NEW, run_id="second"), searchable=False)
    assert not [sent for sent in connection.sent[before:] if sent.endswith("/_refresh")]
    assert (await planner.head(NAMESPACE)).sequence == 2
    (near,) = await planner.neighbours(NAMESPACE, unit(2)[None, :], EVERYTHING, 1)
    assert [n.record.memory.id for n in near] == ["new"]
