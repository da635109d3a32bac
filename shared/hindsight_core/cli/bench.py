"""The command that measures retrieval: `hindsight bench retrieval`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table

from hindsight_core.cli import tables
from hindsight_core.cli.commands import command
from hindsight_core.cli.options import Options
from hindsight_core.errors import InvalidInput

if TYPE_CHECKING:
    from hindsight_core.benchmark.report import Report, Result

_WHERE = "Where, and how it answers"


class Place(Options, frozen=True, kw_only=True):
    """Where a benchmark keeps its memories, and in which form it answers."""

    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            help="A store to use, such as opensearch://HOST:PORT: its namespaces benchmark-… are erased afterwards. "
            "Default: a temporary file.",
            rich_help_panel=_WHERE,
        ),
    ] = None
    vectors: Annotated[
        str | None,
        typer.Option("--vectors", metavar="FOLDER", help="Keep vectors here from run to run.", rich_help_panel=_WHERE),
    ] = None
    html: Annotated[
        str | None,
        typer.Option("--html", metavar="FILE", help="Write a page with plots, too.", rich_help_panel=_WHERE),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=_WHERE)] = False


@command("bench retrieval")
async def retrieval(
    target: Place,
    data: Annotated[list[str], typer.Argument(help="Files or folders of data sets.", show_default=False)],
    configs: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            "-c",
            help="A TOML file, or `default`, `dense`, `lexical`, `first-stage`, `whole`. Later ones are held "
            "against the first.",
        ),
    ] = None,
    banks: Annotated[
        list[str] | None, typer.Option("--bank", help="Only this bank (conversation); may be repeated.")
    ] = None,
    days: Annotated[float, typer.Option(help="Days after its last memory at which a bank is asked.")] = 1.0,
    ages: Annotated[
        str | None,
        typer.Option(metavar="NEWEST-OLDEST", help="Spread the memories' ages over so many days, such as 1-400."),
    ] = None,
    nameless: Annotated[
        bool, typer.Option("--nameless", help="Take the speakers for the user and the assistant, without their names.")
    ] = False,
    join: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Join what follows each other to long memories of so many characters."),
    ] = None,
    leave_one_out: Annotated[
        bool,
        typer.Option(
            "--leave-one-out",
            help="Ask each bank also with weights of the second stage that were chosen on the others.",
        ),
    ] = False,
    seed: Annotated[int, typer.Option(help="What intervals and tests draw from.")] = 0,
) -> None:
    """Measure how well questions find the memories that answer them.

    DATA is a set in the plain shape of docs/retrieval.md, or LoCoMo, LongMemEval, MADial-Bench or MemoryBank as
    published.
    """
    from hindsight_core.benchmark import configuration, page, reading, report, running, sets

    if days < 0:
        raise InvalidInput.of("--days", "is below 0")
    chosen = [configuration.load(given) for given in configs or ["default"]]
    names = [one.name for one in chosen]
    if len(set(names)) < len(names):
        raise InvalidInput.of("--config", f"two have the same name: {', '.join(names)}")
    loaded = [reading.load(Path(path)) for path in data]
    if banks:
        loaded = [sets.some(one, banks) for one in loaded]
    when = f"asked {days:g} days after the last memory"
    if ages is not None:
        newest, oldest = _range(ages)
        loaded = [
            msgspec.structs.replace(one, banks=tuple(sets.aged(bank, newest, oldest) for bank in one.banks))
            for one in loaded
        ]
        when = f"memories {newest:g} to {oldest:g} days old"
    if join is not None:
        loaded = [
            msgspec.structs.replace(one, banks=tuple(sets.joined(bank, join) for bank in one.banks)) for one in loaded
        ]
        when += f"; turns joined to {join} characters"
    if nameless:
        loaded = [
            msgspec.structs.replace(one, banks=tuple(sets.nameless(bank) for bank in one.banks)) for one in loaded
        ]
        when += "; without names"
    for one, path in zip(loaded, data, strict=True):
        if not one.questions:
            raise InvalidInput.of(path, "has no question with an answer")
    if len({one.name for one in loaded}) < len(loaded):
        raise InvalidInput.of("DATA", "two sets have the same name")
    with _Shown(tables.console(error=True)) as progress:
        asked = await running.run(
            loaded,
            chosen,
            store=target.store,
            clock=running.utc_now,
            progress=progress,
            later=timedelta(days=days),
            vectors=None if target.vectors is None else Path(target.vectors),
            api_key=os.environ.get("HINDSIGHT_EMBEDDER_KEY", ""),
            leave_one_out=leave_one_out,
        )
    kind = "embedded (SQLite)" if target.store is None else target.store.partition("://")[0]
    found = report.report(asked, store=kind, when=when, seed=seed)
    if target.html is not None:
        _write(target.html, page.page(found))
    if target.as_json:
        tables.say_json(found)
    else:
        _say(found)


class _Shown:
    """Progress bars on a terminal, one after the other."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._bars = Bars(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._now: TaskID | None = None

    def begin(self, what: str, steps: int) -> None:
        if self._now is not None:
            self._bars.remove_task(self._now)
        self._now = self._bars.add_task(what, total=steps)

    def advance(self, steps: int = 1) -> None:
        assert self._now is not None
        self._bars.advance(self._now, steps)

    def __enter__(self) -> _Shown:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()


