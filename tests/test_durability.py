"""What was acknowledged is there, once and whole, whatever is killed whenever.

pytest tests/test_durability.py --kills 1000
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import sqlite3
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from hindsight_core.errors import Conflict
from hindsight_core.stores import ChangeSet, Receipt, Record, Where
from hindsight_core.stores.sqlite import SqliteStore
from samples import NAMESPACE, event, memory, record, run, unit

WRITERS = 8
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["hindsight_core.stores.sqlite", "samples"])


def changes(memory_id: str, vector: int) -> ChangeSet:
    """A memory with everything that must come and go with it."""
    put = record(memory(memory_id, f"{memory_id} said that the kettle is blue. " * 5), unit(vector))
    return ChangeSet(
        run=run(f"run-{memory_id}", count=1),
        puts=(put,),
        events=(event(f"event-{memory_id}", memory_id, f"run-{memory_id}", after=put.memory),),
        receipt=Receipt(key=f"key-{memory_id}", fingerprint="f", answer=f'{{"id":"{memory_id}"}}'.encode()),
    )


async def write_for_ever(path: str, writer: str, acknowledged: Connection, limit: int | None) -> None:
    store = SqliteStore(path)
    await store.prepare("model-a")
    number = 0
    while limit is None or number < limit:
        memory_id = f"{writer}-{number:05}"
        head = await store.head(NAMESPACE)
        try:
            await store.commit(NAMESPACE, changes(memory_id, number), expected=head.sequence)
        except Conflict:
            continue
        acknowledged.send(memory_id)
        if number % 5 == 4:
            await store.commit(NAMESPACE, ChangeSet(run=run(f"erase-{memory_id}"), erases=(memory_id,)))
            acknowledged.send(f"-{memory_id}")
        number += 1
    await store.aclose()


def write(path: str, writer: str, acknowledged: Connection, limit: int | None = None) -> None:
    try:
        asyncio.run(write_for_ever(path, writer, acknowledged, limit))
    except Exception as exc:
        acknowledged.send(exc)


def start(path: Path, writer: str, limit: int | None = None) -> tuple[BaseProcess, Connection]:
    ours, theirs = processes.Pipe(duplex=False)
    process = processes.Process(target=write, args=(str(path), writer, theirs, limit), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def received(pipe: Connection) -> Iterator[str]:
    """What the writer acknowledged before it ended."""
    try:
        while True:
            yield take(pipe)
    except EOFError:
        pipe.close()


def take(pipe: Connection) -> str:
    """The next acknowledgement; a writer's error is raised here."""
    said = pipe.recv()
    if isinstance(said, Exception):
        raise said
    assert isinstance(said, str)
    return said


def verify(path: Path, acknowledged: list[str]) -> None:
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()
    records, events, runs, sequence, receipts = asyncio.run(everything(path, acknowledged))
    stored = [found.memory.id for found in records]
    assert len(set(stored)) == len(stored)
    erased = {said[1:] for said in acknowledged if said.startswith("-")}
    kept = {said for said in acknowledged if not said.startswith("-")}
    # The last write of a killed process may be stored without an acknowledgement, its last erasure likewise.
    assert erased.isdisjoint(stored)
    missing = kept - erased - set(stored)
    assert all(f"erase-{memory_id}" in runs for memory_id in missing)
    # No memory without its event and run, no event of a memory that never was, and each of them once.
    assert len(set(events)) == len(events)
    assert set(stored) <= set(events)
    assert {f"run-{memory_id}" for memory_id in events} == {name for name in runs if name.startswith("run-")}
    assert sequence == len(runs)
    # The key of every write stays used, and answers where its memory was not erased.
    assert receipts.keys() == kept
    assert {said for said, answer in receipts.items() if answer} == set(stored) & kept
    assert all(found.memory.content.startswith(found.memory.id) and found.bare is not None for found in records)


async def everything(
    path: Path, acknowledged: list[str]
) -> tuple[list[Record], list[str], list[str], int, dict[str, bytes]]:
    store = SqliteStore(path)
    records = await store.scan(NAMESPACE, Where(), after=None, limit=1_000_000)
    events = [found.memory_id for found in await store.read(NAMESPACE, "events", limit=1_000_000)]
    runs = [found.run_id for found in await store.read(NAMESPACE, "runs", limit=1_000_000)]
    head = await store.head(NAMESPACE)
    receipts: dict[str, bytes] = {}
    for said in acknowledged:
        if (receipt := await store.receipt(NAMESPACE, f"key-{said}")) is not None:
            receipts[said] = receipt.answer
    await store.aclose()
    return records, events, runs, head.sequence, receipts


def test_eight_processes_start_on_an_empty_file_at_once_and_write_without_ever_seeing_it_locked(
    tmp_path: Path,
) -> None:
    path = tmp_path / "new" / "hindsight.db"
    started = [start(path, f"w{number}", limit=15) for number in range(WRITERS)]
    acknowledged = [said for _, pipe in started for said in received(pipe)]
    for process, _ in started:
        process.join()
    assert len(acknowledged) == WRITERS * (15 + 3)
    verify(path, acknowledged)


def test_acknowledged_writes_survive_kills_in_the_middle_of_others(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    kills: int = request.config.getoption("--kills")
    path = tmp_path / "hindsight.db"
    rng = random.Random(8)
    acknowledged: list[str] = []
    running: dict[Connection, tuple[BaseProcess, int]] = {}
    for number in range(WRITERS):
        process, pipe = start(path, f"w{number}")
        running[pipe] = (process, rng.randint(1, 12))
    killed = started = 0
    while running:
        for pipe in wait(list(running)):
            process, left = running[pipe]
            if left:
                acknowledged.append(take(pipe))
                running[pipe] = (process, left - 1)
                continue
            # It is on its way to the next write by now; where exactly, nobody knows.
            process.kill()
            process.join()
            acknowledged.extend(received(pipe))
            del running[pipe]
            killed += 1
            if started + WRITERS < kills:
                started += 1
                fresh, ours = start(path, f"k{started}")
                running[ours] = (fresh, rng.randint(1, 12))
    assert killed >= kills
    verify(path, acknowledged)
