"""The images and the compose file: checked by their own tools, held against the settings, and built without Docker."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
import venv
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose
from localstack.service import Service, ServiceProcess, free_port
from localstack.stack import StackSettings

from conftest_services import OPENSEARCH_VARIABLE, leave_out
from dockerfile import ROOT, targets
from hindsight_core import config
from hindsight_functions.aws import LambdaHandler

COMPOSE = ROOT / "localstack" / "compose.yaml"
FUNCTIONS = ("write", "search", "update", "forget", "mcp", "gateway")
DEPLOYED = (*FUNCTIONS, "scheduler")
SETTINGS = {name for name, _, _ in config.table()}


# The images


def hadolint(text: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("hadolint")), "--no-color", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def test_the_linter_finds_no_fault_in_the_dockerfile():
    text = (ROOT / "deploy" / "Dockerfile").read_text("utf-8")
    found = hadolint(text)
    assert (found.returncode, found.stdout) == (0, "")
    assert hadolint(text.replace("python:3.12-slim-bookworm", "python")).returncode == 1


@pytest.mark.parametrize("name", DEPLOYED)
def test_an_image_runs_without_rights_and_installs_its_own_extra_and_the_managed_stores(name):
    target = targets()[name]
    assert target.last("USER") == "10001"
    assert target.extras == ({"all", "aws"} if name == "gateway" else {name, "opensearch", "aws", "redis"})
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert target.extras <= extras.keys()


def test_the_image_for_lambda_is_any_function_with_its_own_server():
    """The stage whose base a build argument names; the linter and the build see to the rest."""
    text = (ROOT / "deploy" / "Dockerfile").read_text("utf-8")
    assert re.search(r"^ARG FUNCTION=gateway\n+FROM", text, re.MULTILINE)
    target = targets()["lambda"]
    assert target.extras == {"lambda"}
    assert target.command[1:] == ["-m", "awslambdaric", "hindsight_functions.gateway.handler"]
    assert target.last("USER") == "10001"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_image_serves_its_function_and_asks_for_its_health(name):
    target = targets()[name]
    assert target.command[0] == "uvicorn"
    assert target.command[-1] == f"hindsight_functions.{name}:app"
    assert "/health" in target.last("HEALTHCHECK")
    assert target.last("EXPOSE") in target.command


def test_what_the_images_are_built_from_reaches_docker():
    """Everything else is kept out of the build by .dockerignore."""
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")}
    copied = {source for step in targets()["wheel"].all("COPY") for source in step.split()[:-1]}
    assert copied == let_in
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = {project["readme"], *project["license-files"], "pyproject.toml", "shared", "functions", "scheduler"}
    assert needed <= copied


@pytest.fixture(scope="module")
def wheel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the wheel, built as the first stage does from what it copies."""
    if not request.config.getoption("--wheel"):
        pytest.skip("installs what an image installs; run with --wheel")
    source, place = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for step in targets()["wheel"].all("COPY"):
        *names, _ = step.split()
        for name in names:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, source / name)
    (build,) = targets()["wheel"].all("RUN")
    subprocess.run(["sh", "-ec", on_this_machine(build, place)], cwd=source, check=True)
    return place


def on_this_machine(step: str, wheel: Path, python: str = sys.executable) -> str:
    step = step.replace("--no-cache-dir ", "")  # what matters to the size of a layer alone
    return step.replace("/wheel", str(wheel)).replace("pip ", f"{python} -m pip ", 1)


# The smallest and the largest function; what the gateway installs is installed by test_packaging.
@pytest.mark.parametrize("name", ["forget", "mcp"])
def test_what_an_image_installs_serves_in_a_clean_environment(name, wheel, tmp_path):
    target = targets()[name]
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / "bin"
    for step in target.installs:
        subprocess.run(["sh", "-ec", on_this_machine(step, wheel, str(programs / "python"))], check=True)
    port = str(free_port())
    words = [port if word == target.last("EXPOSE") else word for word in target.command]
    words = ["127.0.0.1" if word == "0.0.0.0" else word for word in words]
    url = f"http://127.0.0.1:{port}"
    # The checkout is not on the path: what runs is what was installed.
    environment = {"HINDSIGHT_STORE": str(tmp_path / "hindsight.db"), "PYTHONPATH": "", "PYTHONSAFEPATH": "1"}
    process = ServiceProcess(
        Service(name, (str(programs / words[0]), *words[1:]), url=url, health=f"{url}/health", env=environment)
    )
    process.start(seconds=120)
    try:
        with urllib.request.urlopen(f"{url}/ready", timeout=60) as answer:
            assert json.load(answer)["ready"] is True
    finally:
        process.stop()


# The compose file


def filled(text: str, **variables: str) -> str:
    """The file with its variables replaced, as `docker compose` does it; a required one that is missing is an error."""

    def value(match: re.Match[str]) -> str:
        name, how, rest = match["name"], match["how"], match["rest"]
        if found := variables.get(name):
            return found
        if how == ":?":
            raise LookupError(f"{name} {rest}")
        return str(rest or "")

    return re.sub(r"\$\{(?P<name>\w+)(?:(?P<how>:[-?])(?P<rest>[^}]*))?\}", value, text)


