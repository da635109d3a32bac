"""A backup of the embedded store: one state of it, whole, while others write; nothing is overwritten or left behind."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

from commandline import Cli, command_line, written
from hindsight_core.errors import ConfigurationError, InvalidInput
from hindsight_core.stores import ChangeSet, Where, backup
from hindsight_core.stores.backup import back_up
from hindsight_core.stores.sqlite import SqliteStore
from samples import NAMESPACE, event, memory, puts, record, run, unit


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return command_line(tmp_path, monkeypatch, capsys)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_a_backup_is_one_state_of_a_store_that_is_written_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "_PAGES", 1)
    store = SqliteStore(tmp_path / "live.db")
    await store.prepare("model-a")
    first = [record(memory(f"a{n:03}", "The kettle is blue. " * 50), unit(n)) for n in range(200)]
    await store.commit(NAMESPACE, puts(*first))
    steps: list[tuple[int, int]] = []
    stop = asyncio.Event()
    running = asyncio.get_running_loop()

    async def write() -> int:
        number = 0
        while not stop.is_set():
            # Each change is two memories: a copy with one of them would be no state.
            pair = (record(memory(f"b{number:05}"), unit(1)), record(memory(f"c{number:05}"), unit(2)))
            await store.commit(NAMESPACE, puts(*pair, run_id=f"run {number}"))
            number += 1
        return number

    writing = asyncio.create_task(write())
    made = await running.run_in_executor(
        None, back_up, tmp_path / "live.db", tmp_path / "copy.db", lambda *step: steps.append(step)
    )
    stop.set()
    written_after = await writing
    await store.aclose()
    assert len(steps) > 50
    assert steps[-1][0] == steps[-1][1] > 0
    assert written_after > 0
    assert [name for name in names(tmp_path) if name.startswith("copy")] == ["copy.db"]
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    copy = SqliteStore(tmp_path / "copy.db")
    await copy.prepare("model-a")
    ids = [r.memory.id for r in await copy.scan(NAMESPACE, Where(), after=None, limit=100_000)]
    pairs = [name[1:] for name in ids if name[0] == "b"]
    assert pairs == [name[1:] for name in ids if name[0] == "c"]
    assert pairs == [f"{number:05}" for number in range(len(pairs))]
    assert (await copy.head(NAMESPACE)).memories == len(ids) == made.counts["memories"] == 200 + 2 * len(pairs)
    await copy.commit(NAMESPACE, puts(record(memory("new"), unit(3)), run_id="later"))
    await copy.aclose()


async def test_a_backup_holds_nothing_of_what_was_erased_before(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "live.db")
    await store.prepare(None)
    secret = memory("a", "My locker code is kumquat.")
    changes = puts(record(secret), record(memory("b")))
    await store.commit(NAMESPACE, changes)
    erase = ChangeSet(run=run("2"), erases=("a",), events=(event("e", "a", "2", action="erased"),))
    await store.commit(NAMESPACE, erase)
    back_up(tmp_path / "live.db", tmp_path / "copy.db")
    await store.aclose()
    held = (tmp_path / "copy.db").read_bytes()
    assert b"kumquat" not in held
    assert b"kettle" in held


def test_a_backup_overwrites_nothing_and_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no file"):
        back_up(tmp_path / "live.db", tmp_path / "copy.db")
    (tmp_path / "live.db").write_bytes(b"")
    (tmp_path / "other.db").write_bytes(b"precious")
    with pytest.raises(InvalidInput, match="overwrites nothing"):
        back_up(tmp_path / "live.db", tmp_path / "other.db")
    with pytest.raises(ConfigurationError, match="no store of Hindsight"):
        back_up(tmp_path / "live.db", tmp_path / "copy.db")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        back_up(tmp_path / "live.db", tmp_path / "nowhere" / "copy.db")
    assert (tmp_path / "other.db").read_bytes() == b"precious"
    assert names(tmp_path) == ["live.db", "other.db"]


def test_the_command_tells_what_the_copy_holds_and_it_works_in_place_of_the_store(cli: Cli, tmp_path: Path):
    memory_id = written(cli, "My dog is called Biscuit.")
    copy = str(tmp_path / "copy.db")
    answer = cli("backup", copy)
    assert answer.code == 0
    assert "1 memories, 1 events, 1 runs" in answer.out
    assert cli("backup", copy).code == 2
    assert cli("get", memory_id, "--store", copy).code == 0
    assert cli("backup", str(tmp_path / "other.db"), "--json").json["counts"]["memories"] == 1
    assert cli("backup", str(tmp_path / "third.db"), "--store", "opensearch://localhost:9200").code == 2
    assert cli("backup", str(tmp_path / "third.db"), "--url", "http://localhost:1").code == 2
