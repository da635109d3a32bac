"""What is wrong with a request is said as a problem that names the field; nothing of such a request is stored."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine
from pathlib import Path

import httpx
import msgspec
import pytest

from hindsight_core.config import Settings
from hindsight_core.embedding import Embedder
from hindsight_core.service import MemoryService, open_service
from hindsight_core.stores import open_store
from serving import serving

JSON = {"Content-Type": "application/json"}
LONE = b"\\ud800"
MANY = [str(n) for n in range(1001)]


def filtering(**filters: object) -> bytes:
    return msgspec.json.encode({"query": "x", "filters": filters})


@pytest.fixture
async def http(embedder: Embedder, settings: Settings) -> AsyncGenerator[httpx.AsyncClient]:
    # One store will do: what is refused here never reaches it, and the fuzzing goes through all of them.
    store = open_store(settings.store)
    service = MemoryService(store, embedder, settings)
    await store.prepare(embedder.identity.name)
    async with serving(service, msgspec.structs.replace(settings, body_limit=20_000)) as client:
        yield client
    await service.flush()
    await store.aclose()


def fields(answer: httpx.Response) -> list[str]:
    """The fields at fault, of an answer that must be a problem in the agreed form."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    problem = answer.json()
    assert problem["status"] == answer.status_code
    assert problem["type"] == f"urn:hindsight:problem:{problem['code']}"
    assert problem["title"]
    assert problem["detail"]
    assert problem["request_id"] == answer.headers["X-Request-Id"]
    return [error["field"] for error in problem["errors"]]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/memories", b'{"contant": "x"}', "contant"),
        ("/v1/memories", b"{}", "content"),
        ("/v1/memories", b"", "content"),
        ("/v1/memories", b'{"content": ""}', "content"),
        ("/v1/memories", b'{"content": "  "}', "content"),
        ("/v1/memories", b'{"content": 5}', "content"),
        ("/v1/memories", b'{"content": "x", "messages": []}', "messages"),
        ("/v1/memories", b'{"messages": []}', "messages"),
        ("/v1/memories", b'{"messages": [{"role": "user", "text": "a"}, {"role": "user"}]}', "messages[1].text"),
        ("/v1/memories", b'{"messages": [{"role": "boss", "text": "a"}]}', "messages[0].role"),
        ("/v1/memories", b'{"messages": [{"role": "user", "text": "a", "at": "2025-05-01T08:00"}]}', "messages[0].at"),
        ("/v1/memories", b'{"content": "x", "confidence": 1.5}', "confidence"),
        ("/v1/memories", b'{"content": "x", "kind": "rumour"}', "kind"),
        ("/v1/memories", b'{"content": "x", "ttl": "soon"}', "ttl"),
        ("/v1/memories", b'{"content": "x", "observed_at": "2025-05-01T08:00:00"}', "observed_at"),
        ("/v1/memories", b'{"content": "x", "observed_at": "yesterday"}', "observed_at"),
        ("/v1/memories", b'{"content": "x", "now": "2025-05-01T08:00:00"}', "now"),
        ("/v1/memories", b'{"content": "x", "timezone": "Mars/Olympus"}', "timezone"),
        ("/v1/memories", b'{"content": "x", "namespace": ""}', "namespace"),
        ("/v1/memories", b'{"content": "x", "namespace": "*"}', "namespace"),
        ("/v1/memories", b'{"content": "x", "namespace": "a\\n"}', "namespace"),
        ("/v1/memories", b'{"content": "x", "user_id": ""}', "user_id"),
        ("/v1/memories", b'{"content": "x", "user_id": "a\\u0000"}', "user_id"),
        ("/v1/memories", b'{"content": "a' + LONE + b'"}', "content"),
        ("/v1/memories", b'{"content": "x", "metadata": {"k": "' + LONE + b'"}}', "metadata.k"),
        ("/v1/memories", b'{"messages": [{"role": "user", "text": "' + LONE + b'"}]}', "messages[0].text"),
        ("/v1/memories", b'{"content": "x", "metadata": {"ok": 1, "bad": {"a": 1}}}', "metadata.bad"),
        ("/v1/memories", b'{"content": "x", "metadata": {"a": 1e999}}', "metadata"),
        ("/v1/memories", b'{"content": "x", "metadata": {"a": 99999999999999999999999}}', "metadata.a"),
        ("/v1/memories", b'{"content": "x", "supersedes": ["nobody"]}', "supersedes[0]"),
        ("/v1/memories?top_k=3", b'{"content": "x"}', "top_k"),
        ("/v1/memories/batch", b'{"items": []}', "items"),
        ("/v1/memories/batch", b'{"items": [' + b"{}," * 500 + b"{}]}", "items"),
        ("/v1/search", b"{}", "query"),
        ("/v1/search", b'{"query": ""}', "query"),
        ("/v1/search", b'{"query": " \\t"}', "query"),
        ("/v1/search", b'{"query": "x", "top_k": 0}', "top_k"),
        ("/v1/search", b'{"query": "x", "top_k": 101}', "top_k"),
        ("/v1/search", b'{"query": "x", "top_k": "8"}', "top_k"),
        ("/v1/search", b'{"query": "x", "intent": "nothing we know"}', "intent"),
        ("/v1/search", b'{"query": "x", "as_of": "2025-05-01T08:00:00"}', "as_of"),
        ("/v1/search", b'{"query": "x", "filters": {"kind": ["fact", "rumour"]}}', "filters.kind[1]"),
        ("/v1/search", b'{"query": "x", "filters": {"kinds": "fact"}}', "filters.kinds"),
        ("/v1/search", b'{"query": "x", "filters": {"metadata": {"a": {"$gt": 1}}}}', "filters.metadata.a"),
        ("/v1/search", filtering(tags_all=MANY), "filters.tags_all"),
        ("/v1/search", filtering(tags_any=MANY), "filters.tags_any"),
        ("/v1/search", filtering(metadata=dict.fromkeys(MANY, 1)), "filters.metadata"),
        ("/v1/search", filtering(metadata={"a": MANY}), "filters.metadata.a"),
        ("/v1/search", b'{"query": "x", "filters": {"observed_from": "2025-05-01T08:00:00"}}', "filters.observed_from"),
        ("/v1/context", b'{"query": "x", "messages": []}', "query"),
        ("/v1/context", b'{"query": "x", "token_budget": 1}', "token_budget"),
        ("/v1/forget", b"{}", "ids"),
        ("/v1/forget", b'{"ids": ["a"], "mode": "burn"}', "mode"),
    ],
)  # fmt: skip
async def test_a_wrong_field_is_422_and_named(http: httpx.AsyncClient, path: str, body: bytes, field: str):
    answer = await http.post(path, content=body, headers=JSON)
    assert answer.status_code == 422, answer.text
    assert fields(answer) == [field]
    stats = (await http.get("/v1/stats")).json()
    assert (stats["memories"], stats["events"]) == (0, 0)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limitt=5", "limitt"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=many", "limit"),
        ("limit=1&limit=2", "limit"),
        ("kind=rumour", "kind[0]"),
        ("cursor=%%%", "cursor"),
        ("cursor=AAAA", "cursor"),
        ("namespace=", "namespace"),
        ("namespace=a%20b", "namespace"),
        ("user_id=", "user_id"),
        ("user_id=%00", "user_id"),
        ("as_of=2025-05-01T08:00:00", "as_of"),
        ("now=soon", "now"),
        ("query=x", "query"),
    ],
)
async def test_a_wrong_query_parameter_is_422_and_named(http: httpx.AsyncClient, query: str, field: str):
    answer = await http.get(f"/v1/memories?{query}")
    assert answer.status_code == 422, answer.text
    assert fields(answer) == [field]


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[1,",
        b"\xff",
        b"query=x",
        b'{"query": "x"}{}',
        b'{"filters": {"metadata": {"a": ' + b"[" * 5000,
        b'{"query": "\xff"}',
        '{"query": "x"}'.encode("utf-16"),
    ],
)
async def test_what_is_no_json_is_400(http: httpx.AsyncClient, body: bytes):
    answer = await http.post("/v1/search", content=body, headers=JSON)
    assert answer.status_code == 400, answer.text
    assert fields(answer) == []
    assert answer.json()["code"] == "malformed"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"NaN", "body"),
        (b'{"query": NaN}', "query"),
        (b'{"query": "x", "min_score": Infinity}', "min_score"),
        (b'{"query": "x", "filters": {"metadata": {"a": [1, -Infinity]}}}', "filters.metadata.a[1]"),
    ],
)
async def test_a_constant_that_is_no_json_names_its_field(http: httpx.AsyncClient, body: bytes, field: str):
    answer = await http.post("/v1/search", content=body, headers=JSON)
    assert answer.status_code == 400, answer.text
    assert fields(answer) == [field]
    assert answer.json()["code"] == "malformed"