TEXT = COMPOSE.read_text("utf-8")
FILE = yaml.safe_load(filled(TEXT, HINDSIGHT_ROOT_TOKEN="t" * 24))
SERVICES = FILE["services"]


def test_the_compose_file_is_one_by_the_specification():
    text = yaml.safe_dump(FILE)
    found = PyCompose.from_yaml(text)
    found.validate()
    assert set(found.service_names()) == {"opensearch", "redis", "gateway", "scheduler"}
    with pytest.raises(ValueError, match="memory_limit"):
        PyCompose.from_yaml(text.replace("mem_limit", "memory_limit"))


def test_without_a_token_it_says_what_is_missing():
    with pytest.raises(LookupError, match="HINDSIGHT_ROOT_TOKEN is not set - give at least 24 characters"):
        filled(TEXT)


@pytest.mark.parametrize("name", ["opensearch", "redis", "gateway"])
def test_every_port_is_published_on_this_machine_only_and_by_the_variable_of_the_stack(name):
    variable = f"HINDSIGHT_STACK_{name.upper()}_PORT"
    default = getattr(StackSettings(), f"{name}_port")
    (published,) = SERVICES[name]["ports"]
    assert re.fullmatch(rf"127\.0\.0\.1:{default}:\d+", published)
    moved = yaml.safe_load(filled(TEXT, HINDSIGHT_ROOT_TOKEN="t" * 24, **{variable: "12345"}))
    assert moved["services"][name]["ports"][0].startswith("127.0.0.1:12345:")


def test_every_service_has_a_memory_limit_and_waits_for_healthy_ones():
    for name, service in SERVICES.items():
        assert re.fullmatch(r"\d+[mg]", service["mem_limit"]), name
        assert service["healthcheck"]["test"][0] == "CMD", name
        for needed, condition in service.get("depends_on", {}).items():
            assert condition == {"condition": "service_healthy"}
            assert "healthcheck" in SERVICES[needed], needed
    assert set(SERVICES["gateway"]["depends_on"]) == {"opensearch", "redis"}
    assert set(SERVICES["scheduler"]["depends_on"]) == {"gateway"}


def test_what_is_written_goes_to_volumes():
    for name, service in SERVICES.items():
        if "build" in service:
            assert service["read_only"] is True, name
        else:
            (mount,) = service["volumes"]
            assert mount.partition(":")[0] in FILE["volumes"]


@pytest.mark.parametrize("name", ["gateway", "scheduler"])
def test_what_is_built_is_a_target_of_the_dockerfile_with_settings_that_exist(name):
    service = SERVICES[name]
    build = service["build"]
    assert build["target"] in targets()
    assert (COMPOSE.parent / build["context"] / build["dockerfile"]).is_file()
    assert set(service["environment"]) <= SETTINGS
    config.load(service["environment"], data_dir=Path("/data"))


def test_redis_keeps_what_it_does_without_docker(redis_server):
    started = list(redis_server.service.command)
    program, *options = SERVICES["redis"]["command"]
    assert program == "redis-server"
    assert {"--maxmemory", "--maxmemory-policy", "--save"} <= set(options[::2])
    for name, value in zip(options[::2], options[1::2], strict=True):
        assert started[started.index(name) + 1] == value, name


def test_variables_of_the_file_are_settings_or_those_of_the_stack():
    names = {match for match in re.findall(r"\$\{(\w+)", TEXT) if match not in SETTINGS}
    assert all(name.startswith("HINDSIGHT_STACK_") for name in names)
    documented = (ROOT / "docs" / "deploy.md").read_text("utf-8")
    assert {name for name in names if name not in documented} == set()


def test_opensearch_is_the_version_that_is_tested():
    from localstack.layout import OPENSEARCH

    assert SERVICES["opensearch"]["image"] == f"opensearchproject/opensearch:{OPENSEARCH}"


def test_opensearch_asks_for_no_password_and_only_this_machine_reaches_it():
    service = SERVICES["opensearch"]
    assert service["environment"]["DISABLE_SECURITY_PLUGIN"] == "true"
    assert service["ports"] == ["127.0.0.1:9200:9200"]
    assert SERVICES["gateway"]["environment"]["HINDSIGHT_STORE"] == "opensearch://opensearch:9200/hindsight"


def test_redis_is_of_version_7():
    assert re.fullmatch(r"redis:7\.\d+(\.\d+)?-alpine", SERVICES["redis"]["image"])
    assert SERVICES["gateway"]["environment"]["HINDSIGHT_REDIS"] == "redis://redis:6379/0"


# Kubernetes and AWS

UNPRIVILEGED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
}


