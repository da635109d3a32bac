"""What a server does before its first call, so that this takes no longer than the next."""

from __future__ import annotations

import subprocess
import sys

FIRST_CALLS = """
import re._compiler
from datetime import UTC, datetime
from hindsight_core import pair_model, question, slots
from hindsight_core.extraction import Candidate
from hindsight_core.gate import judge
from hindsight_core.recall import recall_needed
from hindsight_core.warming import warm

warm()
loaded = pair_model.shipped.cache_info().misses

compiling = re._compiler.compile

def compiled(pattern, flags=0):
    assert len(pattern) < 200, f"compiled with the first call: {pattern[:60]}"
    return compiling(pattern, flags)

re._compiler.compile = compiled
for text in ("My sister moved to Bergen on 3 May.", "我姐姐五月三号搬到了苏州", "Where are they?", "钥匙放哪儿了？"):
    question.read(text, datetime(2025, 6, 1, tzinfo=UTC), frozenset())
    recall_needed(text)
    judge(Candidate(index=0, text=text), vector=None)
    slots.read(text)
assert pair_model.shipped() is not None and pair_model.shipped.cache_info().misses == loaded == 1
"""


def test_after_warming_first_calls_compile_and_load_nothing() -> None:
    run = subprocess.run([sys.executable, "-c", FIRST_CALLS], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
