"""An OpenSearch that is away, slow, full, foreign or emptied is an error that says so, never an empty memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from localstack.service import ServiceProcess, free_port
from opensearchpy.exceptions import ConnectionTimeout

from hindsight_core.errors import ConfigurationError, OutcomeUnknown, StoreUnavailable
from hindsight_core.lexical import tokens
from hindsight_core.loops import both
from hindsight_core.stores import ChangeSet, MemoryStore, Where, open_store
from hindsight_core.stores.opensearch.address import parse
from hindsight_core.stores.opensearch.connection import Connection
from hindsight_core.stores.opensearch.indices import Indices
from hindsight_core.stores.opensearch.mapping import SCHEMA
from hindsight_core.stores.opensearch.preparation import GREETING, Preparation
from hindsight_core.stores.opensearch.store import OpenSearchStore
from opensearch_place import OpenSearchPlace
from samples import EVERYTHING, NAMESPACE, memory, puts, record, run, search, unit

ROOT = Path(__file__).resolve().parents[1]
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def impatient(url: str, *, attempts: int, greeting: float = GREETING) -> OpenSearchStore:
    """A store that asks for its OpenSearch as often at the start, without a pause."""
    connection = Connection(parse(url))
    preparation = Preparation(connection, Indices(connection), attempts=attempts, pause=0.0, greeting=greeting)
    return OpenSearchStore(connection, preparation=preparation)


@asynccontextmanager
async def closing(store: MemoryStore) -> AsyncGenerator[MemoryStore]:
    try:
        yield store
    finally:
        await store.aclose()


async def every_reading_verb(store: MemoryStore) -> list[BaseException | Any]:
    return await asyncio.gather(
        store.head(NAMESPACE),
        store.get(NAMESPACE, ["a"]),
        store.rank(NAMESPACE, search(tokens("tea"), unit(1))),
        store.neighbours(NAMESPACE, unit(1)[None, :], EVERYTHING, 3),
        store.scan(NAMESPACE, EVERYTHING, after=None, limit=10),
        store.read(NAMESPACE, "events"),
        store.read(NAMESPACE, "retrievals"),
        store.receipt(NAMESPACE, "k"),
        store.count(NAMESPACE),
        store.check(),
        return_exceptions=True,
    )


async def test_an_openSearch_that_never_starts_is_named_with_host_port_and_setting() -> None:  # noqa: N802
    port = free_port()
    async with closing(impatient(f"opensearch://127.0.0.1:{port}/p", attempts=3)) as store:
        with pytest.raises(StoreUnavailable, match=r"asked 3 times") as caught:
            await store.prepare("model-a")
    for said in ("127.0.0.1", str(port), "HINDSIGHT_STORE"):
        assert said in caught.value.detail
    assert caught.value.remedy
    assert caught.value.__cause__ is not None


def test_an_openSearch_that_is_starting_is_asked_as_often_as_the_docs_say(  # noqa: N802
    opensearch_place: OpenSearchPlace,
) -> None:
    docs = " ".join((ROOT / "docs" / "opensearch.md").read_text("utf-8").split())
    assert "asked every two seconds, ten times, and given two seconds to say anything, the last time twenty;" in docs
    store = open_store(opensearch_place.store_url)
    assert isinstance(store, OpenSearchStore)
    asked = store._preparation
    assert (asked._pause, asked._attempts, asked._greeting, asked._attempts * asked._greeting) == (2.0, 10, 2.0, 20.0)


async def test_a_host_that_says_nothing_at_the_start_is_asked_in_vain_for_no_longer_than_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whatever the timeout of a call is; and the log says what is waited for once, and no more."""
    over = asyncio.Event()

    async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    async with (
        listening(silent) as port,
        closing(impatient(f"opensearch://127.0.0.1:{port}?timeout=60", attempts=3, greeting=0.1)) as store,
    ):
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"asked 3 times in \d s ") as caught:
            await store.prepare("model-a")
        took = time.monotonic() - began
        over.set()
    assert took < 10.0
    assert "timeout" not in caught.value.remedy  # no other one would have helped
    told = int(caught.value.detail.split("asked 3 times in ")[1].split(" s ")[0])
    assert abs(told - took) <= 1.0
    (event,) = caplog.records
    assert (event.message, event.port, event.setting) == ("store.waiting", port, "HINDSIGHT_STORE")  # type: ignore[attr-defined]