@pytest.mark.parametrize(
    ("query", "field"),
    [("observed_from=2026-01-01T00:00:00", "observed_from"), ("as_of=soon", "as_of")],
)
async def test_a_parameter_is_called_what_it_was_sent_as(http: httpx.AsyncClient, query: str, field: str):
    answer = await http.get(f"/v1/memories?{query}")
    assert answer.status_code == 422
    assert fields(answer) == [field]
    assert answer.json()["detail"].startswith(f"{field}: ")


@pytest.mark.parametrize("value", ["%ff", "%ED%A0%80", "a%C3", "%EF%BF%BD%fe"])
async def test_a_parameter_that_is_no_text_is_422_and_not_another_users(http: httpx.AsyncClient, value: str):
    await http.post("/v1/memories", json={"content": "The lamp is on", "force": True, "user_id": "\ufffd"})
    for path in ("/v1/memories", "/v1/export", "/v1/events"):
        answer = await http.get(f"{path}?user_id={value}")
        assert answer.status_code == 422
        assert fields(answer) == ["user_id"]
    known = await http.get("/v1/memories?user_id=%EF%BF%BD")
    assert len(known.json()["memories"]) == 1


@pytest.mark.parametrize("text", ["\u200b\u200b", "\ufeff", "\u2060 \u3164", "\U000e0041", "\u200e\n"])
async def test_text_that_shows_nothing_is_422(http: httpx.AsyncClient, text: str):
    written = await http.post("/v1/memories", json={"content": text, "force": True})
    asked = await http.post("/v1/search", json={"query": text})
    assert (written.status_code, asked.status_code) == (422, 422)
    assert (fields(written), fields(asked)) == (["content"], ["query"])
    kept = await http.post("/v1/memories", json={"content": f"👨\u200d👩\u200d👧{text}", "force": True})
    assert kept.status_code == 201


