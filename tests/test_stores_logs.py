"""The promises of `MemoryStore`, for every store: what the logs remember, and what erasing leaves."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from hindsight_core.errors import Conflict
from hindsight_core.lexical import tokens
from hindsight_core.models import Memory
from hindsight_core.stores import Access, ChangeSet, Head, MemoryStore, Receipt, Where
from samples import (
    DAY,
    DAY_MS,
    EVERYTHING,
    LATER,
    NAMESPACE,
    START,
    START_MS,
    event,
    found,
    memory,
    puts,
    record,
    retrieval,
    run,
    scanned,
    search,
    successor,
    unit,
)

# -- erase ------------------------------------------------------------------------------------------------------------


async def test_erasing_takes_the_text_out_of_every_log(store: MemoryStore) -> None:
    secret = memory("secret", "My locker code is kumquat.", context="Which locker?")
    await store.commit(
        NAMESPACE,
        ChangeSet(
            run=run("1"),
            puts=(record(secret, unit(1)), record(memory("other"), unit(2))),
            events=(event("e1", "secret", after=secret), event("e2", "other", after=memory("other"))),
            receipt=Receipt(key="k1", fingerprint="f", answer=b'{"memory":{"id":"secret","content":"kumquat"}}'),
        ),
    )
    again = b'{"results":[{"decision":"duplicate","memory_id":"secret"}]}'
    await store.commit(NAMESPACE, ChangeSet(run=run("2"), receipt=Receipt(key="k2", fingerprint="f", answer=again)))
    await store.commit(
        NAMESPACE, ChangeSet(run=run("3"), receipt=Receipt(key="k3", fingerprint="f", answer=b'{"id":"other"}'))
    )
    await store.log(
        NAMESPACE, retrievals=[retrieval("r1", ["secret", "other"], "kumquat?"), retrieval("r2", ["other"])]
    )
    await store.commit(
        NAMESPACE,
        ChangeSet(
            run=run("4"),
            erases=("secret",),
            events=(event("e3", "secret", action="erase", reason="My locker code is kumquat.", before=secret),),
        ),
    )
    assert await store.get(NAMESPACE, ["secret"]) == []
    assert await found(store, search(tokens("kumquat"))) == ["other"]
    events = await store.read(NAMESPACE, "events")
    assert [(e.id, e.before, e.after is None) for e in events] == [
        ("e1", None, True),
        ("e2", None, False),
        ("e3", None, True),
    ]
    assert b"kumquat" not in msgspec.json.encode(events)
    emptied = [Receipt(key=key, fingerprint="", answer=b"") for key in ("k1", "k2")]
    assert [await store.receipt(NAMESPACE, key) for key in ("k1", "k2")] == emptied
    assert await store.receipt(NAMESPACE, "k3") == Receipt(key="k3", fingerprint="f", answer=b'{"id":"other"}')
    assert [r.id for r in await store.read(NAMESPACE, "retrievals")] == ["r2"]


async def test_old_searches_and_receipts_are_removed_and_nothing_else(store: MemoryStore) -> None:
    for number in range(5):
        changes = ChangeSet(
            run=run(f"{number}", at=START + number * DAY),
            puts=(record(memory(f"m{number}")),),
            events=(event(f"e{number}", f"m{number}", f"{number}"),),
            receipt=Receipt(key=f"k{number}", fingerprint="f", answer=b'{"x":1}'),
        )
        await store.commit(NAMESPACE, changes)
        found = retrieval(f"r{number}", [f"m{number}"], at=START + number * DAY)
        await store.log(NAMESPACE, retrievals=[found])
    await store.commit("elsewhere", ChangeSet(run=run("0"), receipt=Receipt(key="k0", fingerprint="f", answer=b"{}")))
    before = START_MS + 3 * DAY_MS
    for log in ("retrievals", "receipts"):
        assert await store.prune(NAMESPACE, log, before, limit=None, dry_run=True) == 3
        assert await store.prune(NAMESPACE, log, before, limit=2) == 2
        assert await store.prune(NAMESPACE, log, before, limit=2) == 1
        assert await store.prune(NAMESPACE, log, before, limit=None) == 0
    assert [r.id for r in await store.read(NAMESPACE, "retrievals")] == ["r3", "r4"]
    kept = [await store.receipt(NAMESPACE, f"k{number}") is not None for number in range(5)]
    assert kept == [False, False, False, True, True]
    assert await store.receipt("elsewhere", "k0") is not None
    assert len(await store.read(NAMESPACE, "events")) == 5
    # A key that is forgotten may be used again.
    again = ChangeSet(run=run("9"), receipt=Receipt(key="k0", fingerprint="g", answer=b"{}"))
    await store.commit(NAMESPACE, again)
    # One of which a memory was erased goes with its time, too.
    await store.commit(NAMESPACE, ChangeSet(run=run("10"), erases=("m3",)))
    assert await store.prune(NAMESPACE, "receipts", START_MS + 4 * DAY_MS, limit=None) == 2


async def test_logged_searches_are_removed_by_their_ids_in_their_namespace_alone(store: MemoryStore) -> None:
    for namespace in (NAMESPACE, "elsewhere"):
        await store.commit(namespace, ChangeSet(run=run("0", namespace=namespace)))
        entries = [replace(retrieval(name, []), namespace=namespace) for name in ("r1", "r2", "r3")]
        await store.log(namespace, retrievals=entries)
    await store.unlog(NAMESPACE, ["r1", "r3", "unknown"])
    await store.unlog(NAMESPACE, [])
    await store.unlog("nobody", ["r2"])
    assert [r.id for r in await store.read(NAMESPACE, "retrievals")] == ["r2"]
    assert [r.id for r in await store.read("elsewhere", "retrievals")] == ["r1", "r2", "r3"]


async def test_what_remains_of_a_text_is_told_wherever_it_stands(store: MemoryStore) -> None:
    text = 'My "locker" code is kumquat. 柜子密码是金橘。'
    secret = memory("secret", text)
    changes = ChangeSet(
        run=run("1", reason=f"Heard: {text}"),
        puts=(record(secret, unit(1)), record(memory("other"), unit(2))),
        events=(event("e1", "secret", "1", after=secret),),
        receipt=Receipt(key="k1", fingerprint="f", answer=msgspec.json.encode({"id": "secret", "content": text})),
    )
    await store.commit(NAMESPACE, changes)
    await store.log(NAMESPACE, retrievals=[retrieval("r1", ["secret"], text)])
    assert await store.remains([text, "Nobody said this."])
    erase = ChangeSet(run=run("2", reason=f"No more: {text}"), erases=("secret",), events=(event("e2", "secret", "2"),))
    await store.commit(NAMESPACE, erase)
    left = [place for place in await store.remains([text]) if "deleted documents" not in place]
    assert left == []
    # In any namespace, and where it is only quoted.
    again = record(memory("third", f"They said: {text}", namespace="elsewhere"))
    await store.commit("elsewhere", puts(again))
    assert [place for place in await store.remains([text]) if "deleted documents" not in place]
    await store.expunge()


async def test_erasing_takes_the_text_out_of_the_reasons_of_runs(store: MemoryStore) -> None:
    text = "My locker code is kumquat."
    secret, other = memory("secret", text), memory("other")
    add = ChangeSet(run=run("1", reason=f"Heard: {text}"), puts=(record(secret),), events=(event("e1", "secret", "1"),))
    await store.commit(NAMESPACE, add)
    keep = ChangeSet(run=run("2", reason="Heard too"), puts=(record(other),), events=(event("e2", "other", "2"),))
    await store.commit(NAMESPACE, keep)
    # A run of two pages: the second one tells the reason again.
    for number, erased in enumerate(("secret", "other")):
        tell = (event(f"e3{number}", erased, "3", action="erase"),)
        await store.commit(NAMESPACE, ChangeSet(run=run("3", reason=f"No more: {text}"), erases=(erased,), events=tell))
    runs = await store.read(NAMESPACE, "runs")
    assert [one.reason for one in runs] == ["", "Heard too", ""]


async def test_a_receipt_of_a_memory_with_an_unusual_id_goes_with_it(store: MemoryStore) -> None:
    for memory_id in ('a"b', "a\\b", "é🫖"):
        answer = msgspec.json.encode({"memory_id": memory_id, "content": "The kettle is blue."})
        changes = puts(record(memory(memory_id)), run_id=memory_id)
        receipt = Receipt(key=memory_id, fingerprint="f", answer=answer)
        await store.commit(NAMESPACE, replace(changes, receipt=receipt))
        await store.commit(NAMESPACE, ChangeSet(run=run("e"), erases=(memory_id,)))
        assert await store.receipt(NAMESPACE, memory_id) == Receipt(key=memory_id, fingerprint="", answer=b"")


async def test_erasing_what_is_not_there_is_no_error(store: MemoryStore) -> None:
    await store.commit(NAMESPACE, puts(record(memory("a"))))
    await store.commit(NAMESPACE, ChangeSet(run=run("2"), erases=("nosuch",)))
    assert await store.head(NAMESPACE) == Head(sequence=2, latest=START_MS, memories=1)


async def test_an_erased_id_may_be_learned_anew(store: MemoryStore) -> None:
    await store.commit(NAMESPACE, puts(record(memory("a"))))
    await store.log(NAMESPACE, accesses=[Access(memory_id="a", at=START_MS)])
    await store.commit(NAMESPACE, ChangeSet(run=run("2"), erases=("a",)))
    await store.commit(NAMESPACE, puts(record(memory("a", "Fresh."))))
    (got,) = await store.get(NAMESPACE, ["a"])
    assert (got.memory.content, got.memory.access_count) == ("Fresh.", 0)


async def test_a_search_logged_after_its_hit_was_erased_leaves_no_entry(store: MemoryStore) -> None:
    await store.commit(NAMESPACE, puts(record(memory("a")), record(memory("b"))))
    await store.commit(NAMESPACE, ChangeSet(run=run("2"), erases=("a",)))
    await store.log(NAMESPACE, retrievals=[retrieval("r1", ["a", "b"]), retrieval("r2", ["b"]), retrieval("r3", [])])
    assert [r.id for r in await store.read(NAMESPACE, "retrievals")] == ["r2", "r3"]


# -- logs -------------------------------------------------------------------------------------------------------------


async def test_a_memory_that_was_accessed_and_changed_reads_as_before_to_the_digit(store: MemoryStore) -> None:
    await store.commit(NAMESPACE, puts(record(memory("a"))))
    await store.log(NAMESPACE, accesses=[Access(memory_id="a", at=START_MS, count=2)])
    (got,) = await store.get(NAMESPACE, ["a"])
    await store.commit(NAMESPACE, puts(successor(got), run_id="2"))
    (again,) = await store.get(NAMESPACE, ["a"])
    assert msgspec.json.encode(again.memory) == msgspec.json.encode(replace(got.memory, version=2))


async def test_accesses_add_up_and_change_neither_version_nor_clocks(store: MemoryStore) -> None:
    await store.commit(NAMESPACE, puts(record(memory("a")), record(memory("b"))))
    sequence = (await store.head(NAMESPACE)).sequence
    await store.log(
        NAMESPACE, accesses=[Access(memory_id="a", at=START_MS + DAY_MS, count=2), Access(memory_id="x", at=1)]
    )
    await store.log(NAMESPACE, accesses=[Access(memory_id="a", at=START_MS)])
    expected = replace(memory("a"), access_count=3, last_accessed_at=LATER)
    (got, untouched) = await store.get(NAMESPACE, ["a", "b"])
    assert got.memory == expected
    assert untouched.memory == memory("b")
    assert (await store.scan(NAMESPACE, EVERYTHING, after=None, limit=1))[0].memory == expected
    assert {hit.memory.id: hit.memory for hit in (await store.rank(NAMESPACE, search())).hits}["a"] == expected
    assert await store.get(NAMESPACE, ["x"]) == []
    assert (await store.head(NAMESPACE)).sequence == sequence


async def test_a_change_keeps_the_accesses_counted_meanwhile(store: MemoryStore) -> None:
    await store.commit(NAMESPACE, puts(record(memory("a"))))
    (read,) = await store.get(NAMESPACE, ["a"])
    await store.log(NAMESPACE, accesses=[Access(memory_id="a", at=START_MS, count=5)])
    await store.commit(NAMESPACE, puts(successor(read, confidence=0.5)))
    (kept,) = await store.get(NAMESPACE, ["a"])
    assert kept.memory.access_count == 5
    (read,) = await store.get(NAMESPACE, ["a"])
    await store.log(NAMESPACE, accesses=[Access(memory_id="a", at=START_MS + DAY_MS, count=2)])
    await store.commit(NAMESPACE, puts(successor(read, confidence=0.25)))
    (kept,) = await store.get(NAMESPACE, ["a"])
    assert (kept.memory.access_count, kept.memory.last_accessed_at) == (7, LATER)
    other = memory("a", "Another text.", version=4)
    await store.commit(NAMESPACE, puts(record(other, unit(1))))
    (moved,) = await store.get(NAMESPACE, ["a"])
    assert moved.memory == replace(other, access_count=7, last_accessed_at=LATER)


async def test_logs_are_read_by_id_with_every_filter(store: MemoryStore) -> None:
    await store.commit(
        NAMESPACE,
        ChangeSet(
            run=run("run-1"),
            puts=(record(memory("a")), record(memory("b"))),
            events=(event("e2", "b", "run-1", at=LATER), event("e1", "a", "run-1", reason="said so")),
        ),
    )
    await store.commit(NAMESPACE, ChangeSet(run=run("run-2", at=LATER), events=(event("e3", "a", "run-2", at=LATER),)))
    await store.log(NAMESPACE, retrievals=[retrieval("q2", ["b"], at=LATER), retrieval("q1", ["a", "b"])])

    async def ids(log: str, **filters: object) -> list[str]:
        entries = await store.read(NAMESPACE, log, **filters)
        return [e.run_id if log == "runs" else e.id for e in entries]

    after_start = START_MS + 1
    assert await ids("events") == ["e1", "e2", "e3"]
    assert await ids("events", memory_id="a") == ["e1", "e3"]
    assert await ids("events", run_id="run-1") == ["e1", "e2"]
    assert await ids("events", ids=["e3", "e1", "nosuch"]) == ["e1", "e3"]
    assert await ids("events", since=after_start) == ["e2", "e3"]
    assert await ids("events", since=START_MS + DAY_MS) == ["e2", "e3"]
    assert await ids("events", after="e1", limit=1) == ["e2"]
    assert await ids("runs") == ["run-1", "run-2"]
    assert await ids("runs", run_id="run-2") == ["run-2"]
    assert await ids("runs", ids=["run-1"]) == ["run-1"]
    assert await ids("runs", memory_id="b") == ["run-1"]
    assert await ids("runs", since=after_start) == ["run-2"]
    assert await ids("retrievals") == ["q1", "q2"]
    assert await ids("retrievals", memory_id="a") == ["q1"]
    assert await ids("retrievals", since=after_start, after="q1") == ["q2"]
    assert (await store.read(NAMESPACE, "events", ids=["e1"]))[0] == event("e1", "a", "run-1", reason="said so")
    assert (await store.read(NAMESPACE, "retrievals", ids=["q1"]))[0] == retrieval("q1", ["a", "b"])


async def test_a_retrieval_logged_twice_is_kept_once(store: MemoryStore) -> None:
    for _ in range(2):
        await store.log(NAMESPACE, retrievals=[retrieval("q", [])])
    assert len(await store.read(NAMESPACE, "retrievals")) == 1


async def test_an_undone_run_says_by_which(store: MemoryStore) -> None:
    await store.commit(NAMESPACE, puts(record(memory("a")), run_id="run-1"))
    await store.commit(NAMESPACE, ChangeSet(run=run("run-2", undoes="run-1"), undone="run-1"))
    first, second = await store.read(NAMESPACE, "runs")
    assert (first.undone_by, second.undoes) == ("run-2", "run-1")


async def test_a_run_of_several_change_sets_is_one_run_with_its_latest_figures(store: MemoryStore) -> None:
    for count in (1, 2):
        changes = ChangeSet(run=run("run-1", count=count), puts=(record(memory(str(count))),))
        await store.commit(NAMESPACE, changes)
    (one,) = await store.read(NAMESPACE, "runs")
    assert one.count == 2
    assert await scanned(store, EVERYTHING) == ["1", "2"]


async def test_a_receipt_is_kept_once_and_its_key_cannot_be_used_again(store: MemoryStore) -> None:
    receipt = Receipt(key="k", fingerprint="f", answer=b'{"run_id":"1"}')
    await store.commit(NAMESPACE, ChangeSet(run=run("1"), puts=(record(memory("a")),), receipt=receipt))
    assert await store.receipt(NAMESPACE, "k") == receipt
    assert await store.receipt(NAMESPACE, "nosuch") is None
    with pytest.raises(Conflict):
        await store.commit(NAMESPACE, ChangeSet(run=run("2"), puts=(record(memory("b")),), receipt=receipt))
    assert await scanned(store, EVERYTHING) == ["a"]


async def test_sizes_are_counted_by_status_type_and_kind(store: MemoryStore) -> None:
    await store.commit(
        NAMESPACE,
        ChangeSet(
            run=run("1"),
            puts=(
                record(memory("a", kind="event", memory_type="episodic")),
                record(memory("b", status="archived")),
                record(memory("c", memory_type="working")),
            ),
            events=(event("e1", "a"), event("e2", "b")),
        ),
    )
    assert await store.count(NAMESPACE) == {
        "status": {"active": 2, "archived": 1},
        "memory_type": {"episodic": 1, "semantic": 1, "working": 1},
        "kind": {"event": 1, "fact": 2},
        "log": {"events": 2, "runs": 1},
    }


async def test_ids_of_any_kind_are_kept_apart(store: MemoryStore) -> None:
    ids = ["a", "A", "a%", "a_", "a&b=c", "a'", 'a"', "a\\", "🫖", "שלום", "a b", "01HX", "-"]
    await store.commit(
        NAMESPACE,
        ChangeSet(run=run("1"), puts=tuple(record(memory(i, f"text of {i}")) for i in ids)),
    )
    for memory_id in ids:
        (got,) = await store.get(NAMESPACE, [memory_id])
        assert got.memory.content == f"text of {memory_id}"
    assert await scanned(store, EVERYTHING) == sorted(ids)
    assert await scanned(store, Where(ids=("a%",))) == ["a%"]
    assert isinstance(got.memory, Memory)