async def test_a_cluster_that_takes_its_time_to_greet_is_used_all_the_same(opensearch_place: OpenSearchPlace) -> None:
    """At the last try it has as long as at all tries together."""
    opensearch_place.empty()

    class Slow(Connection):
        async def _send(self, method: str, path: str, body: Any, params: Any, within: float) -> Any:
            if path.startswith("/_cat/") and within < 1.0:
                raise ConnectionTimeout("TIMEOUT", "it takes a second", TimeoutError())
            return await super()._send(method, path, body, params, within)

    connection = Slow(parse(opensearch_place.store_url))
    preparation = Preparation(connection, Indices(connection), attempts=5, pause=0.0, greeting=0.5)
    async with closing(OpenSearchStore(connection, preparation=preparation)) as store:
        await store.prepare("model-a")
        assert (await store.check()).status == "ok"


async def test_nothing_listening_is_an_error_of_every_verb_with_a_remedy() -> None:
    async with closing(open_store(f"opensearch://127.0.0.1:{free_port()}")) as store:
        for answer in await every_reading_verb(store):
            assert isinstance(answer, StoreUnavailable)
            assert "cannot be reached" in answer.detail
            assert answer.remedy
        with pytest.raises(StoreUnavailable):
            await store.commit(NAMESPACE, puts(record(memory("a"))))


@asynccontextmanager
async def listening(answer: Answer) -> AsyncGenerator[int]:
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_what_never_answers_is_given_up_after_the_timeout() -> None:
    over = asyncio.Event()

    async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    async with listening(silent) as port, closing(open_store(f"opensearch://127.0.0.1:{port}?timeout=0.2")) as store:
        began = time.monotonic()
        for answer in await every_reading_verb(store):
            assert isinstance(answer, StoreUnavailable)
            assert "0.2 s" in answer.detail
        assert time.monotonic() - began < 5.0
        over.set()


async def test_when_one_of_two_requests_fails_the_other_is_over_before_that_is_said() -> None:
    over = asyncio.Event()

    async def fails() -> None:
        await asyncio.sleep(0)
        raise StoreUnavailable("It is away.")

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            over.set()

    with pytest.raises(StoreUnavailable, match="away"):
        await both(waits(), fails())
    assert over.is_set()


async def test_a_closed_store_says_so(opensearch_place: OpenSearchPlace) -> None:
    store = open_store(opensearch_place.store_url)
    await store.aclose()
    await store.aclose()
    for answer in await every_reading_verb(store):
        assert isinstance(answer, StoreUnavailable)
        assert "closed" in answer.detail


_PAGE = b"<!DOCTYPE HTML>\n<html>\n<head><title>Error response</title></head>\n<body>File not found.</body></html>"


@pytest.mark.parametrize(
    ("status", "kind", "body"),
    [
        (b"200 OK", b"text/html", b"Hello"),
        (b"200 OK", b"application/json", b'{"status": "ok"}'),
        (b"204 No Content", b"text/plain", b""),
        (b"404 Not Found", b"text/html", _PAGE),
        (b"404 Not Found", b"text/plain", b""),
        (b"404 Not Found", b"application/problem+json", b'{"title": "Not found", "status": 404, "code": "not_found"}'),
        (b"404 Not Found", b"application/json", b'{"detail": "Not Found"}'),
        (b"405 Method Not Allowed", b"text/plain", b"no"),
    ],
)
async def test_what_answers_but_is_no_openSearch_is_told_apart_and_not_asked_again(  # noqa: N802
    status: bytes, kind: bytes, body: bytes
) -> None:
    async def greeting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        writer.write(head % (status, kind, len(body)) + body)
        await writer.drain()
        writer.close()

    async with listening(greeting) as port, closing(open_store(f"opensearch://127.0.0.1:{port}")) as store:
        with pytest.raises(ConfigurationError, match="HINDSIGHT_STORE: What answers at 127") as caught:
            await store.prepare("model-a")
        assert len(caught.value.detail) < 250
        assert "\n" not in caught.value.detail
        assert caught.value.remedy == "Correct the address in HINDSIGHT_STORE."
        for answer in await every_reading_verb(store):
            assert isinstance(answer, StoreUnavailable)
            assert "does not answer as OpenSearch does" in answer.detail