async def test_a_least_score_without_a_query_is_422(http: httpx.AsyncClient):
    written = await http.post("/v1/memories", json={"content": "The lamp is on", "force": True})
    ids = [written.json()["results"][0]["memory_id"]]
    answer = await http.post("/v1/forget", json={"ids": ids, "min_score": 0.9})
    assert answer.status_code == 422
    assert fields(answer) == ["min_score"]
    assert (await http.post("/v1/forget", json={"ids": ids})).json()["count"] == 1


async def test_a_reused_key_is_named_as_it_was_sent(http: httpx.AsyncClient):
    def write(content: str, **sent: object) -> Coroutine[object, object, httpx.Response]:
        headers = {"Idempotency-Key": "k"} if not sent else {}
        return http.post("/v1/memories", json={"content": content, "force": True, **sent}, headers=headers)

    assert (await write("The lamp is on")).status_code == 201
    for sent, field in (({}, "Idempotency-Key"), ({"idempotency_key": "k"}, "idempotency_key")):
        answer = await write("The lamp is off", **sent)
        assert answer.status_code == 409
        assert fields(answer) == [field]


async def test_a_body_over_the_limit_is_413_whether_or_not_it_says_its_length(http: httpx.AsyncClient):
    async def pieces() -> AsyncGenerator[bytes]:
        for _ in range(30):
            yield b"x" * 1000

    for content in (b"x" * 20_001, pieces()):
        answer = await http.post("/v1/memories", content=content, headers=JSON)
        assert answer.status_code == 413
        assert fields(answer) == ["body"]
    fits = b'{"query": "x"' + b" " * (20_000 - 14) + b"}"
    assert (await http.post("/v1/search", content=fits, headers=JSON)).status_code == 200


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "application/msgpack", None]
)
async def test_another_content_type_is_415(http: httpx.AsyncClient, content_type: str | None):
    headers = {} if content_type is None else {"Content-Type": content_type}
    answer = await http.post("/v1/search", content=b'{"query": "x"}', headers=headers)
    assert answer.status_code == 415
    assert fields(answer) == []
    lines = await http.post("/v1/import", content=b"{}", headers=headers)
    assert lines.status_code == 415
    # What to send differs by route, so that is the remedy's to say.
    assert answer.json()["title"] == lines.json()["title"] == "The content type is not supported here"
    assert [refused.json()["remedy"] for refused in (answer, lines)] == [
        "Send application/json.",
        "Send application/x-ndjson.",
    ]


