"""Concurrent MCP sessions against plain HTTP: `python tests/benchmarks/mcp.py [--sessions 200] [--list]`.

Starts one server process over an empty store, stores a few memories, and has N sessions at once do what an agent
does: initialize, list the tools, search. The same N searches go over plain HTTP for comparison. Both sides are bare
messages over the same HTTP client, so that what differs is the protocol. `--list` lists instead of searching, which
needs no embedding: then the protocol is most of what is measured. Prints p50 and p95 of the searches, errors,
and the machine; fails when an answer was an error, or the ratio of the p95 is over 2.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx

# In place of this folder, in which this file would be taken for the package `mcp`.
sys.path[0] = str(Path(__file__).parents[1])

from mcp_clients import Wire, handshake  # noqa: E402 (found only now)
from server import environment, server  # noqa: E402

FACTS = ["I play the cello every Sunday", "我对花生过敏", "My sister Ana lives in Porto", "我以后查天气都默认用摄氏度"]
_PROMISED = 2.0
QUESTION = "Which instrument do I play?"


async def main(sessions: int, rounds: int, *, listing: bool) -> int:
    plainly, tool = (
        (list_all, {"tool": "memory_list"}) if listing else (search, {"tool": "memory_search", "query": QUESTION})
    )

    with tempfile.TemporaryDirectory() as folder:
        env = environment(HINDSIGHT_STORE=str(Path(folder) / "hindsight.db"), HINDSIGHT_LOG_LEVEL="warning")
        with server(env=env) as running:
            # The client drops idle connections before the server does, so that none is closed under a request.
            limits = httpx.Limits(max_connections=sessions, keepalive_expiry=2)
            async with httpx.AsyncClient(base_url=running.url, timeout=600, limits=limits, trust_env=False) as client:
                for fact in FACTS:
                    await Wire(client).call("memory_write", content=fact, force=True)

                async def plain(_: int) -> list[float]:
                    return [await timed(lambda: plainly(client)) for _ in range(rounds)]

                async def agent(_: int) -> list[float]:
                    wire = Wire(client)
                    await wire.send("initialize", handshake("2025-11-25"))
                    await wire.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
                    await wire.send("tools/list")
                    return [await timed(lambda: wire.call(**tool)) for _ in range(rounds)]

                figures = {}
                for name, one in (("http", plain), ("mcp", agent), ("http again", plain)):
                    answers = await asyncio.gather(*(one(n) for n in range(sessions)), return_exceptions=True)
                    errors = [answer for answer in answers if isinstance(answer, BaseException)]
                    seconds = sorted(s for answer in answers if not isinstance(answer, BaseException) for s in answer)
                    figures[name] = statistics.quantiles(seconds, n=20)[18]
                    print(
                        f"{name:10} {sessions} sessions x {rounds}: p50 {statistics.median(seconds) * 1e3:.0f} ms, "
                        f"p95 {figures[name] * 1e3:.0f} ms, errors {len(errors)}"
                    )
                    if errors:
                        print("first error:", repr(errors[0]))
                        return 1
    ratio = figures["mcp"] / ((figures["http"] + figures["http again"]) / 2)
    print(f"p95 of mcp is {ratio:.2f} times that of http; {platform.platform()}, {os.cpu_count()} cores")
    return int(ratio > _PROMISED)


async def search(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/search", json={"query": QUESTION})
    assert answer.json()["hits"], answer.text


async def list_all(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/memories")
    assert answer.json()["memories"], answer.text


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await work()
    return time.perf_counter() - started


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="list instead of searching")
    asked = parser.parse_args()
    sys.exit(asyncio.run(main(asked.sessions, asked.rounds, listing=asked.list)))