@pytest.mark.parametrize("status", [b"500 Internal Server Error", b"520 ", b"408 Request Timeout"])
async def test_what_stands_between_and_has_trouble_of_its_own_is_asked_again_at_the_start(status: bytes) -> None:
    async def troubled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 %s\r\nContent-Length: 7\r\nConnection: close\r\n\r\n<html/>" % status)
        await writer.drain()
        writer.close()

    async with listening(troubled) as port, closing(impatient(f"opensearch://127.0.0.1:{port}", attempts=3)) as store:
        with pytest.raises(StoreUnavailable, match="asked 3 times") as caught:
            await store.prepare("model-a")
        assert caught.value.remedy


async def test_wrong_credentials_are_an_error_at_the_start_and_of_every_verb() -> None:
    async def refusing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 12\r\nConnection: close\r\n\r\nUnauthorized")
        await writer.drain()
        writer.close()

    async with (
        listening(refusing) as port,
        closing(open_store(f"opensearch://ann:wrong@127.0.0.1:{port}")) as store,
    ):
        with pytest.raises(ConfigurationError, match="credentials") as caught:
            await store.prepare(None)
        assert "HINDSIGHT_STORE" in caught.value.remedy
        for answer in await every_reading_verb(store):
            assert isinstance(answer, StoreUnavailable)
            assert "wrong" not in answer.detail + answer.remedy


async def test_indices_that_were_deleted_are_an_error_not_an_empty_memory(opensearch_url: str) -> None:
    with OpenSearchPlace(opensearch_url) as place:
        await place.make()
        async with closing(open_store(place.store_url)) as store:
            await store.commit(NAMESPACE, puts(record(memory("a"))))
            place.remove()
            for answer in await every_reading_verb(store):
                assert isinstance(answer, StoreUnavailable), answer
                assert answer.remedy.startswith("Restore the index from a snapshot.")
            with pytest.raises(StoreUnavailable):
                await store.commit(NAMESPACE, puts(record(memory("b"))))
            assert place.names() == []  # and writing has made no index by itself


async def test_processes_that_start_at_once_make_one_place(opensearch_url: str) -> None:
    with OpenSearchPlace(opensearch_url) as place:
        async with AsyncExitStack() as stack:
            stores = [await stack.enter_async_context(closing(open_store(place.store_url))) for _ in range(4)]
            await asyncio.gather(*(store.prepare("model-a") for store in stores))
            for number, store in enumerate(stores):
                assert (
                    await store.commit(NAMESPACE, puts(record(memory(str(number))), run_id=str(number))) == number + 1
                )
            with pytest.raises(ConfigurationError, match="model-a"):
                await stores[0].prepare("model-b")
        assert sorted(place.names()) == [
            f"{place.prefix}-{index}-000001" for index in ("journal", "memories", "retrievals", "state")
        ]


