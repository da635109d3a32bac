"""Whatever is sent, no route answers 5xx, every refusal is a problem, and nothing of a refused write is stored."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hindsight_core.config import Settings
from hindsight_core.service import MemoryService
from serving import serving

BODIES = {
    ("POST", "/v1/memories"): "WriteRequest",
    ("POST", "/v1/memories/batch"): "Batch",
    ("POST", "/v1/search"): "SearchRequest",
    ("POST", "/v1/context"): "ContextRequest",
    ("POST", "/v1/recall"): "RecallRequest",
    ("PATCH", "/v1/memories/{id}"): "UpdateRequest",
    ("POST", "/v1/memories/{id}/resolve"): "ResolveRequest",
    ("POST", "/v1/forget"): "ForgetRequest",
    ("POST", "/v1/memories/{id}/restore"): "RestoreRequest",
    ("POST", "/v1/runs/{id}/undo"): "UndoRequest",
    ("POST", "/v1/sweeps"): "SweepRequest",
    ("POST", "/v1/tasks/{id}/messages"): "TaskRequest",
}
QUERIES = [
    ("GET", "/v1/memories"),
    ("GET", "/v1/memories/{id}"),
    ("DELETE", "/v1/memories/{id}"),
    ("GET", "/v1/memories/{id}/history"),
    ("GET", "/v1/events"),
    ("GET", "/v1/export"),
    ("GET", "/v1/stats"),
    ("GET", "/v1/retrievals"),
    ("GET", "/v1/retrievals/{id}"),
    ("GET", "/v1/runs"),
    ("GET", "/v1/runs/{id}"),
]
PARAMETERS = [
    "namespace",
    "user_id",
    "agent_id",
    "session_id",
    "task_id",
    "now",
    "limit",
    "cursor",
    "since",
    "as_of",
    "memory_type",
    "kind",
    "status",
    "source",
    "key",
    "tags_all",
    "tags_any",
    "ids",
    "observed_from",
    "observed_to",
    "metadata.a",
    "metadata.",
    "mode",
    "reason",
    "dry_run",
    "bring_back",
    "nonsense",
]

NASTY = st.sampled_from(
    [
        "",
        " ",
        "a",
        "%",
        "a&b=c",
        "a'; DROP TABLE memories; --",
        "a\x00b",
        "\ud800",
        "\u202eabc",
        "🐕",
        "你好",
        "a" * 300,
        "2025-05-01T08:00:00Z",
        "2025-05-01T08:00:00",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "2025-02-30T00:00:00Z",
        "30d",
        "PT1H",
        "active",
        "fact",
        "episodic",
        "archive",
        "erase",
        "supersede",
        "user",
        "auto",
        "none",
        "Asia/Shanghai",
        "../etc",
        "[]",
        "null",
        "NaN",
        "1e400",
    ]
)
SCALARS = st.one_of(
    NASTY,
    st.text(max_size=20),
    st.integers(),
    st.sampled_from([0, 1, -1, 2**63 - 1, 2**63, -(2**63) - 1, 2**80, 0.5, 1e308, -0.0, 5e-324]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.none(),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NASTY, inner, max_size=3), max_leaves=6
)
MESSAGE = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "tool"]), "text": NASTY})
WHEN = st.sampled_from(["2025-05-01T08:00:00Z", "2025-05-01T08:00:00+14:00", "1969-12-31T23:59:59Z"])
NICE = st.sampled_from(["a", "b c", "你好", "x-1", "🐕", "a.b", "é"])
MILD = st.one_of(NICE, NICE, NICE, NASTY)
NUMBERS = st.integers(-9, 9) | st.sampled_from(
    [2**63 - 1, 2**63, 2**64, 2**80, -(2**63) - 1, 0.5, 1e308, -0.0, 5e-324, True]
)
METADATA = st.dictionaries(NICE, NUMBERS | MILD | st.lists(MILD | NUMBERS, max_size=2), max_size=2)
# What each field may well be: mostly drawn from here, or a request never gets past its first field.
PLAUSIBLE: dict[str, st.SearchStrategy[Any]] = {
    "namespace": st.sampled_from(["default", "other"]),
    "user_id": MILD,
    "agent_id": MILD,
    "session_id": MILD,
    "task_id": MILD,
    "now": WHEN,
    "content": st.sampled_from(["My dog is called Biscuit.", "我住在杭州。"]) | st.text(max_size=20),
    "query": st.sampled_from(["Where do I live?", "昨天说了什么？"]) | st.text(max_size=20),
    "text": MILD,
    "context": MILD,
    "messages": st.lists(MESSAGE, max_size=2),
    "filters": st.dictionaries(st.sampled_from([*PARAMETERS[10:19]]), NASTY | st.lists(MILD, max_size=2), max_size=2)
    | st.fixed_dictionaries({"metadata": METADATA}),
    "items": st.lists(
        st.fixed_dictionaries({"content": st.text(max_size=10), "metadata": METADATA, "force": st.booleans()}),
        max_size=2,
    ),
    "ids": st.lists(st.just("{id}") | MILD, max_size=2),
    "supersedes": st.lists(st.just("{id}") | MILD, max_size=1),
    "with": st.just("{id}") | MILD,
    "decision": st.sampled_from(["supersede", "coexist", "duplicate", "refine", "retract"]),
    "metadata": METADATA,
    "tags": st.lists(MILD, max_size=2),
    "kind": st.sampled_from(["fact", "preference", "speculation"]),
    "memory_type": st.sampled_from(["working", "episodic", "semantic"]),
    "source": st.sampled_from(["user", "agent", "tool"]),
    "key": MILD,
    "speaker": MILD,
    "summary": MILD,
    "task": MILD,
    "previous_task": MILD,
    "recent": st.lists(MESSAGE | MILD, max_size=2),
    "policies": st.lists(
        st.sampled_from(["expire", "evict", "idle", "promote", "purge", "tasks", "consolidate", "logs", "x"]),
        max_size=2,
    ),
    "cursor": MILD,
    "limit": st.integers(1, 100),
    "budget_seconds": st.sampled_from([0.5, 60, 5e-324]),
    "context_window": st.sampled_from([100, 8000, 100_000_000]),
    "reason": MILD,
    "timezone": st.sampled_from(["Asia/Shanghai", "UTC", "Mars/Olympus"]),
    "ttl": st.sampled_from(["30d", "PT1H", 1e9, 5e-324, "99999w", 0.5]),
    "confidence": st.floats(0, 1),
    "min_score": st.floats(0, 1),
    "half_life_days": st.sampled_from([5e-324, 1, 36_500]),
    "top_k": st.integers(1, 100),
    "token_budget": st.integers(16, 1_000_000),
    "version": st.sampled_from([1, 2, 2**62]),
    "intent": st.sampled_from(["status", "recommend", "nonsense"]),
    "profile": st.sampled_from(["task", "companion"]),
    "mode": st.sampled_from(["always", "auto", "archive", "suppress", "retract", "erase"]),
    "precision": st.sampled_from(["day", "month", "year"]),
    "visibility": st.sampled_from(["shared", "private"]),
    "wait": st.sampled_from(["searchable", "durable"]),
    "extract": st.sampled_from(["auto", "none"]),
    "reconcile": st.sampled_from(["auto", "none"]),
    "idempotency_key": MILD,
}
for name in ("expires_at", "observed_at", "valid_from", "as_of"):
    PLAUSIBLE[name] = WHEN
for name in ("force", "pinned", "explain", "all", "dry_run", "bring_back", "history"):
    PLAUSIBLE[name] = st.booleans()
NEEDED = {"metadata", "content", "query", "items", "with", "decision"}
STEADY = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture
async def http(service: MemoryService, settings: Settings) -> AsyncGenerator[httpx.AsyncClient]:
    async with serving(service, settings) as client:
        yield client


@pytest.fixture
async def memory_id(http: httpx.AsyncClient) -> str:
    answer = await http.post("/v1/memories", json={"content": "My dog is called Biscuit.", "force": True})
    found: str = answer.json()["results"][0]["memory_id"]
    return found


@pytest.fixture(scope="session")
def fields() -> dict[str, list[str]]:
    """The fields of each request."""
    from hindsight_core import requests
    from hindsight_functions.write import Batch

    known = {**vars(requests), "Batch": Batch}
    return {name: list(known[name].__struct_encode_fields__) for name in BODIES.values()}


async def check(http: httpx.AsyncClient, method: str, url: str, **sent: Any) -> httpx.Response:
    before = (await http.get("/v1/stats")).json()
    answer = await http.request(method, url, **sent)
    assert answer.status_code < 500, f"{method} {url} {sent}: {answer.text}"
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        assert set(answer.json()) >= {"type", "title", "status", "detail", "code", "request_id"}
        assert (await http.get("/v1/stats")).json() == before, f"{method} {url} {sent} was applied in part"
    return answer


@pytest.mark.parametrize("route", BODIES, ids=lambda route: " ".join(route))
@STEADY
@given(data=st.data())
async def test_no_body_gives_a_5xx(
    http: httpx.AsyncClient, memory_id: str, fields: dict[str, list[str]], route: tuple[str, str], data: st.DataObject
):
    method, path = route
    known = fields[BODIES[route]]
    body = {name: data.draw(PLAUSIBLE[name], label=name) for name in NEEDED.intersection(known)}
    body |= {"force": True} if "force" in known else {}
    body |= {"messages": data.draw(PLAUSIBLE["messages"])} if "context_window" in known else {}
    for name in data.draw(st.lists(st.sampled_from(known), max_size=4, unique=True)):
        body[name] = data.draw(PLAUSIBLE[name], label=name)
    # Every other body is wrong somewhere.
    for name in data.draw(st.lists(st.sampled_from([*known, "nonsense"]), max_size=1)):
        body[name] = data.draw(VALUES, label=name)
    # Lone surrogates go over the wire as the escapes that JSON has for them.
    text = json.dumps(body).replace("{id}", memory_id)
    url, headers = path.replace("{id}", memory_id), {"Content-Type": "application/json"}
    await check(http, method, url, content=text.encode(), headers=headers)


@pytest.mark.parametrize("path", ["/v1/memories", "/v1/search", "/v1/forget", "/v1/import"])
@STEADY
@given(body=st.binary(max_size=200) | st.text(max_size=50).map(lambda text: text.encode("utf-8", "surrogatepass")))
async def test_no_bytes_give_a_5xx(http: httpx.AsyncClient, path: str, body: bytes):
    media = "application/x-ndjson" if path == "/v1/import" else "application/json"
    await check(http, "POST", path, content=body, headers={"Content-Type": media})


@pytest.mark.parametrize("route", QUERIES, ids=lambda route: " ".join(route))
@STEADY
@given(data=st.data())
async def test_no_query_string_gives_a_5xx(
    http: httpx.AsyncClient, memory_id: str, route: tuple[str, str], data: st.DataObject
):
    method, path = route
    given_ = data.draw(st.lists(st.tuples(st.sampled_from(PARAMETERS), NASTY | st.text(max_size=10)), max_size=4))
    query = "&".join(f"{name}={quote(value.encode('utf-8', 'surrogatepass'))}" for name, value in given_)
    # A deletion would leave nothing for the examples after it.
    used = memory_id if method == "GET" else "nobody"
    await check(http, method, f"{path.replace('{id}', used)}?{query}")


@STEADY
@given(
    memory_id=st.text(min_size=1, max_size=30) | NASTY, suffix=st.sampled_from(["", "/history", "/restore", "/undo"])
)
async def test_no_id_in_a_path_gives_a_5xx(http: httpx.AsyncClient, memory_id: str, suffix: str):
    path = quote(memory_id.encode("utf-8", "surrogatepass"), safe="")
    for method in ("GET", "POST", "PATCH", "DELETE"):
        await check(
            http, method, f"/v1/memories/{path}{suffix}", **({} if method in {"GET", "DELETE"} else {"json": {}})
        )


@STEADY
@given(
    headers=st.dictionaries(
        st.sampled_from(
            ["Hindsight-Namespace", "Idempotency-Key", "X-Request-Id", "Content-Type", "Origin", "If-Match"]
        ),
        st.text(st.characters(min_codepoint=1, max_codepoint=255, exclude_characters="\r\n"), max_size=20),
        max_size=3,
    )
)
async def test_no_header_gives_a_5xx(http: httpx.AsyncClient, headers: dict[str, str]):
    raw = [(name, value.strip().encode("latin-1")) for name, value in headers.items()]
    await check(http, "PATCH", "/v1/memories/nobody", content=b'{"pinned": true}', headers=raw)
    await check(http, "POST", "/v1/search", content=b'{"query": "Where do I live?"}', headers=raw)