async def test_a_charset_in_the_content_type_is_fine(http: httpx.AsyncClient):
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert (await http.post("/v1/search", content=b'{"query": "x"}', headers=headers)).status_code == 200


async def test_an_unknown_path_is_404_and_a_wrong_method_405_that_names_the_right_ones(http: httpx.AsyncClient):
    unknown = await http.get("/v1/nothing")
    assert unknown.status_code == 404
    assert fields(unknown) == []
    wrong = await http.put("/v1/memories")
    assert wrong.status_code == 405
    assert fields(wrong) == []
    assert {"GET", "POST"} <= {method.strip() for method in wrong.headers["Allow"].split(",")}


@pytest.mark.parametrize(
    "memory_id", ["nobody", "a%2Fb", "%F0%9F%90%95", "a%00b", "%E2%80%AEabc", "%", "a'--", "x" * 300]
)
async def test_no_memory_has_a_strange_id(http: httpx.AsyncClient, memory_id: str):
    for answer in (
        await http.get(f"/v1/memories/{memory_id}"),
        await http.get(f"/v1/memories/{memory_id}/history"),
        await http.delete(f"/v1/memories/{memory_id}"),
        await http.patch(f"/v1/memories/{memory_id}", json={"pinned": True}),
        await http.post(f"/v1/memories/{memory_id}/restore"),
        await http.get(f"/v1/runs/{memory_id}"),
        await http.post(f"/v1/runs/{memory_id}/undo"),
        await http.get(f"/v1/retrievals/{memory_id}"),
    ):
        assert answer.status_code in {404, 422}, answer.text
        fields(answer)


@pytest.mark.parametrize("tag", ["abc", '"abc"', '""', '"-1"', '"1.5"', '"99999999999"'])
async def test_an_if_match_that_is_no_version_is_422(http: httpx.AsyncClient, tag: str):
    answer = await http.patch("/v1/memories/any", json={"pinned": True}, headers={"If-Match": tag})
    assert answer.status_code == 422
    assert fields(answer) == ["If-Match"]


async def test_headers_that_contradict_the_body_are_422(http: httpx.AsyncClient):
    key = await http.post(
        "/v1/memories", json={"content": "x", "idempotency_key": "a"}, headers={"Idempotency-Key": "b"}
    )
    assert key.status_code == 422
    assert fields(key) == ["Idempotency-Key"]
    version = await http.patch("/v1/memories/any", json={"pinned": True, "version": 2}, headers={"If-Match": '"1"'})
    assert version.status_code == 422
    assert fields(version) == ["If-Match"]