async def test_what_is_lost_of_a_store_is_named_at_the_start_and_nothing_is_made_in_its_place(
    opensearch_url: str,
) -> None:
    for lost in ("memories", "journal", "retrievals", "state"):
        with OpenSearchPlace(opensearch_url) as place:
            await place.make()
            async with closing(open_store(place.store_url)) as store:
                await store.commit(NAMESPACE, puts(record(memory("a"))))
                place.remove(lost)
                with pytest.raises(ConfigurationError, match=f"HINDSIGHT_STORE: .*-{lost} is gone") as caught:
                    await store.prepare("model-a")
                assert f"{place.prefix}-{lost}-000001" not in place.names()
                # What the remedy says is the way to an empty one.
                assert f"delete all indices {place.prefix}-*" in caught.value.remedy
                place.remove()
                await store.prepare("model-a")
                assert await store.commit(NAMESPACE, puts(record(memory("b")))) == 1


async def test_a_start_that_was_broken_off_is_finished_by_the_next(opensearch_url: str) -> None:
    with OpenSearchPlace(opensearch_url) as place:
        await place.make()
        place.remove("retrievals")
        place.remove("state")
        async with closing(open_store(place.store_url)) as store:
            await store.prepare("model-a")
            assert await store.commit(NAMESPACE, puts(record(memory("a")))) == 1


async def test_a_full_disk_is_told_nothing_of_the_change_is_stored_and_what_reads_goes_on(
    opensearch_place: OpenSearchPlace,
) -> None:
    opensearch_place.empty()
    async with closing(open_store(opensearch_place.store_url)) as store:
        await store.prepare("model-a")
        await store.commit(NAMESPACE, puts(record(memory("a"))))
        assert (await store.check()).status == "ok"
        opensearch_place.block(True)
        try:
            with pytest.raises(StoreUnavailable, match=r"takes no writes: .*flood-stage") as caught:
                await store.commit(NAMESPACE, puts(record(memory("b")), run_id="2"))
            assert not isinstance(caught.value, OutcomeUnknown)
            assert "disk is probably full" in caught.value.remedy
            found = await store.check()
            assert (found.status, found.remedy) == ("degraded", caught.value.remedy)
            assert "takes no writes" in found.detail
            assert [r.memory.id for r in await store.scan(NAMESPACE, EVERYTHING, after=None, limit=5)] == ["a"]
        finally:
            opensearch_place.block(False)
        assert (await store.check()).status == "ok"
        assert (await store.head(NAMESPACE)).sequence == 1
        assert await store.commit(NAMESPACE, puts(record(memory("b")), run_id="2")) == 2


async def test_where_only_a_part_takes_no_writes_the_change_takes_effect_once_it_does(
    opensearch_place: OpenSearchPlace,
) -> None:
    opensearch_place.empty()
    async with closing(open_store(opensearch_place.store_url)) as store:
        await store.prepare("model-a")
        opensearch_place.block(True, "memories")
        try:
            with pytest.raises(OutcomeUnknown, match="takes no writes") as caught:
                await store.commit(NAMESPACE, puts(record(memory("a"))))
            assert "takes effect" in caught.value.detail
            assert "disk is probably full" in caught.value.remedy
            assert (await store.check()).status == "degraded"
            # Whoever reads it meanwhile is told why it cannot be read; other namespaces can.
            with pytest.raises(
                StoreUnavailable, match=rf"'{NAMESPACE}' has begun and cannot be finished.*takes no"
            ) as told:
                await store.rank(NAMESPACE, search(tokens("kettle")))
            assert told.value.remedy == caught.value.remedy[: len(told.value.remedy)]
            assert (await store.head("other")).sequence == 0
        finally:
            opensearch_place.block(False)
        assert [r.memory.id for r in await store.scan(NAMESPACE, EVERYTHING, after=None, limit=5)] == ["a"]


