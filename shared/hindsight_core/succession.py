"""Records of tools, `order TB-1: state=sent` or JSON: whether two are of one thing, and what a newer one leaves."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

import msgspec

from hindsight_core.readings import kept

Succession: TypeAlias = Literal["replaces", "adds", "other"]
_FIELD = re.compile(r"([^\W\d][\w.-]*)=([^\s,;，；]+)")
_IDENTIFIER = re.compile(r"\d|\w-\w")
_NAMES_IT = re.compile(
    r"(?:^|[_.-])(?:id|uuid|guid|key|sku|code|number|no|name|email)$|(?:编号|单号|工号|名称|姓名)$", re.IGNORECASE
)
_INNER_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")


class _Record(msgspec.Struct, frozen=True):
    head: str
    fields: dict[str, str]


def succession(old: str, new: str) -> Succession | None:
    """What a newer record means for an older one; None where that is not certain.

    They are of one thing where the words before the fields agree and either hold an identifier, or the field that
    names it (`id`, `sku`, `order_no` …) or else the first one is equal. `replaces`: every field of the old one is said
    again and one of them has changed; `adds`: no field that both have has changed; `other`: what names them differs.
    """
    before, after = _record(old), _record(new)
    if not before.fields or not after.fields or before.head != after.head:
        return None
    if not _IDENTIFIER.search(before.head):
        name = next((name for name in before.fields if _names_it(name) and name in after.fields), None)
        if name is not None and before.fields[name] != after.fields[name]:
            return "other"
        first = next(iter(before.fields))
        if name is None and after.fields.get(first) != before.fields[first]:
            return None
    changed = any(after.fields[name] != value for name, value in before.fields.items() if name in after.fields)
    if not changed:
        return "adds" if before.fields.keys() != after.fields.keys() else None
    return "replaces" if before.fields.keys() <= after.fields.keys() else None


def reports(new: str, old: str) -> bool:
    """Whether a record says of one of its fields what an older text does not say anywhere."""
    return any(value.casefold() not in old.casefold() for value in _record(new).fields.values())


def _names_it(name: str) -> bool:
    return bool(_NAMES_IT.search(_INNER_CAPITAL.sub("_", name)))


@kept(1024)
def _record(text: str) -> _Record:
    if text.startswith("{"):
        try:
            fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        except msgspec.DecodeError:
            pass
        else:
            return _Record("", {name: bytes(value).decode() for name, value in fields.items()})
    found = _FIELD.search(text)
    head = " ".join(text[: found.start()].split()) if found else ""
    return _Record(head, dict(_FIELD.findall(text)))
