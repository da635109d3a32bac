"""What the guides say is so: their JSON parses, their tools exist, their Python runs."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hindsight_functions.tools import TOOLS
from server import environment, server

DOCS = Path(__file__).parent.parent / "docs"
TEXTS = {name: (DOCS / name).read_text("utf-8") for name in ("mcp.md", "clients.md", "dify.md", "access.md")}


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_code_blocks_can_be_pasted_and_links_lead_somewhere(name):
    text = TEXTS[name]
    for block in re.findall(r"```json\n(.*?)```", text, re.DOTALL):
        json.loads(block)
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        ast.parse(block)
    for target in re.findall(r"\]\((?!http)([^)]+)\)", text):
        assert (DOCS / target).exists(), target


def test_only_tools_that_exist_are_named_and_the_table_has_them_all():
    named = {tool for text in TEXTS.values() for tool in re.findall(r"\bmemory_[a-z]+\b(?=[`(])", text)}
    assert named - {"memory_id"} == {tool.name for tool in TOOLS}
    table = re.findall(r"^\| `(memory_\w+)` \|", TEXTS["mcp.md"], re.MULTILINE)
    assert table == [tool.name for tool in TOOLS]


def test_the_python_example_runs(tmp_path):
    (example,) = re.findall(
        r"<!-- example: run by the test of the guide -->\n```python\n(.*?)```", TEXTS["clients.md"], re.DOTALL
    )
    env = environment(HINDSIGHT_STORE=str(tmp_path / "hindsight.db"))
    with server(env=env) as running:
        code = example.replace("http://127.0.0.1:8100", running.url)
        ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("add\n")
    assert "7 Oak Road" in ran.stdout


def test_the_python_example_without_a_server_runs(tmp_path):
    (example,) = re.findall(
        r"<!-- example: run in process by the test of the guide -->\n```python\n(.*?)```",
        TEXTS["clients.md"],
        re.DOTALL,
    )
    ran = subprocess.run(
        [sys.executable, "-c", example], env=environment(), cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "My shipping address is 7 Oak Road, York\n"
    assert (tmp_path / "memories.db").exists()
