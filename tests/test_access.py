"""Nobody gets in without a token where there are any, nor past what the token is for: every route, every tool."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import httpx2
import msgspec
import pytest
from litestar.routes import ASGIRoute, HTTPRoute
from mcp.client.auth import OAuthTokenError
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from hindsight_core.access import Access, check_bind
from hindsight_core.config import Settings
from hindsight_core.errors import ConfigurationError, Forbidden
from hindsight_core.service import MemoryService, open_service
from hindsight_core.tokens import Tokens
from hindsight_functions import forget, gateway, mcp, search, update, write
from hindsight_functions.tools import TOOLS
from mcp_clients import ENDPOINT, Wire, handshake
from samples import OpenStore
from serving import URL, running
from tokens import bearer, token_for

# Nothing of anybody's memories is told there.
OPEN = {
    "/health",
    "/ready",
    "/schema",
    "/schema/openapi.json",
    "/.well-known/oauth-protected-resource",
    "/.well-known/oauth-protected-resource/mcp",
    "/.well-known/oauth-authorization-server",
}
# Open as well, and of use only to whoever has a token.
SIGN_IN = {"/oauth/authorize", "/oauth/register", "/oauth/token"}
# For whoever has a token of any kind.
SHARED = {"/metrics"}
# A new POST route is taken to write; one that only reads is named here, and one that needs a body has it below.
READS = {"/v1/search", "/v1/context", "/v1/recall"}
ADMIN = {"/v1/sweeps"}
BODIES: dict[str, Any] = {
    "/v1/memories": {"content": "The user plays the cello", "force": True},
    "/v1/memories/batch": {"items": [{"content": "The user plays the cello", "force": True}]},
    "/v1/search": {"query": "cello"},
    "/v1/context": {"query": "cello"},
    "/v1/recall": {"text": "cello"},
    "/v1/memories/{memory_id}/resolve": {"with": "a", "decision": "coexist"},
    "/v1/forget": {"ids": ["a"]},
    "/v1/tasks/{task_id}/messages": {"messages": [{"role": "user", "text": "cello"}]},
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "memory_write": {"content": "The user plays the cello", "force": True},
    "memory_search": {"query": "cello"},
    "memory_context": {"query": "cello", "mode": "always"},
    "memory_update": {"memory_id": "a", "new_content": "x", "reason": "r"},
    "memory_forget": {"query": "cello"},
    "memory_list": {},
}
MESSAGES: dict[str, dict[str, Any]] = {
    "initialize": handshake("2025-06-18"),
    "ping": {},
    "tools/list": {},
    "resources/list": {},
    "resources/templates/list": {},
    "resources/read": {"uri": "hindsight://memories"},
    "prompts/list": {},
    "prompts/get": {"name": "recall_before_answering", "arguments": {"question": "cello?"}},
}


def routes() -> Iterator[tuple[str, str]]:
    """Every method and path of the gateway, as its router has them."""
    for route in gateway.app.routes:
        if isinstance(route, HTTPRoute):
            for method in sorted(set(route.methods) - {"OPTIONS"}):
                yield str(method), route.path_format
        elif isinstance(route, ASGIRoute):
            yield "POST", route.path_format


class Kept:
    """What an OAuth client keeps of a server."""

    def __init__(self) -> None:
        self._token: OAuthToken | None = None
        self._client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self._token

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._token = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._client = client_info


ROUTES = sorted(routes())
GUARDED = [(method, path) for method, path in ROUTES if path not in OPEN | SIGN_IN]
SCOPED = [(method, path) for method, path in GUARDED if path.startswith("/v1/")]


def verb_of(method: str, path: str) -> str:
    if path in ADMIN:
        return "admin"
    return "read" if method == "GET" or path in READS else "write"


async def ask(http: httpx.AsyncClient, method: str, path: str, query: str = "", **headers: str) -> httpx.Response:
    """A request that is sound but for who sends it."""
    options: dict[str, Any] = {"headers": headers}
    if path == "/v1/import":
        options |= {"content": b"", "headers": {**headers, "Content-Type": "application/x-ndjson"}}
    elif method in {"POST", "PATCH", "PUT"}:
        options["json"] = BODIES.get(path, {})
    return await http.request(method, re.sub(r"\{\w+\}", "nobody", path) + query, **options)


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'hindsight.db'}"


@pytest.fixture
async def tokens(opened: OpenStore) -> Tokens:
    return Tokens(await opened())


@pytest.fixture
async def http(service: MemoryService, settings: Settings) -> AsyncGenerator[httpx.AsyncClient]:
    """A server over a store that has one token, so that every request needs one."""
    await token_for(service.tokens, "elsewhere")
    async with running(gateway.gateway(settings, service)) as client:
        yield client


# every route


async def test_no_route_is_open(http: httpx.AsyncClient, service: MemoryService):
    expired, revoked = await token_for(service.tokens, days=1), await token_for(service.tokens, name="gone")
    await service.tokens.revoke("gone", datetime.now(UTC))
    sent = (None, "", "Bearer", "Bearer ", "Bearer hst_0000000000_x", "Basic dXNlcjpwYXNz", revoked)
    for method, path in GUARDED:
        for authorization in (*sent, f"Bearer {expired}", f"Bearer {revoked}"):
            headers = {} if authorization is None else {"Authorization": authorization}
            answer = await ask(http, method, path, **headers)
            assert answer.status_code == 401, (method, path, authorization, answer.text)
            assert answer.json()["code"] == "unauthenticated"
            assert "hindsight token create" in answer.json()["remedy"]
            assert answer.headers["WWW-Authenticate"].startswith("Bearer ")
            assert "hst_" not in answer.text


async def test_no_route_goes_beyond_the_namespaces_of_a_token(http: httpx.AsyncClient, service: MemoryService):
    token = await token_for(service.tokens, "ours", verbs=("read", "write", "admin"))
    for method, path in SCOPED:
        answers = [await ask(http, method, path, **bearer(token), **{"Hindsight-Namespace": "theirs"})]
        if path != "/v1/memories/batch":  # whose items name theirs, see below
            answers.append(await ask(http, method, path, "?namespace=theirs", **bearer(token)))
        for answer in answers:
            assert answer.status_code == 403, (method, path, answer.text)
            assert answer.json()["code"] == "forbidden"
    everything = await token_for(service.tokens, "*")
    stats = (await http.get("/v1/stats?namespace=theirs", headers=bearer(everything))).json()
    assert (stats["memories"], stats["events"], stats["runs"]) == (0, 0, 0)


async def test_every_route_asks_for_its_verb(http: httpx.AsyncClient, service: MemoryService):
    for verb in ("read", "write", "admin"):
        others = tuple(other for other in ("read", "write", "admin") if other != verb)
        barred, let_in = await token_for(service.tokens, verbs=others), await token_for(service.tokens, verbs=(verb,))
        for method, path in SCOPED:
            if verb_of(method, path) != verb:
                continue
            answer = await ask(http, method, path, **bearer(barred))
            assert answer.status_code == 403, (method, path, answer.text)
            assert verb in answer.json()["detail"]
            answer = await ask(http, method, path, **bearer(let_in))
            assert answer.status_code in {200, 201, 404, 422}, (method, path, answer.text)


async def test_what_is_open_is_known_and_tells_nothing(http: httpx.AsyncClient, tmp_path: Path):
    assert {path for _, path in ROUTES if path in OPEN | SIGN_IN} == OPEN | SIGN_IN
    for path in OPEN:
        answer = await http.get(path)
        assert answer.status_code == 200
        assert str(tmp_path) not in answer.text
    for path in SHARED:
        assert (path, "GET") in {(path, method) for method, path in GUARDED}


@pytest.mark.parametrize("app", [write.app, search.app, update.app, forget.app, mcp.app, gateway.app])
def test_every_function_has_the_one_guard(app):
    for route in app.routes:
        for handler in getattr(route, "route_handlers", [getattr(route, "route_handler", None)]):
            if handler.handler_name == "options_handler":
                continue
            assert [guard.__name__ for guard in handler.resolve_guards()] == ["admit"], handler


async def test_the_document_of_the_interface_says_what_needs_a_token(http: httpx.AsyncClient):
    document = (await http.get("/schema")).json()
    assert document["components"]["securitySchemes"] == {"bearer": {"type": "http", "scheme": "bearer"}}
    assert {"bearer": []} in document["security"]
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert ("security" in operation) == (path in OPEN | SIGN_IN)


async def test_a_probe_without_a_token_learns_whether_it_is_ready_and_no_more(
    http: httpx.AsyncClient, service: MemoryService
):
    bare = (await http.get("/ready")).json()
    assert bare["ready"]
    assert {part["detail"] for part in bare["components"]} == {""}
    told = (await http.get("/ready", headers=bearer(await token_for(service.tokens)))).json()
    assert all(part["detail"] for part in told["components"])


# every tool


async def test_no_tool_is_open(http: httpx.AsyncClient, service: MemoryService):
    expired = await token_for(service.tokens, days=1)
    may = {
        True: await token_for(service.tokens, "ours", verbs=("write", "admin")),
        False: await token_for(service.tokens, "ours", verbs=("read", "admin")),
    }
    for tool in TOOLS:
        arguments = ARGUMENTS[tool.name]
        call = {"name": tool.name, "arguments": arguments}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        for headers in ({}, bearer("hst_0000000000_x"), bearer(expired)):
            assert (await Wire(http, **headers).post(message)).status_code == 401
        barred = bearer(may[tool.read_only])
        wire = Wire(http, **barred)
        assert "Use a token with the verb" in await wire.fail(tool.name, **arguments)
        assert (await Wire(http, **barred, Hindsight_Namespace="theirs").post(message)).status_code == 403
        assert "no such argument" in await wire.fail(tool.name, **arguments, namespace="theirs")


async def test_no_message_of_the_protocol_is_open(http: httpx.AsyncClient, service: MemoryService):
    writer, reader = await token_for(service.tokens, verbs=("write",)), await token_for(service.tokens)
    for method, params in MESSAGES.items():
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        assert (await Wire(http).post(message)).status_code == 401
        answer = await Wire(http, **bearer(writer)).send(method, params)
        assert ("error" in answer) == (method in {"resources/list", "resources/read", "prompts/get"})
        answer = await Wire(http, **bearer(reader)).send(method, params)
        assert "error" not in answer


# whose memories


async def test_a_token_for_one_namespace_needs_to_name_none(http: httpx.AsyncClient, service: MemoryService):
    ours, theirs = await token_for(service.tokens, "ours", name="planner"), await token_for(service.tokens, "theirs")
    written = await ask(http, "POST", "/v1/memories", **bearer(ours))
    memory_id = written.json()["results"][0]["memory_id"]
    assert written.json()["results"][0]["memory"]["namespace"] == "ours"
    assert (await http.get(f"/v1/memories/{memory_id}", headers=bearer(theirs))).status_code == 404
    wire = Wire(http, **bearer(ours))
    assert [found["id"] for found in (await wire.call("memory_list"))["memories"]] == [memory_id]
    assert (await Wire(http, **bearer(theirs)).call("memory_list"))["memories"] == []
    events = (await http.get("/v1/events", headers=bearer(ours))).json()["events"]
    assert {event["actor"] for event in events} == {"token:planner"}


async def test_a_token_for_several_namespaces_names_one_and_one_for_any_has_the_default(
    http: httpx.AsyncClient, service: MemoryService
):
    several, every = await token_for(service.tokens, "a", "b"), await token_for(service.tokens, "*")
    answer = await http.get("/v1/stats", headers=bearer(several))
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "namespace"
    assert "a, b" in answer.json()["detail"]
    for name in ("a", "b"):
        answer = await http.get("/v1/stats", headers={**bearer(several), "Hindsight-Namespace": name})
        assert answer.json()["namespace"] == name
    assert (await http.get("/v1/stats", headers=bearer(every))).json()["namespace"] == "default"
    assert (await http.get("/v1/stats?namespace=c", headers=bearer(every))).json()["namespace"] == "c"


async def test_a_batch_may_not_carry_an_item_for_another_namespace(http: httpx.AsyncClient, service: MemoryService):
    token = await token_for(service.tokens, "ours")
    items = [{"content": "One.", "force": True}, {"content": "Two.", "force": True, "namespace": "theirs"}]
    answer = await http.post("/v1/memories/batch", json={"items": items}, headers=bearer(token))
    assert answer.status_code == 403
    assert (await http.get("/v1/stats", headers=bearer(token))).json()["memories"] == 0


async def test_a_token_for_one_agent_makes_every_request_in_its_name(http: httpx.AsyncClient, service: MemoryService):
    planner = bearer(await token_for(service.tokens, agent_id="planner"))
    writer = bearer(await token_for(service.tokens, agent_id="writer", user_id="王小明"))
    secret = {"content": "The draft code word is Heron.", "visibility": "private", "force": True}
    written = (await http.post("/v1/memories", json=secret, headers=planner)).json()["results"][0]["memory"]
    assert written["agent_id"] == "planner"
    batch = await http.post("/v1/memories/batch", json={"items": [secret | {"content": "Two."}, {}]}, headers=writer)
    assert [one["status"] for one in batch.json()["results"]] == [201, 422]
    mine = (await http.get("/v1/memories", headers=writer)).json()["memories"]
    assert [(one["content"], one["agent_id"], one["user_id"]) for one in mine] == [("Two.", "writer", "王小明")]
    assert (await http.get(f"/v1/memories/{written['id']}", headers=writer)).status_code == 404
    wire = Wire(http, **writer)
    assert [one["content"] for one in (await wire.call("memory_list"))["memories"]] == ["Two."]
    assert "There is no memory" in await wire.fail("memory_forget", memory_id=written["id"])
    assert "bound to the user" in await wire.fail("memory_list", user_id="ana")
    for other in ({"user_id": "ana"}, {"agent_id": "planner"}):
        asked = [
            await http.get("/v1/memories", params=other, headers=writer),
            await http.post("/v1/search", json={"query": "code word", **other}, headers=writer),
            await http.post("/v1/memories/batch", json={"items": [{**secret, **other}]}, headers=writer),
        ]
        for answer in asked:
            assert answer.status_code == 403, answer.text
    for header in ("Hindsight_User", "Hindsight_Agent"):
        refused = await Wire(http, **writer, **{header: "other"}).post({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert refused.status_code == 403
    lines = {"content": b"", "headers": {**writer, "Content-Type": "application/x-ndjson"}}
    assert (await http.post("/v1/import", **lines)).status_code == 403
    assert (await http.get("/v1/stats", headers=writer)).status_code == 422


# what an OAuth client is told


@pytest.mark.parametrize(("path", "suffix"), [("/mcp", "/mcp"), ("/v1/stats", "")])
async def test_a_401_leads_to_the_metadata_of_the_resource(http: httpx.AsyncClient, path: str, suffix: str):
    answer = await http.post(path, json={}) if path == "/mcp" else await http.get(path)
    challenge = answer.headers["WWW-Authenticate"]
    assert "error=" not in challenge
    url = f"http://localhost/.well-known/oauth-protected-resource{suffix}"
    assert f'resource_metadata="{url}"' in challenge
    found = (await http.get(url)).json()
    assert found["resource"] == f"http://localhost{suffix}"
    assert found["authorization_servers"] == ["http://localhost"]
    assert found["bearer_methods_supported"] == ["header"]
    assert found["scopes_supported"] == ["read", "write", "admin"]
    wrong = await http.get("/v1/stats", headers=bearer("nonsense"))
    assert 'error="invalid_token"' in wrong.headers["WWW-Authenticate"]


async def test_the_public_address_is_told_where_one_is_set(service: MemoryService, settings: Settings):
    await token_for(service.tokens)
    public = msgspec.structs.replace(settings, public_url="https://memory.example/")
    async with running(gateway.gateway(public, service)) as http:
        answer = await http.post("/mcp", json={})
        assert "https://memory.example/.well-known/oauth-protected-resource/mcp" in answer.headers["WWW-Authenticate"]
        found = (await http.get("/.well-known/oauth-protected-resource/mcp")).json()
    assert found["resource"] == "https://memory.example/mcp"


async def test_an_oauth_client_gets_in_with_a_token_as_its_secret(service: MemoryService, settings: Settings):
    token = await token_for(service.tokens, "ours", name="planner")
    async with running(app := gateway.gateway(settings, service)):
        for secret, error in ((token, None), (token + "x", OAuthTokenError)):
            auth = ClientCredentialsOAuthProvider(
                ENDPOINT, Kept(), client_id="planner", client_secret=secret, issuer=URL
            )
            transport = httpx2.ASGITransport(app=app)
            async with httpx2.AsyncClient(transport=transport, auth=auth) as http:
                if error is not None:
                    with pytest.raises(error, match="token is not known"):
                        await http.post(ENDPOINT)
                    continue
                async with Client(streamable_http_client(ENDPOINT, http_client=http)) as client:
                    found = await client.call_tool("memory_list", {})
                    assert not found.is_error


@pytest.mark.parametrize(
    ("form", "status", "error"),
    [
        ({}, 200, None),
        ({"client_id": "ID"}, 200, None),
        ({"scope": "read"}, 200, None),
        ({"scope": "read admin"}, 200, None),
        ({"scope": "admin"}, 400, "invalid_scope"),
        ({"grant_type": "authorization_code"}, 400, "unsupported_grant_type"),
        ({"client_id": "somebody"}, 401, "invalid_client"),
        ({"client_secret": "hst_0000000000_x"}, 401, "invalid_client"),
        ({"client_secret": ""}, 401, "invalid_client"),
        ({"client_secret": "x" * 9000}, 400, "invalid_request"),
    ],
)
async def test_the_token_endpoint_gives_a_token_to_who_has_it_already(
    http: httpx.AsyncClient, service: MemoryService, form: dict[str, str], status: int, error: str | None
):
    token = await token_for(service.tokens, name="planner")
    sound = {"grant_type": "client_credentials", "client_id": "planner", "client_secret": token}
    sent = {name: token.split("_")[1] if value == "ID" else value for name, value in (sound | form).items()}
    answer = await http.post("/oauth/token", data=sent)
    assert answer.status_code == status, answer.text
    assert answer.headers["Cache-Control"] == "no-store"
    if error is None:
        assert answer.json() == {"access_token": token, "token_type": "Bearer", "scope": "read write"}
    else:
        assert answer.json()["error"] == error
        assert token not in answer.text


async def test_a_client_that_would_sign_in_or_register_is_told_what_to_do(http: httpx.AsyncClient):
    server = (await http.get("/.well-known/oauth-authorization-server")).json()
    assert server["issuer"] == URL
    assert server["grant_types_supported"] == ["client_credentials"]
    registered = await http.post(server["registration_endpoint"], json={"redirect_uris": ["http://localhost/back"]})
    assert (registered.status_code, registered.json()["error"]) == (403, "access_denied")
    assert "hindsight token create" in registered.json()["error_description"]
    page = await http.get(server["authorization_endpoint"])
    assert page.status_code == 403
    assert "hindsight token create" in page.json()["remedy"]


# hosts, origins and pages


@pytest.mark.parametrize(
    ("origin", "admitted"),
    [("http://localhost:6274", True), ("https://app.example", True), ("https://evil.example", False)],
)
async def test_a_page_may_read_answers_where_its_origin_is_let_in(
    service: MemoryService, settings: Settings, origin: str, admitted: bool
):
    allowed = msgspec.structs.replace(settings, allowed_origins="https://app.example")
    async with running(gateway.gateway(allowed, service)) as http:
        asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        wanted = {"Access-Control-Request-Headers": "authorization, hindsight-namespace"}
        first = await http.options("/v1/search", headers=asked | wanted)
        answer = await http.post("/v1/search", json={"query": "cello"}, headers={"Origin": origin})
    assert (first.status_code, answer.status_code) == (204, 200 if admitted else 403)
    names = ["Access-Control-Allow-Origin", "Access-Control-Allow-Headers"]
    expected = [origin, "authorization, hindsight-namespace"] if admitted else [None, None]
    assert [first.headers.get(name) for name in names] == expected
    assert answer.headers.get("Access-Control-Allow-Origin") == (origin if admitted else None)


NOW = datetime.now(UTC)
LOCAL, REMOTE = "127.0.0.1", "192.0.2.7"


CALLS: list[tuple[bool, str | None, dict[str, str], bool]] = [
    (False, LOCAL, {}, True),
    (False, None, {}, False),
    (False, LOCAL, {"x-forwarded-for": "127.0.0.1"}, True),
    (False, LOCAL, {"x-forwarded-for": "8.8.8.8, 127.0.0.1"}, False),
    (False, LOCAL, {"forwarded": "for=8.8.8.8"}, False),
    (False, LOCAL, {"forwarded": "127.0.0.1", "x-forwarded-for": "8.8.8.8"}, False),
    (False, LOCAL, {"x-real-ip": "8.8.8.8"}, False),
    (True, LOCAL, {"host": "localhost", "x-forwarded-for": "8.8.8.8"}, True),
    (False, LOCAL, {"host": "localhost:8100", "origin": "http://localhost:8100"}, True),
    (False, LOCAL, {"host": "[::1]:8100"}, True),
    (False, REMOTE, {}, False),
    (False, REMOTE, {"host": "localhost"}, False),
    (False, LOCAL, {"host": "memory.example"}, False),
    (False, LOCAL, {"host": "memory.example", "origin": "http://memory.example"}, False),
    (False, LOCAL, {"host": "localhost", "origin": "https://evil.example"}, False),
    (False, LOCAL, {"host": "localhost", "origin": "null"}, False),
    (False, LOCAL, {"host": "host.docker.internal:8100"}, True),
    (False, LOCAL, {"host": "localhost", "origin": "https://app.example"}, True),
    (False, LOCAL, {"host": "localhost", "origin": "https://app.example.evil.example"}, False),
    (True, REMOTE, {"host": "localhost"}, True),
    (True, REMOTE, {"host": "host.docker.internal"}, True),
    (True, REMOTE, {"host": "other.example"}, False),
    (True, REMOTE, {"host": "host.docker.internal", "origin": "http://host.docker.internal"}, True),
    (True, REMOTE, {"host": "host.docker.internal", "origin": "https://evil.example"}, False),
    (True, REMOTE, {"host": "host.docker.internal", "origin": "https://APP.example"}, True),
]


async def test_hosts_and_origins_are_held_to_the_settings(tokens: Tokens, settings: Settings):
    chosen = msgspec.structs.replace(
        settings, allowed_hosts="host.docker.internal, x.example", allowed_origins="https://app.example/"
    )
    for needed in (False, True):
        access = Access(tokens, chosen)
        sent = {"authorization": f"Bearer {await token_for(tokens)}"} if needed else {}
        for with_token, client, headers, allowed in CALLS:
            if with_token != needed:
                continue
            call = access.principal(headers | sent, client, NOW)
            if allowed:
                assert (await call).actor.startswith("token:" if needed else "local"), headers
            else:
                with pytest.raises(Forbidden) as refused:
                    await call
                assert refused.value.remedy


async def test_no_proxy_passes_a_stranger_on_where_there_are_no_tokens(service: MemoryService, settings: Settings):
    local, stranger = ("X-Forwarded-For", "127.0.0.1"), ("X-Forwarded-For", "8.8.8.8")
    async with running(gateway.gateway(settings, service)) as http:
        assert (await http.get("/v1/stats", headers=[local])).status_code == 200
        assert (await http.get("/v1/stats", headers=[local, stranger])).status_code == 403


async def test_with_tokens_any_name_will_do_where_none_is_set(http: httpx.AsyncClient, service: MemoryService):
    headers = bearer(await token_for(service.tokens))
    assert (await http.get("/v1/stats", headers={**headers, "Host": "memory.example"})).status_code == 200
    foreign = {**headers, "Host": "memory.example", "Origin": "https://evil.example"}
    assert (await http.get("/v1/stats", headers=foreign)).status_code == 403


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "memory.example"])
def test_without_tokens_a_server_binds_to_this_machine_only(host: str):
    with pytest.raises(ConfigurationError, match="without tokens") as refused:
        check_bind(host, tokens=False)
    assert "hindsight token create" in refused.value.remedy
    check_bind(host, tokens=True)
    check_bind("127.0.0.1", tokens=False)


# the token of a deployment


async def test_the_root_token_allows_everything_and_a_short_one_is_refused(
    http: httpx.AsyncClient, service: MemoryService, settings: Settings
):
    root = "0123456789abcdef0123456789abcdef"
    async with running(gateway.gateway(msgspec.structs.replace(settings, root_token=root), service)) as rooted:
        assert (await rooted.get("/v1/stats")).status_code == 401
        assert (await rooted.get("/v1/stats", headers=bearer(root[:-1]))).status_code == 401
        answer = await rooted.get("/v1/stats?namespace=any", headers=bearer(root))
        assert answer.json()["namespace"] == "any"
    assert (await http.get("/v1/stats", headers=bearer(root))).status_code == 401
    with pytest.raises(ConfigurationError, match="HINDSIGHT_ROOT_TOKEN") as short:
        Access(service.tokens, msgspec.structs.replace(settings, root_token="hunter2"))
    assert "hunter2" not in str(short.value)


async def test_nobody_is_let_in_while_the_store_cannot_say_who_may(settings: Settings):
    down = msgspec.structs.replace(settings, store="opensearch://127.0.0.1:9")
    service = open_service(down, embedder=False)
    async with running(gateway.gateway(down, service)) as http:
        # Asking a store that is down takes its time, so not everything is asked here.
        assert (await ask(http, "POST", "/v1/search")).status_code == 503
        assert (await ask(http, "GET", "/metrics")).status_code == 503
        assert "Nothing was changed" in await Wire(http).fail("memory_list")
        assert "127.0.0.1:9" in (await http.get("/ready")).text
        form = {"grant_type": "client_credentials", "client_id": "a", "client_secret": "b"}
        for path in ("/ready", "/v1/stats", "/oauth/token"):
            method, data = ("POST", form) if path == "/oauth/token" else ("GET", None)
            answer = await http.request(method, path, data=data, headers={"Host": "memory.example"})
            assert answer.status_code == 503
            assert "127.0.0.1:9" not in answer.text
    await service.aclose()
