"""Records of tools, `order TB-1: state=sent`: whether two of them speak of one thing, and what a newer one leaves."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

Succession: TypeAlias = Literal["replaces", "adds"]
_FIELD = re.compile(r"([^\W\d][\w.-]*)=([^\s,;，；]+)")
_IDENTIFIER = re.compile(r"\d|\w-\w")


def succession(old: str, new: str) -> Succession | None:
    """What a newer record means for an older one of the same thing; None where that is not certain.

    They are of one thing where the words before the fields agree and either hold an identifier or the first fields
    are equal. `replaces`: every field of the old one is said again and one of them has changed; `adds`: no field that
    both have has changed.
    """
    before, after = dict(_FIELD.findall(old)), dict(_FIELD.findall(new))
    if not before or not after or _head(old) != _head(new):
        return None
    first = next(iter(before))
    if not _IDENTIFIER.search(_head(old)) and after.get(first) != before[first]:
        return None
    changed = any(after[name] != value for name, value in before.items() if name in after)
    if not changed:
        return "adds" if before.keys() != after.keys() else None
    return "replaces" if before.keys() <= after.keys() else None


def _head(text: str) -> str:
    found = _FIELD.search(text)
    return " ".join(text[: found.start()].split()) if found else ""
