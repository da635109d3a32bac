"""The workflow for Dify, played against the endpoint the way Dify's own client talks to it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hindsight_functions.gateway import gateway
from hindsight_functions.tools.server import described
from mcp_clients import Wire, handshake
from serving import running
from tokens import bearer, token_for

FILE = Path(__file__).parent.parent / "docs" / "dify" / "hindsight-memory.yml"
APP = yaml.safe_load(FILE.read_text("utf-8"))
GRAPH = APP["workflow"]["graph"]
NODES: dict[str, dict[str, Any]] = {node["id"]: node["data"] for node in GRAPH["nodes"]}
SCHEMAS = {tool.name: tool.input_schema for tool in described()}
_NAMED = re.compile(r"\{\{#([\w.]+)#\}\}")


@pytest.fixture
def store_url(tmp_path):
    return f"sqlite:///{tmp_path / 'hindsight.db'}"


@pytest.fixture(params=["without a token", "with a token"])
async def wire(request, service, settings):
    headers = {} if request.param == "without a token" else bearer(await token_for(service.tokens, "my-app"))
    async with running(gateway(settings, service)) as client:
        wire = Wire(client, **headers)
        answer = await wire.send("initialize", handshake("2025-03-26"))
        assert answer["result"]["protocolVersion"] == "2025-03-26"
        await wire.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        yield wire


class Workflow:
    """Runs the tool, code and condition nodes; a language model's answers are given."""

    def __init__(self, wire: Wire, message: str, said: dict[str, str]) -> None:
        self._wire = wire
        self.values: dict[str, str] = {"sys.query": message, "sys.user_id": "u-1"}
        self.values.update({f"{node}.text": text for node, text in said.items()})
        self.ran: list[str] = []

    async def run(self) -> None:
        node: str | None = "start"
        while node is not None:
            self.ran.append(node)
            handle = await self._step(node, NODES[node])
            node = next(
                (e["target"] for e in GRAPH["edges"] if (e["source"], e["sourceHandle"]) == (node, handle)), None
            )

    async def _step(self, name: str, data: dict[str, Any]) -> str:
        if data["type"] == "tool":
            arguments = {key: self._filled(given["value"]) for key, given in data["tool_parameters"].items()}
            self.values[f"{name}.text"] = (await self._wire.call(data["tool_name"], **arguments))["text"]
        elif data["type"] == "code":
            defined: dict[str, Any] = {}
            exec(data["code"], defined)
            given = {one["variable"]: self.values[".".join(one["value_selector"])] for one in data["variables"]}
            self.values.update({f"{name}.{key}": value for key, value in defined["main"](**given).items()})
        elif data["type"] == "if-else":
            (condition,) = data["cases"][0]["conditions"]
            value = self.values[".".join(condition["variable_selector"])]
            holds = bool(value) if condition["comparison_operator"] == "not empty" else condition["value"] in value
            return "true" if holds else "false"
        return "source"

    def _filled(self, text: str) -> str:
        return _NAMED.sub(lambda found: self.values[found[1]], text)


def test_the_file_names_only_nodes_tools_and_arguments_that_exist():
    assert (APP["kind"], APP["app"]["mode"]) == ("app", "advanced-chat")
    for edge in GRAPH["edges"]:
        assert NODES[edge["source"]]["type"] == edge["data"]["sourceType"]
        assert NODES[edge["target"]]["type"] == edge["data"]["targetType"]
    assert {edge["target"] for edge in GRAPH["edges"]} == NODES.keys() - {"start"}
    for reference in _NAMED.findall(FILE.read_text("utf-8")):
        assert reference.split(".")[0] in NODES.keys() | {"sys"}
    used = set()
    for data in NODES.values():
        if data["type"] == "tool":
            schema = SCHEMAS[data["tool_name"]]
            assert set(schema.get("required", ())) <= data["tool_parameters"].keys() <= schema["properties"].keys()
            assert data["provider_type"] == "mcp"
            used.add(data["tool_name"])
    assert used == {"memory_context", "memory_write", "memory_update"}