async def test_a_newer_schema_and_other_vectors_are_refused(opensearch_place: OpenSearchPlace) -> None:
    opensearch_place.empty()
    async with closing(open_store(opensearch_place.store_url)) as store:
        await store.prepare("model-a")
        opensearch_place.put("state", "/schema", {"value": str(SCHEMA + 1)})
        try:
            with pytest.raises(ConfigurationError, match="newer version"):
                await store.prepare("model-a")
            # An earlier one is brought up to date, as often as processes start at once.
            for _ in range(2):
                opensearch_place.put("state", "/schema", {"value": "1"})
                await store.prepare("model-a")
            await store.commit(NAMESPACE, puts(record(memory("a", derived_from=("b",)))))
            assert len(await store.scan(NAMESPACE, Where(derived_from=("b",)), after=None, limit=5)) == 1
        finally:
            opensearch_place.put("state", "/schema", {"value": str(SCHEMA)})


def test_one_store_serves_several_event_loops(opensearch_place: OpenSearchPlace) -> None:
    opensearch_place.empty()
    store = open_store(opensearch_place.store_url)

    async def write(number: int) -> int:
        async with closing(store):
            await store.prepare("model-a")
            return await store.commit(NAMESPACE, puts(record(memory(str(number))), run_id=str(number)))

    assert [asyncio.run(write(number)) for number in range(3)] == [1, 2, 3]


async def test_what_is_erased_leaves_the_disk_when_that_is_asked_for(opensearch_url: str) -> None:
    with OpenSearchPlace(opensearch_url) as place:
        await place.make()
        async with closing(open_store(place.store_url)) as store:
            assert isinstance(store, OpenSearchStore)
            await store.commit(NAMESPACE, puts(*(record(memory(str(n)), unit(n)) for n in range(9))))
            await store.commit(NAMESPACE, ChangeSet(run=run("2"), erases=("7",)))
            assert place.deleted("memories") > 0
            async with asyncio.timeout(90):  # OpenSearch itself keeps them for half a minute
                while place.deleted("memories"):
                    await asyncio.sleep(2)
                    await store.expunge()
            assert [r.memory.id for r in await store.scan(NAMESPACE, EVERYTHING, after=None, limit=9)] == list(
                "01234568"
            )


class _Watched(Connection):
    """A connection that keeps what was asked of the cluster as a whole, in the eyes of the security plugin."""

    def __init__(self, url: str) -> None:
        super().__init__(parse(url))
        self.asked: set[str] = set()

    async def _send(self, method: str, path: str, body: Any, params: Any, within: float) -> Any:
        if path.endswith("/_mget"):
            self.asked.add("/_mget")
        elif path.startswith("/_"):
            whole = path.partition("/" + self.address.prefix)[0]
            self.asked.add("/_tasks" if whole.startswith("/_tasks/") else whole)
        return await super()._send(method, path, body, params, within)


async def test_the_docs_name_all_that_is_asked_of_the_cluster_and_not_of_an_index(opensearch_url: str) -> None:
    """Index rights do not cover it, so whoever gives rights must know of it."""
    rights = (ROOT / "docs" / "opensearch.md").read_text("utf-8").partition("\n## Rights\n")[2].partition("\n## ")[0]
    with OpenSearchPlace(opensearch_url, "exact_below=0") as place:
        connection = _Watched(place.store_url)
        async with closing(OpenSearchStore(connection)) as store:
            await store.prepare("model-a")
            await store.commit(NAMESPACE, puts(*(record(memory(str(n)), unit(n)) for n in range(3))))
            await store.commit(NAMESPACE, ChangeSet(run=run("2"), erases=("1",)))
            assert not [one for one in await every_reading_verb(store) if isinstance(one, BaseException)]
            await store.keep("turns/a", "{}", expected=0)
            await store.remains(["a text"])
            await store.expunge()
    assert {"/_bulk", "/_mget", "/_tasks"} <= connection.asked
    assert [path for path in sorted(connection.asked) if f"`{path}`" not in rights] == []


class _Patient(Connection):
    """A connection over which a merge that is waited for by one call takes longer than a call may."""

    async def _send(self, method: str, path: str, body: Any, params: Any, within: float) -> Any:
        if "_forcemerge" in path and params.get("wait_for_completion") != "false":
            raise ConnectionTimeout("TIMEOUT", "it merges", TimeoutError())
        return await super()._send(method, path, body, params, within)


