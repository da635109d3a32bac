"""The command that copies the embedded store while it runs: backup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hindsight_core.cli import tables
from hindsight_core.cli.commands import command
from hindsight_core.cli.files import progress_bar
from hindsight_core.cli.target import Target
from hindsight_core.errors import InvalidInput
from hindsight_core.home import local_path


@command("backup")
async def backup(
    target: Target,
    file: Annotated[str, typer.Argument(help="Where the copy goes; a new file.")],
) -> None:
    """Copy the embedded store as it is now, while others use it, and look the copy through.

    To go back to it, stop what uses the store and put the copy in its place.
    """
    if target.url is not None:
        raise InvalidInput.of("--url", "a server's store is backed up where it is; run this on its machine")
    path = local_path(target.settings().store)
    if path is None:
        raise InvalidInput.of("--store", "OpenSearch has snapshots of its own; or use `hindsight export`")
    from hindsight_core.stores.backup import back_up

    with progress_bar() as progress:
        bar = progress.add_task("pages", total=None)
        made = back_up(path, Path(file), lambda done, total: progress.update(bar, completed=done, total=total))
    if target.as_json:
        tables.say_json(made)
        return
    told = ", ".join(f"{made.counts[name]} {name}" for name in ("memories", "events", "runs"))
    tables.console().print(f"{made.file}: {told}; {made.bytes / 1e6:.1f} MB, opened and found whole.")
