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
from hindsight_core.errors import InvalidInput

MOST_BESIDE = 1000
TaskName = Literal["gate", "reconcile", "temporal", "trigger", "dialogues"]


@command("eval")
async def evaluate(
    target: Target,
    task: Annotated[TaskName, typer.Argument(help="What the file is about.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON Lines of judged examples; - reads standard input.")],
    beside: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            max=MOST_BESIDE,
            help="reconcile: judge each pair among the old texts of N others of its language, drawn alike every time, "
            "and count those that are superseded or contested (bystanders disturbed).",
        ),
    ] = 0,
) -> int:
    """Run judged examples through the service and print what came of each, and the measures with 95 % intervals.

    They go into a store of their own, which is thrown away; --store or --url name another. Each has a fresh namespace.
    What was taken for what is printed over all and by language.
    """
    from hindsight_core.evaluation import TASKS, among, read
    from hindsight_core.evaluation import evaluate as run
    from hindsight_core.ids import new_id

    if beside and task != "reconcile":
        raise InvalidInput.of("--beside", "is for reconcile: nothing else is judged among neighbours")
    items = read(read_file(file), TASKS[task])
    if beside:
        items = among(items, beside)
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
