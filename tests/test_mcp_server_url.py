"""`hindsight mcp` with the URL of a server: what becomes of lost answers, and whose memories it reaches."""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

from hindsight_core.client import Hindsight
from hindsight_core.errors import OutcomeUnknown, Unavailable
from hindsight_core.requests import ForgetRequest, ListRequest, WriteRequest
from lossy import lossy
from server import Server, environment, hindsight, server

CELLO = "The user plays the cello"
DOUBT = "may or may not have been made"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    store = tmp_path_factory.mktemp("url") / "hindsight.db"
    with server(env=environment(HINDSIGHT_STORE=str(store))) as found:
        yield found


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    # A namespace for each test: they share one server.
    return str(request.node.name).partition("[")[0][-60:]


def stdio_client(url: str, *arguments: str, **env: str) -> Client:
    command = ["-m", "hindsight_core.cli", "mcp", *arguments]
    return Client(
        StdioServerParameters(command=sys.executable, args=command, env=environment(HINDSIGHT_URL=url, **env))
    )


def stored(url: str, namespace: str) -> list[str]:
    with Hindsight(url, namespace=namespace) as client:
        return [memory.content for memory in client.list_memories(ListRequest()).memories]


def words(result: Any) -> str:
    return str(result.content[0].text)


async def test_a_write_whose_answer_is_lost_once_is_sent_again_and_stored_once(running: Server, namespace: str):
    with lossy(running.url, "/v1/memories", losses=1) as (url, proxy):
        async with stdio_client(url, "-n", namespace) as client:
            written = await client.call_tool("memory_write", {"content": CELLO, "force": True})
            assert not written.is_error, written
            assert written.structured_content["stored"]
    assert proxy.passed == 2
    assert stored(running.url, namespace) == [CELLO]


async def test_a_write_and_an_erasure_whose_answers_stay_lost_are_never_said_to_have_changed_nothing(
    running: Server, namespace: str
):
    with lossy(running.url, "/v1/memories", losses=9) as (url, _):
        async with stdio_client(url, "-n", namespace) as client:
            written = await client.call_tool("memory_write", {"content": CELLO, "force": True})
    assert written.is_error
    assert DOUBT in words(written)
    assert "Nothing was changed" not in words(written)
    assert stored(running.url, namespace) == [CELLO]
    with lossy(running.url, "/v1/forget", losses=9) as (url, proxy):
        async with stdio_client(url, "-n", namespace) as client:
            erased = await client.call_tool("memory_forget", {"query": "cello", "mode": "erase"})
            found = await client.call_tool("memory_search", {"query": "Which instrument?"})
    assert erased.is_error
    assert DOUBT in words(erased)
    assert "Search or list" in words(erased)
    assert proxy.passed == 1
    assert not found.is_error
    assert stored(running.url, namespace) == []


async def test_what_never_left_this_machine_has_changed_nothing():
    async with stdio_client("http://127.0.0.1:1") as client:
        down = await client.call_tool("memory_write", {"content": CELLO})
    assert down.is_error
    assert "Nothing was changed" in words(down)


def test_the_python_client_tells_a_lost_answer_from_a_call_that_never_arrived(running: Server, namespace: str):
    with (
        lossy(running.url, "/v1/forget", losses=9) as (url, proxy),
        Hindsight(url, namespace=namespace) as client,
    ):
        client.write(WriteRequest(content=CELLO, force=True))
        with pytest.raises(Unavailable) as read:
            client.forget(ForgetRequest(query="cello", dry_run=True))
        assert not isinstance(read.value, OutcomeUnknown)
        assert proxy.passed == 3
        with pytest.raises(OutcomeUnknown) as lost:
            client.forget(ForgetRequest(query="cello"))
        assert proxy.passed == 4
    assert lost.value.detail
    with Hindsight("http://127.0.0.1:1") as client, pytest.raises(Unavailable) as down:
        client.forget(ForgetRequest(query="cello"))
    assert not isinstance(down.value, OutcomeUnknown)


async def test_the_namespace_of_the_environment_is_that_of_a_server_as_well(running: Server, namespace: str):
    async with stdio_client(running.url, HINDSIGHT_NAMESPACE=namespace) as client:
        assert not (await client.call_tool("memory_write", {"content": CELLO, "force": True})).is_error
    env = environment(HINDSIGHT_URL=running.url, HINDSIGHT_NAMESPACE=namespace)
    assert CELLO in hindsight("list", env=env).stdout
    assert CELLO not in hindsight("list", "-n", "elsewhere", env=env).stdout
    assert stored(running.url, namespace) == [CELLO]


async def test_the_address_that_mcp_clients_are_given_is_one_of_the_server(running: Server, namespace: str):
    async with stdio_client(f"{running.url}/mcp", "-n", namespace) as client:
        assert not (await client.call_tool("memory_write", {"content": CELLO, "force": True})).is_error
    assert stored(f"{running.url}/mcp/", namespace) == [CELLO]


PRIVATE: dict[str, Any] = {"content": "The planner keeps a list of cellos", "force": True, "visibility": "private"}


async def test_a_token_bound_to_an_agent_speaks_for_it_and_one_for_any_reads_no_private_memories(tmp_path: Path):
    env = environment(HINDSIGHT_STORE=str(tmp_path / "hindsight.db"))

    def token(*options: str) -> str:
        return hindsight("token", "create", *options, "-n", "desk", env=env).stdout.strip()

    bound, loose = token("planner", "--agent", "planner"), token("app")
    writing = token("writer", "--verb", "write")
    with server(env=env) as running:
        async with stdio_client(running.url, HINDSIGHT_TOKEN=bound) as client:
            assert not (await client.call_tool("memory_write", PRIVATE)).is_error
            listed = await client.call_tool("memory_list", {})
            assert [memory["content"] for memory in listed.structured_content["memories"]] == [PRIVATE["content"]]
            found = await client.call_tool("memory_search", {"query": "list of cellos"})
            assert PRIVATE["content"] in words(found)
            memory_id = listed.structured_content["memories"][0]["id"]
        async with stdio_client(running.url, HINDSIGHT_TOKEN=loose) as client:
            assert (await client.call_tool("memory_list", {})).structured_content["memories"] == []
            assert "There is no memory" in words(await client.call_tool("memory_forget", {"memory_id": memory_id}))
            assert (await client.call_tool("memory_list", {})).structured_content["memories"] == []
        async with stdio_client(running.url, HINDSIGHT_TOKEN=writing) as client:
            assert "verb read" in words(await client.call_tool("memory_list", {}))
            changed = await client.call_tool("memory_update", {"memory_id": memory_id, "pinned": True, "reason": "x"})
            assert "There is no memory" in words(changed)
        async with stdio_client(running.url, "--agent", "other", HINDSIGHT_TOKEN=bound) as client:
            assert "planner" in words(await client.call_tool("memory_list", {}))
