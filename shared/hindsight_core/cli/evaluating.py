"""The command that measures how well Hindsight decides on a file of judged examples."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from hindsight_core.cli import tables
from hindsight_core.cli.commands import DONE, command
from hindsight_core.cli.files import progress_bar, read_file
from hindsight_core.cli.target import Target

TaskName = Literal["gate", "reconcile", "temporal", "trigger", "dialogues"]


@command("eval")
async def evaluate(
    target: Target,
    task: Annotated[TaskName, typer.Argument(help="What the file is about.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON Lines of judged examples; - reads standard input.")],
) -> int:
    """Run judged examples through the service and print what came of each, and the measures with 95 % intervals.

    They go into a store of their own, which is thrown away; --store or --url name another. Each has a fresh namespace.
    """
    from hindsight_core.evaluation import TASKS, read
    from hindsight_core.evaluation import evaluate as run
    from hindsight_core.ids import new_id

    items = read(read_file(file), TASKS[task])
    with tempfile.TemporaryDirectory(prefix="hindsight-eval-") as folder:
        if target.url is None and target.store is None:
            target = msgspec.structs.replace(target, store=str(Path(folder) / "eval.db"))
        async with target.open(embedder=task != "temporal") as memories:
            with progress_bar() as progress:
                bar = progress.add_task(task, total=len(items))
                prefix = f"eval-{new_id(datetime.now(UTC))}-"
                report = await run(task, items, memories, prefix=prefix, step=lambda: progress.advance(bar))
    if target.as_json:
        tables.say_json(report)
    else:
        tables.evaluation(report)
    return DONE