def test_every_deployed_image_has_its_knative_service_or_deployment():
    parts = list(yaml.safe_load_all((ROOT / "deploy" / "knative.yaml").read_text("utf-8")))
    images = set()
    for part in parts:
        (container,) = part["spec"]["template"]["spec"]["containers"]
        assert part["metadata"]["name"] == container["image"]
        assert container["securityContext"] == UNPRIVILEGED
        assert "memory" in container["resources"]["limits"]
        if part["kind"] == "Service":
            (port,) = container["ports"]
            assert str(port["containerPort"]) == targets()["function"].last("EXPOSE")
            assert container["readinessProbe"]["httpGet"] == {"path": "/ready", "port": port["containerPort"]}
        images.add(container["image"].removeprefix("hindsight-"))
    assert images == set(DEPLOYED) - {"gateway"}


class _Cloud(yaml.SafeLoader):
    """Reads a template of CloudFormation: `!Ref NAME` and `!Sub TEXT` as what they name."""


_Cloud.add_multi_constructor("!", lambda loader, _tag, node: loader.construct_scalar(node))


def sam() -> dict[str, Any]:
    template: dict[str, Any] = yaml.load((ROOT / "deploy" / "sam.yaml").read_text("utf-8"), _Cloud)
    return template


def test_every_function_on_aws_is_built_from_its_image_and_has_a_handler():
    template = sam()
    functions = {
        name: part for name, part in template["Resources"].items() if part["Type"] == "AWS::Serverless::Function"
    }
    assert {name.lower() for name in functions} == set(FUNCTIONS) - {"gateway"}
    for name, part in functions.items():
        build = part["Metadata"]
        assert build["DockerBuildTarget"] in targets()
        assert build["DockerBuildArgs"] == {"FUNCTION": name.lower()}
        assert (ROOT / "deploy" / build["DockerContext"] / build["Dockerfile"]).is_file()
        (handler,) = part["Properties"]["ImageConfig"]["Command"]
        module, _, attribute = handler.rpartition(".")
        assert isinstance(getattr(importlib.import_module(module), attribute), LambdaHandler)
    assert set(template["Globals"]["Function"]["Environment"]["Variables"]) <= SETTINGS


def test_the_api_on_aws_sends_every_route_to_the_function_that_serves_it():
    sent = {}
    for name, part in sam()["Resources"].items():
        for event in part.get("Properties", {}).get("Events", {}).values():
            route = event["Properties"]["Method"], event["Properties"]["Path"]
            assert route not in sent
            sent[route] = name.lower()
    served = {}
    for name in set(FUNCTIONS) - {"gateway"}:
        for route in importlib.import_module(f"hindsight_functions.{name}").app.routes:
            # What every function answers of itself is asked of one.
            if not route.path.startswith("/v1/") and route.path != "/mcp" and name != "search":
                continue
            methods = {"ANY"} if route.path == "/mcp" else set(route.methods) - {"OPTIONS", "HEAD"}
            served |= {(method, route.path_format): name for method in methods}
    assert sent == served


# The stack without Docker


@contextmanager
def stack(tmp_path: Path, *names: str, **environment: str) -> Generator[subprocess.Popen[str]]:
    """These services of the stack once all of them run; told to end, and ended, at the end."""
    running = subprocess.Popen(
        [sys.executable, "-m", "localstack.stack", *names],
        cwd=ROOT,
        env={**os.environ, "HINDSIGHT_STACK_DATA": str(tmp_path / "stack"), **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    with running:
        assert running.stdout is not None
        for line in running.stdout:
            if line.startswith("Everything runs"):
                break
        yield running
        if running.poll() is None:
            running.send_signal(signal.SIGINT)
        running.stdout.read()
        assert running.wait(60) == 0


def call(url: str, body: object | None = None) -> dict[str, object]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, object] = json.load(answer)
        return found


def test_the_stack_writes_and_finds_over_its_gateway_and_ends_whole(tmp_path, opensearch_url):
    if OPENSEARCH_VARIABLE in os.environ:
        leave_out(
            f"the stack has no prefix of its own, and {OPENSEARCH_VARIABLE} names one that is not ours. Unset it."
        )
    ports = {name: str(free_port()) for name in ("REDIS", "GATEWAY")}
    url = f"http://127.0.0.1:{ports['GATEWAY']}"
    # The node of the tests stands in for the stack's own, which would take ten seconds more.
    variables = {f"HINDSIGHT_STACK_{name}_PORT": port for name, port in ports.items()}
    variables["HINDSIGHT_STACK_OPENSEARCH_PORT"] = opensearch_url.rpartition(":")[2]
    try:
        with stack(tmp_path, "redis", "gateway", **variables):
            ready = call(f"{url}/ready")
            parts = {part["name"]: part["status"] for part in ready["components"]}
            assert parts == {"store": "ok", "embedder": "ok", "cache": "ok"}
            call(f"{url}/v1/memories", {"content": "我的收货地址是橡树路 7 号", "force": True})
            found = call(f"{url}/v1/search", {"query": "我的地址是哪个？"})
            assert found["hits"][0]["memory"]["content"] == "我的收货地址是橡树路 7 号"
            assert found["degraded"] is None
        with pytest.raises(urllib.error.URLError):
            call(f"{url}/health")
    finally:
        remove = urllib.request.Request(f"{opensearch_url}/hindsight-*", method="DELETE")
        urllib.request.urlopen(remove, timeout=60).close()
