"""Clients of the MCP endpoint: the SDK's own, and bare messages as they go over the wire."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from hindsight_functions.http import Function
from serving import URL

ENDPOINT = f"{URL}/mcp"
ACCEPT = {"Accept": "application/json, text/event-stream"}


@asynccontextmanager
async def sdk_client(
    app: Function, *, mode: str = "auto", headers: Mapping[str, str | bytes] | None = None
) -> AsyncGenerator[Client]:
    """The SDK's client over a running app. It checks every structured answer against the tool's output schema."""
    transport = httpx2.ASGITransport(app=app)
    async with (
        httpx2.AsyncClient(transport=transport, headers=dict(headers or {})) as http,
        Client(streamable_http_client(ENDPOINT, http_client=http), mode=mode) as client,
    ):
        await client.list_tools()
        yield client


class Wire:
    """Bare JSON-RPC over an HTTP client."""

    def __init__(self, client: httpx.AsyncClient, **headers: str | bytes) -> None:
        self._client = client
        self._headers = {**ACCEPT, **{name.replace("_", "-"): value for name, value in headers.items()}}
        self._id = 0

    async def post(self, body: Any, **options: Any) -> httpx.Response:
        return await self._client.post("/mcp", json=body, headers=self._headers, **options)

    async def send(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The JSON-RPC answer to a request."""
        self._id += 1
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": dict(params or {})}
        response = await self.post(message)
        assert response.headers["content-type"] == "application/json", response.text
        answer: dict[str, Any] = response.json()
        assert answer["id"] == self._id
        return answer

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The result of a tool that succeeded: its data, with the words under `text`."""
        result = (await self.send("tools/call", {"name": tool, "arguments": arguments}))["result"]
        assert not result["isError"], result
        return {**result["structuredContent"], "text": result["content"][0]["text"]}

    async def fail(self, tool: str, **arguments: Any) -> str:
        """The words of a tool that failed."""
        result = (await self.send("tools/call", {"name": tool, "arguments": arguments}))["result"]
        assert result["isError"], result
        assert "structuredContent" not in result
        return str(result["content"][0]["text"])


def handshake(version: str) -> dict[str, Any]:
    return {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


def parsed(text: str) -> Any:
    return json.loads(text)
