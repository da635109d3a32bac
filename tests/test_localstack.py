from __future__ import annotations

import os
import secrets
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from localstack.layout import LayoutError, lay_out, missing_tools, recipe
from localstack.service import Service, ServiceError, ServiceProcess, free_port, is_healthy
from localstack.stack import StackSettings, stack
from localstack.supervision import in_order

from hindsight_core import config

ROOT = Path(__file__).resolve().parents[1]
NOWHERE = "http://127.0.0.1:1/"
WAIT_FOR_A_SIGNAL = "import signal; signal.pause()"


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-u", "-c", code)


def ask(url: str, path: str, method: str = "GET", body: object = None) -> Any:
    certified = ssl.create_default_context()
    answer = httpx.request(method, url + path, json=body, timeout=60, trust_env=False, verify=certified)
    return answer.raise_for_status().json()


def redis_says(url: str, command: str) -> str:
    host, port = url.removeprefix("redis://").split(":")
    with socket.create_connection((host, int(port)), 5) as client:
        client.sendall(f"{command}\r\n".encode())
        return client.recv(256).decode()


# One child process


def test_a_service_that_ends_before_it_is_ready_is_an_error_with_its_last_lines():
    broken = ServiceProcess(Service("disk", python("print('no such disk'); raise SystemExit(3)"), health=NOWHERE))
    with pytest.raises(ServiceError, match=r"disk ended with exit code 3(.|\n)*no such disk"):
        broken.start()


def test_a_service_that_is_not_ready_in_time_is_an_error_and_does_not_linger():
    mute = ServiceProcess(Service("mute", python(WAIT_FOR_A_SIGNAL), health=NOWHERE))
    with pytest.raises(ServiceError, match="mute is not ready after 0 seconds"):
        mute.start(seconds=0.1)
    assert mute.pid is None
    assert mute.exit_code == -signal.SIGKILL


def test_a_taken_port_is_an_error_that_names_the_setting():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        service = Service("web", python(""), url=f"http://127.0.0.1:{port}", port_setting="HINDSIGHT_STACK_WEB_PORT")
        with pytest.raises(ServiceError, match=rf"web cannot listen on port {port}.*HINDSIGHT_STACK_WEB_PORT"):
            ServiceProcess(service).launch()


@contextmanager
def calls_home() -> Generator[tuple[str, socket.socket]]:
    """Code of a program that calls here and then waits, and the socket it calls; it hangs up when it ends."""
    with socket.create_server(("127.0.0.1", 0)) as home:
        home.settimeout(60)
        address = home.getsockname()
        yield f"import signal, socket; call = socket.create_connection({address!r}); signal.pause()", home


def has_hung_up(call: socket.socket) -> bool:
    call.settimeout(60)
    return call.recv(1) == b""


def test_stopping_a_service_ends_what_it_started_as_well():
    with calls_home() as (code, home):
        grandparent = (
            f"import signal, subprocess, sys; subprocess.Popen([sys.executable, '-c', {code!r}]); signal.pause()"
        )
        process = ServiceProcess(Service("grandparent", python(grandparent)))
        process.start()
        call, _ = home.accept()
        process.stop()
        with call:
            assert has_hung_up(call)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent is gone")
def test_a_service_ends_when_the_process_that_started_it_is_killed():
    with calls_home() as (code, home):
        starter = f"""
from localstack.service import Service, ServiceProcess
import signal, sys
ServiceProcess(Service("child", (sys.executable, "-c", {code!r}))).launch()
signal.pause()
"""
        with subprocess.Popen(python(starter), cwd=ROOT) as running:
            call, _ = home.accept()
            running.kill()
        with call:
            assert has_hung_up(call)


# The stack


def test_services_start_after_those_they_need():
    services = [
        Service("scheduler", (), needs=("gateway",)),
        Service("gateway", (), needs=("redis",)),
        Service("redis", ()),
    ]
    assert [service.name for service in in_order(services)] == ["redis", "gateway", "scheduler"]


def test_services_that_need_each_other_are_an_error():
    with pytest.raises(ServiceError, match="wait for each other: a, b"):
        in_order([Service("a", (), needs=("b",)), Service("b", (), needs=("a",))])


@pytest.mark.parametrize("text", ["ninety", "0", "65536", "-1", "9200.5", "９２x"])
def test_a_port_that_is_none_is_an_error_that_names_the_variable(text):
    with pytest.raises(ServiceError, match=r"HINDSIGHT_STACK_REDIS_PORT is '.*', not a port"):
        StackSettings.read({"HINDSIGHT_STACK_REDIS_PORT": text})


