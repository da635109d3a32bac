"""Which logged questions tell what an erased text said; the service removes those, and only those."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hindsight_core.caller import Caller
from hindsight_core.config import Settings
from hindsight_core.embedding import Embedder
from hindsight_core.models import Retrieval
from hindsight_core.quoting import Quoted
from hindsight_core.requests import ForgetRequest, PageRequest, SearchRequest, SweepRequest, UpdateRequest, WriteRequest
from hindsight_core.service import MemoryService
from hindsight_core.stores import ChangeSet, Log
from hindsight_core.stores.sqlite import SqliteStore
from samples import NAMESPACE, START, OpenStore, memory, puts, record, retrieval

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("My sister is allergic to peanuts.", "is my sister allergic to peanuts?"),
        ("My sister is allergic to peanuts.", "Allergic? Peanuts?"),
        ("My sister is allergic to peanuts.", "What is my sister allergic to?"),
        ("The code of the garage is 4821-B, the light is on the left of it.", "whose gate opens with 4821?"),
        (
            "We met Ann at the harbour and went on to the old lighthouse by boat.",
            "the trip to the old lighthouse by boat",
        ),
        ("我妹妹对花生过敏", "我妹妹对花生过敏吗？"),
        ("我妹妹对花生过敏", "谁对花生过敏"),
        ("车库的密码是 4821，灯在左边", "4821 是哪里的密码"),
        ("ok", "OK?"),
    ],
)
def test_a_question_that_tells_what_a_text_said_quotes_it(text: str, question: str):
    assert Quoted(["Something else altogether happened.", text]).by(question)


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("My sister is allergic to peanuts.", "Where did I park the car?"),
        ("My sister is allergic to peanuts.", "When does my sister start her new job in Leeds?"),
        ("我妹妹对花生过敏", "我把车停在哪里了"),
        ("Room 12 is free.", "which 12 guests come to the party tonight?"),
        ("", "anything"),
        ("It is what it is.", "What is it?"),
        ("anything", ""),
    ],
)
def test_a_question_about_something_else_does_not(text: str, question: str):
    assert not Quoted([text]).by(question)


async def test_erasing_removes_searches_that_quote_it_though_they_never_found_it(
    service: MemoryService, caller: Caller
):
    written = WriteRequest(content="My sister is allergic to peanuts.", user_id="ann", now=NOW, force=True)
    (decision,) = (await service.write(written, caller)).results
    for question in ("Who is allergic to peanuts?", "Where did I park the car?"):
        # Another user's search finds nothing of hers.
        answer = await service.search(SearchRequest(query=question, user_id="bob", now=NOW), caller)
        assert answer.hits == ()
    assert decision.memory_id is not None
    dry = ForgetRequest(ids=(decision.memory_id,), mode="erase", dry_run=True, now=NOW)
    await service.forget(dry, caller)
    assert await logged(service, caller) == ["Where did I park the car?", "Who is allergic to peanuts?"]
    await service.forget(ForgetRequest(ids=(decision.memory_id,), mode="archive", now=NOW), caller)
    assert len(await logged(service, caller)) == 2
    await service.forget(ForgetRequest(ids=(decision.memory_id,), mode="erase", now=NOW), caller)
    assert await logged(service, caller) == ["Where did I park the car?"]


async def test_what_an_erased_memory_said_before_it_was_changed_is_quoted_too(service: MemoryService, caller: Caller):
    written = WriteRequest(content="The spare key lies under the fern.", user_id="ann", now=NOW, force=True)
    (decision,) = (await service.write(written, caller)).results
    assert decision.memory_id is not None
    await service.update(decision.memory_id, UpdateRequest(content="Bob has the spare bicycle.", now=NOW), caller)
    await service.search(SearchRequest(query="key under the fern", user_id="bob", now=NOW), caller)
    await service.forget(ForgetRequest(ids=(decision.memory_id,), mode="erase", now=NOW), caller)
    assert await logged(service, caller) == []


async def test_a_search_that_another_process_logs_after_the_erasure_is_not_kept(
    opened: OpenStore, embedder: Embedder, settings: Settings, caller: Caller
):
    one, other = [MemoryService(await opened(), embedder, settings) for _ in range(2)]
    written = WriteRequest(content="My sister is allergic to peanuts.", user_id="ann", now=NOW, force=True)
    (decision,) = (await one.write(written, caller)).results
    assert decision.memory_id is not None
    await other.search(SearchRequest(query="Who is allergic to peanuts?", user_id="bob", now=NOW), caller)
    await one.forget(ForgetRequest(ids=(decision.memory_id,), mode="erase", now=NOW), caller)
    await other.flush()
    assert await logged(one, caller) == []
    # Who asks after it says so anew, and what changed without an erasure costs no search.
    await other.search(SearchRequest(query="Who is allergic to peanuts?", user_id="bob", now=NOW), caller)
    await one.write(written, caller)
    await other.flush()
    assert await logged(one, caller) == ["Who is allergic to peanuts?"]


async def test_a_search_that_is_logged_late_under_an_earlier_instant_is_looked_for_too(
    tmp_path: Path, embedder: Embedder, settings: Settings, caller: Caller
):
    store = LogsAtLast(str(tmp_path / "late.db"))
    await store.prepare(None)
    service = MemoryService(store, embedder, settings)
    written = WriteRequest(content="My sister is allergic to peanuts.", user_id="ann", now=NOW, force=True)
    (decision,) = (await service.write(written, caller)).results
    assert decision.memory_id is not None
    early, late = NOW - timedelta(minutes=1), NOW
    await service.search(SearchRequest(query="Who is allergic to peanuts?", user_id="bob", now=early), caller)
    await service.flush()
    store.late = await store.read("default", "retrievals")
    await store.unlog("default", [entry.id for entry in store.late])
    await service.search(SearchRequest(query="Where did I park the car?", user_id="bob", now=late), caller)
    await service.forget(ForgetRequest(ids=(decision.memory_id,), mode="erase", now=NOW), caller)
    assert await logged(service, caller) == ["Where did I park the car?"]
    await store.aclose()


class Counting(SqliteStore):
    """A store that counts how often its log of searches is read from the beginning."""

    looks = 0

    async def read(self, namespace: str, log: Log, **which: Any) -> Any:
        self.looks += log == "retrievals" and which.get("after") is None
        return await super().read(namespace, log, **which)


@pytest.mark.parametrize("way", ["forget", "purge"])
async def test_the_log_is_looked_through_once_for_many_pages_of_what_is_erased(
    tmp_path: Path, settings: Settings, caller: Caller, way: str
):
    store = Counting(str(tmp_path / "many.db"))
    await store.prepare(None)
    service = MemoryService(store, None, msgspec.structs.replace(settings, purge_after="1d"))
    names = [f"{number:04}x" for number in range(1100)]
    kept = [memory(f"m{name}", f"The locker is {name}", status="archived", forgotten_at=START) for name in names]
    await store.commit(NAMESPACE, puts(*(record(one, None) for one in kept)))
    await store.log(NAMESPACE, retrievals=[retrieval(f"q{name}", [], f"Whose is {name}?") for name in (*names, "9x")])
    later = START + timedelta(days=9)
    if way == "forget":
        erase = ForgetRequest(all=True, mode="erase", namespace=NAMESPACE, now=later)
        assert (await service.forget(erase, caller)).count == len(names)
    else:
        sweep = SweepRequest(policies=("purge",), namespace=NAMESPACE, now=later)
        assert (await service.sweep(sweep, caller)).count == len(names)
    left = await store.read(NAMESPACE, "retrievals", after="", limit=10)
    assert [entry.query for entry in left if isinstance(entry, Retrieval)] == ["Whose is 9x?"]
    assert store.looks == 1
    await store.aclose()


class LogsAtLast(SqliteStore):
    """A store in which somebody logs searches in the last moment before an erasure."""

    late: Any = ()

    async def commit(self, namespace: str, changes: ChangeSet, **options: Any) -> int:
        if changes.erases:
            await self.log(namespace, retrievals=self.late)
        return await super().commit(namespace, changes, **options)


async def logged(service: MemoryService, caller: Caller) -> list[str]:
    page = await service.retrievals(PageRequest(now=NOW), caller)
    return sorted(entry.query for entry in page.retrievals)
