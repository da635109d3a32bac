"""The command that forgets by itself: sweep."""

from __future__ import annotations

from typing import Annotated, get_args

import msgspec
import typer

from hindsight_core.cli import tables
from hindsight_core.cli.commands import DONE, NOTHING, command
from hindsight_core.cli.target import Target
from hindsight_core.decoding import convert
from hindsight_core.requests import Policy, SweepRequest


@command("sweep")
async def sweep(
    target: Target,
    policies: Annotated[
        list[str] | None,
        typer.Argument(metavar="[POLICY]...", help=f"{', '.join(get_args(Policy))}; all of them by default."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what it would do.")] = False,
    limit: Annotated[
        int, typer.Option(min=1, max=10_000, help="How many memories one call changes; further calls follow.")
    ] = 10_000,
) -> int:
    """Forget by the policies of the settings: what has expired, makes room, is idle, or was archived long ago.

    Exits with 1 when there is nothing to do.
    """
    fields = {**target.scope(), "policies": policies or (), "dry_run": dry_run, "limit": limit}
    request = convert(fields, SweepRequest)
    # What a model words is embedded.
    words = target.url is None and target.settings().consolidate_wording == "judge"
    async with target.open(embedder=words and "consolidate" in (policies or ("consolidate",))) as memories:
        reports = [await memories.sweep(request)]
        while (cursor := reports[-1].cursor) is not None:
            reports.append(await memories.sweep(msgspec.structs.replace(request, cursor=cursor)))
    count = sum(report.count for report in reports)
    if target.as_json:
        for report in reports:
            tables.say_json(report)
        return DONE if count else NOTHING
    console = tables.console()
    if count:
        console.print(tables.swept(one for report in reports for one in report.affected))
    console.print(tables.policies(reports))
    for told in dict.fromkeys(report.degraded for report in reports if report.degraded):
        console.print(told)
    if dry_run and not reports[-1].complete:
        console.print("And more: only the first are listed.")
    elif count and not dry_run:
        console.print(f"To take it back: hindsight undo {reports[0].run_id}")
    return DONE if count else NOTHING