async def test_an_idempotency_key_for_a_whole_batch_is_refused(http: httpx.AsyncClient):
    answer = await http.post("/v1/memories/batch", json={"items": [{}]}, headers={"Idempotency-Key": "k"})
    assert answer.status_code == 422
    assert fields(answer) == ["Idempotency-Key"]


@pytest.mark.parametrize("namespace", ["", "a b", "*", "a" * 129, "ä"])
async def test_a_namespace_header_is_checked_like_any(http: httpx.AsyncClient, namespace: str):
    answer = await http.get("/v1/stats", headers={"Hindsight-Namespace": namespace.encode()})
    assert answer.status_code == 422
    assert fields(answer) == ["Hindsight-Namespace"]


async def test_two_namespace_headers_that_differ_are_refused(http: httpx.AsyncClient):
    headers = [("Hindsight-Namespace", "ours"), ("Hindsight-Namespace", "theirs")]
    answer = await http.get("/v1/stats", headers=headers)
    assert answer.status_code == 422
    assert fields(answer) == ["Hindsight-Namespace"]


@pytest.mark.parametrize(
    "host", ["hindsight.example", "evil.test:8100", "127.0.0.1.evil.test", "10.0.0.7", "localhost@evil.test"]
)
async def test_without_tokens_a_name_from_elsewhere_is_not_answered(http: httpx.AsyncClient, host: str):
    for answer in (
        await http.get("/v1/stats", headers={"Host": host}),
        await http.get("/v1/stats", headers={"Origin": f"http://{host}"}),
        await http.post("/v1/runs/any/undo", headers={"Origin": "null"}),
    ):
        assert answer.status_code == 403
        fields(answer)


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8100", "127.0.0.1:8100", "[::1]:8100", "LOCALHOST", "app.localhost"]
)
async def test_this_machine_s_own_names_are_answered(http: httpx.AsyncClient, host: str):
    answer = await http.get("/v1/stats", headers={"Host": host, "Origin": f"http://{host}"})
    assert answer.status_code == 200, answer.text


async def test_an_import_names_each_line_at_fault_and_stores_the_others(http: httpx.AsyncClient):
    at = "2025-05-01T08:00:00Z"
    good = {"id": "A", "namespace": "x", "content": "fine", "valid_from": at, "created_at": at, "updated_at": at}
    lines = [{"memory": good}, {"memory": {**good, "id": "B", "contant": 1}}, {"nothing": 1}]
    body = b"\n".join(msgspec.json.encode(line) for line in lines) + b"\nno json"
    answer = await http.post("/v1/import", content=body, headers={"Content-Type": "application/x-ndjson"})
    assert answer.status_code == 200
    assert answer.json()["stored"] == 1
    assert [problem["line"] for problem in answer.json()["problems"]] == [2, 3, 4]


async def test_what_is_down_is_503_and_says_what_to_do(settings: Settings):
    service = open_service(settings, embedder=False)
    await service.start()
    async with serving(service, settings) as http:
        answer = await http.post("/v1/memories", json={"content": "The kettle is blue.", "force": True})
    await service.aclose()
    assert answer.status_code == 503, answer.text
    fields(answer)
    assert answer.json()["remedy"]


async def test_a_broken_store_is_not_ready_and_says_what_to_do(settings: Settings):
    service = open_service(settings, embedder=False)
    await service.start()
    broken = Path(settings.store)
    for file in (broken, broken.with_name(broken.name + "-wal")):
        file.write_bytes(b"this is not a database" * 1000)
    async with serving(service, settings) as http:
        ready = await http.get("/ready")
        health = await http.get("/health")
    await service.aclose()
    assert ready.status_code == 503
    assert [(component["name"], component["status"]) for component in ready.json()["components"]] == [("store", "down")]
    assert ready.json()["components"][0]["remedy"]
    assert health.status_code == 200
