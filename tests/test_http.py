"""What each route promises; the memories behind them are real."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import msgspec
import pytest

from hindsight_core.config import Settings
from hindsight_core.service import MemoryService
from hindsight_core.stores import MemoryStore, open_store
from hindsight_core.turns import Turns
from hindsight_functions.http import create_app
from serving import URL, serving

ADDRESS = "My shipping address is 12 Elm Street, Leeds."
DOG = "My dog is called Biscuit."
ALLERGY = "我对花生过敏，点餐时请避开。"


@pytest.fixture
async def http(service: MemoryService, settings: Settings) -> AsyncGenerator[httpx.AsyncClient]:
    async with serving(service, settings) as client:
        yield client


async def stored(http: httpx.AsyncClient, content: str = ADDRESS, **fields: object) -> str:
    """The id of a memory that was stored, whatever is thought of it and beside what is there."""
    body = {"content": content, "force": True, "reconcile": "none", **fields}
    answer = await http.post("/v1/memories", json=body)
    assert answer.status_code == 201, answer.text
    memory_id: str = answer.json()["results"][0]["memory_id"]
    return memory_id


async def lines(http: httpx.AsyncClient, **params: str) -> list[dict[str, Any]]:
    answer = await http.get("/v1/export", params=params)
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


async def test_a_write_that_stores_is_201_with_its_decision(http: httpx.AsyncClient):
    answer = await http.post("/v1/memories", json={"content": ADDRESS})
    assert answer.status_code == 201
    [decision] = answer.json()["results"]
    assert decision["decision"] == "add"
    assert decision["memory"]["content"] == ADDRESS
    assert set(decision["scores"]) == {"density", "relevance", "durability", "explicitness", "total", "threshold"}
    assert decision["reason"]
    assert answer.json()["run_id"]


async def test_a_write_that_stores_nothing_is_200_and_says_why(http: httpx.AsyncClient):
    messages = [{"role": "user", "text": "What's the weather in Beijing tomorrow?"}]
    answer = await http.post("/v1/memories", json={"messages": messages})
    assert answer.status_code == 200
    [decision] = answer.json()["results"]
    assert decision["decision"] == "skip"
    assert decision["reason"]
    assert decision["memory_id"] is None


async def test_an_idempotency_key_header_makes_a_write_safe_to_repeat(http: httpx.AsyncClient):
    first, second = [
        await http.post("/v1/memories", json={"content": DOG, "force": True}, headers={"Idempotency-Key": "k1"})
        for _ in range(2)
    ]
    assert first.json() == second.json()
    assert (await http.get("/v1/stats")).json()["memories"] == 1
    other = await http.post("/v1/memories", json={"content": ADDRESS}, headers={"Idempotency-Key": "k1"})
    assert other.status_code == 409


async def test_a_batch_stores_each_item_by_itself(http: httpx.AsyncClient):
    kept = {"force": True, "reconcile": "none"}
    items = [{"content": DOG, **kept}, {"contant": DOG}, {"content": ALLERGY, **kept}]
    answer = await http.post("/v1/memories/batch", json={"items": items})
    assert answer.status_code == 200
    first, second, third = answer.json()["results"]
    assert (first["status"], second["status"], third["status"]) == (201, 422, 201)
    assert second["problem"]["errors"][0]["field"] == "contant"
    assert (await http.get("/v1/stats")).json()["memories"] == 2


async def test_search_answers_scored_hits_with_their_parts(http: httpx.AsyncClient):
    memory_id = await stored(http)
    await stored(http, ALLERGY)
    answer = await http.post("/v1/search", json={"query": "What is my shipping address?", "explain": True})
    assert answer.status_code == 200
    body = answer.json()
    hit = body["hits"][0]
    assert hit["memory"]["id"] == memory_id
    assert set(hit["parts"]) == {"similarity", "lexical", "relevance", "recency", "confidence", "bias"}
    assert sum(hit["explain"]["contributions"].values()) == pytest.approx(hit["score"], abs=1e-4)
    assert body["counts"]["eligible"] == 2
    assert body["retrieval_id"]


async def test_context_answers_a_block_within_its_budget(http: httpx.AsyncClient):
    memory_id = await stored(http)
    answer = await http.post("/v1/context", json={"query": "my shipping address", "token_budget": 200})
    assert answer.status_code == 200
    assert ADDRESS in answer.json()["text"]
    assert answer.json()["memory_ids"] == [memory_id]
    assert 0 < answer.json()["tokens"] <= 200


@pytest.mark.parametrize(
    ("body", "needed"),
    [
        ({"text": "what did we decide about the roof last time"}, True),
        ({"text": "我上次说的那家店叫什么", "recent": ["你好"]}, True),
        ({"text": "go on", "task": "tax return", "previous_task": "holiday plans"}, True),
        ({"text": "what is the capital of Portugal"}, False),
        ({"text": "谢谢啦！"}, False),
    ],
)
async def test_recall_says_whether_a_message_needs_memory_and_why(
    http: httpx.AsyncClient, body: dict[str, object], needed: bool
):
    answer = await http.post("/v1/recall", json=body)
    assert answer.status_code == 200
    assert answer.json()["needed"] is needed
    assert answer.json()["why"]
    assert answer.json()["evidence"]


async def test_mode_auto_searches_only_where_memory_is_needed_and_heeds_the_turns_before(http: httpx.AsyncClient):
    await stored(http)
    query = {"query": "What is my shipping address?", "mode": "auto"}
    assert (await http.post("/v1/search", json=query)).json()["hits"]
    unneeded = (await http.post("/v1/search", json={"query": "what is the capital of Portugal", "mode": "auto"})).json()
    assert (unneeded["hits"], unneeded["query"]["recall"]["needed"]) == ([], False)
    switched = {"query": "continue", "mode": "auto", "task": "send a parcel", "previous_task": "holiday plans"}
    assert (await http.post("/v1/search", json=switched)).json()["query"]["recall"]["needed"]
    messages = [{"role": "user", "text": "Write a note about the lift."}, {"role": "user", "text": "thanks"}]
    block = (await http.post("/v1/context", json={"messages": messages, "mode": "auto"})).json()
    assert (block["text"], block["recall"]["needed"]) == ("", False)


async def test_the_log_keeps_no_turns_before_the_question(http: httpx.AsyncClient):
    await http.post("/v1/search", json={"query": "Where do I live?", "recent": ["I am Xanthippe"], "task": "moving"})
    logged = (await http.get("/v1/retrievals")).json()["retrievals"]
    assert len(logged) == 1
    assert "Xanthippe" not in json.dumps(logged)


async def test_listing_continues_from_its_cursor_without_repeats_or_gaps(http: httpx.AsyncClient):
    ids = {await stored(http, f"Order {n} was placed by the warehouse in Hull.") for n in range(5)}
    seen: list[str] = []
    cursor: str | None = None
    while True:
        params = {"limit": "2"} | ({} if cursor is None else {"cursor": cursor})
        page = (await http.get("/v1/memories", params=params)).json()
        seen += [memory["id"] for memory in page["memories"]]
        if (cursor := page["cursor"]) is None:
            break
    assert len(seen) == 5
    assert set(seen) == ids


async def test_filters_of_a_query_string_take_comma_lists_and_repeats(http: httpx.AsyncClient):
    fact = await stored(http, DOG, kind="fact", tags=["pet"])
    event = await stored(http, ADDRESS, kind="event", tags=["pet", "a,b"])
    await stored(http, ALLERGY, kind="preference")

    async def found(query: str) -> set[str]:
        answer = await http.get(f"/v1/memories?{query}")
        assert answer.status_code == 200, answer.text
        return {memory["id"] for memory in answer.json()["memories"]}

    assert await found("kind=fact,event") == {fact, event}
    assert await found("kind=fact&kind=event") == {fact, event}
    assert await found("tags_all=pet") == {fact, event}
    assert await found("tags_any=a%2Cb&tags_any=nothing") == {event}
    assert await found(f"ids={fact},{event}") == {fact, event}
    assert await found(f"kind=&ids={fact}") == {fact}


async def test_metadata_of_a_query_string_means_the_text_or_the_number_it_spells(http: httpx.AsyncClient):
    text = await stored(http, DOG, metadata={"lot": "7"})
    number = await stored(http, ADDRESS, metadata={"lot": 7})
    await stored(http, ALLERGY, metadata={"lot": 8})
    answer = await http.get("/v1/memories?metadata.lot=7")
    assert {memory["id"] for memory in answer.json()["memories"]} == {text, number}


async def test_an_offset_whose_plus_was_not_escaped_is_still_read(http: httpx.AsyncClient):
    memory_id = await stored(http, observed_at="2025-05-01T00:00:00Z")
    answer = await http.get("/v1/memories?observed_from=2025-05-01T08:00:00+08:00")
    assert [memory["id"] for memory in answer.json()["memories"]] == [memory_id]


async def test_a_time_without_an_offset_is_read_in_the_zone_that_the_request_names(http: httpx.AsyncClient):
    before = await stored(http, DOG, observed_at="2025-05-01T00:00:00Z", now="2025-05-01T00:00:00Z")
    after = await stored(http, ALLERGY, observed_at="2025-05-02T00:00:00Z", now="2025-05-02T00:00:00Z")
    shanghai = {"timezone": "Asia/Shanghai"}
    page = await http.get("/v1/memories", params={"observed_from": "2025-05-02T08:00:00", **shanghai})
    assert [memory["id"] for memory in page.json()["memories"]] == [after]
    page = await http.get("/v1/memories", params={"as_of": "2025-05-02T07:59:59", **shanghai})
    assert [memory["id"] for memory in page.json()["memories"]] == [before]
    exported = await lines(http, observed_from="2025-05-02T08:00:00", **shanghai)
    assert [line["memory"]["id"] for line in exported[1:]] == [after]
    events = await http.get("/v1/events", params={"since": "2025-05-02T08:00:00", **shanghai})
    assert [event["memory_id"] for event in events.json()["events"]] == [after]
    wanted = {"filters": {"observed_from": "2025-05-02T08:00:00"}, "dry_run": True}
    forgotten = await http.post("/v1/forget", json={**wanted, **shanghai})
    assert [one["id"] for one in forgotten.json()["affected"]] == [after]
    for zone in ({}, {"timezone": "Mars/Olympus"}):
        assert (await http.post("/v1/forget", json={**wanted, **zone})).status_code == 422
        assert (await http.get("/v1/memories", params={"as_of": "2025-05-02T08:00:00", **zone})).status_code == 422


async def test_the_etag_of_a_memory_is_its_version(http: httpx.AsyncClient):
    memory_id = await stored(http)
    answer = await http.get(f"/v1/memories/{memory_id}")
    assert answer.headers["ETag"] == '"1"'
    patched = await http.patch(f"/v1/memories/{memory_id}", json={"pinned": True}, headers={"If-Match": '"1"'})
    assert patched.status_code == 200
    assert patched.headers["ETag"] == '"2"'
    assert patched.json()["memory"]["pinned"] is True


async def test_a_stale_if_match_is_409_and_changes_nothing(http: httpx.AsyncClient):
    memory_id = await stored(http)
    await http.patch(f"/v1/memories/{memory_id}", json={"pinned": True})
    for sent, headers, field in (({}, {"If-Match": '"1"'}, "If-Match"), ({"version": 1}, {}, "version")):
        stale = await http.patch(f"/v1/memories/{memory_id}", json={"content": DOG} | sent, headers=headers)
        assert stale.status_code == 409
        assert stale.json()["code"] == "conflict"
        assert [error["field"] for error in stale.json()["errors"]] == [field]
    memory = (await http.get(f"/v1/memories/{memory_id}")).json()
    assert (memory["content"], memory["version"]) == (ADDRESS, 2)


async def test_if_match_star_is_any_version(http: httpx.AsyncClient):
    memory_id = await stored(http)
    answer = await http.patch(f"/v1/memories/{memory_id}", json={"pinned": True}, headers={"If-Match": "*"})
    assert answer.status_code == 200


async def test_history_holds_every_change_with_the_request_that_made_it(http: httpx.AsyncClient):
    memory_id = await stored(http)
    await http.patch(
        f"/v1/memories/{memory_id}", json={"pinned": True, "reason": "keep"}, headers={"X-Request-Id": "req-7"}
    )
    created, updated = (await http.get(f"/v1/memories/{memory_id}/history")).json()["events"]
    assert created["before"] is None
    assert (updated["reason"], updated["request_id"]) == ("keep", "req-7")
    assert (updated["before"]["pinned"], updated["after"]["pinned"]) == (False, True)
    events = (await http.get("/v1/events")).json()["events"]
    assert [event["id"] for event in events] == [created["id"], updated["id"]]


async def test_deleting_archives_and_restoring_brings_back(http: httpx.AsyncClient):
    memory_id = await stored(http)
    gone = await http.delete(f"/v1/memories/{memory_id}", params={"reason": "no longer"})
    assert gone.status_code == 200
    assert gone.json()["affected"][0]["to"] == "archived"
    assert (await http.get("/v1/memories")).json()["memories"] == []
    back = await http.post(f"/v1/memories/{memory_id}/restore")
    assert back.status_code == 200
    assert back.json()["memory"]["status"] == "active"


async def test_deleting_an_unknown_memory_is_404_but_an_empty_selection_is_an_answer(http: httpx.AsyncClient):
    assert (await http.delete("/v1/memories/nobody")).status_code == 404
    answer = await http.post("/v1/forget", json={"ids": ["nobody"]})
    assert answer.status_code == 200
    assert answer.json()["count"] == 0


async def test_forgetting_without_a_selection_is_refused_never_all(http: httpx.AsyncClient):
    await stored(http)
    for body in ({}, {"filters": {}}, {"ids": []}, {"mode": "erase"}):
        answer = await http.post("/v1/forget", json=body)
        assert answer.status_code == 422, body
    assert (await http.get("/v1/stats")).json()["by_status"] == {"active": 1}


async def test_a_sweep_reports_what_it_did_counts_it_and_stops_at_its_limit(http: httpx.AsyncClient):
    for n in range(2):
        await stored(http, f"{DOG} {n}", ttl="1d")
    asked = {"policies": ["expire"], "now": "2999-01-01T00:00:00Z", "limit": 1}
    dry = (await http.post("/v1/sweeps", json={**asked, "dry_run": True})).json()
    first = (await http.post("/v1/sweeps", json=asked)).json()
    assert (dry["affected"], dry["cursor"], first["complete"]) == (first["affected"], None, False)
    rest = (await http.post("/v1/sweeps", json={**asked, "cursor": first["cursor"]})).json()
    assert (rest["count"], rest["run_id"]) == (1, first["run_id"])
    assert rest["policies"][0] | {"took_ms": 0} == {
        "policy": "expire", "examined": 1, "actions": {"archived": 1}, "took_ms": 0,
    }  # fmt: skip
    metrics = (await http.get("/metrics")).text
    assert 'hindsight_swept_total{action="archived",policy="expire"} 2.0' in metrics
    assert (await http.post("/v1/sweeps", json={"policies": ["all"]})).status_code == 422
    assert (await http.post("/v1/sweeps", json={"user_id": "ann"})).status_code == 422


async def test_a_probe_is_answered_soon_though_the_store_says_nothing_for_long(settings: Settings):
    """Whatever the timeout of the store is; and the store is asked once, however often it is probed."""
    over, asked = asyncio.Event(), 0

    async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await over.wait()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        service = MemoryService(open_store(f"opensearch://127.0.0.1:{port}?timeout=120"), None, settings)
        async with serving(service, settings) as http:
            began = time.monotonic()
            answers = await asyncio.gather(*(http.get("/ready") for _ in range(4)))
            answers.append(await http.get("/ready"))
            assert time.monotonic() - began < 30.0
        await service.aclose()
        over.set()
    for answer in answers:
        assert answer.status_code == 503
        (component,) = answer.json()["components"]
        assert (component["name"], component["status"]) == ("store", "down")
        assert component["detail"] == "The store has not answered within 2 s."
    assert asked < 12  # one check, and who asks each time


async def test_a_start_that_fails_tells_the_server_in_a_line_what_to_do(settings: Settings):
    """As uvicorn and its like run the app of a function: no traceback, and no line of a driver."""
    wrong = msgspec.structs.replace(settings, store="opensearch://127.0.0.1:9?verify=perhaps")
    told: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "lifespan.startup"}

    async def send(message: dict[str, Any]) -> None:
        told.append(message)

    app: Any = create_app([], name="forget", embedder=False, settings=wrong)
    with pytest.raises(ExceptionGroup):
        await app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)
    (message,) = told
    assert message["type"] == "lifespan.startup.failed"
    assert "\n" not in message["message"]
    for said in ("HINDSIGHT_STORE", "verify", "Give a URL such as"):
        assert said in message["message"]


async def test_a_second_sweep_beside_one_that_is_under_way_is_told_its_run(http: httpx.AsyncClient, store: MemoryStore):
    turns = Turns(store, timedelta(minutes=1))
    async with turns.taken("default", ["expire"], run_id="run-1", call="elsewhere", now=datetime.now(UTC)):
        second = await http.post("/v1/sweeps", json={"policies": ["expire"]})
    assert (second.status_code, second.json()["code"]) == (409, "under_way")
    assert "run-1" in second.json()["detail"]
    assert (await http.post("/v1/sweeps", json={"policies": ["expire"]})).status_code == 200


async def test_a_run_lists_what_it_did_and_can_be_undone(http: httpx.AsyncClient):
    memory_id = await stored(http)
    run_id = (await http.post("/v1/forget", json={"ids": [memory_id]})).json()["run_id"]
    assert run_id in {run["run_id"] for run in (await http.get("/v1/runs")).json()["runs"]}
    report = (await http.get(f"/v1/runs/{run_id}")).json()
    assert [event["memory_id"] for event in report["events"]] == [memory_id]
    undone = await http.post(f"/v1/runs/{run_id}/undo", json={"reason": "mistake"})
    assert undone.status_code == 200
    assert undone.json()["count"] == 1
    assert (await http.get(f"/v1/memories/{memory_id}")).json()["status"] == "active"


async def test_resolving_a_contested_pair_settles_which_holds(http: httpx.AsyncClient):
    at = "2025-05-01T08:00:00Z"
    common = {"namespace": "default", "valid_from": at, "created_at": at, "updated_at": at, "observed_at": at}
    old = {"id": "OLD", "content": "The deploy key is in the blue cabinet.", **common}
    new = {"id": "NEW", "content": "The deploy key is in the red drawer.", **common}
    contested = {**old, "contested_by": [{"id": "NEW", "probability": 0.5, "reason": "another place"}]}
    body = "\n".join(json.dumps({"memory": memory}) for memory in (contested, new))
    imported = await http.post("/v1/import", content=body, headers={"Content-Type": "application/x-ndjson"})
    assert imported.json()["stored"] == 2, imported.text
    answer = await http.post("/v1/memories/NEW/resolve", json={"with": "OLD", "decision": "supersede"})
    assert answer.status_code == 200, answer.text
    assert (answer.json()["other"]["status"], answer.json()["other"]["superseded_by"]) == ("superseded", "NEW")


async def test_an_export_can_be_imported_elsewhere_with_its_ids(http: httpx.AsyncClient):
    ids = {await stored(http, DOG), await stored(http, ALLERGY)}
    exported = (await http.get("/v1/export")).content
    headers = {"Content-Type": "application/x-ndjson"}
    first, second = [await http.post("/v1/import?namespace=copy", content=exported, headers=headers) for _ in range(2)]
    assert (first.json()["stored"], first.json()["existing"]) == (2, 0)
    assert (second.json()["stored"], second.json()["existing"]) == (0, 2)
    copied = await lines(http, namespace="copy")
    assert {line["memory"]["id"] for line in copied[1:]} == ids


async def test_an_export_streams_a_header_and_then_each_memory(http: httpx.AsyncClient):
    memory_id = await stored(http, kind="fact")
    await stored(http, ALLERGY, kind="preference")
    header, memory = await lines(http, kind="fact")
    assert (header["hindsight_export"], header["history"]) == (3, False)
    assert memory["memory"]["id"] == memory_id


async def test_retrievals_are_logged_for_replay(http: httpx.AsyncClient):
    memory_id = await stored(http)
    retrieval_id = (await http.post("/v1/search", json={"query": "shipping address"})).json()["retrieval_id"]
    listed = (await http.get("/v1/retrievals")).json()["retrievals"]
    assert [entry["id"] for entry in listed] == [retrieval_id]
    entry = (await http.get(f"/v1/retrievals/{retrieval_id}")).json()
    assert entry["query"] == "shipping address"
    assert [hit[0] for hit in entry["hits"]] == [memory_id]


async def test_the_namespace_comes_from_body_then_query_then_header_then_default(http: httpx.AsyncClient):
    header = {"Hindsight-Namespace": "from-header"}

    async def written_to(url: str, headers: dict[str, str], **fields: str) -> str:
        answer = await http.post(url, json={"content": DOG, "force": True, **fields}, headers=headers)
        namespace: str = answer.json()["results"][0]["memory"]["namespace"]
        return namespace

    assert await written_to("/v1/memories", header, namespace="from-body") == "from-body"
    assert await written_to("/v1/memories?namespace=from-query", header) == "from-query"
    assert await written_to("/v1/memories", header) == "from-header"
    assert await written_to("/v1/memories", {}) == "default"
    assert (await http.get("/v1/stats?namespace=from-query", headers=header)).json()["memories"] == 1


async def test_the_namespace_of_a_batch_is_for_the_items_that_name_none(http: httpx.AsyncClient):
    items = [{"content": DOG, "force": True}, {"content": ALLERGY, "force": True, "namespace": "its-own"}]

    async def written_to(url: str, headers: dict[str, str], **fields: str) -> list[str]:
        answer = await http.post(url, json={"items": items, **fields}, headers=headers)
        assert answer.status_code == 200, answer.text
        return [item["decisions"][0]["memory"]["namespace"] for item in answer.json()["results"]]

    header = {"Hindsight-Namespace": "from-header"}
    assert await written_to("/v1/memories/batch", header, namespace="from-body") == ["from-body", "its-own"]
    assert await written_to("/v1/memories/batch?namespace=from-query", header) == ["from-query", "its-own"]
    assert await written_to("/v1/memories/batch", header) == ["from-header", "its-own"]
    twice = await http.post("/v1/memories/batch?namespace=a", json={"items": items, "namespace": "b"})
    assert twice.status_code == 422


async def test_now_replaces_the_clock_of_batches_and_imports(http: httpx.AsyncClient):
    now = "2025-01-02T03:04:05Z"
    batch = {"items": [{"content": DOG, "force": True}], "now": now}
    (item,) = (await http.post("/v1/memories/batch", json=batch)).json()["results"]
    assert item["decisions"][0]["memory"]["created_at"] == now
    exported = (await http.get("/v1/export")).content
    headers = {"Content-Type": "application/x-ndjson"}
    await http.post("/v1/import", params={"namespace": "copy", "now": now}, content=exported, headers=headers)
    (run,) = (await http.get("/v1/runs?namespace=copy")).json()["runs"]
    assert run["at"] == now
    naive = await http.post("/v1/memories/batch", json={**batch, "now": "2025-01-02T03:04:05"})
    assert naive.status_code == 422
    assert naive.json()["errors"][0]["field"] == "now"


async def test_a_namespace_given_twice_with_different_values_is_refused(http: httpx.AsyncClient):
    answer = await http.post("/v1/search?namespace=a", json={"query": "x", "namespace": "b"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "namespace"


async def test_no_read_shows_the_memories_of_another_namespace(http: httpx.AsyncClient):
    memory_id = await stored(http, namespace="theirs")
    mine = {"Hindsight-Namespace": "mine"}
    assert (await http.get(f"/v1/memories/{memory_id}", headers=mine)).status_code == 404
    assert (await http.get(f"/v1/memories/{memory_id}/history", headers=mine)).status_code == 404
    assert (await http.get("/v1/memories", headers=mine)).json()["memories"] == []
    assert (await http.get("/v1/events", headers=mine)).json()["events"] == []
    assert (await http.get("/v1/runs", headers=mine)).json()["runs"] == []
    assert len((await http.get("/v1/export", headers=mine)).text.splitlines()) == 1
    assert (await http.post("/v1/search", json={"query": ADDRESS}, headers=mine)).json()["hits"] == []
    assert (await http.patch(f"/v1/memories/{memory_id}", json={"pinned": True}, headers=mine)).status_code == 404
    assert (await http.delete(f"/v1/memories/{memory_id}", headers=mine)).status_code == 404


async def test_a_request_id_is_passed_through_or_made_up(http: httpx.AsyncClient):
    assert (await http.get("/health", headers={"X-Request-Id": "mine-1"})).headers["X-Request-Id"] == "mine-1"
    made_up = (await http.get("/health")).headers["X-Request-Id"]
    assert len(made_up) == 26
    unusable = (await http.get("/health", headers={"X-Request-Id": "a b"})).headers["X-Request-Id"]
    assert unusable != "a b"
    problem = await http.get("/v1/memories/nobody", headers={"X-Request-Id": "mine-2"})
    assert problem.json()["request_id"] == problem.headers["X-Request-Id"] == "mine-2"


async def test_health_and_readiness_answer(http: httpx.AsyncClient):
    assert (await http.get("/health")).json()["status"] == "ok"
    ready = await http.get("/ready")
    assert ready.status_code == 200
    assert {component["name"] for component in ready.json()["components"]} == {"store", "embedder"}


async def test_metrics_count_requests_decisions_and_searches(http: httpx.AsyncClient):
    await stored(http)
    await http.post("/v1/search", json={"query": "address"})
    await http.get("/v1/memories/nobody")
    text = (await http.get("/metrics")).text
    assert 'hindsight_requests_total{method="POST",route="/v1/memories",status="201"} 1.0' in text
    assert 'hindsight_requests_total{method="GET",route="/v1/memories/{memory_id}",status="404"} 1.0' in text
    assert 'hindsight_decisions_total{decision="add"} 1.0' in text
    assert 'hindsight_searches_total{found="yes"} 1.0' in text
    assert 'hindsight_request_seconds_count{method="POST",route="/v1/search"} 1.0' in text


async def test_the_schema_names_every_route_with_the_limits_that_are_checked(http: httpx.AsyncClient):
    document = (await http.get("/schema")).json()
    assert document == (await http.get("/schema/openapi.json")).json()
    assert document.pop("servers") == [{"url": URL}]
    operations = {(method, path) for path, found in document["paths"].items() for method in found}
    assert {
        ("post", "/v1/memories"),
        ("patch", "/v1/memories/{memory_id}"),
        ("delete", "/v1/memories/{memory_id}"),
        ("post", "/v1/search"),
        ("post", "/v1/forget"),
        ("post", "/v1/runs/{run_id}/undo"),
    } <= operations
    top_k = document["components"]["schemas"]["SearchRequest"]["properties"]["top_k"]
    assert (top_k["minimum"], top_k["maximum"], top_k["default"]) == (1, 100, 8)
    answers = document["paths"]["/v1/memories"]["post"]["responses"]
    assert set(answers) == {"200", "201", "default"}
    listed = {parameter["name"] for parameter in document["paths"]["/v1/memories"]["get"]["parameters"]}
    assert {"kind", "status", "limit", "cursor", "namespace", "metadata.KEY"} <= listed
    assert "http://" not in json.dumps(document)


async def test_every_reference_in_the_schema_leads_somewhere(http: httpx.AsyncClient):
    document = (await http.get("/schema")).json()
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}

    def references(value: object) -> set[str]:
        if isinstance(value, dict):
            here = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
            return here.union(*(references(item) for item in value.values()))
        if isinstance(value, list):
            return set().union(*(references(item) for item in value))
        return set()

    assert references(document) <= known


async def test_the_log_tells_of_requests_and_never_of_their_texts(
    http: httpx.AsyncClient, capsys: pytest.CaptureFixture[str]
):
    await stored(http, DOG, user_id="ann-7")
    await http.post("/v1/search", json={"query": "What is Biscuit?"})
    await http.post("/v1/search", json={"query": "Biscuit", "intent": "Biscuit"})
    await http.get("/v1/memories?user_id=ann-7", headers={"X-Request-Id": "req-9"})
    log = capsys.readouterr().err
    assert "info http.answered method=POST route=/v1/memories status=201" in log
    assert "request_id=req-9" in log
    assert "Biscuit" not in log
    assert "ann-7" not in log


async def test_what_no_one_foresaw_is_a_problem_without_details_and_stands_in_the_log(
    http: httpx.AsyncClient, service: MemoryService, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    async def broken(*_: object) -> None:
        raise ZeroDivisionError("the inside story")

    monkeypatch.setattr(service, "stats", broken)
    answer = await http.get("/v1/stats", headers={"X-Request-Id": "req-5"})
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "internal"
    assert "inside story" not in answer.text
    log = capsys.readouterr().err
    assert "http.failed request_id=req-5" in log
    assert "ZeroDivisionError: the inside story" in log
