"""Files that commands read and write, and the bar that shows how far they are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from hindsight_core.cli import tables
from hindsight_core.errors import InvalidInput


def progress_bar() -> Progress:
    """A bar on standard error that leaves nothing behind; none where that is no terminal."""
    console = tables.console(error=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def read_file(file: str) -> bytes:
    """All of a file, or of standard input for `-`; `InvalidInput` where it cannot be read."""
    if file == "-":
        return sys.stdin.buffer.read()
    with open_file(file, "rb") as opened:
        data: bytes = opened.read()
        return data


def open_file(file: str, mode: Literal["rb", "wb"]) -> Any:  # noqa: ANN401 (a binary file, for reading or writing)
    """The file, open; `InvalidInput` where that cannot be."""
    try:
        return Path(file).open(mode)
    except OSError as exc:
        raise InvalidInput.of(file, (exc.strerror or str(exc)).lower()) from None
