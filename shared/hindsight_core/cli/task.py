"""The commands of working memory: what is said in a task, what is held of it, and its end."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from hindsight_core.cli import tables
from hindsight_core.cli.commands import DONE, NOTHING, command
from hindsight_core.cli.target import Target
from hindsight_core.decoding import convert
from hindsight_core.requests import EndTaskRequest, Request, TaskRequest

TaskId = Annotated[str, typer.Argument(metavar="TASK", help="The task's id.")]


@command("task add")
async def add(
    target: Target,
    task: TaskId,
    text: Annotated[str, typer.Argument(help="What was said; - reads it from standard input.")],
    role: Annotated[Literal["user", "assistant", "tool", "system"], typer.Option(help="Who said it.")] = "user",
    speaker: Annotated[str | None, typer.Option(help="The name of who said it.")] = None,
    window: Annotated[int | None, typer.Option(help="The context window of the model, in tokens.")] = None,
    pin: Annotated[bool, typer.Option("--pin", help="It stays until the task ends.")] = False,
) -> int:
    """Keep what was said in a task, within its share of the context window; 1 when it holds a secret."""
    message = {"role": role, "text": sys.stdin.read() if text == "-" else text, "speaker": speaker}
    fields = {**target.scope(), "messages": [message], "context_window": window, "pinned": pin}
    async with target.open(embedder=True) as memories:
        answer = await memories.add_to_task(task, convert(fields, TaskRequest))
    if target.as_json:
        tables.say_json(answer)
    else:
        console = tables.console()
        console.print(f"{answer.messages} messages, {answer.tokens} of {answer.budget} tokens")
        for one in answer.dropped:
            console.print(f"  made room: {one.excerpt}", markup=False)
        for place in answer.refused:
            console.print(f"  message {place + 1} holds a secret and is not kept")
    return NOTHING if answer.refused else DONE


@command("task show")
async def show(target: Target, task: TaskId) -> None:
    """Print the working memory of a task, oldest first."""
    async with target.open(embedder=False) as memories:
        held = await memories.task(task, convert(target.scope(), Request))
    if target.as_json:
        tables.say_json(held)
        return
    console = tables.console()
    for memory in held.messages:
        pinned = " (pinned)" if memory.pinned else ""
        console.print(f"{memory.speaker or memory.source}{pinned}: {memory.content}", markup=False)
    console.print(f"{held.tokens} of {held.budget} tokens")


@command("task end")
async def end(target: Target, task: TaskId) -> None:
    """End a task: what is worth it becomes an episodic memory, the rest is forgotten."""
    async with target.open(embedder=True) as memories:
        answer = await memories.end_task(task, convert(target.scope(), EndTaskRequest))
    if target.as_json:
        tables.say_json(answer)
        return
    console = tables.console()
    for decision in answer.promoted:
        console.print(f"{decision.memory_id}  {decision.text}", markup=False)
    for decision in answer.dropped:
        console.print(f"  dropped: {decision.text}  {decision.reason}", markup=False)
    console.print(f"{len(answer.promoted)} became memories, {len(answer.dropped)} were dropped.")
