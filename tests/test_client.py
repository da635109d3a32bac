"""The client does what the service does, over a real connection or in process, and repeats only what is safe."""

from __future__ import annotations

import asyncio
import json
import socketserver
import threading
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import cast

import msgspec
import pytest

from hindsight_core import calls
from hindsight_core.client import AsyncHindsight, Hindsight
from hindsight_core.config import load
from hindsight_core.errors import (
    ConfigurationError,
    Conflict,
    HindsightError,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    StoreUnavailable,
    TooManyRequests,
    Unavailable,
)
from hindsight_core.requests import (
    ContextRequest,
    Filters,
    ForgetRequest,
    ListRequest,
    Message,
    PageRequest,
    RecallRequest,
    Request,
    ResolveRequest,
    SearchRequest,
    SweepRequest,
    TaskRequest,
    UpdateRequest,
    WriteRequest,
)
from hindsight_core.service import MemoryService
from server import Server, environment, server

DOG = WriteRequest(content="My dog is called Biscuit.", force=True, reconcile="none")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    store = tmp_path_factory.mktemp("client") / "hindsight.db"
    with server(env=environment(HINDSIGHT_STORE=str(store))) as found:
        yield found


class Plain:
    """An async client, used as the blocking one is: the same tests hold for both."""

    def __init__(self, client: AsyncHindsight, runner: asyncio.Runner) -> None:
        self._client = client
        self._runner = runner

    def __getattr__(self, name: str) -> Callable[..., object]:
        method = getattr(self._client, name)

        def called(*arguments: object) -> object:
            answer = method(*arguments)
            return self._runner.run(listed(answer) if name == "export" else answer)

        return called


async def listed(lines: AsyncIterator[bytes]) -> list[bytes]:
    return [line async for line in lines]


@contextmanager
def plain(client: AsyncHindsight) -> Generator[Hindsight]:
    with asyncio.Runner() as runner:
        runner.run(client.__aenter__())
        try:
            yield cast("Hindsight", Plain(client, runner))
        finally:
            runner.run(client.aclose())


@pytest.fixture(params=["http", "in process", "http, async", "in process, async"])
def client(running: Server, request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Hindsight]:
    # A namespace for each test: those over HTTP share one server.
    way: str = request.param
    namespace = (request.node.name.partition("[")[0] + way.replace(", ", "-").replace(" ", "-"))[-60:]
    store = str(tmp_path / "hindsight.db")
    if way == "http":
        opened: AbstractContextManager[Hindsight] = Hindsight(running.url, namespace=namespace)
    elif way == "in process":
        opened = Hindsight.local(store, namespace=namespace)
    elif way == "http, async":
        opened = plain(AsyncHindsight(running.url, namespace=namespace))
    else:
        opened = plain(AsyncHindsight.local(store, namespace=namespace))
    with opened as found:
        yield found


def test_every_operation_round_trips(client: Hindsight):
    memory_id = client.write(DOG).results[0].memory_id
    assert memory_id is not None
    assert client.get(memory_id).content == DOG.content
    assert client.search(SearchRequest(query="What is my dog called?")).hits[0].memory.id == memory_id
    assert DOG.content in client.context(ContextRequest(query="my dog")).text
    assert client.recall(RecallRequest(text="what did I tell you about my dog")).needed
    updated = client.update(memory_id, UpdateRequest(pinned=True, reason="dear"))
    assert (updated.memory.pinned, updated.previous_version) == (True, 1)
    assert [event.after and event.after.pinned for event in client.history(memory_id).events] == [False, True]
    gone = client.forget(ForgetRequest(ids=(memory_id,)))
    assert gone.count == 1
    assert client.restore(memory_id).memory.status == "active"
    again = client.forget(ForgetRequest(ids=(memory_id,)))
    assert client.undo(again.run_id).count == 1
    assert client.run(again.run_id).run.count == 1
    assert len(client.runs(PageRequest()).runs) >= 5
    assert len(client.events(PageRequest()).events) >= 5
    assert client.stats().memories == 1
    assert client.sweep(SweepRequest(policies=("expire", "idle"))).complete
    retrieval = client.retrievals(PageRequest()).retrievals[0]
    assert client.retrieval(retrieval.id).query == retrieval.query
    assert client.ready().ready