async def test_a_merge_may_take_longer_than_a_call(opensearch_url: str) -> None:
    with OpenSearchPlace(opensearch_url) as place:
        await place.make()
        async with closing(OpenSearchStore(_Patient(parse(place.store_url)))) as store:
            await store.commit(NAMESPACE, puts(*(record(memory(str(n)), unit(n)) for n in range(9))))
            await store.expunge()
            place.remove("journal")
            with pytest.raises(StoreUnavailable, match="no such index"):
                await store.expunge()


class _Forgetful(Connection):
    """A connection to a node that was restarted during a merge: it knows the task no more."""

    async def _send(self, method: str, path: str, body: Any, params: Any, within: float) -> Any:
        if path.startswith("/_tasks/"):
            path = f"{path.rpartition(':')[0]}:999999999"
        return await super()._send(method, path, body, params, within)


async def test_a_merge_that_was_cut_off_is_told_as_that_and_nothing_is_to_be_deleted(
    opensearch_place: OpenSearchPlace,
) -> None:
    opensearch_place.empty()
    async with closing(OpenSearchStore(_Forgetful(parse(opensearch_place.store_url)))) as store:
        with pytest.raises(StoreUnavailable, match="restarted meanwhile") as caught:
            await store.expunge()
        assert caught.value.remedy.startswith("Run it again")


@pytest.fixture
async def place_of_the_node(opensearch_node: ServiceProcess) -> AsyncGenerator[tuple[OpenSearchPlace, ServiceProcess]]:
    with OpenSearchPlace(opensearch_node.url, "timeout=15") as place:
        await place.make()
        yield place, opensearch_node
        await asyncio.to_thread(opensearch_node.start, seconds=180)


async def test_a_node_that_stops_or_is_killed_under_load_loses_no_acknowledged_write(
    place_of_the_node: tuple[OpenSearchPlace, ServiceProcess],
) -> None:
    place, node = place_of_the_node
    acknowledged: list[str] = []
    failures: list[StoreUnavailable] = []
    longest = 0.0
    goal = 10
    reached, failed, over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def timed(call: Awaitable[object]) -> bool:
        nonlocal longest
        began = time.monotonic()
        try:
            await call
        except StoreUnavailable as exc:
            failures.append(exc)
            failed.set()
            return False
        finally:
            longest = max(longest, time.monotonic() - began)
        return True

    async def write(writer: int, store: MemoryStore) -> None:
        number = 0
        while not over.is_set():
            name = f"{writer}-{number:05}"
            number += 1
            if await timed(store.commit(NAMESPACE, puts(record(memory(name), unit(number)), run_id=name))):
                acknowledged.append(name)
                if len(acknowledged) >= goal:
                    reached.set()

    async def read(store: MemoryStore) -> None:
        while not over.is_set():
            await timed(store.rank(NAMESPACE, search(tokens("kettle"), unit(1))))

    async with closing(impatient(place.store_url, attempts=1)) as one, closing(open_store(place.store_url)) as two:
        await one.prepare("model-a")
        load = [asyncio.create_task(work) for work in (write(0, one), write(1, two), read(one), read(two))]
        for end in (node.stop, node.kill):
            await asyncio.wait_for(reached.wait(), 120)
            failed.clear()
            await asyncio.to_thread(end)
            await asyncio.wait_for(failed.wait(), 60)
            await asyncio.to_thread(node.start, seconds=180)
            goal = len(acknowledged) + 10
            reached.clear()
        await asyncio.wait_for(reached.wait(), 120)
        over.set()
        await asyncio.gather(*load)
        kept = {r.memory.id for r in await one.scan(NAMESPACE, EVERYTHING, after=None, limit=10_000)}
        head = await two.head(NAMESPACE)
    assert set(acknowledged) <= kept
    assert head.memories == len(kept)
    assert all(failure.remedy for failure in failures)
    assert longest < 20.0
