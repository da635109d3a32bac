"""`hindsight mcp`: over standard input and output for one client, however that client behaves."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

from hindsight_functions.tools.lines import LINE_LIMIT
from mcp_clients import handshake
from server import STARTUP_SECONDS, environment, server

COMMAND = [sys.executable, "-m", "hindsight_core.cli", "mcp"]


@pytest.fixture
def begin() -> Generator[Callable[..., Process]]:
    """Starts processes; whatever becomes of them, they are gone after the test."""
    with ExitStack() as stack:

        def start(env: dict[str, str]) -> Process:
            process = Process(env)
            stack.callback(process.discard)
            return process

        yield start


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return environment(HINDSIGHT_STORE=str(tmp_path / "hindsight.db"))


def line(method: str, params: object = None, **fields: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params or {}, **fields}).encode() + b"\n"


BEGIN = line("initialize", handshake("2025-06-18"), id=1)
LIST = line("tools/call", {"name": "memory_list"}, id=2)


class Process:
    def __init__(self, env: dict[str, str]) -> None:
        self.popen = subprocess.Popen(
            COMMAND,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A test run in the background ignores interrupts, and its children would, too.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def send(self, *lines: bytes) -> None:
        assert self.popen.stdin is not None
        for one in lines:
            self.popen.stdin.write(one)
        self.popen.stdin.flush()

    def answer(self, message_id: int) -> dict[str, object]:
        """Reads until the answer comes; what stands before it must be protocol as well."""
        assert self.popen.stdout is not None
        for said in self.popen.stdout:
            message = json.loads(said)
            assert message["jsonrpc"] == "2.0"
            if message.get("id") == message_id:
                return dict(message)
        raise AssertionError(self.popen.communicate()[1].decode())

    def answers_before(self, message_id: str) -> list[dict[str, Any]]:
        """What was answered before this answer."""
        assert self.popen.stdout is not None
        said = map(json.loads, self.popen.stdout)
        return list(takewhile(lambda message: message["id"] != message_id, said))

    def end(self) -> tuple[int, bytes, str]:
        """Exit code, what was left on standard output, and standard error."""
        out, err = self.popen.communicate(timeout=STARTUP_SECONDS)
        return self.popen.returncode, out, err.decode()

    def discard(self) -> None:
        self.popen.kill()
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()


def stdio_client(env: dict[str, str], *arguments: str) -> Client:
    return Client(StdioServerParameters(command=COMMAND[0], args=[*COMMAND[1:], *arguments], env=env))


async def test_the_sdk_client_remembers_in_a_local_store(env):
    async with stdio_client(env, "--user", "u1", "--agent", "planner", "-n", "desk") as client:
        await client.list_tools()
        written = await client.call_tool("memory_write", {"content": "The user plays the cello", "force": True})
        assert written.structured_content["stored"], written
        bound = await client.call_tool("memory_list", {"user_id": "u2"})
        assert bound.is_error
    async with stdio_client(env, "-n", "desk") as client:
        listed = await client.call_tool("memory_list", {"user_id": "u1"})
        assert [memory["content"] for memory in listed.structured_content["memories"]] == ["The user plays the cello"]
    async with stdio_client(env) as client:
        listed = await client.call_tool("memory_list", {})
        assert listed.structured_content["memories"] == []


async def test_the_memories_of_a_server_are_reached_through_its_url(env):
    with server(env=env) as running:
        async with stdio_client({**env, "HINDSIGHT_URL": running.url}, "-n", "desk") as client:
            written = await client.call_tool("memory_write", {"content": "用户会拉大提琴", "force": True})
            assert written.structured_content["stored"], written
            missing = await client.call_tool("memory_forget", {"memory_id": "nobody"})
            assert "There is no memory" in missing.content[0].text
        async with Client(f"{running.url}/mcp") as client:
            elsewhere = await client.call_tool("memory_list", {})
            assert elsewhere.structured_content["memories"] == []
        running.stop()
    async with stdio_client({**env, "HINDSIGHT_URL": running.url}) as client:
        down = await client.call_tool("memory_search", {"query": "cello"})
        assert down.is_error
        assert "hindsight serve" in down.content[0].text
        assert "go on without memory" in down.content[0].text


def test_junk_and_lines_without_end_are_survived_and_standard_output_holds_protocol_only(begin, env):
    process = begin(env)
    process.send(b"junk\n", b"\xff\xfe\x00\n", b"\n", b"[1, 2]\n", b"[" * 100_000 + b"\n")
    process.send(b"x" * (2 * LINE_LIMIT + 7) + b"\n")
    process.send(BEGIN, line("notifications/initialized"), LIST)
    assert "result" in process.answer(1)
    assert process.answer(2)["result"]["content"][0]["text"] == "Nothing is remembered here."
    code, rest, _ = process.end()
    assert (code, rest) == (0, b"")


@pytest.mark.parametrize(
    ("said", "code"), [(b"", None), (b"\r\n", None), (BEGIN[:20], -32700), (b"x" * (LINE_LIMIT + 1), -32600)]
)
def test_a_client_that_leaves_before_it_began_is_no_error(begin, env, said, code):
    process = begin(env)
    process.send(said)
    status, out, err = process.end()
    assert status == 0
    assert [json.loads(line)["error"]["code"] for line in out.splitlines()] == ([] if code is None else [code])
    assert "Traceback" not in err


def call(message_id: object, **arguments: object) -> bytes:
    return line("tools/call", {"name": "memory_write", "arguments": arguments}, id=message_id)


BROKEN = [
    # what is sent, the id that its answer has, and the code of the error
    (b"{bad json\n", None, -32700),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "ping", "params": "x\xff"}\n', None, -32700),
    (b"[" * 100_000 + b"\n", None, -32700),
    (b"[" + LIST.strip() + b"]\n", None, -32600),
    (b"17\n", None, -32600),
    (b"x" * (LINE_LIMIT + 2) + b"\n", None, -32600),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "ping", "params": "x"}\n', 7, -32600),
    (b'{"jsonrpc": "2.0", "id": "seven", "method": 3}\n', "seven", -32600),
    (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}\n', None, -32600),
    (b'{"id": 8, "method": "ping"}\n', 8, -32600),
    (b"{}\n", None, -32600),
    (call(9, content="half \ud83d of a sign"), 9, -32600),
]


def test_a_broken_message_is_answered_and_what_follows_it_as_well(begin, env):
    process = begin(env)
    process.send(BEGIN, line("notifications/initialized"))
    process.answer(1)
    for sent, message_id, code in BROKEN:
        process.send(sent, line("ping", id="after"))
        (answer,) = process.answers_before("after")
        assert (answer["id"], answer["error"]["code"]) == (message_id, code), sent[:80]
        assert answer["error"]["message"]
    # Nobody waits for an answer to these.
    process.send(b'{"jsonrpc": "2.0", "id": 3, "result": 5}\n', line("notifications/nonsense"), b" \n")
    process.send(line("ping", id="after"))
    assert process.answers_before("after") == []
    assert process.end()[:2] == (0, b"")


def test_what_was_asked_before_the_end_of_the_input_is_done_and_answered(begin, env):
    """As in `printf ... | hindsight mcp`."""
    process = begin(env)
    # Of five different matters: nothing of one is about another, in whatever order they are stored.
    wanted = [
        "Biscuit the cat loves tuna",
        "My sister lives in Lisbon",
        "Our standup is at nine",
        "The cello needs new strings",
        "我对花生过敏",
    ]
    writes = [call(f"w{number}", content=text, force=True) for number, text in enumerate(wanted)]
    cancelled = [LIST, line("notifications/cancelled", {"requestId": 2})]
    process.send(b"\xef\xbb\xbf" + BEGIN, line("notifications/initialized"), *cancelled, *writes)
    process.send(line("ping", id=3).strip())
    code, out, err = process.end()
    assert code == 0, err
    answers = {message["id"]: message for message in map(json.loads, out.splitlines())}
    assert answers.keys() - {2} == {1, 3, "w0", "w1", "w2", "w3", "w4"}
    assert all("result" in answer for answer in answers.values()), answers
    again = begin(env)
    again.send(BEGIN, line("notifications/initialized"), LIST)
    listed = again.answer(2)["result"]["structuredContent"]["memories"]
    assert sorted(memory["content"] for memory in listed) == wanted


def test_a_client_that_leaves_without_reading_its_answers_is_no_error(begin, env):
    process = begin(env)
    process.send(BEGIN)
    process.answer(1)
    assert process.popen.stdout is not None
    process.popen.stdout.close()
    process.send(line("notifications/initialized"), *[LIST] * 20)
    assert process.popen.stdin is not None
    process.popen.stdin.close()
    assert process.popen.wait(timeout=STARTUP_SECONDS) == 0
    assert process.popen.stderr is not None
    assert b"Traceback" not in process.popen.stderr.read()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(begin, env, how):
    process = begin(env)
    process.send(BEGIN)
    process.answer(1)
    process.popen.send_signal(how)
    # Standard input stays open: it must not wait for it.
    assert process.popen.wait(timeout=STARTUP_SECONDS) == 0
    _, out, err = process.end()
    assert out == b""
    assert "Traceback" not in err


def test_a_store_that_cannot_be_opened_is_said_on_standard_error_only(begin, tmp_path):
    store = tmp_path / "hindsight.db"
    store.write_bytes(b"this is no database, but it is long enough to look like one" * 100)
    code, out, err = begin(environment(HINDSIGHT_STORE=str(store))).end()
    assert (code, out) == (2, b"")
    assert str(store) in err
    assert "Traceback" not in err