def test_a_contested_pair_is_settled(client: Hindsight):
    client.write(WriteRequest(content="The user works at Acme"))
    (written,) = client.write(WriteRequest(content="The user works at Globex")).results
    assert written.memory_id is not None
    (contest,) = written.contests
    settled = client.resolve(written.memory_id, ResolveRequest(other=contest.id, decision="supersede", reason="moved"))
    assert (settled.memory.status, settled.other.status) == ("active", "superseded")


def test_a_task_has_a_working_memory_until_it_ends(client: Hindsight):
    said = (Message(role="user", text="The invoice of Globex is due on 3 March."), Message(role="user", text="好的"))
    added = client.add_to_task("invoices", TaskRequest(messages=said, context_window=10_000))
    assert (added.task_id, added.messages) == ("invoices", 2)
    assert [memory.content for memory in client.task("invoices").messages] == [message.text for message in said]
    ended = client.end_task("invoices")
    assert len([*ended.promoted, *ended.dropped]) == 2
    with pytest.raises(NotFound):
        client.task("invoices", Request())


def test_what_was_exported_can_be_imported(client: Hindsight, request: pytest.FixtureRequest):
    batch = client.write_batch(
        [DOG, WriteRequest(content="Zeilen\u2028trenner und 换行\u0085", force=True, reconcile="none")]
    )
    assert [item.status for item in batch.results] == [201, 201]
    lines = list(client.export(ListRequest()))
    assert len(lines) == 3
    assert all(json.loads(line) for line in lines)
    elsewhere = "exported-" + request.node.callspec.params["client"].replace(", ", "-").replace(" ", "-")
    assert client.import_lines(lines, elsewhere).stored == 2
    assert {memory.id for memory in client.list_memories(ListRequest(namespace=elsewhere)).memories} == {
        memory.id for memory in client.list_memories(ListRequest()).memories
    }


def test_filters_travel_whole(client: Hindsight):
    tagged = WriteRequest(
        content="Tagged.", force=True, reconcile="none", tags=("a,b", "c"), metadata={"n": 7, "s": "x"}
    )
    memory_id = client.write(tagged).results[0].memory_id
    client.write(DOG)

    def found(**filters: object) -> list[str]:
        page = client.list_memories(ListRequest(filters=Filters(**filters)))  # type: ignore[arg-type]
        return [memory.id for memory in page.memories]

    assert found(tags_any=("a,b",)) == [memory_id]
    assert found(tags_all=("a,b", "c")) == [memory_id]
    assert found(metadata={"n": 7, "s": ["x", "y"]}) == [memory_id]
    assert found(ids=(memory_id,)) == [memory_id]
    with pytest.raises(InvalidInput, match="ids"):
        found(ids=())


def test_a_problem_is_raised_as_the_error_it_is(client: Hindsight):
    with pytest.raises(NotFound):
        client.get("nobody")
    memory_id = client.write(DOG).results[0].memory_id
    assert memory_id is not None
    with pytest.raises(Conflict) as stale:
        client.update(memory_id, UpdateRequest(pinned=True, version=7))
    assert stale.value.remedy
    with pytest.raises(InvalidInput) as wrong:
        client.search(SearchRequest(query="x", intent="nonsense"))
    assert [error.field for error in wrong.value.errors] == ["intent"]


@pytest.mark.parametrize("memory_id", ["", ".", ".."])
def test_an_id_that_would_change_the_path_is_refused(client: Hindsight, memory_id: str):
    with pytest.raises(InvalidInput):
        client.get(memory_id)


def test_an_id_is_one_step_of_the_path_whatever_it_holds(client: Hindsight):
    for memory_id in ("a/../../stats", "a?x=1", "a#b", "%2e%2e", "🐕"):
        with pytest.raises(NotFound):
            client.get(memory_id)


def test_what_a_server_would_refuse_is_refused_in_process_as_well(client: Hindsight):
    for request in (SearchRequest(query="x", top_k=0), SearchRequest(query="x", now=datetime(2025, 1, 1))):  # noqa: DTZ001
        with pytest.raises(InvalidInput) as wrong:
            client.search(request)
        assert wrong.value.errors[0].field in {"top_k", "now"}


OPERATIONS = {
    name
    for name, found in vars(calls).items()
    if callable(found) and getattr(found, "__module__", "") == calls.__name__ and not name.startswith("_")
} - {"HttpCall", "read_answer", "error_of"}


