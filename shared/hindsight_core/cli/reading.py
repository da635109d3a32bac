"""The commands that read: search, recall, get, list, history, stats, runs."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import typer

from hindsight_core.cli import tables
from hindsight_core.cli.commands import DONE, NOTHING, command
from hindsight_core.cli.options import Selection, moment
from hindsight_core.cli.target import Target
from hindsight_core.decoding import convert
from hindsight_core.ranking import INTENTS
from hindsight_core.requests import ListRequest, PageRequest, RecallRequest, Request, SearchRequest

AsOf: TypeAlias = Annotated[str | None, typer.Option(metavar="TIME", help="What held at this time.")]
Id: TypeAlias = Annotated[str, typer.Argument(metavar="ID", help="The memory's id.")]


@command("search")
async def search(
    target: Target,
    chosen: Selection,
    query: Annotated[str, typer.Argument(help="The question, in any words.")],
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, max=100, help="At most this many.")] = 8,
    as_of: AsOf = None,
    profile: Annotated[
        Literal["task", "default", "companion"], typer.Option(help="How fast memories fade: 3, 7 or 30 days.")
    ] = "default",
    intent: Annotated[str | None, typer.Option(help=f"What it is for: {', '.join(sorted(INTENTS))}.")] = None,
    min_score: Annotated[float, typer.Option(min=0, max=1, help="Leave out what scores less.")] = 0.0,
    mode: Annotated[
        Literal["always", "auto"], typer.Option(help="auto: search only where the question needs memory.")
    ] = "always",
    explain: Annotated[bool, typer.Option("--explain", help="Say why each hit stands where it stands.")] = False,
) -> int:
    """Find memories; exits with 1 when there are none."""
    fields = {
        **target.scope(),
        "query": query,
        "top_k": top_k,
        "filters": chosen.filters(),
        "as_of": moment(as_of, "--as-of"),
        "profile": profile,
        "intent": intent,
        "min_score": min_score,
        "mode": mode,
        "explain": explain,
        "timezone": chosen.timezone,
    }
    async with target.open(embedder=True) as memories:
        answer = await memories.search(convert(fields, SearchRequest))
    if target.as_json:
        tables.say_json(answer)
    else:
        console = tables.console()
        if answer.hits:
            console.print(tables.hits(answer))
        console.print(tables.hits_summary(answer))
    return DONE if answer.hits else NOTHING


@command("recall")
async def recall(
    target: Target,
    text: Annotated[str, typer.Argument(help="The user's message.")],
    recent: Annotated[
        list[str] | None, typer.Option("--recent", help="A turn before it; repeat it for more, oldest first.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="What the agent is doing now.")] = None,
    previous_task: Annotated[str | None, typer.Option(help="What it did before.")] = None,
) -> int:
    """Say whether a message needs memory at all; exits with 1 when it does not."""
    fields = {
        **target.scope(),
        "text": text,
        "recent": tuple(recent or ()),
        "task": task,
        "previous_task": previous_task,
    }
    async with target.open(embedder=True) as memories:
        answer = await memories.recall(convert(fields, RecallRequest))
    if target.as_json:
        tables.say_json(answer)
    else:
        tables.console().print(f"{'Search' if answer.needed else 'No search'}: {answer.why}")
    return DONE if answer.needed else NOTHING


@command("get")
async def get(target: Target, memory_id: Id) -> None:
    """Show one memory with all its fields."""
    async with target.open(embedder=False) as memories:
        memory = await memories.get(memory_id, convert(target.scope(), Request))
    if target.as_json:
        tables.say_json(memory)
    else:
        tables.console().print(tables.one_memory(memory))


@command("list")
async def list_(
    target: Target,
    chosen: Selection,
    as_of: AsOf = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most this many.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="Continue after the page that gave this cursor.")] = None,
) -> int:
    """List memories, active and pending ones unless --status is given."""
    fields = {
        **target.scope(),
        "filters": chosen.filters(),
        "as_of": moment(as_of, "--as-of"),
        "timezone": chosen.timezone,
        "limit": limit,
        "cursor": cursor,
    }
    async with target.open(embedder=False) as memories:
        page = await memories.list_memories(convert(fields, ListRequest))
    if target.as_json:
        tables.say_json(page)
    else:
        console = tables.console()
        console.print(tables.memories(page.memories) if page.memories else "No memories.")
        if page.cursor is not None:
            console.print(f"More: --cursor {page.cursor}")
    return DONE if page.memories else NOTHING


@command("history")
async def history(target: Target, memory_id: Id) -> None:
    """Show every change of one memory, oldest first."""
    async with target.open(embedder=False) as memories:
        found = await memories.history(memory_id, convert(target.scope(), Request))
    if target.as_json:
        tables.say_json(found)
    else:
        tables.console().print(tables.history(found.events))


@command("stats")
async def stats(target: Target) -> None:
    """Show how many memories, changes and runs the namespace holds."""
    async with target.open(embedder=True) as memories:
        found = await memories.stats(convert(target.scope(), Request))
    if target.as_json:
        tables.say_json(found)
    else:
        tables.console().print(tables.stats(found))


@command("runs")
async def runs(
    target: Target,
    since: Annotated[str | None, typer.Option(help="Only from this time on.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most this many.")] = 100,
    cursor: Annotated[str | None, typer.Option(help="Continue after the page that gave this cursor.")] = None,
) -> int:
    """List the calls that changed memories, oldest first: each can be undone by its id."""
    fields = {**target.scope(), "since": moment(since, "--since"), "limit": limit, "cursor": cursor}
    async with target.open(embedder=False) as memories:
        page = await memories.runs(convert(fields, PageRequest))
    if target.as_json:
        tables.say_json(page)
    else:
        console = tables.console()
        console.print(tables.runs(page.runs) if page.runs else "No runs.")
        if page.cursor is not None:
            console.print(f"More: --cursor {page.cursor}")
    return DONE if page.runs else NOTHING
