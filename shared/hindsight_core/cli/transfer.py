"""The commands that move memories in and out: import and export."""

from __future__ import annotations

import hashlib
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal, TypeAlias, TypeVar

import msgspec
import typer

from hindsight_core.cli import tables
from hindsight_core.cli.chats import Conversation, read_chat
from hindsight_core.cli.commands import DONE, NOTHING, WRONG, command
from hindsight_core.cli.evaluation import TOP, Evaluation, evaluate
from hindsight_core.cli.files import open_file, progress_bar, read_file
from hindsight_core.cli.locomo import Sample, is_locomo, read_locomo
from hindsight_core.cli.options import Selection
from hindsight_core.cli.target import Target
from hindsight_core.client import AsyncHindsight
from hindsight_core.decoding import convert, decode
from hindsight_core.errors import InvalidInput
from hindsight_core.lines import End
from hindsight_core.requests import BATCH_LIMIT, ExportRequest, WriteRequest
from hindsight_core.responses import ImportProblem, ImportReport, Problem

Adapter: TypeAlias = Literal["auto", "hindsight", "chat", "locomo"]
T = TypeVar("T")
LARGEST = 700_000
_SHOWN = 10


class Imported(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What `import --json` prints."""

    stored: int
    existing: int
    events: int = 0
    erased: int = 0
    note: str = ""
    problems: tuple[ImportProblem, ...] = ()
    evaluation: Evaluation | None = None


@command("export")
async def export(
    target: Target,
    chosen: Selection,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="Where to write; standard output by default.")] = "-",
    history: Annotated[bool, typer.Option(help="With the history of each memory, and the runs.")] = True,
) -> None:
    """Write every memory of the scope, of any status, as JSON Lines that `import` reads back."""
    request = convert(
        {**target.scope(), "filters": chosen.filters(), "timezone": chosen.timezone, "history": history}, ExportRequest
    )
    async with target.open(embedder=False) as memories:
        if file == "-":
            async for line in memories.export(request):
                sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            return
        with open_file(file, "wb") as out:
            count = 0
            async for line in memories.export(request):
                out.write(line)
                count += line.startswith(b'{"memory"')
    tables.console(error=True).print(f"{count} memories in {file}")


@command("import")
async def import_(
    target: Target,
    file: Annotated[str, typer.Argument(help="The file; - reads standard input.")],
    adapter: Annotated[Adapter, typer.Option(help="Its shape: an export, a chat log, or LoCoMo's.")] = "auto",
    timezone: Annotated[str, typer.Option(help="The zone of times without an offset.")] = "UTC",
    again: Annotated[bool, typer.Option("--again", help="Store it even if it was imported before.")] = False,
    ask: Annotated[bool, typer.Option("--evaluate", help="LoCoMo: ask its questions, print recall@10.")] = False,
) -> int:
    """Read memories from a file: an export, a chat log (each turn one memory), or a LoCoMo file.

    Reading a chat log a second time stores nothing twice.
    """
    data = read_file(file).removeprefix(BOM_UTF8)
    shape = _shape(data) if adapter == "auto" else adapter
    if ask and shape != "locomo":
        raise InvalidInput.of("--evaluate", "only a LoCoMo file has questions")
    evaluation: Evaluation | None = None
    async with target.open(embedder=True) as memories:
        if shape == "hindsight":
            report = await _import_export(memories, data, target)
        elif shape == "locomo":
            samples = read_locomo(data)
            chats = list(_scoped(samples, target.user))
            report = await _import_chats(memories, chats, target, timezone, again=again)
            if ask:
                with progress_bar() as progress:
                    evaluation = await evaluate(memories, samples, target, progress)
        else:
            chats = [(target.user, chat) for chat in read_chat(data)]
            report = await _import_chats(memories, chats, target, timezone, again=again)
    if target.as_json:
        tables.say_json(msgspec.structs.replace(report, evaluation=evaluation))
    else:
        _say(report, evaluation)
    if report.problems:
        return WRONG
    return DONE if report.stored or report.existing else NOTHING


async def _import_export(memories: AsyncHindsight, data: bytes, target: Target) -> Imported:
    lines = data.splitlines()
    total = Imported(stored=0, existing=0, problems=tuple(_cut_off(lines)))
    with progress_bar() as progress:
        bar = progress.add_task("memories", total=len(lines))
        start = 0
        for part in _parts(lines, len):
            report: ImportReport = await memories.import_lines(part, target.namespace)
            moved = tuple(msgspec.structs.replace(fault, line=fault.line + start) for fault in report.problems)
            total = Imported(
                stored=total.stored + report.stored,
                existing=total.existing + report.existing,
                events=total.events + report.events,
                erased=total.erased + report.erased,
                note=report.note or total.note,
                problems=total.problems + moved,
            )
            start += len(part)
            progress.advance(bar, len(part))
    return total


def _cut_off(lines: Sequence[bytes]) -> Iterator[ImportProblem]:
    """What is missing from an export by its own account, which stands in its last line."""
    if not lines or not lines[0].startswith(b'{"hindsight_export"') or b'"history":true' not in lines[0]:
        return
    told = next((line for line in reversed(lines) if line.strip()), b"")
    if not told.startswith(b'{"end"'):
        yield _refused(len(lines), "The export was cut off: its end is missing.")
        return
    wanted = decode(told, End).end.memories
    if (found := sum(line.startswith(b'{"memory"') for line in lines)) != wanted:
        yield _refused(len(lines), f"The export held {wanted} memories, and these are {found}.")


async def _import_chats(
    memories: AsyncHindsight,
    chats: Sequence[tuple[str | None, Conversation]],
    target: Target,
    zone: str,
    *,
    again: bool,
) -> Imported:
    """Store each turn whole, without judging it and beside what is there: a log is kept, not interpreted."""
    started = datetime.now(UTC)
    started = started.replace(microsecond=started.microsecond // 1000 * 1000)  # as exact as memories are
    items = [item for user, chat in chats for item in _items(chat, user, target, zone, again=again)]
    stored = existing = 0
    problems: list[ImportProblem] = []
    with progress_bar() as progress:
        bar = progress.add_task("turns", total=sum(len(item.messages or ()) for item in items))
        done = 0
        for batch in _batches(items):
            answer = await memories.write_batch(batch)
            for result in answer.results:
                for decision in result.decisions or ():
                    if decision.memory is None:
                        place = f"turn {done + decision.index + 1}"
                        problems.append(_refused(done + decision.index + 1, f"{place}: {decision.reason}"))
                    elif decision.memory.created_at < started:
                        existing += 1
                    else:
                        stored += 1
                if result.problem is not None:
                    problems.append(ImportProblem(line=done + 1, problem=result.problem))
                done += len(batch[result.index].messages or ())
            progress.update(bar, completed=done)
    return Imported(stored=stored, existing=existing, problems=tuple(problems))


def _items(chat: Conversation, user: str | None, target: Target, zone: str, *, again: bool) -> Iterator[WriteRequest]:
    scope = {**target.scope(), "user_id": user, "session_id": target.session or chat.session}
    before: str | None = None
    for part in _parts(chat.messages, _encoded_size):
        key = None
        if not again:
            digest = hashlib.blake2b(msgspec.json.encode([scope, zone, before, part]), digest_size=16)
            key = f"import:{digest.hexdigest()}"
        yield convert(
            {
                **scope,
                "messages": part,
                "extract": "none",
                "reconcile": "none",
                "force": True,
                "memory_type": "episodic",
                "kind": "event",
                "timezone": zone,
                "idempotency_key": key,
            },
            WriteRequest,
        )
        before = part[-1].text


def _batches(items: Sequence[WriteRequest]) -> Iterator[list[WriteRequest]]:
    """Items for one request each: at most 500 turns, and within the body limit of a server."""
    batch: list[WriteRequest] = []
    turns = size = 0
    for item in items:
        count, length = len(item.messages or ()), len(msgspec.json.encode(item))
        if batch and (turns + count > BATCH_LIMIT or size + length > LARGEST):
            yield batch
            batch, turns, size = [], 0, 0
        batch.append(item)
        turns, size = turns + count, size + length
    if batch:
        yield batch


def _encoded_size(thing: object) -> int:
    return len(msgspec.json.encode(thing))


def _parts(things: Sequence[T], size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Things for one request each: at most 500, and within the body limit of a server."""
    part: list[T] = []
    size = 0
    for thing in things:
        length = size_of(thing)
        if part and (len(part) == BATCH_LIMIT or size + length > LARGEST):
            yield part
            part, size = [], 0
        part.append(thing)
        size += length
    if part:
        yield part


def _scoped(samples: Sequence[Sample], user: str | None) -> Iterator[tuple[str | None, Conversation]]:
    """The sessions of each conversation, as those of a user of its own: its questions are about it alone."""
    for sample in samples:
        for session in sample.sessions:
            yield user or sample.name, session


def _shape(data: bytes) -> Adapter:
    if data.lstrip()[:64].startswith(b'{"hindsight_export"') or data.lstrip()[:64].startswith(b'{"memory"'):
        return "hindsight"
    return "locomo" if is_locomo(data) else "chat"


def _say(report: Imported, evaluation: Evaluation | None) -> None:
    console = tables.console()
    known = f", {report.existing} were there already" if report.existing else ""
    events = f" with {report.events} events of their history" if report.events else ""
    console.print(f"{report.stored} stored{events}{known}")
    if report.note:
        console.print(report.note)
    for fault in report.problems[:_SHOWN]:
        console.print(f"  line {fault.line}: {fault.problem.detail}")
    if len(report.problems) > _SHOWN:
        console.print(f"  and {len(report.problems) - _SHOWN} more")
    if evaluation is not None:
        for name, found in (("kinds 1-4", evaluation.answered), ("all kinds", evaluation.all)):
            console.print(f"recall@{TOP}, {name}: {found.recall_at_10:.1%} of {found.questions} questions")


def _refused(line: int, detail: str) -> ImportProblem:
    code, title = "not_stored", "Not stored"
    problem = Problem(type=f"urn:hindsight:problem:{code}", title=title, status=422, detail=detail, code=code)
    return ImportProblem(line=line, problem=problem)
