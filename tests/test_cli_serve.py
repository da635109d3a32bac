"""`hindsight serve` listens on this machine only, says what is wrong before it opens anything, and stops cleanly."""

from __future__ import annotations

import json
import signal
import socket
import urllib.request
from collections.abc import Generator
from pathlib import Path

import pytest

from hindsight_core.cli.serve import listen
from server import Server, environment, hindsight, server


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    env = environment(HINDSIGHT_STORE=str(tmp_path_factory.mktemp("serve") / "hindsight.db"))
    with server("--tour", env=env) as found:
        yield found


def test_it_says_where_it_listens_where_memories_are_and_that_there_are_no_tokens(tmp_path: Path):
    store = tmp_path / "deeper" / "hindsight.db"
    with server(env=environment(HINDSIGHT_STORE=str(store))) as found:
        with urllib.request.urlopen(f"{found.url}/health") as answer:
            assert json.load(answer)["status"] == "ok"
        code, said = found.stop()
    assert code == 0
    assert str(store) in said
    assert "no tokens: only this machine" in said


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_stops_cleanly_when_asked(tmp_path: Path, how: signal.Signals):
    with server(env=environment(HINDSIGHT_STORE=str(tmp_path / "hindsight.db"))) as found:
        code, said = found.stop(how)
    assert code == 0
    assert said.endswith("Stopped; everything is stored.\n")


def test_small_answers_are_sent_at_once():
    with listen("127.0.0.1", 0) as listening:
        # What asyncio turns Nagle's algorithm off by.
        assert listening.proto == socket.IPPROTO_TCP


def test_a_taken_port_is_said_before_anything_is_opened(tmp_path: Path):
    store = tmp_path / "hindsight.db"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = hindsight("serve", env=environment(HINDSIGHT_STORE=str(store), HINDSIGHT_PORT=str(port)))
    assert answer.returncode == 2
    assert f"Port {port}" in answer.stderr
    assert "--port" in answer.stderr
    assert "HINDSIGHT_PORT" in answer.stderr
    assert not store.exists()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])
def test_an_address_that_others_can_reach_is_refused_before_anything_is_opened(tmp_path: Path, host: str):
    store = tmp_path / "hindsight.db"
    answer = hindsight("serve", "--host", host, env=environment(HINDSIGHT_STORE=str(store)))
    assert answer.returncode == 2
    assert "127.0.0.1" in answer.stderr
    assert not store.exists()


def test_a_store_that_cannot_be_opened_is_said_and_exits_with_2(tmp_path: Path):
    store = tmp_path / "hindsight.db"
    store.write_bytes(b"this is no database, but it is long enough to look like one" * 100)
    answer = hindsight("serve", "--port", "0", env=environment(HINDSIGHT_STORE=str(store)))
    assert answer.returncode == 2
    assert str(store) in answer.stderr
    assert "Traceback" not in answer.stderr


def test_the_tour_shows_what_was_kept_skipped_and_replaced_and_three_searches(running: Server):
    said = "".join(running.said)
    assert "A one-minute tour" in said
    for word in ("add", "skip", "supersede", "replaces"):
        assert word in said, word
    assert said.count("Today: ") == 3
    assert "hindsight forget --all --mode erase -n tour" in said


def test_the_tour_leaves_the_default_namespace_alone(running: Server):
    with urllib.request.urlopen(f"{running.url}/v1/stats") as answer:
        assert json.load(answer)["events"] == 0
    with urllib.request.urlopen(f"{running.url}/v1/stats?namespace=tour") as answer:
        assert json.load(answer)["memories"] > 0


def test_the_tour_is_not_taken_twice(tmp_path: Path):
    env = environment(HINDSIGHT_STORE=str(tmp_path / "hindsight.db"))
    assert hindsight("write", "My dog is called Biscuit.", "--force", env=env).returncode == 0
    with server("--tour", env=env) as found:
        assert "tour" not in "".join(found.said)


def test_the_command_line_works_against_a_server(running: Server):
    env = environment(HINDSIGHT_URL=running.url)
    assert hindsight("write", "My parrot is called Kiwi.", "--force", "-n", "remote", env=env).returncode == 0
    found = hindsight("search", "What is my parrot called?", "-n", "remote", "--json", env=env)
    assert json.loads(found.stdout)["hits"][0]["memory"]["content"] == "My parrot is called Kiwi."
    missing = hindsight("get", "nobody", "-n", "remote", env=env)
    assert (missing.returncode, missing.stdout) == (1, "")
    assert hindsight("doctor", env=env).returncode == 0


def test_chats_and_exports_are_imported_through_a_server(running: Server, tmp_path: Path):
    env = environment(HINDSIGHT_URL=running.url)
    log = tmp_path / "log.json"
    turns = [{"role": "user", "text": f"Entry {n}: the lighthouse keeper counted {n} gulls."} for n in range(30)]
    log.write_text(json.dumps(turns), encoding="utf-8")
    imported = hindsight("import", str(log), "-n", "logs", "--json", env=env)
    assert json.loads(imported.stdout)["stored"] == 30
    exported = hindsight("export", "-n", "logs", env=env).stdout
    lines = [json.loads(line) for line in exported.splitlines()]
    assert sum("memory" in line for line in lines) == 30
    assert lines[0]["hindsight_export"] == 3
    assert "end" in lines[-1]
    copied = hindsight("import", "-", "-n", "copied", "--json", env=env, stdin=exported)
    assert json.loads(copied.stdout)["stored"] == 30
