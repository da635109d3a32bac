"""Other people's MCP programs against a server: the inspector's command line and the conformance suite, from npm.

They are installed once into a cache outside the checkout (`HINDSIGHT_TEST_NODE`, else the user's cache directory).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TypeAlias

import platformdirs
import pytest

from conftest_services import REQUIRE_VARIABLE
from hindsight_core.context import count_tokens, render
from hindsight_core.models import Hit, Parts
from hindsight_core.responses import Recall
from hindsight_functions.tools.server import described
from samples import memory
from server import Server, environment, server

PACKAGES = [
    "node@22",
    "@modelcontextprotocol/inspector@0.15.0",
    "@modelcontextprotocol/conformance@0.1.16",
    "gpt-tokenizer@4.0.0",  # two real vocabularies, in the package
]
INSTALL_SECONDS, RUN_SECONDS = 600, 120
APPLY = ["server-initialize", "ping", "tools-list", "resources-list", "prompts-list", "dns-rebinding-protection"]
_FIXED = "calls a tool, prompt or resource of the suite's own reference server by its name"
_NOT_OFFERED = "a capability that is not declared: nothing here logs to, subscribes or asks back from a client"
_NO_STREAMS = "for servers with event streams; every answer here is one JSON object"
DO_NOT_APPLY = {
    "tools-call-simple-text": _FIXED,
    "tools-call-image": _FIXED,
    "tools-call-audio": _FIXED,
    "tools-call-embedded-resource": _FIXED,
    "tools-call-mixed-content": _FIXED,
    "tools-call-error": _FIXED,
    "tools-call-with-progress": _FIXED,
    "json-schema-2020-12": _FIXED,
    "resources-read-text": _FIXED,
    "resources-read-binary": _FIXED,
    "resources-templates-read": _FIXED,
    "prompts-get-simple": _FIXED,
    "prompts-get-with-args": _FIXED,
    "prompts-get-embedded-resource": _FIXED,
    "prompts-get-with-image": _FIXED,
    "completion-complete": _NOT_OFFERED,
    "logging-set-level": _NOT_OFFERED,
    "tools-call-with-logging": _NOT_OFFERED,
    "tools-call-sampling": _NOT_OFFERED,
    "tools-call-elicitation": _NOT_OFFERED,
    "elicitation-sep1034-defaults": _NOT_OFFERED,
    "elicitation-sep1330-enums": _NOT_OFFERED,
    "resources-subscribe": _NOT_OFFERED,
    "resources-unsubscribe": _NOT_OFFERED,
    "server-sse-polling": _NO_STREAMS,
    "server-sse-multiple-streams": _NO_STREAMS,
}
Npm: TypeAlias = Callable[..., str]


@pytest.fixture(scope="module")
def npm() -> Npm:
    """Runs a program of the packages; what it said. Any failure of it fails the test."""

    def leave_out(reason: str) -> None:
        if os.environ.get(REQUIRE_VARIABLE) == "1":
            pytest.fail(f"{reason} ({REQUIRE_VARIABLE}=1 makes that a failure.)", pytrace=False)
        pytest.skip(f"Left out: {reason}")

    if shutil.which("npm") is None:
        leave_out("There is no npm here; install Node.js for the MCP inspector and the conformance suite.")
    chosen = os.environ.get("HINDSIGHT_TEST_NODE")
    place = Path(chosen) if chosen else platformdirs.user_cache_path("hindsight-tests") / "mcp-node"
    place.mkdir(parents=True, exist_ok=True)
    done = place / "installed.json"
    if not done.exists() or json.loads(done.read_text()) != PACKAGES:
        install = ["npm", "install", "--prefix", str(place), "--no-audit", "--no-fund", "--silent", *PACKAGES]
        ran = subprocess.run(install, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS)
        if ran.returncode:
            leave_out(f"npm could not install {', '.join(PACKAGES)}: {ran.stderr[-300:]}")
        done.write_text(json.dumps(PACKAGES))
    programs = place / "node_modules" / ".bin"
    path = os.pathsep.join([str(programs), os.environ["PATH"]])

    def run(program: str, *arguments: str, stdin: str | None = None) -> str:
        command = [str(programs / program), *arguments]
        env = {**os.environ, "PATH": path, "NO_COLOR": "1", "NODE_PATH": str(place / "node_modules")}
        ran = subprocess.run(
            command, env=env, input=stdin, capture_output=True, text=True, check=False, timeout=RUN_SECONDS
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return re.sub(r"\x1b\[[0-9;]*m", "", ran.stdout)

    return run


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    env = environment(HINDSIGHT_STORE=str(tmp_path_factory.mktemp("node") / "hindsight.db"))
    with server(env=env) as found:
        yield found


@pytest.mark.parametrize("scenario", APPLY)
def test_the_conformance_suite_passes_where_it_applies(npm, running, scenario):
    said = npm("conformance", "server", "--url", f"{running.url}/mcp", "--scenario", scenario)
    found = re.search(r"Passed: (\d+)/(\d+), 0 failed, 0 warnings", said)
    assert found, said
    assert found[1] == found[2] != "0"


def test_every_scenario_of_the_suite_is_run_or_left_out_for_a_reason(npm):
    said = npm("conformance", "list").partition("Client scenarios")[0]
    assert set(re.findall(r"^ +- ([\w-]+)", said, re.MULTILINE)) == {*APPLY, *DO_NOT_APPLY}
    assert all(DO_NOT_APPLY.values())


def test_the_inspector_lists_and_calls_the_tools(npm, running):
    def inspect(method: str, *arguments: str) -> dict[str, object]:
        url = f"{running.url}/mcp"
        return dict(
            json.loads(npm("mcp-inspector", "--cli", url, "--transport", "http", "--method", method, *arguments))
        )

    tools = inspect("tools/list")["tools"]
    assert [tool["name"] for tool in tools][:2] == ["memory_write", "memory_search"]
    content = [
        "--tool-arg",
        "content=The user plays the cello",
        "--tool-arg",
        "force=true",
        "--tool-arg",
        "confidence=1",
    ]
    written = inspect("tools/call", "--tool-name", "memory_write", *content)
    assert written["structuredContent"]["stored"]
    found = inspect(
        "tools/call", "--tool-name", "memory_search", "--tool-arg", "query=Which instrument?", "--tool-arg", "top_k=2"
    )
    assert found["structuredContent"]["hits"][0]["content"] == "The user plays the cello"
    failed = inspect("tools/call", "--tool-name", "memory_forget", "--tool-arg", "memory_id=nobody")
    assert failed["isError"]
    assert len(inspect("resources/list")["resources"]) == 2
    assert len(inspect("prompts/list")["prompts"]) == 2


COUNT = """
const texts = JSON.parse(require("fs").readFileSync(0, "utf8"));
const all = {disallowedSpecial: new Set()};
const encodings = ["o200k_base", "cl100k_base"].map((name) => require("gpt-tokenizer/encoding/" + name));
console.log(JSON.stringify(texts.map((text) => encodings.map(({encode}) => encode(text, all).length))));
"""
SAYINGS = [
    "Mum takes 2.5 mg of bisoprolol each morning, and the pharmacy on Elm Street (01632 960 123) refills it on the 9th",
    "My shipping address is 7 Oak Road, York; order A1029384756-XK was confirmed on 2025-03-01 at 09:30",
    "Deploys go through https://ci.example.com/jobs/4711?branch=main, and the flag is --max-retries=3",
    "The session id is 550e8400-e29b-41d4-a716-446655440000",
    "The checksum is wdtgmlqucavltalsfyxaaoyjfkaflmggflhavoqebbzkqpwd",
    "The public key is MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEyr0AkA6D3CiUXMhWG2yXvpJW0LGtG5PpXPtiys",
    "我的收货地址是上海市徐汇区漕溪路88号，电话是13800138000，工作日下午六点以后送",
    "以后查天气都默认用摄氏度，报告写成要点，不要超过三百字",
    "他对花生过敏，去年在广州中山一院住过院，主治医生姓欧阳",
    "女儿下学期转到实验小学三年级，班主任是林老师 👩‍🏫",
]


def test_no_budget_is_overrun_by_a_real_tokeniser(npm, capsys):
    tools = [
        json.dumps(
            {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema},
            ensure_ascii=False,
            separators=(",", ":"),
        )
        for tool in described()
    ]
    recall = Recall(needed=True, why="")
    blocks = []
    for part in (SAYINGS, SAYINGS[:4], SAYINGS[4:6], SAYINGS[6:]):
        hits = [Hit(memory=memory(f"m{n}", text), score=0.5, parts=Parts()) for n, text in enumerate(part * 3)]
        blocks += [render(hits, budget, recall).text for budget in (120, 400, 2000)]
    counted = json.loads(npm("node", "-e", COUNT, stdin=json.dumps([*tools, *blocks])))
    for text, real in zip(blocks, counted[len(tools) :], strict=True):
        assert max(real) <= count_tokens(text) <= 2 * max(real)
    sums = [sum(real[vocabulary] for real in counted[: len(tools)]) for vocabulary in (0, 1)]
    with capsys.disabled():
        print(f"\ntokens of the tools: {sums[0]} with o200k_base, {sums[1]} with cl100k_base")
    assert max(sums) <= 1500
