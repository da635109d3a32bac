"""What a server does before its first call, so that this takes no longer than the next."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hindsight_core.config import Settings
from hindsight_core.once import once
from hindsight_core.service import MemoryService
from hindsight_core.stores import open_store

FIRST_CALLS = """
import re._compiler
import numpy
from datetime import UTC, datetime
from hindsight_core import pair_model, question, slots
from hindsight_core.extraction import Candidate
from hindsight_core.gate import judge
from hindsight_core.recall import recall_needed
from hindsight_core.warming import warm

warm()

def loads(*_given, **_named):
    raise AssertionError("loaded with the first call")

numpy.load = loads

compiling = re._compiler.compile

def compiled(pattern, flags=0):
    assert len(pattern) < 200, f"compiled with the first call: {pattern[:60]}"
    return compiling(pattern, flags)

re._compiler.compile = compiled
for text in ("My sister moved to Bergen on 3 May.", "我姐姐五月三号搬到了苏州", "Where are they?", "钥匙放哪儿了？"):
    question.read(text, datetime(2025, 6, 1, tzinfo=UTC), frozenset())
    recall_needed(text)
    judge(Candidate(index=0, text=text), vector=None)
    slots.read(text)
assert pair_model.shipped() is not None
"""


def test_after_warming_first_calls_compile_and_load_nothing() -> None:
    run = subprocess.run([sys.executable, "-c", FIRST_CALLS], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


SEARCHES_ONLY = """
from pathlib import PurePath
import numpy

opened = []
loading = numpy.load

def load(file, *given, **named):
    opened.append(PurePath(file.name).name)
    return loading(file, *given, **named)

numpy.load = load
from hindsight_core.warming import warm

warm(writes=False)
assert opened == ["recall.npz"], opened
"""


def test_who_only_searches_loads_nothing_of_what_decides_about_texts() -> None:
    run = subprocess.run([sys.executable, "-c", SEARCHES_ONLY], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_who_asks_while_it_is_being_loaded_does_not_load_it_again() -> None:
    loads: list[str] = []

    @once
    def load(name: str) -> str:
        loads.append(name)
        time.sleep(0.05)
        return name

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(load, ["gate", "gate", "recall", "gate"])) == ["gate", "gate", "recall", "gate"]
    assert sorted(loads) == ["gate", "recall"]


def test_what_cannot_be_loaded_is_asked_for_again() -> None:
    answers = iter([OSError(), None])
    asked: list[object] = []

    @once
    def load() -> None:
        asked.append(answer := next(answers))
        if answer is not None:
            raise answer

    with pytest.raises(OSError):
        load()
    assert load() is None
    assert load() is None
    assert len(asked) == 2


async def test_warming_that_fails_is_logged_and_nothing_else(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    def fails(*, writes: bool) -> None:
        raise ValueError(f"writes: {writes}")

    monkeypatch.setattr("hindsight_core.service.warm", fails)
    service = MemoryService(open_store(str(tmp_path / "a.db")), None, settings)
    with caplog.at_level(logging.WARNING, "hindsight.service"):
        await service.warm(writes=False)
    assert [record.message for record in caplog.records] == ["warming.failed"]
    await service.aclose()
