"""Agent frameworks from PyPI against a server: the guide's own programs, with a model that answers from a script.

They need other releases of the protocol's SDK than Hindsight, so they are installed once into an environment of their
own (`HINDSIGHT_TEST_AGENTS`, else one in the user's cache directory).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import platformdirs
import pytest

from conftest_services import REQUIRE_VARIABLE
from hindsight_core.client import Hindsight
from hindsight_core.requests import WriteRequest
from server import ROOT, environment, hindsight, server

PACKAGES = ["openai-agents==0.24.0", "langchain-mcp-adapters==0.3.2", "langchain==1.5.2"]
INSTALL_SECONDS, RUN_SECONDS = 600, 120
GUIDE = (ROOT / "docs" / "clients.md").read_text("utf-8")

# Each calls a tool, and then repeats what the tool said: what is printed came from the server.
OPENAI = """
from agents import Model, ModelResponse, Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText


class Scripted(Model):
    async def get_response(self, system_instructions, input, model_settings, tools, *args, **more):
        said = [item for item in input if not isinstance(input, str) and item.get("type") == "function_call_output"]
        if said:
            part = ResponseOutputText(text=str(said[-1]["output"]), type="output_text", annotations=[])
            item = ResponseOutputMessage(id="m", content=[part], role="assistant", status="completed", type="message")
        else:
            print(sorted(tool.name for tool in tools))
            arguments = '{"query": "Where should my parcel go?", "top_k": 3}'
            item = ResponseFunctionToolCall(
                arguments=arguments, call_id="c", name="memory_search", type="function_call"
            )
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *args, **more):
        raise NotImplementedError


"""
LANGGRAPH = """
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult


class Scripted(BaseChatModel):
    _llm_type = "scripted"

    def bind_tools(self, tools, **more):
        print(sorted(tool.name for tool in tools))
        return self

    def _generate(self, messages, stop=None, run_manager=None, **more):
        if isinstance(messages[-1], ToolMessage):
            answer = AIMessage(str(messages[-1].content))
        else:
            arguments = {"query": "Where should my parcel go?", "top_k": 3}
            answer = AIMessage("", tool_calls=[{"name": "memory_search", "args": arguments, "id": "c"}])
        return ChatResult(generations=[ChatGeneration(message=answer)])


"""
PROGRAMS = {
    "OpenAI Agents SDK": (OPENAI, 'model="gpt-5-mini"', "model=Scripted()"),
    "LangGraph": (LANGGRAPH, '"openai:gpt-5-mini"', "Scripted()"),
}


@pytest.fixture(scope="module")
def python() -> str:
    """The interpreter of an environment that has the frameworks."""

    chosen = os.environ.get("HINDSIGHT_TEST_AGENTS")
    place = Path(chosen) if chosen else platformdirs.user_cache_path("hindsight-tests") / "agents"
    done, interpreter = place / "installed.json", place / "bin" / "python"
    if not done.exists() or json.loads(done.read_text()) != PACKAGES:
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True, timeout=INSTALL_SECONDS)
        install = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
        ran = subprocess.run(install, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS)
        if ran.returncode:
            reason = f"pip could not install {', '.join(PACKAGES)}: {ran.stderr[-300:]}"
            if os.environ.get(REQUIRE_VARIABLE) == "1":
                pytest.fail(f"{reason} ({REQUIRE_VARIABLE}=1 makes that a failure.)", pytrace=False)
            pytest.skip(f"Left out: {reason}")
        done.write_text(json.dumps(PACKAGES))
    return str(interpreter)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[str, str]]:
    """The URL of a server that knows Ana's address, and a token for it."""
    env = environment(HINDSIGHT_STORE=str(tmp_path_factory.mktemp("agents") / "hindsight.db"))
    token = hindsight("token", "create", "agents", env=env).stdout.strip()
    with server(env=env) as found, Hindsight(found.url, token=token) as client:
        client.write(WriteRequest(content="My shipping address is 7 Oak Road, York", user_id="ana"))
        client.write(WriteRequest(content="My shipping address is 9 Elm Street, Leeds", user_id="bob"))
        yield found.url, token


@pytest.mark.parametrize("framework", PROGRAMS)
def test_the_guides_program_lists_the_tools_and_calls_one(python: str, served: tuple[str, str], framework: str):
    url, token = served
    section = GUIDE.partition(f"## {framework}\n")[2].partition("\n## ")[0]
    (example,) = re.findall(r"<!-- example: run by a test -->\n```python\n(.*?)```", section, re.DOTALL)
    model, named, scripted = PROGRAMS[framework]
    assert named in example
    code = model + example.replace(named, scripted).replace("http://127.0.0.1:8100", url)
    env = {**environment(HINDSIGHT_TOKEN=token), "OPENAI_AGENTS_DISABLE_TRACING": "1", "PYTHONPATH": ""}
    ran = subprocess.run(
        [python, "-c", code], env=env, capture_output=True, text=True, check=False, timeout=RUN_SECONDS
    )
    assert ran.returncode == 0, ran.stderr
    tools = "['memory_context', 'memory_forget', 'memory_list', 'memory_search', 'memory_update', 'memory_write']"
    assert tools in ran.stdout
    assert "7 Oak Road" in ran.stdout
    assert "Elm Street" not in ran.stdout


@pytest.mark.parametrize("framework", PROGRAMS)
def test_the_program_ends_with_an_error_where_its_token_is_wrong(python: str, served: tuple[str, str], framework: str):
    url, _ = served
    section = GUIDE.partition(f"## {framework}\n")[2].partition("\n## ")[0]
    (example,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    model, named, scripted = PROGRAMS[framework]
    code = model + example.replace(named, scripted).replace("http://127.0.0.1:8100", url)
    env = {**environment(HINDSIGHT_TOKEN="hst_0000000000_x"), "PYTHONPATH": ""}
    ran = subprocess.run(
        [python, "-c", code], env=env, capture_output=True, text=True, check=False, timeout=RUN_SECONDS
    )
    assert ran.returncode != 0
    assert "401" in ran.stderr
    assert "Oak Road" not in ran.stdout
