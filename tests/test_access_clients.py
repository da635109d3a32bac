"""A server that others may reach, and every client of ours with a token: Python, command line, MCP over both ways."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from hindsight_core.client import AsyncHindsight, Hindsight
from hindsight_core.errors import Forbidden, Unauthenticated
from hindsight_core.requests import ListRequest, Request, WriteRequest
from server import environment, hindsight, server

DOG = WriteRequest(content="My dog is called Biscuit.", force=True, reconcile="none")


class Reachable:
    """A server on every address of this machine; `token` is for the namespace `shop`, `reader` only reads there."""

    def __init__(self, url: str, token: str, reader: str, env: dict[str, str]) -> None:
        self.url, self.token, self.reader, self.env = url, token, reader, env


@pytest.fixture(scope="module")
def reachable(tmp_path_factory: pytest.TempPathFactory) -> Generator[Reachable]:
    env = environment(HINDSIGHT_STORE=str(tmp_path_factory.mktemp("access") / "hindsight.db"))
    token = hindsight("token", "create", "app", "-n", "shop", env=env).stdout.strip()
    reader = hindsight("token", "create", "reader", "-n", "shop", "--verb", "read", env=env).stdout.strip()
    with server("--host", "0.0.0.0", env=env) as found:
        port = httpx.URL(found.url).port
        yield Reachable(f"http://127.0.0.1:{port}", token, reader, env)
        _, said = found.stop()
    assert "Every request needs a token" in said


def test_without_a_token_a_server_that_others_reach_does_not_start(tmp_path: Path):
    store = tmp_path / "hindsight.db"
    refused = hindsight("serve", "--host", "0.0.0.0", env=environment(HINDSIGHT_STORE=str(store)))
    assert refused.returncode == 2
    assert "hindsight token create" in refused.stderr
    assert not store.exists()


def test_the_python_client_sends_its_token_or_the_one_of_the_environment(
    reachable: Reachable, monkeypatch: pytest.MonkeyPatch
):
    with Hindsight(reachable.url, token=reachable.token) as client:
        stored = client.write(DOG).results[0].memory
        assert stored is not None
        assert stored.namespace == "shop"
        with pytest.raises(Forbidden):
            client.stats(Request(namespace="other"))
    with Hindsight(reachable.url) as client, pytest.raises(Unauthenticated) as refused:
        client.stats()
    assert "hindsight token create" in refused.value.remedy
    monkeypatch.setenv("HINDSIGHT_TOKEN", reachable.reader)
    with Hindsight(reachable.url) as client:
        assert client.stats().namespace == "shop"
        with pytest.raises(Forbidden, match="write"):
            client.write(DOG)


async def test_the_async_client_does_so_too(reachable: Reachable):
    async with AsyncHindsight(reachable.url, token=reachable.reader) as client:
        assert (await client.list_memories(ListRequest())).cursor is None
    async with AsyncHindsight(reachable.url, token="hst_0000000000_x") as client:
        with pytest.raises(Unauthenticated, match="not known"):
            await client.list_memories(ListRequest())


def test_the_command_line_sends_it(reachable: Reachable):
    env = environment(HINDSIGHT_URL=reachable.url)
    refused = hindsight("stats", env=env)
    assert refused.returncode == 2
    assert "hindsight token create" in refused.stderr
    given = hindsight("stats", "--token", reachable.token, "--json", env=env)
    assert json.loads(given.stdout)["namespace"] == "shop"
    inherited = hindsight("stats", "--json", env={**env, "HINDSIGHT_TOKEN": reachable.token})
    assert inherited.stdout == given.stdout


def test_the_command_line_over_the_store_itself_needs_none(reachable: Reachable):
    assert hindsight("stats", env=reachable.env).returncode == 0


@asynccontextmanager
async def over_http(url: str, **options: object):
    async with (
        httpx2.AsyncClient(trust_env=False, **options) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
    ):
        yield client


async def test_an_mcp_client_over_http_sends_it(reachable: Reachable):
    headers = {"Authorization": f"Bearer {reachable.token}"}
    async with over_http(reachable.url, headers=headers) as client:
        written = await client.call_tool("memory_write", {"content": "The user plays the cello", "force": True})
        assert not written.is_error
    headers = {"Authorization": f"Bearer {reachable.reader}"}
    async with over_http(reachable.url, headers=headers) as client:
        found = await client.call_tool("memory_search", {"query": "Which instrument?"})
        assert "cello" in found.content[0].text
        refused = await client.call_tool("memory_forget", {"query": "cello"})
        assert refused.is_error
        assert "verb write" in refused.content[0].text


async def test_an_mcp_client_over_stdio_sends_it_to_a_server(reachable: Reachable):
    for token, fails in ((reachable.token, False), ("hst_0000000000_x", True)):
        env = environment(HINDSIGHT_URL=reachable.url, HINDSIGHT_TOKEN=token)
        command = StdioServerParameters(command=sys.executable, args=["-m", "hindsight_core.cli", "mcp"], env=env)
        async with Client(command) as client:
            listed = await client.call_tool("memory_list", {})
            assert listed.is_error == fails
            assert ("not known" in listed.content[0].text) == fails


def test_a_running_server_soon_knows_of_new_and_revoked_tokens(reachable: Reachable):
    made = hindsight("token", "create", "brief", "-n", "shop", env=reachable.env).stdout.strip()
    with Hindsight(reachable.url, token=made) as client:
        # What a server has read of the tokens holds for a second, so a new one may take as long to be known.
        answer = until(lambda: client.stats().namespace, unless=Unauthenticated)
        assert answer == "shop"
        assert hindsight("token", "revoke", "brief", env=reachable.env).returncode == 0
        assert "revoked" in until(lambda: refusal(client))


def refusal(client: Hindsight) -> str | None:
    try:
        client.stats()
    except Unauthenticated as exc:
        return exc.detail
    return None


def until(attempt, unless: type[Exception] = AssertionError):
    """What an attempt answers at last; each one is a request, so this waits for the server and not for a clock."""
    for _ in range(10_000):
        try:
            if found := attempt():
                return found
        except unless:
            continue
    raise AssertionError("never")
