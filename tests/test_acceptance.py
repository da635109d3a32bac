"""The address story as a user lives it: through a served gateway over HTTP, and through the command line.

Day 1: an address. Day 2: another. Day 3: which is it, where was it before, and what was true on day 1?
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest

Ask: TypeAlias = Callable[..., list[dict[str, Any]]]
Tell: TypeAlias = Callable[[str, str], dict[str, Any]]

DAY_1, DAY_1_LATER = "2025-03-01T09:00:00Z", "2025-03-01T12:00:00Z"
DAY_2, DAY_3 = "2025-03-02T09:00:00Z", "2025-03-03T09:00:00Z"
STORIES = {
    "zh": (
        "我的收货地址是上海市徐汇区漕溪路88号",
        "我搬家了，新地址是杭州市西湖区文三路12号",
        "我的地址是哪个",
        "我以前住在哪里？",
        "漕溪路",
        "文三路",
    ),
    "en": (
        "My shipping address is 12 Rose Lane, Leeds",
        "I moved house, my new address is 7 Hill Street, York",
        "What is my address?",
        "Where did I live before?",
        "Rose Lane",
        "Hill Street",
    ),
}
COMMAND = [sys.executable, "-m", "hindsight_core.cli"]


def environment(folder: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HINDSIGHT_")}
    return inherited | {"HINDSIGHT_STORE": str(folder / "hindsight.db"), "NO_COLOR": "1"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The URL of a gateway in a process of its own."""
    command = [*COMMAND, "serve", "--port", "0"]
    variables = environment(tmp_path_factory.mktemp("served"))
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield next(found[0] for line in process.stdout if (found := re.search(r"http://[\d.:]+", line)))
        process.terminate()
        process.stdout.read()
    assert process.returncode == 0


def over_http(url: str, namespace: str) -> tuple[Tell, Ask]:
    def post(path: str, status: int, **body: str) -> dict[str, Any]:
        headers = {"Hindsight-Namespace": namespace}
        answer = httpx.post(url + path, json={"user_id": "u", **body}, headers=headers, timeout=60)
        assert answer.status_code == status, answer.text
        return answer.json()

    def tell(text: str, now: str) -> dict[str, Any]:
        return post("/v1/memories", 201, content=text, now=now)["results"][0]

    def ask(query: str, **more: str) -> list[dict[str, Any]]:
        return post("/v1/search", 200, query=query, now=DAY_3, **more)["hits"]

    return tell, ask


def over_the_command_line(folder: Path, *where: str) -> tuple[Tell, Ask]:
    def run(*words: str) -> dict[str, Any]:
        ran = subprocess.run(
            [*COMMAND, *words, "--user", "u", "--json", *where], env=environment(folder), capture_output=True, text=True
        )
        assert ran.returncode in {0, 1}, ran.stderr
        return json.loads(ran.stdout)

    def tell(text: str, now: str) -> dict[str, Any]:
        return run("write", text, "--now", now)["results"][0]

    def ask(query: str, **more: str) -> list[dict[str, Any]]:
        options = [word for name, value in more.items() for word in (f"--{name.replace('_', '-')}", value)]
        return run("search", query, "--now", DAY_3, *options)["hits"]

    return tell, ask


@pytest.fixture(params=["http", "command line", "command line to a server"])
def way(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Tell, Ask]:
    namespace = re.sub(r"\W", ".", request.node.name)[-100:]
    if request.param == "http":
        return over_http(request.getfixturevalue("served"), namespace)
    if request.param == "command line":
        return over_the_command_line(tmp_path)
    return over_the_command_line(tmp_path, "--url", request.getfixturevalue("served"), "--namespace", namespace)


@pytest.mark.parametrize("language", sorted(STORIES))
def test_an_address_that_changed_is_answered_right_in_every_tense(way, language):
    tell, ask = way
    first, second, now, before, old, new = STORIES[language]
    assert tell(first, DAY_1)["decision"] == "add"
    changed = tell(second, DAY_2)
    assert changed["decision"] == "supersede"
    assert len(changed["superseded"]) == 1

    present = [hit["memory"]["content"] for hit in ask(now)]
    assert present == [second]
    assert new in present[0]

    past = {hit["memory"]["content"]: hit.get("marked") for hit in ask(before)}
    assert past[first] == "superseded"

    then = [hit["memory"]["content"] for hit in ask(now, as_of=DAY_1_LATER)]
    assert then == [first]
    assert old in then[0]
