"""What an agent sends to a tool: lenient in form, strict in meaning.

Models and workflow builders send numbers, booleans and lists as text, and null or "" for what they leave out. All of
that is read; a field that a tool does not have, or a value that means nothing there, is refused by name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, TypeAlias, TypeVar, cast, get_args, get_type_hints

import msgspec

from hindsight_core.decoding import convert
from hindsight_core.errors import InvalidInput
from hindsight_functions.tools.schema import properties

T = TypeVar("T", bound=msgspec.Struct)
Given: TypeAlias = Mapping[str, object]

_TIME = re.compile(
    r"(\d{4})[-/](\d{2})[-/](\d{2})(?:[T ](\d{2}:\d{2})(:\d{2}(?:\.\d+)?)?)?\s?(Z|[+-]\d{2}:\d{2})?", re.IGNORECASE
)
_LONGEST_LITERAL = 10_000
_WHOLE = re.compile(r"([+-]?\d{1,18})\.0+")
_BOOLEANS = {
    **dict.fromkeys(("true", "yes", "on", "1", "1.0"), True),
    **dict.fromkeys(("false", "no", "off", "0", "0.0"), False),
}
_EPOCH = re.compile(r"(\d{10})(?:\d{3})?(?:\.\d+)?")
# Kept as sent, blanks included: what is remembered is what was said.
_VERBATIM = frozenset({"content", "new_content"})
# Somebody's own words or name, which may well be "none": taken for absent, it would reach everybody's memories.
_FREE = _VERBATIM | {"query", "reason", "user_id"}
_NOTHING = frozenset({"", "null", "none", "undefined"})


def read(given: Given | None, kind: type[T]) -> T:
    """The arguments of a tool; raises `InvalidInput` naming the one at fault, and all there are for an unknown one.

    Null, blank and empty values count as absent.
    """
    known, moments = properties(kind), _moments(kind)
    plain: dict[str, object] = {}
    for name, value in (given or {}).items():
        if _is_absent(value, free=name in _FREE):
            continue
        if name not in known:
            raise InvalidInput.of(name, f"there is no such argument; there are {', '.join(known)}")
        found = _plain(value, known[name], verbatim=name in _VERBATIM)
        if found != []:
            plain[name] = _moment(found, name) if isinstance(found, str) and name in moments else found
    return convert(plain, kind, strict=False)


def _is_absent(value: object, *, free: bool = False) -> bool:
    if isinstance(value, str):
        text = value.strip().lower()
        return not text if free else text in _NOTHING
    return value is None or value == [] or value == {}


def _plain(value: object, schema: Mapping[str, Any], *, verbatim: bool = False) -> object:
    wanted = schema.get("type")
    if wanted == "array":
        items = _items(value)
        if items is None:
            return value  # which is then refused by name
        return [_plain(item, schema["items"]) for item in items if not _is_absent(item)]
    if isinstance(value, list):
        items = cast("list[object]", value)
        return _plain(items[0], schema, verbatim=verbatim) if len(items) == 1 else items
    if wanted == "string":
        return _text(value, schema, verbatim=verbatim)
    if wanted == "boolean" and isinstance(value, int | float | str):
        return _BOOLEANS.get(str(value).strip().lower(), value)
    text = value.strip() if isinstance(value, str) else value
    if wanted == "integer":
        whole = _WHOLE.fullmatch(str(text))
        return int(whole[1]) if whole else text
    return text


def _text(value: object, schema: Mapping[str, Any], *, verbatim: bool) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    if verbatim:
        return str(value)
    text = str(value).strip()
    return text.lower() if "enum" in schema else text


@cache
def _moments(kind: type[msgspec.Struct]) -> frozenset[str]:
    """The arguments that are instants."""
    hints = get_type_hints(kind)
    return frozenset(name for name, hint in hints.items() if hint is datetime or datetime in get_args(hint))


def _moment(text: str, name: str) -> str:
    """A time as RFC 3339 writes it: a day alone is its first moment, and seconds may be left out.

    Unix time is read where it can be nothing else: ten digits, or thirteen with milliseconds. Raises `InvalidInput`.
    """
    if epoch := _EPOCH.fullmatch(text):
        return datetime.fromtimestamp(int(epoch[1]), UTC).isoformat()
    found = _TIME.fullmatch(text)
    if found is None:
        raise InvalidInput.of(name, f"{text[:40]!r} is no time; write it as 2025-03-01T09:30Z or 2025-03-01")
    year, month, day, minutes, seconds, offset = found.groups()
    return f"{year}-{month}-{day}T{minutes or '00:00'}{seconds or ':00'}{offset or ''}"


def _items(value: object) -> list[object] | None:
    """A list, or what a text says of one: JSON, Python's form of it, or items between commas; None for a broken one."""
    if isinstance(value, list):
        return cast("list[object]", value)
    if not isinstance(value, str):
        return [value]
    text = value.strip()
    if text.startswith(("[", "{")):
        parsers: list[Callable[[str], object]] = [partial(msgspec.json.decode, type=list[object])]
        if len(text) <= _LONGEST_LITERAL:  # which is slow
            parsers.append(ast.literal_eval)
        for parse in parsers:
            with suppress(msgspec.DecodeError, ValueError, SyntaxError, MemoryError, RecursionError):
                found = parse(text)
                if isinstance(found, list):
                    return cast("list[object]", found)
        return None
    return list(re.split(r"[,，、]", value))
