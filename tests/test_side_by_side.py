"""The benchmark of both stores, with as little as it takes: its rows, what it promises, and that it leaves nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "tests" / "benchmarks"
ROWS = (
    "search, SQLite",
    "search, OpenSearch",
    "search of a hundred, OpenSearch",
    "search, OpenSearch, approximate",
    "bare k-NN query",
    "bare formula over all",
    "bare formula of a hundred, named",
    "neighbours, OpenSearch",
    "commit, OpenSearch",
)


def test_the_benchmark_of_both_stores_prints_its_rows_and_keeps_what_is_promised(opensearch_url: str) -> None:
    command = [sys.executable, str(FOLDER / "stores_side_by_side.py"), "--url", opensearch_url]
    ran = subprocess.run(
        [*command, "--sizes", "40", "--rounds", "2"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for row in ROWS:
        assert re.search(rf"^  {re.escape(row)} +[\d.]+ / +[\d.]+$", ran.stdout, re.MULTILINE), row
    assert len(re.findall(r"ms over the bare k-NN query(?: of a hundred)? of [\d.]+ aimed at", ran.stdout)) == 3
    assert re.search(r"the approximate finds 100\.0%; without words [\d.]+%$", ran.stdout, re.MULTILINE)
    assert ran.stdout.endswith("\nEvery promise is kept.\n")
    left = httpx.get(f"{opensearch_url}/_cat/indices/bench-*", params={"format": "json"}, trust_env=False)
    assert left.raise_for_status().json() == []


def test_it_tells_what_of_its_promises_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    from stores_side_by_side import broken

    assert broken(apart=0.0003, share=0.99) == []
    assert broken(apart=0.002, share=1.0) == [
        "scores of the two stores differ by 2.0e-03, and by less than 2e-03 is promised"
    ]
    assert broken(apart=0.0, share=0.9) == ["the approximate path finds 90.0% of the exact best, and 99% is promised"]