def test_both_clients_have_every_operation_of_the_service():
    for kind in (Hindsight, AsyncHindsight):
        own = {name for name in vars(kind) if not name.startswith("_")} - {"local", "by", "close", "aclose"}
        assert own == OPERATIONS
        assert all(callable(getattr(MemoryService, name)) for name in own)


def test_a_store_in_this_process_is_that_of_the_environment_and_keeps_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HINDSIGHT_STORE", str(tmp_path / "hindsight.db"))
    monkeypatch.setenv("HINDSIGHT_NAMESPACE", "desk")
    with Hindsight.local() as client:
        client.write(DOG)
        client.search(SearchRequest(query="What is my dog called?"))
    assert "hindsight" not in [thread.name for thread in threading.enumerate()]
    with pytest.raises(StoreUnavailable, match="closed"):
        client.stats()
    client.close()
    with Hindsight.local(namespace="desk") as client:
        assert client.stats().memories == 1
        assert len(client.retrievals(PageRequest()).retrievals) == 1
    with Hindsight.local(str(tmp_path / "other.db")) as client:
        assert client.stats().memories == 0


def test_a_store_that_cannot_be_opened_is_said_at_once_and_leaves_no_thread(tmp_path: Path):
    store = tmp_path / "hindsight.db"
    store.write_bytes(b"this is no database, but it is long enough to look like one" * 100)
    with pytest.raises(ConfigurationError), Hindsight.local(str(store)):
        pass
    assert "hindsight" not in [thread.name for thread in threading.enumerate()]


async def test_settings_can_be_given_and_calls_may_be_made_at_once(tmp_path: Path):
    settings = load({}, data_dir=tmp_path, namespace="given", retrieval_log=False)
    client = AsyncHindsight.local(settings=settings)
    # Without `async with` the first call opens the store, however many first calls there are.
    await asyncio.gather(*[client.write(msgspec.structs.replace(DOG, content=f"Dog {n}")) for n in range(5)])
    assert (await client.stats()).memories == 5
    assert (await client.stats()).namespace == "given"
    await client.search(SearchRequest(query="dog"))
    assert (await client.retrievals(PageRequest())).retrievals == ()
    await client.aclose()


def test_a_server_that_is_not_there_is_unavailable_and_says_how_to_start_it():
    with Hindsight("http://127.0.0.1:1") as client, pytest.raises(Unavailable) as down:
        client.stats()
    assert "hindsight serve" in down.value.remedy


@pytest.mark.parametrize("url", ["127.0.0.1:8100", "ftp://localhost", "http://", ""])
def test_an_address_that_is_none_is_refused(url: str):
    with pytest.raises(InvalidInput):
        Hindsight(url)


class _Script(BaseHTTPRequestHandler):
    """Answers with the next of `answers`, a status and a body, and counts; None breaks the connection."""

    answers: list[tuple[int, bytes] | None]
    asked: int

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        self.rfile.read(length)
        kind = type(self)
        answer = kind.answers[min(kind.asked, len(kind.answers) - 1)]
        kind.asked += 1
        if answer is None:
            self.close_connection = True
            return
        status, body = answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 (the name that http.server looks for)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def scripted(*answers: tuple[int, bytes] | None) -> Generator[tuple[Hindsight, type[_Script]]]:
    script = type("Script", (_Script,), {"answers": list(answers), "asked": 0})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), script) as listening:
        listening.daemon_threads = True
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            with Hindsight(f"http://127.0.0.1:{listening.server_address[1]}") as client:
                yield client, script
        finally:
            listening.shutdown()
            thread.join()


def problem(status: int, code: str) -> tuple[int, bytes]:
    body = {"type": "urn:x", "title": "x", "status": status, "detail": "x", "code": code}
    return status, json.dumps(body).encode()


DOWN = problem(503, "store_unavailable")
STATS = (200, b'{"namespace":"default","memories":0,"by_status":{},"by_type":{},"by_kind":{},"events":0,"runs":0,"embedding_model":null}')  # fmt: skip  # noqa: E501
WRITTEN = (200, b'{"results":[],"run_id":"r"}')


@pytest.mark.parametrize("first", [DOWN, None, problem(429, "too_many_requests")])
def test_a_read_is_tried_again(first: tuple[int, bytes] | None):
    with scripted(first, STATS) as (client, script):
        assert client.stats().memories == 0
    assert script.asked == 2