async def test_all_tools_are_on_the_one_page_that_dify_reads_and_lose_nothing_when_it_flattens_them(wire):
    page = (await wire.send("tools/list"))["result"]
    assert "nextCursor" not in page
    for tool in page["tools"]:
        for schema in tool["inputSchema"]["properties"].values():
            # What has no plain type becomes a text there.
            assert schema["type"] in {"string", "integer", "number", "boolean", "array"}
            assert not schema.keys() & {"anyOf", "oneOf", "$ref"}


async def test_a_message_that_needs_no_memory_is_answered_without(wire):
    flow = Workflow(wire, "hello", {})
    await flow.run()
    assert "answer_without" in flow.ran
    assert "judge" not in flow.ran


@pytest.mark.parametrize(
    ("first", "question", "found", "second"),
    [
        ("The user works at Acme", "Where do I work?", "Acme", "The user works at Globex"),
        ("我在腾讯上班", "我在哪里上班？", "腾讯", "我在阿里巴巴工作"),
    ],
)
async def test_it_recalls_before_the_answer_remembers_after_it_and_settles_what_is_in_doubt(
    wire, first, question, found, second
):
    await Workflow(wire, first, {}).run()
    asked = Workflow(wire, question, {})
    await asked.run()
    assert "answer_with" in asked.ran
    assert found in asked.values["recall.text"]
    changed = Workflow(wire, second, {"judge": "Supersede."})
    await changed.run()
    assert changed.ran[-1] == "settle"
    assert "superseded" in changed.values["settle.text"]
    listed = await wire.call("memory_list", user_id="u-1")
    assert [memory["content"] for memory in listed["memories"]] == [second]


async def test_what_dify_leaves_out_or_sends_as_text_is_taken_for_what_it_is(wire):
    arguments = {"query": "anything", "top_k": "5", "memory_type_filter": "", "as_of": None, "user_id": ""}
    assert (await wire.call("memory_search", **arguments))["hits"] == []
    numbers = {"content": "The user's desk is number 12", "confidence": "0.8", "force": "1", "tags": '["desk"]'}
    assert (await wire.call("memory_write", **numbers))["stored"]


async def test_the_operations_that_the_guide_names_are_in_the_openapi_document(service, settings):
    guide = (FILE.parent.parent / "dify.md").read_text("utf-8")
    (sentence,) = re.findall(r"The operations\n(.*?) take JSON", guide, re.DOTALL)
    async with running(gateway(settings, service)) as client:
        document = (await client.get("/schema/openapi.json")).json()
    operations = {operation["operationId"] for path in document["paths"].values() for operation in path.values()}
    assert set(re.findall(r"`(\w+)`", sentence)) <= operations


async def test_a_custom_tool_may_send_blank_headers_where_nobody_filled_them_in(service, settings):
    async with running(gateway(settings, service)) as http:
        document = (await http.get("/schema/openapi.json")).json()

        async def call(operation: str, **body: Any) -> dict[str, Any]:
            """As Dify's custom tools do: every header of the operation is sent, blank without a value."""
            path, method, found = next(
                (path, method, one)
                for path, methods in document["paths"].items()
                for method, one in methods.items()
                if one["operationId"] == operation
            )
            headers = {one["name"]: "" for one in found["parameters"] if one["in"] == "header"}
            places = {one["name"]: body.pop(one["name"]) for one in found["parameters"] if one["in"] == "path"}
            url = document["servers"][0]["url"] + path.format(**places)
            answer = await http.request(method, url, json=body, headers=headers)
            assert answer.is_success, answer.text
            parsed: dict[str, Any] = answer.json()
            return parsed

        (written,) = (await call("write_memory", content="The user's tea is oolong", force=True))["results"]
        assert (await call("search_memories", query="tea"))["hits"]
        assert (await call("make_context", query="tea"))["text"]
        await call("update_memory", memory_id=written["memory_id"], confidence=0.5)
        assert (await call("forget_memories", ids=[written["memory_id"]]))["count"] == 1