def test_empty_variables_count_as_unset():
    assert StackSettings.read({"HINDSIGHT_STACK_REDIS_PORT": "", "HINDSIGHT_STACK_DATA": ""}) == StackSettings()


def test_an_unknown_service_is_an_error_that_names_the_known_ones():
    with pytest.raises(ServiceError, match=r"no service 'redi'; there are opensearch, redis, gateway, scheduler"):
        stack(StackSettings(), ("redi",))


def test_the_scheduler_is_told_where_the_stores_are_and_to_sweep_by_itself():
    (scheduler,) = stack(StackSettings(opensearch_port=1, redis_port=2, gateway_port=3), ("scheduler",))
    settings = config.load(scheduler.env, data_dir=Path("/data"))
    assert settings.store == "opensearch://127.0.0.1:1"
    assert settings.redis == "redis://127.0.0.1:2/0"
    assert settings.schedule_url == ""
    assert {name.removeprefix(config.PREFIX).lower() for name in scheduler.env} <= set(
        config.Settings.__struct_fields__
    )


def start_stack(tmp_path: Path, port: int) -> subprocess.Popen[str]:
    """The stack with Redis alone, once everything in it runs."""
    running = subprocess.Popen(
        [sys.executable, "-m", "localstack.stack", "redis"],
        cwd=ROOT,
        env={**os.environ, "HINDSIGHT_STACK_REDIS_PORT": str(port), "HINDSIGHT_STACK_DATA": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    for line in running.stdout:
        if line.startswith("Everything runs"):
            break
    return running


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_stack_stops_its_services_when_it_is_told_to_end(tmp_path, number, redis_url):
    address = f"redis://127.0.0.1:{(port := free_port())}"
    with start_stack(tmp_path, port) as running:
        assert is_healthy(address)
        running.send_signal(number)
        assert running.wait(30) == 0
    assert not is_healthy(address)


def test_the_stack_ends_with_an_error_when_a_service_ends(tmp_path, redis_url):
    address = f"redis://127.0.0.1:{(port := free_port())}"
    with start_stack(tmp_path, port) as running:
        redis_says(address, "SHUTDOWN NOW")
        assert running.wait(30) == 1


def test_the_stack_says_in_one_line_why_it_cannot_start(tmp_path, redis_url):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        environment = {"HINDSIGHT_STACK_REDIS_PORT": str(other.getsockname()[1]), "HINDSIGHT_STACK_DATA": str(tmp_path)}
        ended = subprocess.run(
            [sys.executable, "-m", "localstack.stack", "redis"],
            cwd=ROOT,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
    assert ended.returncode == 1
    assert "HINDSIGHT_STACK_REDIS_PORT" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


# What OpenSearch needs


def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory that is all of `PATH`, and an empty cache."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("HINDSIGHT_STACK_CACHE", str(tmp_path / "cache"))
    return programs


def program(programs: Path, name: str, says: str) -> None:
    (programs / name).write_text(f"#!/bin/sh\necho '{says}'\n")
    (programs / name).chmod(0o755)


def test_a_missing_java_is_an_error_that_says_what_to_install(monkeypatch, tmp_path):
    bare_machine(monkeypatch, tmp_path)
    assert "apt-get install openjdk-17-jdk-headless" in missing_tools()
    with pytest.raises(LayoutError, match=r"`java`.*apt-get install openjdk-17-jdk-headless"):
        lay_out()


def test_a_missing_maven_is_an_error_that_says_what_to_install(monkeypatch, tmp_path):
    programs = bare_machine(monkeypatch, tmp_path)
    program(programs, "java", 'openjdk version "21.0.2" 2024-01-16')
    program(programs, "javac", "")
    assert "apt-get install maven" in missing_tools()
    with pytest.raises(LayoutError, match=r"`mvn`.*apt-get install maven"):
        lay_out()


@pytest.mark.parametrize(("version", "feature"), [("1.8.0_292", 8), ("11.0.2", 11)])
def test_a_java_that_is_too_old_is_an_error_that_says_so(monkeypatch, tmp_path, version, feature):
    program(bare_machine(monkeypatch, tmp_path), "java", f'openjdk version "{version}"')
    assert f"is {feature}:" in missing_tools()


def test_what_is_laid_out_needs_java_alone(monkeypatch, tmp_path):
    programs = bare_machine(monkeypatch, tmp_path)
    program(programs, "java", 'openjdk version "17.0.15"')
    home = tmp_path / "cache" / recipe()
    home.mkdir(parents=True)
    assert missing_tools() == ""
    assert lay_out() == home


def test_a_layout_that_fails_leaves_nothing_that_looks_complete(monkeypatch, tmp_path):
    programs = bare_machine(monkeypatch, tmp_path)
    program(programs, "java", 'openjdk version "17.0.15"')
    program(programs, "javac", "")
    (programs / "mvn").write_text("#!/bin/sh\necho 'the repository is not reachable'\nexit 1\n")
    (programs / "mvn").chmod(0o755)
    for _ in range(2):
        with pytest.raises(LayoutError, match="the repository is not reachable"):
            lay_out()


# The plugin


def run_pytest(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """One test that wants OpenSearch, on a machine that has no Java."""
    (tmp_path / "test_it.py").write_text("def test_it(opensearch_url):\n    pass\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "conftest_services", "-p", "no:cacheprovider", "test_it.py"],
        cwd=tmp_path,
        env={
            "PATH": str(tmp_path / "empty"),
            "PYTHONPATH": f"{ROOT / 'tests'}{os.pathsep}{ROOT}",
            "HINDSIGHT_STACK_CACHE": str(tmp_path / "cache"),
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_java_the_tests_are_left_out_and_the_last_lines_say_what_to_install(tmp_path):
    ran = run_pytest(tmp_path)
    assert ran.returncode == 0, ran.stdout
    assert "1 skipped" in ran.stdout
    assert "1 test left out: OpenSearch needs `java`" in ran.stdout
    assert "apt-get install openjdk-17-jdk-headless" in ran.stdout


def test_without_java_the_tests_fail_where_services_are_required(tmp_path):
    ran = run_pytest(tmp_path, HINDSIGHT_REQUIRE_SERVICES="1")
    assert ran.returncode == 1, ran.stdout
    assert "apt-get install openjdk-17-jdk-headless" in ran.stdout


def test_a_node_that_runs_already_is_used_as_it_is(tmp_path):
    ran = run_pytest(tmp_path, HINDSIGHT_TEST_OPENSEARCH_URL="http://127.0.0.1:1")
    assert "1 passed" in ran.stdout


# The real ones


def test_the_node_has_vectors_rank_features_and_scripts(opensearch_url):
    index = f"localstack-{secrets.token_hex(4)}"
    fields = {
        "v": {
            "type": "knn_vector",
            "dimension": 2,
            "method": {"name": "hnsw", "engine": "lucene", "space_type": "cosinesimil"},
        },
        "terms": {"type": "rank_features"},
    }
    parts = [
        {"knn": {"v": {"vector": [1, 0], "k": 1}}},
        {"rank_feature": {"field": "terms.天气", "linear": {}}},
        {
            "script_score": {
                "query": {"match_all": {}},
                "script": {"source": "cosineSimilarity(params.q, doc['v'])", "params": {"q": [1, 0]}},
            }
        },
    ]
    ask(opensearch_url, f"/{index}", "PUT", {"settings": {"index.knn": True}, "mappings": {"properties": fields}})
    try:
        ask(opensearch_url, f"/{index}/_doc/1?refresh=true", "PUT", {"v": [1, 0], "terms": {"天气": 0.5}})
        found = ask(opensearch_url, f"/{index}/_search", "POST", {"query": {"bool": {"should": parts}}})
        assert found["hits"]["hits"][0]["_score"] == pytest.approx(2.5)
    finally:
        ask(opensearch_url, f"/{index}", "DELETE")


@pytest.mark.parametrize(("end", "exit_code"), [("stop", 128 + signal.SIGTERM), ("kill", -signal.SIGKILL)])
def test_what_the_node_acknowledged_is_there_when_it_starts_again(opensearch_node, end, exit_code):
    index = f"localstack-{end}"
    ask(opensearch_node.url, f"/{index}/_doc/1", "PUT", {"kept": True})
    getattr(opensearch_node, end)()
    assert opensearch_node.exit_code == exit_code
    assert not is_healthy(opensearch_node.service.health)
    opensearch_node.start()
    assert ask(opensearch_node.url, f"/{index}/_doc/1")["_source"] == {"kept": True}


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_redis_can_be_ended_and_started_again(redis_server, end):
    assert redis_says(redis_server.url, "SET localstack 1").startswith("+OK")
    getattr(redis_server, end)()
    assert not is_healthy(redis_server.url)
    redis_server.start()
    assert redis_says(redis_server.url, "GET localstack").startswith("$-1")


def test_a_service_that_a_test_left_stopped_runs_for_the_next_one(redis_url):
    assert is_healthy(redis_url)
