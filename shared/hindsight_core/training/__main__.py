"""Train all that the package ships, and measure it on writers it has not seen: pairs, then the gate, then the trigger.

``python -m hindsight_core.training --data DIR [--data DIR …] --own DIR --out DIR [--read SAID] [--vectors DIR]``

Each step is a command of its own, too (``hindsight_core.training.reconcile``, ``.gate``, ``.recall``), and says there
which files it reads. The pair reader comes before them and is not one of them, because it needs torch and some three
hours of a core: ``training/reader.py`` trains it, and what it says of writers it has not seen is SAID.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from hindsight_core.training import gate, recall, reconcile


class Step(NamedTuple):
    """One of the package's trainings, with the arguments that it gets."""

    name: str
    run: Callable[[list[str]], int | None]
    arguments: list[str]


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options; what a step would miss only after hours ends it here."""
    parser = argparse.ArgumentParser(
        prog="python -m hindsight_core.training",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, action="append", required=True, help="a folder of several writers' files")
    parser.add_argument(
        "--own", type=Path, action="append", required=True, help="a folder; all its files are one writer"
    )
    parser.add_argument("--out", type=Path, required=True, help="the folder where the weights go")
    parser.add_argument("--read", type=Path, metavar="SAID", help="what readers say of writers they have not seen")
    parser.add_argument("--vectors", type=Path, help="keep the vectors in this folder between runs")
    options = parser.parse_args(arguments)
    for option, folder in [*(("--data", each) for each in options.data), *(("--own", each) for each in options.own)]:
        if not folder.is_dir():
            parser.error(f"{option}: there is no folder {folder}")
    if options.read is not None and not options.read.is_file():
        parser.error(f"--read: there is no file {options.read}; training/reader.py makes it")
    return options


def steps(options: argparse.Namespace) -> list[Step]:
    """What is run, in order."""
    common = [*_each("--data", options.data), *_each("--own", options.own), "--out", str(options.out)]

    def given(name: str) -> list[str]:
        return [*common, *(["--vectors", str(options.vectors / f"{name}.npz")] if options.vectors else [])]

    read = ["--read", str(options.read)] if options.read else []
    return [
        Step("reconcile", reconcile.main, [*given("reconcile"), *read]),
        Step("gate", gate.main, given("gate")),
        Step("recall", recall.main, given("recall")),
    ]


def reader(options: argparse.Namespace) -> str:
    """How the pair reader is trained from the same folders, or that what it said is used."""
    if options.read is not None:
        return f"reader: what it said of writers it has not seen is taken from {options.read}"
    folders = shlex.join([*_each("--data", options.data), *_each("--own", options.own), "--out", str(options.out)])
    return (
        "reader: not trained here, and without --read SAID no pair is read with these weights. It needs torch:\n"
        f"  python training/reader.py {folders} --said said.npz\n"
        "makes reader.npz, and said.npz for --read"
    )


def main(arguments: list[str] | None = None) -> int:
    """Say what becomes of the reader, then run each step; the exit code."""
    options = parsed(arguments)
    _say(reader(options))
    if options.vectors is not None:
        options.vectors.mkdir(parents=True, exist_ok=True)
    for step in steps(options):
        _say(f"{step.name}: {shlex.join(step.arguments)}")
        if code := step.run(step.arguments):
            return code
    return 0


def _each(option: str, folders: list[Path]) -> list[str]:
    return [part for folder in folders for part in (option, str(folder))]


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
