"""The embedded store's file: who may open it, what is said when it cannot be, and what is left of what was erased."""

from __future__ import annotations

import os
import random
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from hindsight_core.errors import ConfigurationError, StoreUnavailable
from hindsight_core.stores import ChangeSet, Receipt, Where, open_store
from hindsight_core.stores.reading import scan
from hindsight_core.stores.schema import APPLICATION_ID, MIGRATIONS
from hindsight_core.stores.sqlite import SqliteStore
from samples import NAMESPACE, event, memory, puts, record, retrieval, run, search, unit


async def check(path: Path) -> None:
    store = SqliteStore(path)
    try:
        await store.prepare("model-a")
    finally:
        await store.aclose()


def test_nothing_is_opened_before_the_first_call(tmp_path: Path) -> None:
    open_store(f"sqlite:///{tmp_path}/a/b.db")
    assert list(tmp_path.iterdir()) == []


async def test_the_directory_is_made_and_what_is_kept_there_is_private(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "hindsight.db"
    await check(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def not_a_database(path: Path) -> None:
    path.write_text("Dear diary, today I met a database.\n" * 200)


def another_program(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()


def newer_version(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA application_id = {int.from_bytes(b'hsgt', 'big')}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()


def of_version(path: Path, version: int, whole: Path) -> None:
    """A file as an earlier version made it, with what `whole` holds of what that version kept."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    for migration in MIGRATIONS[:version]:
        connection.executescript(migration)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.execute("ATTACH ? AS whole", (str(whole),))
    tables = [name for (name,) in connection.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'")]
    for table in (name for name in tables if not name.startswith("sqlite_")):
        columns = ", ".join(f'"{column[1]}"' for column in connection.execute(f"PRAGMA main.table_info({table})"))
        connection.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM whole.{table}")
    connection.close()


def schema(path: Path) -> set[tuple[str, ...]]:
    connection = sqlite3.connect(path)
    found = set(connection.execute("SELECT type, name, tbl_name FROM sqlite_master"))
    connection.close()
    return found


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS)))
async def test_a_file_of_each_earlier_version_is_brought_up_to_date_with_all_it_holds(
    tmp_path: Path, version: int
) -> None:
    whole, path = tmp_path / "whole.db", tmp_path / "hindsight.db"
    kept = record(memory("a"), unit(1))
    store = SqliteStore(whole)
    await store.prepare("model-a")
    receipt = Receipt(key="k", fingerprint="f", answer=b"{}")
    await store.commit(NAMESPACE, replace(puts(kept, run_id="r"), receipt=receipt))
    await store.aclose()
    of_version(path, version, whole)
    assert schema(path) < schema(whole)
    store = SqliteStore(path)
    await store.prepare("model-a")
    (found,) = await store.get(NAMESPACE, ["a"])
    assert found.memory == kept.memory
    assert [hit.memory.id for hit in (await store.rank(NAMESPACE, search(["kettl"]))).hits] == ["a"]
    assert await store.receipt(NAMESPACE, "k") == receipt
    await store.commit(NAMESPACE, puts(record(memory("b"), unit(2)), run_id="s"))
    await store.aclose()
    assert schema(path) == schema(whole)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    connection.close()
    assert intact(path)


async def test_every_commit_is_durable_also_after_what_need_not_be(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "hindsight.db")

    async def modes() -> tuple[str, int]:
        def ask(connection: sqlite3.Connection) -> tuple[str, int]:
            found = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
            return found[0], found[1]

        # By the connection of the thread that writes: `synchronous` is a connection's own.
        return await store._on(store._writer, lambda: store._connections.read(ask))

    durable = ("wal", 2)  # 2 is FULL
    await store.commit(NAMESPACE, puts(record(memory("a"))))
    assert await modes() == durable
    await store.log(NAMESPACE, retrievals=[retrieval("r", ["a"], "where is it?")])
    assert await modes() == durable
    # A log that fails gives it back, too.
    with pytest.raises(Exception, match="UNIQUE"):
        await store._on(
            store._writer,
            lambda: store._connections.write(
                lambda connection: connection.execute(
                    "INSERT INTO namespaces (number, name) SELECT NULL, name FROM namespaces"
                ),
                durable=False,
            ),
        )
    assert await modes() == durable
    await store.aclose()


def a_directory(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("spoil", [not_a_database, another_program, newer_version, a_directory])
async def test_a_file_that_is_not_ours_is_named_and_left_as_it_is(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    path = tmp_path / "hindsight.db"
    spoil(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(ConfigurationError, match=r"hindsight\.db") as raised:
        await check(path)
    assert raised.value.remedy
    assert (path.read_bytes() if path.is_file() else b"") == before


async def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(ConfigurationError, match="taken") as raised:
        await check(tmp_path / "taken" / "hindsight.db")
    assert raised.value.remedy


def in_a_process(code: str, *arguments: str, **options: object) -> str:
    """What a Python process prints."""
    script = "import asyncio, sys\nfrom hindsight_core.stores.sqlite import SqliteStore\n" + textwrap.dedent(code)
    command = [sys.executable, "-c", script, *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


PREPARE = """
    import os
    async def main():
        if os.geteuid() == 0:  # root may write everywhere, so somebody else tries
            os.setgid(65534)
            os.setuid(65534)
        store = SqliteStore(sys.argv[1])
        try:
            await store.prepare("model-a")
        except Exception as exc:
            print(type(exc).__name__, exc, exc.remedy)
        await store.aclose()
    asyncio.run(main())
"""


async def test_a_directory_one_may_only_read_is_an_error_of_configuration(tmp_path: Path) -> None:
    folder = tmp_path / "shelf"
    folder.mkdir()
    for parent in [tmp_path, *tmp_path.parents][:3]:
        parent.chmod(0o755)
    folder.chmod(0o555)
    said = in_a_process(PREPARE, str(folder / "hindsight.db"))
    assert said.startswith("ConfigurationError")
    assert "hindsight.db" in said
    assert "write access" in said


def no_room() -> None:
    """Let files of this process grow no further than a full disk would."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))


async def test_a_full_disk_is_an_outage_and_what_was_there_stays_whole(tmp_path: Path) -> None:
    said = in_a_process(
        """
        from samples import NAMESPACE, memory, puts, record
        async def main():
            store = SqliteStore(sys.argv[1])
            await store.prepare("model-a")
            for number in range(1000):
                try:
                    await store.commit(NAMESPACE, puts(record(memory(str(number), "x" * 8000)), run_id=str(number)))
                except Exception as exc:
                    print(number, type(exc).__name__, sys.argv[1] in str(exc), bool(exc.remedy))
                    break
            await store.aclose()
        asyncio.run(main())
        """,
        str(tmp_path / "hindsight.db"),
        preexec_fn=no_room,
    )
    count, error, *named = said.split()
    assert (error, named) == ("StoreUnavailable", ["True", "True"])
    store = SqliteStore(tmp_path / "hindsight.db")
    head = await store.head(NAMESPACE)
    assert (head.sequence, head.memories) == (int(count), int(count))
    await store.commit(NAMESPACE, puts(record(memory("after"))))
    await store.aclose()
    assert intact(tmp_path / "hindsight.db")


async def test_a_lock_that_is_never_released_is_an_outage_that_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "hindsight.db"
    store = SqliteStore(path, timeout=0.05)
    await store.prepare("model-a")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked") as raised:
        await store.commit(NAMESPACE, puts(record(memory("a"))))
    assert "Another process" in raised.value.remedy
    assert (await store.head(NAMESPACE)).memories == 0
    other.execute("ROLLBACK")
    other.close()
    await store.commit(NAMESPACE, puts(record(memory("a"))))
    await store.aclose()


def intact(path: Path) -> bool:
    connection = sqlite3.connect(path)
    try:
        whole = connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return whole and connection.execute("PRAGMA foreign_key_check").fetchall() == []
    finally:
        connection.close()


async def test_a_damaged_file_is_an_outage_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "hindsight.db"
    store = SqliteStore(path)
    await store.commit(NAMESPACE, puts(*(record(memory(str(n), "x" * 3000), unit(n)) for n in range(50))))
    await store.aclose()
    whole = path.read_bytes()
    path.write_bytes(whole[: 4096 * 20] + b"\xff" * (len(whole) - 4096 * 20))
    store = SqliteStore(path)
    with pytest.raises((StoreUnavailable, ConfigurationError), match=r"hindsight\.db"):
        await store.get(NAMESPACE, [str(n) for n in range(50)])
    await store.aclose()


async def test_a_file_that_is_overwritten_under_way_is_an_outage_not_a_wrong_setting(tmp_path: Path) -> None:
    path = tmp_path / "hindsight.db"
    store = SqliteStore(path)
    await store.commit(NAMESPACE, puts(record(memory("a"))))
    for file in (path, path.with_name(path.name + "-wal")):
        file.write_bytes(b"this is not a database" * 1000)
    with pytest.raises(StoreUnavailable, match="not a database"):
        await store.get(NAMESPACE, ["a"])
    await store.aclose()


async def test_a_memory_that_cannot_be_read_is_an_outage_that_says_so(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "hindsight.db")
    await store.commit(NAMESPACE, puts(record(memory("a"))))
    connection = sqlite3.connect(tmp_path / "hindsight.db")
    with connection:
        connection.execute("UPDATE bodies SET memory = x'00'")
    connection.close()
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        await store.rank(NAMESPACE, search(["kettl"]))
    await store.aclose()


# -- erase ------------------------------------------------------------------------------------------------------------

SECRET = "the kumquat sleeps under the third bridge"


def raw(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


async def fill_with_secrets(store: SqliteStore, rounds: int) -> list[str]:
    """Memories of every size in random order, so that pages split, merge and overflow; their ids."""
    rng = random.Random(3)
    ids = [f"{n:04}" for n in rng.sample(range(1000), rounds)]
    for n, memory_id in enumerate(ids):
        text = f"{SECRET} {memory_id}. " * rng.choice([1, 3, 20, 170])
        of = memory(memory_id, text[:8000], context=SECRET, tags=(SECRET,), metadata={"note": SECRET})
        first = record(of, unit(n))
        changes = puts(first, run_id=f"run-{n}")
        answer = f'{{"memory_id":"{memory_id}","content":"{SECRET}"}}'.encode()
        await store.commit(
            NAMESPACE,
            replace(
                changes,
                events=(event(f"e{n}", memory_id, after=of, reason=f"because {of.content}"),),
                receipt=Receipt(key=f"k{n}", fingerprint="f", answer=answer),
            ),
        )
        newer = replace(of, version=2, content=f"{SECRET}, it was said again")
        if n % 3 == 0:
            later = event(f"f{n}", memory_id, before=of, after=newer)
            await store.commit(
                NAMESPACE, ChangeSet(run=run(f"rerun-{n}"), puts=(record(newer, unit(n)),), events=(later,))
            )
        await store.log(NAMESPACE, retrievals=[retrieval(f"r{n}", [memory_id], f"where is it? {SECRET}")])
    return ids


async def test_nothing_of_an_erased_text_is_left_in_any_file(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    store = SqliteStore(folder / "hindsight.db")
    await store.prepare("model-a")
    kept = record(memory("keep", "The kettle is blue."), unit(1))
    await store.commit(NAMESPACE, puts(kept))
    ids = await fill_with_secrets(store, 120)
    assert len((await store.rank(NAMESPACE, search(["kumquat"], limit=100))).hits) == 100
    assert SECRET.encode() in raw(folder)
    random.Random(4).shuffle(ids)
    for start in range(0, len(ids), 7):
        await store.commit(NAMESPACE, ChangeSet(run=run(f"erase-{start}"), erases=tuple(ids[start : start + 7])))
    assert SECRET.encode() not in raw(folder)
    assert b"kumquat" not in raw(folder)
    assert b"The kettle is blue." in raw(folder)
    tombstones = sqlite3.connect(folder / "hindsight.db")
    found = {name for (name,) in tombstones.execute("SELECT id FROM tombstones WHERE id IS NOT NULL")}
    tombstones.close()
    assert found == set(ids)
    await store.aclose()
    assert intact(folder / "hindsight.db")


@pytest.mark.parametrize("then", ["the next change", "the next start"])
async def test_a_reader_of_the_old_state_delays_the_wiping_but_does_not_prevent_it(tmp_path: Path, then: str) -> None:
    folder = tmp_path / "store"
    store = SqliteStore(folder / "hindsight.db", erase_wait=0.01)
    await store.commit(NAMESPACE, puts(record(memory("a", SECRET)), record(memory("b"))))
    reader = sqlite3.connect(folder / "hindsight.db", isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM memories").fetchone() == (2,)
    await store.commit(NAMESPACE, ChangeSet(run=run("2"), erases=("a",)))
    assert await store.get(NAMESPACE, ["a"]) == []
    assert SECRET.encode() in raw(folder)
    reader.execute("COMMIT")
    if then == "the next change":
        await store.commit(NAMESPACE, puts(record(memory("c"))))
    else:
        again = SqliteStore(folder / "hindsight.db")
        await again.prepare("model-a")
        await again.aclose()
    assert SECRET.encode() not in raw(folder)
    reader.close()
    await store.aclose()


async def test_a_closed_store_says_so_and_may_be_closed_again(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "hindsight.db")
    await store.prepare("model-a")
    await store.aclose()
    await store.aclose()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.head(NAMESPACE)


async def test_a_start_needs_no_lock_where_everything_is_as_expected(tmp_path: Path) -> None:
    await check(tmp_path / "hindsight.db")
    other = sqlite3.connect(tmp_path / "hindsight.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    store = SqliteStore(tmp_path / "hindsight.db", timeout=0.05)
    await store.prepare("model-a")
    assert (await store.head(NAMESPACE)).sequence == 0
    await store.aclose()
    other.execute("ROLLBACK")
    other.close()


# -- how it is read ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "index"),
    [
        (Where(), "memories_id (namespace=? AND id>?)"),
        (Where(ids=("b", "c")), "memories_id (namespace=? AND id=?)"),
        (Where(key="user.tea"), "memories_key (namespace=? AND key=? AND id>?)"),
        (Where(user_id="ann"), "memories_user (namespace=? AND user_id=? AND id>?)"),
        (Where(session_id="s"), "memories_session (namespace=? AND session_id=? AND id>?)"),
        (Where(task_id="t", statuses=("active",)), "memories_task (namespace=? AND task_id=? AND id>?)"),
        (Where(statuses=("archived",)), "memories_status (namespace=? AND status=? AND id>?)"),
    ],
)
async def test_a_scan_reads_only_what_its_narrowest_condition_finds(tmp_path: Path, where: Where, index: str) -> None:
    await check(tmp_path / "hindsight.db")
    connection = sqlite3.connect(tmp_path / "hindsight.db")
    asked: list[str] = []
    connection.set_trace_callback(asked.append)
    scan(connection, NAMESPACE, where, "a", 10)
    connection.set_trace_callback(None)
    plan = [detail for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {asked[-1]}")]
    connection.close()
    assert index in plan[0]
    assert not any("TEMP B-TREE" in detail for detail in plan)


async def test_a_mixed_vector_is_stored_only_where_it_differs_and_both_in_half_precision(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "hindsight.db")
    await store.commit(NAMESPACE, puts(record(memory("a"), unit(1)), record(memory("b"), unit(2), [unit(3)])))
    await store.aclose()
    connection = sqlite3.connect(tmp_path / "hindsight.db")
    sizes = connection.execute("SELECT length(bare), length(mixed) FROM vectors ORDER BY row").fetchall()
    connection.close()
    assert sizes == [(32, None), (32, 32)]