def _write(file: str, text: str) -> None:
    try:
        Path(file).write_text(text, "utf-8")
    except OSError as exc:
        raise InvalidInput.of("--html", f"{file}: {(exc.strerror or str(exc)).lower()}") from None


def _range(text: str) -> tuple[float, float]:
    newest, _, oldest = text.partition("-")
    try:
        found = float(newest), float(oldest)
    except ValueError:
        found = (1.0, 0.0)
    if not 0 <= found[0] <= found[1]:
        raise InvalidInput.of("--ages", f"{text!r} is no range of days such as 1-400")
    return found


def _say(found: Report) -> None:
    """A Markdown table a data set, as docs/retrieval.md shows them."""
    from hindsight_core.benchmark.page import MEASURES, estimate

    console = tables.console()
    console.print(
        f"Hindsight {found.version}; {found.machine}; store: {found.store}; {found.asked}; "
        f"95 % intervals; memory at most {found.memory_mib:.0f} MiB"
    )
    for name in dict.fromkeys(result.data for result in found.results):
        results = [result for result in found.results if result.data == name]
        console.print(f"\n{name}: {results[0].memories:,} memories")
        table = Table("kind", "configuration", "questions", *(label for _, label in MEASURES), box=None)
        for number, row in enumerate(results[0].rows):
            for result in results:
                summary = result.rows[number].summary
                cells: list[str] = []
                for field, _ in MEASURES:
                    value = estimate(summary, field)
                    cells.append(f"{value.value * 100:.1f} ({value.low * 100:.1f}–{value.high * 100:.1f})")
                table.add_row(row.kind, result.configuration, str(summary.questions), *cells)
        console.print(table)
        _say_differences(results, console)
        for result in results:
            embedding = result.embedding
            made = "" if embedding is None else f"; embedding {embedding.p50:.1f} / {embedding.p95:.1f} ms"
            console.print(
                f"{result.configuration}: search {result.search.p50:.2f} / {result.search.p95:.2f} ms (p50 / p95)"
                f"{made}; {result.embedder}"
            )


def _say_differences(results: Sequence[Result], console: Console) -> None:
    from hindsight_core.benchmark.page import MEASURES

    if len(results) < 2:
        return
    table = Table("kind", f"less {results[0].configuration}", *(label for _, label in MEASURES), box=None)
    for number, row in enumerate(results[0].rows):
        for result in results[1:]:
            against = result.rows[number].against_first or {}
            cells = [f"{against[field].estimate.value * 100:+.1f} (p {against[field].p:.3f})" for field, _ in MEASURES]
            table.add_row(row.kind, result.configuration, *cells)
    console.print(table)
