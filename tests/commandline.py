"""The command line, run in this process over a store of the test's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from hindsight_core.cli.commands import run


class Ran:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Cli: TypeAlias = Callable[..., Ran]


def command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs a command line over a store of its own."""
    monkeypatch.setenv("HINDSIGHT_STORE", str(tmp_path / "hindsight.db"))
    monkeypatch.delenv("HINDSIGHT_URL", raising=False)

    def call(*arguments: str) -> Ran:
        code = run(arguments)
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return call


def written(cli: Cli, text: str, *options: str) -> str:
    answer = cli("write", text, "--force", "--reconcile", "none", "--json", *options)
    assert answer.code == 0, answer.err
    memory_id: str = answer.json["results"][0]["memory_id"]
    return memory_id
