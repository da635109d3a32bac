"""Options that several commands share, as structs: a command that takes one has all its options."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, get_args, get_type_hints

import msgspec
import typer

from hindsight_core.cli.moments import SHAPE, read_moment
from hindsight_core.decoding import convert
from hindsight_core.errors import InvalidInput
from hindsight_core.models import Kind, MemoryType, Source, Status
from hindsight_core.requests import Filters


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """A group of options; the annotation of each field is how the command line shows it."""

    @classmethod
    def parameters(cls) -> Iterator[inspect.Parameter]:
        """The fields as parameters of a function, for typer to read."""
        hints = get_type_hints(cls, include_extras=True)
        for name, default in zip(cls.__struct_fields__, cls.__struct_defaults__, strict=True):
            yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[name])


def _any_of(literal: object) -> str:
    return "|".join(get_args(literal))


class Selection(Options, frozen=True, kw_only=True):
    """Which memories: every option narrows, and repeating one widens it."""

    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar=_any_of(MemoryType), help="Of this type.", rich_help_panel="Which memories"),
    ] = None
    kinds: Annotated[
        list[str] | None,
        typer.Option("--kind", metavar=_any_of(Kind), help="Of this kind.", rich_help_panel="Which memories"),
    ] = None
    statuses: Annotated[
        list[str] | None,
        typer.Option("--status", metavar=_any_of(Status), help="With this status.", rich_help_panel="Which memories"),
    ] = None
    sources: Annotated[
        list[str] | None,
        typer.Option("--source", metavar=_any_of(Source), help="From this source.", rich_help_panel="Which memories"),
    ] = None
    tags: Annotated[
        list[str] | None, typer.Option("--tag", help="With each of these tags.", rich_help_panel="Which memories")
    ] = None
    metadata: Annotated[
        list[str] | None,
        typer.Option("--metadata", metavar="KEY=VALUE", help="With this metadata.", rich_help_panel="Which memories"),
    ] = None
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Said at or after this time.", rich_help_panel="Which memories"),
    ] = None
    end: Annotated[
        str | None,
        typer.Option("--to", metavar="TIME", help="Said before this time.", rich_help_panel="Which memories"),
    ] = None
    timezone: Annotated[
        str | None,
        typer.Option(
            help="The zone of times without an offset, and of words such as yesterday.",
            rich_help_panel="Which memories",
        ),
    ] = None

    def filters(self) -> Filters:
        """The filters of a request."""
        fields: dict[str, Any] = {
            "memory_type": self.types,
            "kind": self.kinds,
            "status": self.statuses,
            "source": self.sources,
            "tags_all": self.tags or (),
            "metadata": pairs(self.metadata, "--metadata"),
            "observed_from": moment(self.start, "--from"),
            "observed_to": moment(self.end, "--to"),
        }
        return convert({name: value for name, value in fields.items() if value is not None}, Filters)


def moment(text: str | None, option: str) -> datetime | None:
    """The instant that an option names; a date alone is its first moment."""
    if text is None:
        return None
    if (found := read_moment(text)) is None:
        raise InvalidInput.of(option, f"{text!r} is no time; {SHAPE}")
    return found


def pairs(given: list[str] | None, option: str) -> dict[str, Any]:
    """Metadata from KEY=VALUE; numbers, true and false are read as such."""
    found: dict[str, Any] = {}
    for pair in given or ():
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise InvalidInput.of(option, f"{pair!r} is not KEY=VALUE")
        try:
            found[key] = msgspec.json.decode(value, type=int | float | bool)
        except msgspec.DecodeError:
            found[key] = value
    return found
