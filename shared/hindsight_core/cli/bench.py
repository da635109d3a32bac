"""The command that measures retrieval: `hindsight bench retrieval`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.progress import TaskID
from rich.table import Table

from hindsight_core.cli import files, tables
from hindsight_core.cli.commands import command
from hindsight_core.cli.options import Options
from hindsight_core.errors import InvalidInput

if TYPE_CHECKING:
    from hindsight_core.benchmark.report import Report
    from hindsight_core.benchmark.sets import Bank, Choice, DataSet
    from hindsight_core.benchmark.tables import Table as Cells

LONGEST_DAYS = 36_500
_DROPPED = 10
_NAMED = 20
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
    markdown: Annotated[
        bool,
        typer.Option("--markdown", help="Print Markdown on a terminal, too, as anywhere else.", rich_help_panel=_WHERE),
    ] = False
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
    questions: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="At most so many questions of a set, the first of a draw by --seed."),
    ] = None,
    days: Annotated[
        float, typer.Option(help="Days after its bank's last memory at which a question without a date is asked.")
    ] = 1.0,
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
    seed: Annotated[int, typer.Option(min=0, help="What intervals, tests and --questions draw from.")] = 0,
) -> None:
    """Measure how well questions find the memories that answer them.

    DATA is a set in the plain shape of docs/retrieval.md, or LoCoMo, LongMemEval, MADial-Bench or MemoryBank as
    published.
    """
    from hindsight_core.benchmark import configuration, page, report, running, sets, vectors, wording

    if not 0 <= days <= LONGEST_DAYS:
        raise InvalidInput.of("--days", f"is not between 0 and {LONGEST_DAYS}")
    aged = None if ages is None else _range(ages)
    chosen = [configuration.load(given) for given in configs or ["default"]]
    names = [one.name for one in chosen]
    if len(set(names)) < len(names):
        raise InvalidInput.of("--config", f"two have the same name: {', '.join(names)}")
    if target.html is not None:
        _check_writable(target.html)
    kept = None if target.vectors is None else vectors.usable(Path(target.vectors))
    choice = sets.Choice(banks=tuple(banks) if banks else None, questions=questions, seed=seed)
    loaded = _loaded(data, choice)
    if aged is not None:
        loaded = [_each(one, partial(sets.aged, newest=aged[0], oldest=aged[1])) for one in loaded]
    if join is not None:
        loaded = [_each(one, partial(sets.joined, characters=join)) for one in loaded]
    if nameless:
        loaded = [_each(one, sets.nameless) for one in loaded]
    with _Shown() as progress:
        asked = await running.run(
            loaded,
            chosen,
            store=target.store,
            clock=running.utc_now,
            progress=progress,
            later=timedelta(days=days),
            vectors=kept,
            api_key=os.environ.get("HINDSIGHT_EMBEDDER_KEY", ""),
            leave_one_out=leave_one_out,
        )
    kind = "embedded (SQLite)" if target.store is None else target.store.partition("://")[0]
    when = [wording.asked(loaded, days, aged, join, nameless=nameless), *wording.chosen(choice)]
    found = report.report(asked, store=kind, when="; ".join(when), seed=seed)
    if target.as_json:
        tables.say_json(found)
    else:
        _say(found, markdown=target.markdown or not sys.stdout.isatty())
    if target.html is not None:
        _write(target.html, page.page(found))


class _Shown:
    """Progress bars on a terminal, one after the other."""

    def __init__(self) -> None:
        self._bars = files.progress_bar()
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


def _loaded(data: list[str], choice: Choice) -> list[DataSet]:
    """The chosen part of each set; those that hold none of the banks are left out."""
    from hindsight_core.benchmark import reading

    loaded = [reading.load(Path(path), choice) for path in data]
    known = list(dict.fromkeys(name for one in loaded for name in one.known))
    for name in choice.banks or ():
        if name not in known:
            more = f" and {len(known) - _NAMED:,} more" if len(known) > _NAMED else ""
            raise InvalidInput.of("--bank", f"there is no {name!r}; there are {', '.join(known[:_NAMED])}{more}")
    for one, path in zip(loaded, data, strict=True):
        if not one.questions and not (choice.banks and set(choice.banks).isdisjoint(one.known)):
            raise InvalidInput.of(path, "has no question with an answer")
    loaded = [one for one in loaded if one.questions]
    if len({one.name for one in loaded}) < len(loaded):
        raise InvalidInput.of("DATA", "two sets have the same name")
    return loaded


def _each(data: DataSet, change: Callable[[Bank], Bank]) -> DataSet:
    return msgspec.structs.replace(data, banks=tuple(change(bank) for bank in data.banks))


def _check_writable(file: str) -> None:
    """Raise `InvalidInput` where a file cannot be written, which nobody should learn after an hour."""
    path = Path(file)
    folder = path.parent
    if path.is_dir():
        raise InvalidInput.of("--html", f"{file}: is a folder")
    if not folder.is_dir():
        raise InvalidInput.of("--html", f"{file}: there is no folder {folder}")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise InvalidInput.of("--html", f"{file}: cannot be written to")


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
    if not 0 <= found[0] <= found[1] <= LONGEST_DAYS:
        raise InvalidInput.of("--ages", f"{text!r} is no range of days such as 1-400")
    return found


def _say(found: Report, *, markdown: bool) -> None:
    """The tables of each data set, in Markdown as docs/retrieval.md holds them."""
    from hindsight_core.benchmark import tables as cells

    console = tables.console()

    def say(table: Cells) -> None:
        if markdown:
            print(f"\n{cells.markdown(table)}\n")
            return
        shown = Table(*table[0], box=None)
        for row in table[1]:
            shown.add_row(*row)
        console.print(shown)

    print(f"Hindsight {found.version}; {found.machine}; store: {found.store}; {found.asked}; 95 % intervals")
    for name, said in found.described.items():
        print(f"{name}: {said}")
    for measured in found.sets:
        results = [result for result in found.results if result.data == measured.name]
        print("", *measured.lines(_DROPPED), sep="\n")
        say(cells.measures(results))
        if len(results) > 1:
            say(cells.differences(results))
    print("Milliseconds; a search is without the question's embedding:")
    say(cells.times(found.results))
    print(f"The process held at most {found.memory_mib:.0f} MiB, all configurations together.")
