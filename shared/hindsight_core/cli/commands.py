"""The application that holds all commands: how they are declared, run, and how they fail."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias, get_args

import msgspec
import typer
from typer.models import ArgumentInfo

from hindsight_core.cli.options import Options
from hindsight_core.errors import HindsightError, InvalidInput, NotFound, TooManyRequests, Unavailable
from hindsight_core.release import release
from hindsight_core.responses import problem_of

DONE, NOTHING, WRONG, UNAVAILABLE, INTERRUPTED = 0, 1, 2, 3, 130
# Answers the exit code; None is DONE.
Command: TypeAlias = Callable[..., Awaitable[int | None]]

app = typer.Typer(
    help="A memory for AI agents that can be trusted over weeks.",
    epilog="Exit codes: 0 done; 1 nothing was found or stored, or doctor found a fault; 2 the command or its input is "
    "wrong; 3 the store, a provider or the server is not available.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


_GROUPS = {
    "bench": "Measure on data of your own.",
    "task": "The working memory of tasks.",
    "token": "Make, list and revoke the tokens of a server.",
}
_groups: dict[str, typer.Typer] = {}


def command(name: str) -> Callable[[Command], Command]:
    """Declare `async def f(target, ...)` as a command; a parameter that is a group of `Options` stands for them all.

    A name of two words, such as `bench retrieval`, is a command of a group, which `_GROUPS` describes.
    """

    def declare(function: Command) -> Command:
        own: list[inspect.Parameter] = []
        groups: dict[str, type[Options]] = {}
        for parameter in inspect.signature(function, eval_str=True).parameters.values():
            if isinstance(parameter.annotation, type) and issubclass(parameter.annotation, Options):
                groups[parameter.name] = parameter.annotation
            else:
                own.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

        def call(**given: Any) -> None:  # noqa: ANN401 (whatever the command declares)
            for name, group in groups.items():
                given[name] = group(**{option: given.pop(option) for option in group.__struct_fields__})
            code = _ran(function(**given), as_json=given["target"].as_json, called=called)
            if code:
                raise typer.Exit(code)

        # What is the command's own comes first in its help, where and whose last.
        for group in reversed(groups.values()):
            own += group.parameters()
        called = {parameter.name: _called(parameter) for parameter in own}
        call.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
        call.__doc__ = function.__doc__
        above, _, own_name = name.rpartition(" ")
        (_group(above) if above else app).command(own_name)(call)
        return function

    return declare


def _group(name: str) -> typer.Typer:
    if name not in _groups:
        _groups[name] = typer.Typer(help=_GROUPS[name], no_args_is_help=True)
        app.add_typer(_groups[name], name=name)
    return _groups[name]


def run(arguments: Sequence[str]) -> int:
    """Run a command line; its exit code. Nothing but a defect raises."""
    # Importing them declares them.
    from hindsight_core.cli import (
        backup,
        bench,
        calibrating,
        doctor,
        erase,
        evaluating,
        mcp,
        reading,
        reembedding,
        serve,
        sweep,
        task,
        token,
        transfer,
        writing,
    )

    del (
        backup,
        bench,
        calibrating,
        doctor,
        erase,
        evaluating,
        mcp,
        reading,
        reembedding,
        serve,
        sweep,
        task,
        token,
        transfer,
        writing,
    )
    try:
        app(list(arguments), prog_name="hindsight")
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else DONE
    return DONE


def _called(parameter: inspect.Parameter) -> str:
    """What a person calls a parameter of a command: `--top-k`, or `QUERY` for one without an option."""
    shown = next((one for one in get_args(parameter.annotation)[1:] if hasattr(one, "param_decls")), None)
    if isinstance(shown, ArgumentInfo):
        return shown.metavar or parameter.name.upper()
    named = [name for name in (shown.param_decls if shown else None) or () if name.startswith("--")]
    return named[0] if named else f"--{parameter.name.replace('_', '-')}"


def _as_called(error: InvalidInput, called: Mapping[str, str]) -> InvalidInput:
    """The error with the command's own names for the fields of the request that it made of them."""
    detail = error.detail
    for fault in error.errors:
        if fault.field in called:
            detail = detail.replace(f"{fault.field}: {fault.message}", f"{called[fault.field]}: {fault.message}")
    return InvalidInput(detail, remedy=error.remedy, errors=error.errors)


def failed(error: HindsightError, *, as_json: bool) -> int:
    """Say what went wrong and what to do, on standard error; the exit code for it."""
    if as_json:
        print(msgspec.json.encode(problem_of(error)).decode(), file=sys.stderr)
    else:
        print(f"hindsight: {error.detail}", file=sys.stderr)
        if error.remedy:
            print(f"  {error.remedy}", file=sys.stderr)
    if isinstance(error, Unavailable | TooManyRequests):
        return UNAVAILABLE
    return NOTHING if isinstance(error, NotFound) else WRONG


def _ran(work: Awaitable[int | None], *, as_json: bool, called: Mapping[str, str]) -> int:
    async def finish() -> int | None:
        return await work

    try:
        return asyncio.run(finish()) or DONE
    except InvalidInput as exc:
        return failed(exc if as_json else _as_called(exc, called), as_json=as_json)
    except HindsightError as exc:
        return failed(exc, as_json=as_json)
    except KeyboardInterrupt:
        return INTERRUPTED


def _version(asked: bool) -> None:
    if asked:
        print(f"hindsight {release()}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the release and end.")
    ] = False,
) -> None:
    del version
