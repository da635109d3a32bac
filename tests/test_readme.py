"""What the README says is so: its table is the settings', its Python runs, its commands and files exist."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from hindsight_core.config import markdown

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
COMMAND = [sys.executable, "-m", "hindsight_core.cli"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HINDSIGHT_")}
    return inherited | {"HINDSIGHT_STORE": str(tmp_path / "hindsight.db"), "NO_COLOR": "1", "COLUMNS": "200"}


@pytest.fixture
def served(environment: dict[str, str]) -> Generator[str]:
    """The URL of `hindsight serve`, running."""
    command = [*COMMAND, "serve", "--port", "0"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = next(found[0] for line in process.stdout if (found := re.search(r"http://[\d.:]+", line)))
        yield url
        process.terminate()
        process.stdout.read()
    assert process.returncode == 0


def test_the_table_of_settings_is_the_one_of_the_code():
    (table,) = re.findall(r"<!-- settings: written by .*? -->\n(.*?)\n<!-- settings: end -->", README, re.DOTALL)
    assert table == markdown()


def test_the_python_example_runs(served, environment):
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    code = example.replace("http://127.0.0.1:8100", served)
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("我对花生过敏")


def test_the_http_examples_are_answered(served):
    examples = re.findall(r"^\$ (curl (?:.*\\\n)*.*)", README, re.MULTILINE)
    assert len(examples) == 2
    for example in examples:
        command = example.replace("localhost:8100", served.removeprefix("http://"))
        ran = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True)
        assert {"results", "hits"} & json.loads(ran.stdout).keys(), ran.stdout


def test_the_first_commands_do_what_they_say(environment):
    lines = [line for line in re.findall(r"\$ (hindsight (?:write|search) .*)", README) if "--json" not in line]
    assert len(lines) == 4
    outputs = []
    for line in lines:
        (text,) = re.findall(r'"(.*)"', line)
        words = line.replace(f'"{text}"', "").split()[1:]
        words.insert(1, text)
        ran = subprocess.run([*COMMAND, *words], env=environment, capture_output=True, text=True, check=True)
        outputs.append(ran.stdout)
    assert "7 Oak Road" in outputs[2]
    assert "12 Elm Street" not in outputs[2]
    assert "12 Elm Street" in outputs[3]


def test_what_it_points_to_is_there():
    for place in re.findall(r"\| `([a-z_/]+)` \|$", README, re.MULTILINE):
        assert (ROOT / place).is_dir(), place
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"[`$] ?make ([a-z-]+)\b", README):
        assert target in targets, target
