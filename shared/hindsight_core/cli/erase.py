"""The command that erases, and proves it by looking everywhere."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterable
from typing import Annotated

import msgspec
import typer

from hindsight_core.cli import tables
from hindsight_core.cli.commands import DONE, NOTHING, command
from hindsight_core.cli.target import Target
from hindsight_core.client import AsyncHindsight
from hindsight_core.decoding import convert
from hindsight_core.errors import InvalidInput, NotFound
from hindsight_core.models import Memory
from hindsight_core.quoting import Quoted
from hindsight_core.remains import forms_of
from hindsight_core.requests import ForgetRequest, ListRequest, PageRequest, Request


@command("erase")
async def erase(
    target: Target,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="The memories' ids.")],
    reason: Annotated[str, typer.Option("--reason", help="Why; kept in the history.")] = "",
    verify: Annotated[
        bool, typer.Option("--verify", help="Look for every text they ever had in all places, and in the file.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> int:
    """Erase memories for good, everywhere; with --verify exits with 1 when anything of them is left."""
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Erase {len(ids)} for good?", abort=True, err=True)
    request = convert({**target.scope(), "ids": ids, "mode": "erase", "reason": reason}, ForgetRequest)
    whose = convert(target.scope(), Request)
    left: list[str] = []
    async with target.open(embedder=False) as memories:
        known = [memory for memory_id in ids if verify async for memory in _states(memories, memory_id, whose)]
        texts = {text for memory in known for text in (memory.content, memory.summary) if text}
        answer = await memories.forget(request)
        if verify:
            left += [place async for place in _places(memories, target, ids, texts)]
            if (near := target.near(memories)) is not None:
                models = {memory.embedding_model for memory in known if memory.embedding_model}
                left += await near.remains(sorted(texts), sorted(models))
    if target.as_json:
        tables.say_json({"run_id": answer.run_id, "count": answer.count, "verified": verify and not left, "left": left})
    else:
        console = tables.console()
        console.print(f"{answer.count} erased.")
        if verify:
            where = "memories, histories, events, runs and logged searches"
            where += (
                "; the server's store itself was not looked into"
                if target.url is not None
                else ", all that the store keeps, receipts and unfinished changes too, and the cache"
            )
            console.print("\n".join(left) if left else f"Nothing of {len(texts)} texts is left: looked into {where}.")
    return DONE if answer.count and not left else NOTHING


@command("expunge")
async def expunge(target: Target) -> None:
    """Take what was erased off the disk now. OpenSearch keeps deleted documents until it merges; this makes it merge.

    It keeps them for its own recovery for about half a minute, so run it that long after erasing.
    """
    async with target.open(embedder=False) as memories:
        if (near := target.near(memories)) is None:
            raise InvalidInput.of("--url", "a server's store is expunged where it is; name it with --store")
        await near.expunge()


async def _states(memories: AsyncHindsight, memory_id: str, whose: Request) -> AsyncIterator[Memory]:
    """Everything that a memory is and was."""
    try:
        events = (await memories.history(memory_id, whose)).events
        held: list[Memory | None] = [await memories.get(memory_id, whose)]
    except NotFound:
        return
    for memory in [*held, *(event.before for event in events), *(event.after for event in events)]:
        if memory is not None:
            yield memory


async def _places(memories: AsyncHindsight, target: Target, ids: Iterable[str], texts: set[str]) -> AsyncIterator[str]:
    """Each place that still holds a memory or one of the texts, as a sentence."""
    whose = convert(target.scope(), Request)
    for memory_id in ids:
        try:
            await memories.get(memory_id, whose)
        except NotFound:
            pass
        else:
            yield f"The memory {memory_id} is still there."
    forms, quoted = forms_of(texts), Quoted(texts)
    async for line in memories.export(convert(target.scope(), ListRequest)):
        if any(form in line for form in forms):
            known = msgspec.json.decode(line)["memory"]["id"]
            yield f"Another memory says the same, or stands after it: {known}."
    cursor: str | None = None
    while True:
        page = await memories.events(convert({**target.scope(), "cursor": cursor, "limit": 1000}, PageRequest))
        for event in page.events:
            if any(form in msgspec.json.encode(event) for form in forms):
                yield f"The event {event.id} of {event.memory_id} holds the text."
        if (cursor := page.cursor) is None:
            break
    while True:
        found = await memories.retrievals(convert({**target.scope(), "cursor": cursor, "limit": 1000}, PageRequest))
        for entry in found.retrievals:
            if quoted.by(entry.query) or any(form in msgspec.json.encode(entry) for form in forms):
                yield f"The logged search {entry.id} quotes the text."
        if (cursor := found.cursor) is None:
            break
    while True:
        told = await memories.runs(convert({**target.scope(), "cursor": cursor, "limit": 1000}, PageRequest))
        for run in told.runs:
            if any(form in msgspec.json.encode(run) for form in forms):
                yield f"The reason of the run {run.run_id} holds the text."
        if (cursor := told.cursor) is None:
            break
