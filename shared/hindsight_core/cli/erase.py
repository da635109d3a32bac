"""The command that erases, and proves it by looking everywhere."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hindsight_core.cli import tables
from hindsight_core.cli.commands import DONE, NOTHING, command
from hindsight_core.cli.target import Memories, Target
from hindsight_core.decoding import convert
from hindsight_core.errors import NotFound
from hindsight_core.home import local_path
from hindsight_core.models import Memory
from hindsight_core.requests import ForgetRequest, ListRequest, PageRequest, Request

_CHUNK = 1 << 20


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
        texts = {text for memory_id in ids if verify async for text in _texts(memories, memory_id, whose)}
        answer = await memories.forget(request)
        if verify:
            left += [place async for place in _places(memories, target, ids, texts)]
    if verify and target.url is None and (path := local_path(target.settings().store)) is not None:
        left += _files(path, texts)
    if target.as_json:
        tables.say_json({"run_id": answer.run_id, "count": answer.count, "verified": verify and not left, "left": left})
    else:
        console = tables.console()
        console.print(f"{answer.count} erased.")
        if verify:
            where = "memories, histories, events and logged searches"
            where += "; the server's files were not looked into" if target.url is not None else " and the file"
            console.print("\n".join(left) if left else f"Nothing of {len(texts)} texts is left: looked into {where}.")
    return DONE if answer.count and not left else NOTHING


async def _texts(memories: Memories, memory_id: str, whose: Request) -> AsyncIterator[str]:
    """Every text that a memory has and had."""
    try:
        events = (await memories.history(memory_id, whose)).events
        held: list[Memory | None] = [await memories.get(memory_id, whose)]
    except NotFound:
        return
    for memory in [*held, *(event.before for event in events), *(event.after for event in events)]:
        for text in () if memory is None else (memory.content, memory.summary):
            if text:
                yield text


async def _places(memories: Memories, target: Target, ids: Iterable[str], texts: set[str]) -> AsyncIterator[str]:
    """Each place that still holds a memory or one of the texts, as a sentence."""
    whose = convert(target.scope(), Request)
    for memory_id in ids:
        try:
            await memories.get(memory_id, whose)
        except NotFound:
            pass
        else:
            yield f"The memory {memory_id} is still there."
    forms = _forms(texts)
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
            if any(form in msgspec.json.encode(entry) for form in forms):
                yield f"The logged search {entry.id} holds the text."
        if (cursor := found.cursor) is None:
            break


def _files(path: Path, texts: set[str]) -> list[str]:
    """The files of an embedded store that hold a text, byte by byte."""
    forms = _forms(texts)
    longest = max(map(len, forms), default=0)
    left: list[str] = []
    for file in (path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal"))):
        if not file.exists():
            continue
        with file.open("rb") as stream:
            rest = b""
            while chunk := stream.read(_CHUNK):
                window = rest + chunk
                if any(form in window for form in forms):
                    left.append(f"The file {file} holds the text.")
                    break
                rest = window[-longest:] if longest else b""
    return left


def _forms(texts: set[str]) -> list[bytes]:
    """The texts as they stand in files and answers: as they are, and inside JSON."""
    return list({form for text in texts for form in (text.encode(), msgspec.json.encode(text)[1:-1])})