@pytest.mark.parametrize("first", [DOWN, None])
def test_a_write_with_a_key_is_tried_again_and_one_without_is_not(first: tuple[int, bytes] | None):
    with scripted(first, WRITTEN) as (client, script):
        assert client.write(WriteRequest(content="x", idempotency_key="k")).run_id == "r"
    assert script.asked == 2
    with scripted(first, WRITTEN) as (client, script), pytest.raises(Unavailable):
        client.write(WriteRequest(content="x"))
    assert script.asked == 1


SWEPT = (
    200,
    b'{"run_id":"r","dry_run":true,"complete":true,"cursor":null,"policies":[],"affected":[],"count":0,"took_ms":1}',
)


def test_a_sweep_is_tried_again_only_where_it_changes_nothing():
    with scripted(None, SWEPT) as (client, script):
        assert client.sweep(SweepRequest(dry_run=True)).run_id == "r"
    assert script.asked == 2
    with scripted(None, SWEPT) as (client, script), pytest.raises(OutcomeUnknown):
        client.sweep(SweepRequest())
    assert script.asked == 1


BAD_GATEWAY = (502, b"<html>bad gateway</html>")


@pytest.mark.parametrize("answer", [None, BAD_GATEWAY, (200, b"<html>hello</html>"), problem(503, "outcome_unknown")])
def test_a_change_whose_answer_is_lost_may_have_been_made(answer: tuple[int, bytes] | None):
    with scripted(answer) as (client, _), pytest.raises(OutcomeUnknown) as lost:
        client.write(WriteRequest(content="x"))
    assert lost.value.code == "outcome_unknown"
    with scripted(answer, DOWN) as (client, script), pytest.raises(OutcomeUnknown):
        client.write(WriteRequest(content="x", idempotency_key="k"))
    assert script.asked == 3


def test_a_change_that_may_have_been_made_is_said_to_a_person_as_well():
    with scripted(None) as (client, _), pytest.raises(OutcomeUnknown) as lost:
        client.forget(ForgetRequest(query="x"))
    assert "may or may not have been made" in lost.value.detail
    assert lost.value.remedy.startswith("Look before you repeat it.")


@pytest.mark.parametrize("answer", [DOWN, (404, b"<html>nothing here</html>")])
def test_a_change_that_was_refused_was_not_made(answer: tuple[int, bytes]):
    with scripted(answer) as (client, _), pytest.raises(Unavailable) as refused:
        client.write(WriteRequest(content="x"))
    assert type(refused.value) in {Unavailable, StoreUnavailable}


def test_what_stays_down_is_given_up():
    with scripted(DOWN) as (client, script), pytest.raises(Unavailable):
        client.stats()
    assert script.asked == 3


def test_a_limit_that_stays_is_said_with_its_time():
    with scripted(problem(429, "too_many_requests")) as (client, _), pytest.raises(TooManyRequests) as limited:
        client.stats()
    assert limited.value.retry_after == 0


@pytest.mark.parametrize("answer", [(502, b"<html>bad gateway</html>"), (200, b"<html>hello</html>"), (200, b"{}")])
def test_an_answer_that_is_none_of_ours_is_unavailable(answer: tuple[int, bytes]):
    with scripted(answer) as (client, _), pytest.raises(Unavailable):
        client.stats()


def test_the_store_outlives_the_server(tmp_path: Path):
    env = environment(HINDSIGHT_STORE=str(tmp_path / "hindsight.db"))
    with server(env=env) as first, Hindsight(first.url) as client:
        client.write(DOG)
        client.search(SearchRequest(query="What is my dog called?"))
        code, said = first.stop()
    assert code == 0
    assert "everything is stored" in said
    with server(env=env) as second, Hindsight(second.url) as client:
        assert client.stats().memories == 1
        assert len(client.retrievals(PageRequest()).retrievals) == 1


async def test_a_store_that_was_down_at_the_first_call_is_found_when_it_is_up(tmp_path: Path):
    folder = tmp_path / "later"
    folder.write_text("a file where a folder should be")
    memory = AsyncHindsight.local(store=str(folder / "hindsight.db"))
    with pytest.raises(HindsightError, match="cannot be made"):
        await memory.stats(Request())
    folder.unlink()
    folder.mkdir()
    assert (await memory.stats(Request())).memories == 0
    await memory.aclose()
