"""`hindsight reembed`: whom SIGKILL ends loses a batch at most, and the next one does the rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from commandline import Cli, command_line
from endpoint import Answer, Endpoint
from hindsight_core.stores import open_store
from opensearch_place import OpenSearchPlace
from samples import EVERYTHING, NAMESPACE, memory, puts, record, unit
from test_embedding_openai import well

COUNT = 260


class Model:
    """An endpoint that counts the memories it embeds, and kills a process once it has embedded so many."""

    def __init__(self) -> None:
        self.endpoint = Endpoint(self.answer)
        self.embedded = 0
        self.kill_at = COUNT + 1
        self.process: subprocess.Popen[str] | None = None

    def answer(self, body: dict[str, Any]) -> Answer:
        self.embedded += sum(text.startswith("Memory number") for text in body["input"])
        if self.process is not None and self.embedded >= self.kill_at:
            self.process.kill()
        return well(body)

    @property
    def environment(self) -> dict[str, str]:
        return {"HINDSIGHT_EMBEDDER": f"openai:m@http://{self.endpoint.host}/v1"}


@pytest.fixture
def model() -> Generator[Model]:
    model = Model()
    yield model
    model.endpoint.close()


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return command_line(tmp_path, monkeypatch, capsys)


@pytest.fixture(params=["sqlite", "opensearch"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "hindsight.db")
        return
    with OpenSearchPlace(request.getfixturevalue("opensearch_url")) as place:
        yield place.store_url


def started(url: str, model: Model) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "hindsight_core.cli", "reembed", "--store", url, "--json"]
    environment = {**os.environ, **model.environment}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


async def test_a_process_that_is_killed_is_followed_by_one_that_does_the_rest(store_url: str, model: Model) -> None:
    store = open_store(store_url)
    await store.prepare("old")
    await store.commit(
        NAMESPACE, puts(*(record(memory(f"m{n:03}", f"Memory number {n}."), unit(n, 24)) for n in range(COUNT)))
    )
    model.kill_at = 150
    model.process = started(store_url, model)
    out, error = model.process.communicate(timeout=120)
    assert (out, model.process.returncode) == ("", -9), error
    assert 150 <= model.embedded < COUNT
    # Nothing has changed for those who use it.
    assert len(await store.scan(NAMESPACE, EVERYTHING, after=None, limit=COUNT + 1)) == COUNT
    await store.aclose()

    model.process = None
    again = started(store_url, model)
    out, error = again.communicate(timeout=120)
    assert again.returncode == 0, error
    told = json.loads(out)
    assert told["embedded"] == COUNT - 100
    store = open_store(store_url)
    await store.prepare(told["embedding_model"])
    found = await store.scan(NAMESPACE, EVERYTHING, after=None, limit=COUNT + 1)
    assert {one.memory.embedding_model for one in found} == {told["embedding_model"]}
    assert {len(one.mixed) for one in found if one.mixed is not None} == {16}
    await store.aclose()


def test_a_servers_memories_are_changed_on_its_machine_and_a_second_run_has_nothing_to_do(
    cli: Cli, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("reembed", "--url", "http://127.0.0.1:1").code == 2
    for name, value in model.environment.items():
        monkeypatch.setenv(name, value)
    first = cli("reembed")
    assert first.code == 0, first.err
    assert first.out.startswith("0 memories embedded; all vectors are those of")
    assert cli("reembed", "--json").json["embedded"] == 0
