"""The commands that change: write, update, resolve, forget, restore, undo."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
import typer

from hindsight_core.cli import tables
from hindsight_core.cli.commands import DONE, NOTHING, command
from hindsight_core.cli.options import Selection, moment, pairs
from hindsight_core.cli.reading import Id
from hindsight_core.cli.target import Target
from hindsight_core.decoding import convert
from hindsight_core.errors import InvalidInput
from hindsight_core.models import Kind, MemoryType, Source
from hindsight_core.requests import (
    Filters,
    ForgetRequest,
    ResolveRequest,
    RestoreRequest,
    UndoRequest,
    UpdateRequest,
    WriteRequest,
)
from hindsight_core.responses import ForgetResponse, UndoResponse

ForgetHow: TypeAlias = Literal["archive", "suppress", "retract", "erase"]
Reason: TypeAlias = Annotated[str, typer.Option("--reason", help="Why; kept in the history.")]


@command("write")
async def write(
    target: Target,
    content: Annotated[str, typer.Argument(help="The text; - reads it from standard input.")],
    memory_type: Annotated[MemoryType | None, typer.Option("--type", help="Instead of what is judged.")] = None,
    kind: Annotated[Kind | None, typer.Option(help="Instead of what is judged.")] = None,
    key: Annotated[str | None, typer.Option(help="The slot it fills, such as user.shipping_address.")] = None,
    source: Annotated[Source | None, typer.Option(help="Who said it.")] = None,
    speaker: Annotated[str | None, typer.Option(help="The name of who said it.")] = None,
    context: Annotated[str | None, typer.Option(help="What was said just before.")] = None,
    confidence: Annotated[float | None, typer.Option(min=0, max=1, help="How sure it is.")] = None,
    ttl: Annotated[str | None, typer.Option(help="How long it lives, such as 30d, 12h or PT1H.")] = None,
    observed_at: Annotated[str | None, typer.Option(help="When it was said or true.")] = None,
    timezone: Annotated[str | None, typer.Option(help="The zone of times without an offset.")] = None,
    tags: Annotated[list[str] | None, typer.Option("--tag", help="A tag; repeatable.")] = None,
    metadata: Annotated[list[str] | None, typer.Option("--metadata", help="KEY=VALUE; repeatable.")] = None,
    supersedes: Annotated[
        list[str] | None, typer.Option(help="The id of a memory that it replaces; repeatable.")
    ] = None,
    reconcile: Annotated[
        Literal["auto", "none", "judge"],
        typer.Option(help="Held against what is there (`judge`: by the judge, if there is one), or stored beside it."),
    ] = "auto",
    private: Annotated[bool, typer.Option("--private", help="Only for --agent.")] = False,
    pin: Annotated[bool, typer.Option("--pin", help="Never expires, never makes room.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Store it even if it is not judged worth it.")] = False,
) -> int:
    """Remember a text, if it is worth it; exits with 1 when nothing was stored."""
    fields = {
        **target.scope(),
        "content": sys.stdin.read().strip() if content == "-" else content,
        "memory_type": memory_type,
        "kind": kind,
        "key": key,
        "source": source,
        "speaker": speaker,
        "context": context,
        "confidence": confidence,
        "ttl": ttl,
        "observed_at": moment(observed_at, "--observed-at"),
        "timezone": timezone,
        "tags": tags or (),
        "metadata": pairs(metadata, "--metadata"),
        "supersedes": supersedes or (),
        "reconcile": reconcile,
        "visibility": "private" if private else "shared",
        "pinned": pin,
        "force": force,
    }
    async with target.open(embedder=True) as memories:
        answer = await memories.write(convert(fields, WriteRequest))
    if target.as_json:
        tables.say_json(answer)
    else:
        tables.console().print(tables.decisions(answer.results))
    return DONE if answer.stored else NOTHING


@command("update")
async def update(
    target: Target,
    memory_id: Id,
    content: Annotated[str | None, typer.Option(help="The new text.")] = None,
    kind: Annotated[Kind | None, typer.Option(help="The new kind.")] = None,
    memory_type: Annotated[MemoryType | None, typer.Option("--type", help="The new type.")] = None,
    key: Annotated[str | None, typer.Option(help='The new slot; "" for none.')] = None,
    confidence: Annotated[float | None, typer.Option(min=0, max=1, help="How sure it is.")] = None,
    ttl: Annotated[str | None, typer.Option(help="How long it lives from now on, such as 30d.")] = None,
    tags: Annotated[list[str] | None, typer.Option("--tag", help="The new tags; repeatable.")] = None,
    metadata: Annotated[
        list[str] | None, typer.Option("--metadata", help="The new metadata, KEY=VALUE; repeatable.")
    ] = None,
    pin: Annotated[bool | None, typer.Option("--pin/--unpin", help="Whether it is kept for good.")] = None,
    private: Annotated[bool | None, typer.Option("--private/--shared", help="Who sees it.")] = None,
    version: Annotated[int | None, typer.Option(help="Only if it is still at this version.")] = None,
    reason: Reason = "",
) -> None:
    """Change a memory by hand; what is not named stays."""
    given: dict[str, Any] = {
        "content": content,
        "kind": kind,
        "memory_type": memory_type,
        "key": key,
        "confidence": confidence,
        "ttl": ttl,
        "tags": tags or None,
        "metadata": pairs(metadata, "--metadata") or None,
        "pinned": pin,
        "visibility": None if private is None else "private" if private else "shared",
    }
    fields = {name: value for name, value in given.items() if value is not None}
    if key == "":
        fields["key"] = None
    if not fields:
        raise InvalidInput.of("update", "name at least one field to change; see hindsight update --help")
    request = convert({**target.scope(), **fields, "reason": reason, "version": version}, UpdateRequest)
    async with target.open(embedder=content is not None) as memories:
        answer = await memories.update(memory_id, request)
    if target.as_json:
        tables.say_json(answer)
    else:
        tables.console().print(tables.one_memory(answer.memory))


@command("resolve")
async def resolve(
    target: Target,
    memory_id: Id,
    other: Annotated[str, typer.Argument(metavar="OLDER", help="The id of the memory that it contests.")],
    decision: Annotated[
        Literal["supersede", "coexist", "duplicate", "refine", "retract"],
        typer.Argument(help="What the newer one is to the older one."),
    ],
    reason: Reason = "",
) -> None:
    """Settle a contested pair: whether the newer memory replaces the older one."""
    fields = {**target.scope(), "with": other, "decision": decision, "reason": reason}
    async with target.open(embedder=False) as memories:
        answer = await memories.resolve(memory_id, convert(fields, ResolveRequest))
    if target.as_json:
        tables.say_json(answer)
    else:
        console = tables.console()
        console.print(tables.memories([answer.memory, answer.other]))
        _say_undo(answer.run_id)


@command("forget")
async def forget(
    target: Target,
    chosen: Selection,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="The memories' ids.")] = None,
    query: Annotated[str | None, typer.Option(help="What they are about.")] = None,
    min_score: Annotated[
        float | None, typer.Option(min=0, max=1, help="With --query: how well they must match; 0.5 if not given.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All memories of the scope.")] = False,
    mode: Annotated[
        ForgetHow,
        typer.Option(
            help="archive: can be restored; suppress: never mention or learn it again; retract: it was wrong; "
            "erase: for good, everywhere."
        ),
    ] = "archive",
    reason: Reason = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what it would do.")] = False,
    bring_back: Annotated[bool, typer.Option("--bring-back", help="What they had replaced holds again.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before erasing.")] = False,
) -> int:
    """Forget memories by id, by what they are about, or by filters; exits with 1 when there are none."""
    wanted = chosen.filters()
    fields = {
        **target.scope(),
        "ids": ids or None,
        "query": query,
        "min_score": min_score,
        "filters": None if wanted == Filters() else wanted,
        "timezone": chosen.timezone,
        "all": everything,
        "mode": mode,
        "reason": reason,
        "dry_run": dry_run,
        "bring_back": bring_back,
    }
    request = convert(fields, ForgetRequest)
    async with target.open(embedder=query is not None) as memories:
        if mode == "erase" and not dry_run and not yes and sys.stdin.isatty():
            would = await memories.forget(msgspec.structs.replace(request, dry_run=True))
            tables.console(error=True).print(tables.affected(would.affected))
            typer.confirm(f"Erase {would.count} for good?", abort=True, err=True)
        answer = await memories.forget(request)
    return _said(target, answer, undoable=mode != "erase" and not dry_run)


@command("restore")
async def restore(target: Target, memory_id: Id, reason: Reason = "") -> None:
    """Bring a forgotten memory back."""
    async with target.open(embedder=False) as memories:
        answer = await memories.restore(memory_id, convert({**target.scope(), "reason": reason}, RestoreRequest))
    if target.as_json:
        tables.say_json(answer)
    else:
        tables.console().print(tables.memories([answer.memory]))


@command("undo")
async def undo(
    target: Target,
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="The run's id, as `hindsight runs` lists it.")],
    reason: Reason = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what it would do.")] = False,
) -> int:
    """Take a whole run back; memories that changed since stay as they are."""
    request = convert({**target.scope(), "reason": reason, "dry_run": dry_run}, UndoRequest)
    # What a text was embedded as before it was changed is made anew.
    async with target.open(embedder=True) as memories:
        answer = await memories.undo(run_id, request)
    if answer.kept and not target.as_json:
        tables.console(error=True).print(f"Changed since, and left alone: {', '.join(answer.kept)}")
    return _said(target, answer, undoable=False)


def _said(target: Target, answer: ForgetResponse | UndoResponse, *, undoable: bool) -> int:
    if target.as_json:
        tables.say_json(answer)
    elif not answer.count:
        tables.console().print("No memories.")
    else:
        console = tables.console()
        console.print(tables.affected(answer.affected))
        console.print(f"{answer.count} would change" if answer.dry_run else f"{answer.count} changed")
        if undoable:
            _say_undo(answer.run_id)
    return DONE if answer.count else NOTHING


def _say_undo(run_id: str) -> None:
    tables.console().print(f"To take it back: hindsight undo {run_id}")
