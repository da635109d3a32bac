"""The query string: its parameters, to a request struct."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any, TypeVar, get_args, get_type_hints
from urllib.parse import unquote, unquote_to_bytes

import msgspec
from litestar import Request as LitestarRequest
from litestar.di import Provide

from hindsight_core.decoding import convert
from hindsight_core.errors import InvalidInput
from hindsight_core.requests import Filters, Request
from hindsight_functions.admission import narrowed

T = TypeVar("T", bound=Request)
_LISTS = frozenset({"memory_type", "kind", "status", "source", "tags_all", "tags_any", "ids"})
METADATA = "metadata."
# A `+` that was not escaped arrives as a space.
_SPACED_OFFSET = re.compile(r" (\d\d:\d\d)$")


def queried(kind: type[Request]) -> dict[str, Any]:
    """What a route decorator needs so that its handler's `asked` is the query string as a `kind`."""
    return {"dependencies": {"asked": _provider(kind)}, "opt": {"asked": kind}}


def _provider(kind: type[T]) -> Provide:

    def provide(request: LitestarRequest[Any, Any, Any]) -> T:
        check_encoding(request)
        given = {name: request.query_params.getall(name) for name in request.query_params}
        return narrowed(request, read_query(given, kind))

    # Litestar reads the annotation, and cannot know what T is here.
    provide.__annotations__["return"] = kind
    return Provide(provide, sync_to_thread=False)


def read_query(given: Mapping[str, list[str]], kind: type[T]) -> T:
    """The `kind` that these parameters make.

    The fields of `filters` are parameters of their own. Where a list is meant, one parameter is split at commas and
    repeated ones are taken as they are. `metadata.KEY=VALUE` means the text VALUE, or the number or boolean it spells.
    An empty filter is none. Raises `InvalidInput` naming the parameter that is unknown, repeated or wrong.
    """
    names = parameters(kind)
    fields: dict[str, object] = {}
    filters: dict[str, object] = {}
    metadata: dict[str, list[object]] = {}
    for name, values in given.items():
        if name.startswith(METADATA) and "ids" in names:
            metadata[name.removeprefix(METADATA)] = [reading for value in values for reading in _readings(value)]
            continue
        if name not in names:
            raise InvalidInput.of(name, "is not a parameter of this request")
        target = filters if name in Filters.__struct_fields__ else fields
        if name in _LISTS:
            split = values[0].split(",") if len(values) == 1 else values
            if any(split):
                target[name] = [value for value in split if value]
        elif len(values) > 1:
            raise InvalidInput.of(name, "is given more than once")
        elif values[0] or name in Request.__struct_fields__:
            target[name] = _SPACED_OFFSET.sub(r"+\1", values[0]) if datetime in get_args(names[name]) else values[0]
    if "ids" in names:
        fields["filters"] = convert(filters | {"metadata": metadata}, Filters, strict=False)
    return convert(fields, kind, strict=False)


def check_encoding(request: LitestarRequest[Any, Any, Any]) -> None:
    """Raise `InvalidInput` naming a parameter that is no UTF-8: what stands for its bytes would be another's text."""
    query: bytes = request.scope["query_string"]
    for part in query.split(b"&"):
        try:
            unquote_to_bytes(part).decode()
        except UnicodeDecodeError:
            name = unquote(part.partition(b"=")[0].decode("latin-1"))
            raise InvalidInput.of(name, "is not UTF-8") from None


@cache
def parameters(kind: type[Request]) -> dict[str, Any]:
    """The parameters of a request in a query string: name to type."""
    hints = get_type_hints(kind, include_extras=True)
    names = {
        encoded: hints[name]
        for name, encoded in zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    }
    if names.pop("filters", None) is not None:
        names |= {
            name: hint for name, hint in get_type_hints(Filters, include_extras=True).items() if name != "metadata"
        }
    return names


def _readings(value: str) -> list[object]:
    try:
        return [value, msgspec.json.decode(value, type=int | float | bool)]
    except msgspec.DecodeError:
        return [value]
