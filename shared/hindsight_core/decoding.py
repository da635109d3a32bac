"""What a caller sent, to the struct it should be: strict JSON in, `InvalidInput` that names the field out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import TypeAlias, TypeVar, cast

import msgspec
from msgspec import inspect

from hindsight_core.errors import FieldError, InvalidInput, Malformed

T = TypeVar("T")
Json: TypeAlias = dict[str, "Json"] | list["Json"] | str | int | float | bool | None

_AT = re.compile(r" - at `(?:key` in `)?\$(.*)`$")
_NAMED = re.compile(r"(?:unknown|required) field `(.*)`")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
_LONG_NUMBER = re.compile(rb"\d{19}")
_MOST_KEYS_TRIED = 64


def decode(body: bytes | memoryview | msgspec.Raw, kind: type[T]) -> T:
    """The `kind` that a JSON text holds.

    Raises `Malformed` when it is no JSON (NaN and Infinity are none), and `InvalidInput` naming the field by its
    dotted path (`messages[2].text`) when it is not a `kind`, has a field too many, or holds half a surrogate pair or
    a whole number beyond 64 bits.
    """
    text = bytes(body)
    try:
        found = msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as exc:
        raise _invalid(exc, _plain(text), kind, strict=True) from None
    except (msgspec.DecodeError, RecursionError) as exc:
        raise _malformed(text, exc) from None
    if _LONG_NUMBER.search(text):
        _check_numbers(_plain(text))
    return found


def convert(value: object, kind: type[T], *, strict: bool = True) -> T:
    """The `kind` that plain Python data holds; with `strict=False` numbers, instants and booleans may be texts.

    Raises `InvalidInput` like `decode`.
    """
    _check_numbers(cast("Json", value))
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as exc:
        raise _invalid(exc, cast("Json", value), kind, strict=strict) from None
    except RecursionError:
        raise Malformed("It is nested too deeply.") from None


def _check_numbers(value: Json) -> None:
    if _holds_too_long(value):
        raise _several(tuple(_walk(value, "", _beyond_64_bits)))


def _holds_too_long(value: Json) -> bool:
    """Whether a whole number somewhere in nested data is beyond 64 bits; naming its place takes far longer."""
    if isinstance(value, dict):
        return any(map(_holds_too_long, value.values())) or any(map(_beyond_64_bits, value))
    if isinstance(value, list):
        return any(map(_holds_too_long, value))
    return _beyond_64_bits(value) is not None


def _invalid(exc: msgspec.ValidationError, value: Json, kind: type[object], *, strict: bool) -> InvalidInput:
    text = str(exc)
    found = _AT.search(text)
    path, message = (found[1] if found else ""), _AT.sub("", text)
    head, unnamed, tail = path.partition("[...]")
    if unnamed:
        key = _key_at_fault(text, head, value, kind, strict=strict)
        path = head if key is None else f"{head}.{key}{tail.partition('[...]')[0]}"
    path = path.removeprefix(".")
    if message.startswith("Invalid enum value") and (choices := _choices(inspect.type_info(kind), _steps(path))):
        message = f"{message.partition('value ')[2]} is none of {', '.join(choices)}"
    if named := _NAMED.search(message):
        path = f"{path}.{named[1]}".removeprefix(".")
        message = "is not a known field" if "unknown" in message else "is missing"
    return InvalidInput.of(path or "body", message[:1].lower() + message[1:])


def _key_at_fault(text: str, head: str, value: Json, kind: type[object], *, strict: bool) -> str | None:
    """The key that msgspec writes as `[...]`: the first whose entry alone gives the same error."""
    steps = _steps(head)
    holder = value
    for step in steps:
        holder = _inside(holder, step)
    if not isinstance(holder, dict):
        return None
    for key in list(holder)[:_MOST_KEYS_TRIED]:
        try:
            msgspec.convert(_with(value, steps, {key: holder[key]}), kind, strict=strict)
        except msgspec.ValidationError as exc:
            if str(exc) == text:
                return key
    return None


def _steps(path: str) -> list[str | int]:
    return [name or int(index) for name, index in _STEP.findall(f".{path}" if path[:1] not in {"", ".", "["} else path)]


def _choices(kind: inspect.Type, steps: list[str | int]) -> list[str]:
    """The values that the place at `steps` of a type may have, where it is one of a few."""
    match kind:
        case inspect.Metadata():
            return _choices(kind.type, steps)
        case inspect.UnionType():
            return [value for one in kind.types for value in _choices(one, steps)]
        case inspect.LiteralType() if not steps:
            return [str(value) for value in kind.values]
        case inspect.StructType() if steps:
            of = [field.type for field in kind.fields if field.encode_name == steps[0]]
            return [value for one in of for value in _choices(one, steps[1:])]
        case inspect.ListType() | inspect.VarTupleType() if steps:
            return _choices(kind.item_type, steps[1:])
        case inspect.DictType():
            # A key that is none of them is at the place of the mapping itself, or at its own.
            found = _choices(kind.value_type, steps[1:]) if steps else []
            return found or _choices(kind.key_type, [])
        case _:
            return []


def _inside(value: Json, step: str | int) -> Json:
    if isinstance(value, dict) and isinstance(step, str):
        return value.get(step)
    if isinstance(value, list) and isinstance(step, int):
        return value[step]
    return None


def _with(value: Json, steps: list[str | int], replacement: Json) -> Json:
    """A copy of nested data in which what lies at `steps` is replaced."""
    if not steps:
        return replacement
    step, rest = steps[0], steps[1:]
    if isinstance(value, list) and isinstance(step, int):
        return [*value[:step], _with(value[step], rest, replacement), *value[step + 1 :]]
    if isinstance(value, dict) and isinstance(step, str):
        return {**value, step: _with(value[step], rest, replacement)}
    return value


def _malformed(body: bytes, exc: Exception) -> InvalidInput:
    """Why it could not be read, in words. A half surrogate pair is valid JSON, so it names its field instead."""
    if isinstance(exc, RecursionError):
        return Malformed("It is nested too deeply.")
    try:
        value = cast("Json", json.loads(body, parse_constant=_NotJson))
    except (ValueError, RecursionError):
        return Malformed(f"{str(exc).removeprefix('JSON is malformed: ').capitalize()}.")
    if strange := tuple(_walk(value, "", _constant)):
        return Malformed("; ".join(f"{fault.field}: {fault.message}" for fault in strange[:3]), errors=strange)
    faults = tuple(_walk(value, "", _half_a_pair))
    return _several(faults) if faults else Malformed(f"{exc}.", remedy="Send it as UTF-8.")


def _several(faults: tuple[FieldError, ...]) -> InvalidInput:
    return InvalidInput("; ".join(f"{fault.field}: {fault.message}" for fault in faults[:3]), errors=faults)


def _walk(value: Json, path: str, fault: Callable[[Json], str | None]) -> Iterator[FieldError]:
    """What `fault` finds in every value and key of nested data."""
    if (message := fault(value)) is not None:
        yield FieldError(path or "body", message)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _walk(item, f"{path}[{i}]", fault)
    elif isinstance(value, dict):
        for key, item in value.items():
            inner = f"{path}.{key.encode('utf-8', 'backslashreplace').decode()}".removeprefix(".")
            yield from _walk(key, inner, fault)
            yield from _walk(item, inner, fault)


def _half_a_pair(value: Json) -> str | None:
    if isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        return "contains half of a surrogate pair, which is no character"
    return None


def _beyond_64_bits(value: Json) -> str | None:
    return "is beyond 64 bits" if isinstance(value, int) and not -(2**63) <= value < 2**63 else None


def _plain(body: bytes) -> Json:
    """The JSON as plain data, for finding a field; raises `Malformed` where only the typed reading got by."""
    try:
        return cast("Json", msgspec.json.decode(body))
    except msgspec.ValidationError:
        return None  # a number that no float can be: its field has been named already
    except (msgspec.DecodeError, RecursionError) as exc:
        raise _malformed(body, exc) from None


class _NotJson(str):
    """A constant that only Python takes for JSON: `NaN`, `Infinity`."""

    __slots__ = ()


def _constant(value: Json) -> str | None:
    return f"{value} is not JSON" if isinstance(value, _NotJson) else None
