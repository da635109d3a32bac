"""Pairs in doubt: stored links, what search shows of them, what settles them, and that all of it can be undone."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from hindsight_core.caller import Caller
from hindsight_core.config import Settings, load
from hindsight_core.embedding import Embedder
from hindsight_core.errors import ConfigurationError, Conflict
from hindsight_core.ledger import open_ledger
from hindsight_core.models import Contest, Memory
from hindsight_core.requests import ListRequest, Request, ResolveRequest, SearchRequest, UndoRequest, WriteRequest
from hindsight_core.responses import WriteResponse
from hindsight_core.service import MemoryService
from hindsight_core.stores import MemoryStore

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(days=1)
BLUE, GREEN = "The demo runs on blue", "Green runs the demo these days"


async def write(service: MemoryService, caller: Caller, content: str, **fields: object) -> WriteResponse:
    return await service.write(
        msgspec.convert({"content": content, "now": NOW, "force": True} | fields, WriteRequest), caller
    )


async def kept(service: MemoryService, caller: Caller, content: str, **fields: object) -> Memory:
    (decision,) = (await write(service, caller, content, reconcile="none", **fields)).results
    assert decision.memory is not None
    return decision.memory


async def pair(service: MemoryService, store: MemoryStore, caller: Caller) -> tuple[Memory, Memory]:
    """An old memory and its challenger, as a write leaves them when it is not sure."""
    old, new = await kept(service, caller, BLUE), await kept(service, caller, GREEN)
    (record,) = await store.get("default", [old.id])
    ledger = open_ledger("write", "default", NOW, caller)
    ledger.change(record, "contested", "perhaps", contested_by=(Contest(id=new.id, probability=0.6, reason="perhaps"),))
    await store.commit("default", ledger.changes())
    return old, new


async def marks(service: MemoryService, caller: Caller, query: str = BLUE) -> dict[str, tuple[str | None, str | None]]:
    answer = await service.search(SearchRequest(query=query, now=LATER), caller)
    return {hit.memory.id: (hit.marked, hit.newer) for hit in answer.hits}


async def everything(service: MemoryService, caller: Caller) -> dict[str, Memory]:
    """All memories as they count: without versions, clocks and statistics."""
    statuses = ["active", "pending", "superseded", "retracted", "archived"]
    request = msgspec.convert({"now": LATER, "limit": 1000, "filters": {"status": statuses}}, ListRequest)
    page = await service.list_memories(request, caller)
    same = {"version": 0, "updated_at": NOW, "access_count": 0, "last_accessed_at": None}
    return {memory.id: msgspec.structs.replace(memory, **same) for memory in page.memories}


async def test_a_pending_memory_is_linked_to_what_it_contradicts_and_settled_with_that_alone(service, caller):
    old = await kept(service, caller, BLUE, key="demo.host")
    other = await kept(service, caller, "The lift is broken", key="lift.state")
    guess = await write(service, caller, GREEN, key="demo.host", source="agent", confidence=0.3, now=LATER)
    (decision,) = guess.results
    assert (decision.decision, decision.related) == ("pending", (old.id,))
    assert decision.memory_id is not None
    doubted = await service.get(old.id, Request(), caller)
    assert [(link.id, link.probability) for link in doubted.contested_by] == [(decision.memory_id, 0.3)]
    assert (await marks(service, caller))[old.id] == (None, None)  # a guess marks nothing as outdated
    with pytest.raises(Conflict, match="not contested"):
        await service.resolve(decision.memory_id, ResolveRequest(other=other.id, decision="supersede"), caller)
    await service.resolve(decision.memory_id, ResolveRequest(other=old.id, decision="supersede"), caller)
    assert (await service.get(old.id, Request(), caller)).superseded_by == decision.memory_id
    assert (await service.get(decision.memory_id, Request(), caller)).status == "active"


async def test_saying_the_challenger_again_settles_the_pair_and_can_be_undone(service, store, caller):
    old, new = await pair(service, store, caller)
    before = await everything(service, caller)
    again = await write(service, caller, GREEN, now=LATER)
    assert again.results[0].decision == "duplicate"
    assert again.results[0].superseded == (old.id,)
    after = await service.get(old.id, Request(), caller)
    assert (after.status, after.superseded_by, after.contested_by) == ("superseded", new.id, ())
    assert (await service.get(new.id, Request(), caller)).supersedes == (old.id,)
    await service.undo(again.run_id, UndoRequest(), caller)
    assert await everything(service, caller) == before


async def test_an_agent_that_repeats_the_challenger_settles_nothing(service, store, caller):
    old, new = await pair(service, store, caller)
    await write(service, caller, GREEN, source="agent", now=LATER)
    assert (await marks(service, caller))[old.id] == ("contested", new.id)


async def test_saying_the_old_one_again_puts_the_challenger_in_doubt(service, store, caller):
    old, new = await pair(service, store, caller)
    await write(service, caller, BLUE, now=LATER)
    assert await marks(service, caller) == {old.id: (None, None), new.id: ("contested", old.id)}


async def test_what_replaces_a_challenger_takes_its_place(service, store, caller):
    old, new = await pair(service, store, caller)
    third = await kept(service, caller, "Purple runs the demo these days", supersedes=(new.id,), now=LATER)
    assert (await marks(service, caller))[old.id] == ("contested", third.id)
    await service.resolve(third.id, ResolveRequest(other=old.id, decision="supersede"), caller)
    assert (await service.get(old.id, Request(), caller)).superseded_by == third.id


async def linked(
    service: MemoryService, store: MemoryStore, caller: Caller, first: str, second: str, **fields: object
) -> tuple[Memory, Memory]:
    """Two memories of which the second contests the first, or would change it if it came true (`status: pending`)."""
    old, new = await kept(service, caller, first), await kept(service, caller, second, now=NOW + timedelta(hours=1))
    records = {record.memory.id: record for record in await store.get("default", [old.id, new.id])}
    ledger = open_ledger("write", "default", NOW, caller)
    link = (Contest(id=new.id, probability=0.6, reason="perhaps"),)
    ledger.change(records[old.id], "contested", "perhaps", contested_by=link)
    if fields:
        ledger.change(records[new.id], "updated", "perhaps", **fields)
    await store.commit("default", ledger.changes())
    return old, new


GUESS = {"status": "pending", "kind": "speculation", "confidence": 0.5}
MOVES = [("I live in Leeds.", "I moved to York."), ("我住在杭州。", "我搬到成都了。")]


@pytest.mark.parametrize(
    ("first", "second", "said"), [(*MOVES[0], "No, I live in York now."), (*MOVES[1], "不，我现在住在成都。")]
)
async def test_the_users_confirmation_in_other_words_settles_a_pair_for_the_challenger(
    service, store, caller, first, second, said
):
    old, new = await linked(service, store, caller, first, second)
    before = await everything(service, caller)
    answer = await write(service, caller, said, now=LATER)
    (decision,) = answer.results
    assert (decision.superseded, decision.contests) == ((old.id,), ())
    after = await everything(service, caller)
    assert (after[old.id].status, after[old.id].superseded_by, after[old.id].contested_by) == (
        "superseded",
        new.id,
        (),
    )
    assert after[old.id].valid_to == after[new.id].valid_from
    assert (after[new.id].status, after[new.id].contested_by) == ("active", ())
    await service.undo(answer.run_id, UndoRequest(), caller)
    left = await everything(service, caller)
    assert {memory_id: left[memory_id] for memory_id in before} == before


@pytest.mark.parametrize(
    ("first", "second", "said"), [(*MOVES[0], "I moved back to Leeds."), (*MOVES[1], "我又搬回杭州了。")]
)
async def test_who_returns_to_an_earlier_value_contests_the_one_between_and_not_that_one(
    service, store, caller, first, second, said
):
    old, between = await linked(service, store, caller, first, second)
    before = await everything(service, caller)
    answer = await write(service, caller, said, now=LATER)
    (decision,) = answer.results
    assert {*decision.superseded, *(contest.id for contest in decision.contests)} == {between.id}
    assert (await marks(service, caller, said))[old.id] == (None, None)
    await service.undo(answer.run_id, UndoRequest(), caller)
    left = await everything(service, caller)
    assert {memory_id: left[memory_id] for memory_id in before} == before


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("I work at Acme.", "I might switch to Globex next year.", "I'm starting at Globex on Monday."),
        ("我在长风上班。", "我明年可能跳槽去云帆。", "我周一就去云帆入职。"),
    ],
)
async def test_a_plan_that_comes_true_is_replaced_and_puts_in_doubt_what_it_would_have_changed(
    service, store, caller, first, second, said
):
    old, guess = await linked(service, store, caller, first, second, **GUESS)
    before = await everything(service, caller)
    answer = await write(service, caller, said, now=LATER)
    (decision,) = answer.results
    assert (decision.decision, decision.superseded) == ("supersede", (guess.id,))
    assert [contest.id for contest in decision.contests] == [old.id]
    assert (await marks(service, caller, first))[old.id] == ("contested", decision.memory_id)
    await service.undo(answer.run_id, UndoRequest(), caller)
    left = await everything(service, caller)
    assert {memory_id: left[memory_id] for memory_id in before} == before


@pytest.mark.parametrize(("first", "second"), [(BLUE, GREEN), ("我在长风上班。", "我在云帆上班。")])
async def test_a_guess_that_is_said_again_without_a_doubt_is_confirmed_and_can_be_undone(
    service, store, caller, first, second
):
    old, guess = await linked(service, store, caller, first, second, **GUESS)
    before = await everything(service, caller)
    answer = await write(service, caller, second, now=LATER)
    (decision,) = answer.results
    assert (decision.decision, decision.memory_id, decision.superseded) == ("duplicate", guess.id, (old.id,))
    assert (await service.get(guess.id, Request(), caller)).status == "active"
    await service.undo(answer.run_id, UndoRequest(), caller)
    assert await everything(service, caller) == before


@pytest.mark.parametrize("leaning", [{"reconcile": '{"contest_at": 0.01, "supersede_at": 1.1}'}], indirect=True)
@pytest.mark.parametrize(("first", "second"), MOVES)
async def test_of_late_information_that_is_contested_the_late_one_is_marked_and_settled(leaning, caller, first, second):
    known = await kept(leaning, caller, second)
    answer = await write(leaning, caller, first, now=LATER, observed_at="2020-01-01T00:00:00Z")
    (decision,) = answer.results
    (contest,) = decision.contests
    assert (decision.decision, contest.id, contest.late) == ("contest", known.id, True)
    assert await marks(leaning, caller, first) == {
        decision.memory_id: ("contested", known.id),
        known.id: (None, None),
    }
    await leaning.resolve(known.id, ResolveRequest(other=decision.memory_id, decision="supersede"), caller)
    assert (await leaning.get(decision.memory_id, Request(), caller)).superseded_by == known.id


@pytest.mark.parametrize("least", [0.0, 0.5, 0.6, 0.7])
async def test_pages_begin_alike_and_hold_nothing_below_the_minimum(service, store, caller, least):
    old, new = await pair(service, store, caller)
    for text in ["The demo needs a projector", "Green tea is in the kitchen", "The demo starts at nine"]:
        await kept(service, caller, text)
    pages = [
        await service.search(
            SearchRequest(query="which host runs the demo", now=LATER, top_k=top_k, min_score=least, explain=True),
            caller,
        )
        for top_k in range(1, 6)
    ]
    whole = [(hit.memory.id, hit.score) for hit in pages[-1].hits]
    for top_k, page in enumerate(pages, start=1):
        assert [(hit.memory.id, hit.score) for hit in page.hits] == whole[:top_k]
    assert len(whole) + pages[-1].counts.below_min_score == 5
    for hit in pages[-1].hits:
        parts = hit.parts
        assert hit.score >= least
        assert hit.score == pytest.approx(0.6 * parts.relevance + 0.2 * (parts.recency + parts.confidence) + parts.bias)
        assert sum(hit.explain.contributions.values()) == pytest.approx(hit.score, abs=1e-5)
    places = {memory_id: place for place, (memory_id, _) in enumerate(whole)}
    if {old.id, new.id} <= places.keys():
        assert places[new.id] < places[old.id]


@pytest.fixture
async def leaning(
    store: MemoryStore, embedder: Embedder, settings: Settings, request: pytest.FixtureRequest
) -> AsyncGenerator[MemoryService]:
    service = MemoryService(store, embedder, msgspec.structs.replace(settings, **request.param))
    yield service
    await service.flush()


@pytest.mark.parametrize(
    ("leaning", "shown"),
    [({"unsettled": "both"}, "both"), ({"unsettled": "newest"}, "new"), ({"unsettled": "old"}, "old")],
    indirect=["leaning"],
)
async def test_a_setting_says_what_is_shown_of_an_unsettled_pair(leaning, store, caller, shown):
    old, new = await pair(leaning, store, caller)
    expected: dict[str, dict[str, tuple[str | None, str | None]]] = {
        "both": {old.id: ("contested", new.id), new.id: (None, None)},
        "new": {new.id: (None, None)},
        "old": {old.id: (None, None)},
    }
    assert await marks(leaning, caller) == expected[shown]


@pytest.mark.parametrize("leaning", [{"unsettled": "newest"}, {"unsettled": "old"}], indirect=True)
@pytest.mark.parametrize("which", ["old", "new"])
async def test_whichever_of_an_unsettled_pair_a_filter_leaves_is_shown(leaning, store, caller, which):
    one = dict(zip(("old", "new"), await pair(leaning, store, caller), strict=True))[which]
    request = msgspec.convert({"query": BLUE, "now": LATER, "filters": {"ids": [one.id]}}, SearchRequest)
    assert [hit.memory.id for hit in (await leaning.search(request, caller)).hits] == [one.id]


@pytest.mark.parametrize(
    "leaning", [{"reconcile": '{"contest_at": 0, "contest_among_at": 0, "supersede_at": 1.1}'}], indirect=True
)
async def test_a_contest_is_stored_asked_about_and_undone(leaning, caller):
    old = await kept(leaning, caller, "My office is on the third floor")
    before = await everything(leaning, caller)
    answer = await write(leaning, caller, "My office is on the fifth floor", now=LATER)
    (decision,) = answer.results
    assert decision.decision == "contest"
    assert [contest.id for contest in decision.contests] == [old.id]
    assert (await marks(leaning, caller, "which floor is my office on"))[old.id] == ("contested", decision.memory_id)
    await leaning.undo(answer.run_id, UndoRequest(), caller)
    assert {
        memory_id: memory for memory_id, memory in (await everything(leaning, caller)).items() if memory_id == old.id
    } == before


@pytest.mark.parametrize(
    ("decision", "first", "second"),
    [
        ("supersede", {"content": BLUE, "key": "demo.host"}, {"content": GREEN, "key": "demo.host"}),
        ("supersede", {"content": BLUE}, {"content": GREEN, "named": True}),
        (
            "pending",
            {"content": BLUE, "key": "demo.host"},
            {"content": GREEN, "key": "demo.host", "source": "agent", "confidence": 0.2},
        ),
        ("duplicate", {"content": BLUE, "confidence": 0.6}, {"content": BLUE, "confidence": 0.9, "tags": ["seen"]}),
        (
            "add",  # older than what is known, so it goes in as already superseded
            {"content": BLUE, "key": "demo.host"},
            {"content": GREEN, "key": "demo.host", "observed_at": "2024-01-01T00:00:00Z"},
        ),
        ("add", {"content": "I live in Leeds."}, {"content": "The museum opens at ten."}),
        ("add", {"content": "我住在杭州。"}, {"content": "博物馆十点开门"}),
        ("coexist", {"content": "I have a dog called Rex."}, {"content": "I have another dog called Fido."}),
        ("refine", {"content": "I own a Toyota."}, {"content": "I own a Toyota Corolla, 2015, in red."}),
        # found from the wording
        (
            "supersede",
            {"content": "My shipping address is 12 Oak Street, Leeds"},
            {"content": "I moved, my new address is 4 Elm Road, York"},
        ),
        ("supersede", {"content": "我住在杭州。"}, {"content": "我搬到成都了。"}),
    ],
)
async def test_every_decision_can_be_undone(service, caller, decision, first, second):
    old = await kept(service, caller, **first)
    before = await everything(service, caller)
    second = dict(second)
    if second.pop("named", False):
        second["supersedes"] = [old.id]
    answer = await write(service, caller, now=LATER, **second)
    assert answer.results[0].decision == decision
    assert await everything(service, caller) != before
    await service.undo(answer.run_id, UndoRequest(), caller)
    left = await everything(service, caller)
    assert left[old.id] == before[old.id]
    assert {memory.id for memory in left.values() if memory.status in {"active", "pending"}} == {old.id}


def test_thresholds_that_do_not_exist_are_refused_with_the_variable(tmp_path):
    settings = load({"HINDSIGHT_RECONCILE": '{"contest": 1}'}, data_dir=tmp_path)
    with pytest.raises(ConfigurationError, match="HINDSIGHT_RECONCILE"):
        MemoryService(None, None, settings)  # type: ignore[arg-type]
