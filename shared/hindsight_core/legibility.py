"""Refuses text that no store could give back as it came: NUL bytes, lone surrogates, and nothing to be seen.

A `reason` with a secret in it is refused as well: it goes into the history, which nobody searches for secrets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import cast

import msgspec

from hindsight_core.decoding import convert
from hindsight_core.errors import FieldError, InvalidInput
from hindsight_core.redaction import find_secret

# White space, and what takes no place or shows nothing: zero-width and direction marks, fillers, variants, tags.
_UNSEEN = re.compile(
    "[\\s\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]+"
)
_NOT_BLANK = frozenset({"content", "query", "text", "key", "user_id", "agent_id", "session_id", "task_id", "intent"})


def check_request(request: msgspec.Struct, *, decoded: bool = False) -> None:
    """Raise `InvalidInput` unless every field holds what its type says and text that can be kept.

    A request that was built in Python has passed none of the limits of its fields, and what is stored beyond them
    could not be read again. One that was `decoded` has passed them all: msgspec checks them while decoding.
    """
    check_legible(request)
    if not decoded:
        convert(msgspec.to_builtins(request), type(request))


def check_legible(request: msgspec.Struct) -> None:
    """Raise `InvalidInput` naming every field of the request, however deep, whose text cannot be kept."""
    if _is_legible(request, ""):
        return
    faults = tuple(_faults(request, ""))
    raise InvalidInput("; ".join(f"{fault.field}: {fault.message}" for fault in faults[:3]), errors=faults)


def _is_legible(value: object, name: str) -> bool:
    """Whether there are no `_faults` in a value of this name; far quicker than to say where they are."""
    if isinstance(value, str):
        return _fault(value, name) is None
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
        fields = ((getattr(value, name), encoded) for name, encoded in names)
        return all(held is None or _is_legible(held, encoded) for held, encoded in fields)
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).items()
        return all(_is_legible(key, "") and _is_legible(item, str(key).rpartition(".")[2]) for key, item in items)
    if isinstance(value, tuple | list):
        return all(_is_legible(item, "") for item in cast("Sequence[object]", value))
    return True


def _fault(text: str, name: str) -> str | None:
    if "\x00" in text:
        return "contains a NUL character"
    if not text.isascii() and _has_surrogate(text):
        return "contains half of a surrogate pair, which is no character"
    if name == "reason" and (secret := find_secret(text)) is not None:
        return f"contains a secret ({secret}); secrets are never stored"
    if name in _NOT_BLANK and _UNSEEN.fullmatch(text):
        return "is only white space" if text.isspace() else "holds nothing that can be seen"
    return None


def _faults(value: object, path: str) -> Iterator[FieldError]:
    if isinstance(value, str):
        if (fault := _fault(value, path.rpartition(".")[2])) is not None:
            yield FieldError(path, fault)
    elif isinstance(value, msgspec.Struct):
        names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
        for name, encoded in names:
            yield from _faults(getattr(value, name), f"{path}.{encoded}" if path else encoded)
    elif isinstance(value, dict):
        for key, item in cast("dict[object, object]", value).items():
            yield from _faults(key, f"{path}[key]")
            yield from _faults(item, f"{path}.{key}")
    elif isinstance(value, tuple | list):
        for i, item in enumerate(cast("Sequence[object]", value)):
            yield from _faults(item, f"{path}[{i}]")


def _has_surrogate(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False
