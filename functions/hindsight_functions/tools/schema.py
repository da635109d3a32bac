"""JSON Schemas that every client reads: flat, one `type` a property, no references or unions."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

import msgspec

Schema: TypeAlias = dict[str, Any]

# Every tool's schema is read by a model before each answer. What is left out is checked all the same, and the error
# says it to the few that go wrong.
_UNSAID = frozenset({"title", "additionalProperties", "minLength", "maxLength", "minimum", "maximum", "pattern"})


@cache
def properties(kind: type[msgspec.Struct]) -> Schema:
    """The properties of `flat(kind)`."""
    found: Schema = flat(kind)["properties"]
    return found


def flat(kind: type[msgspec.Struct]) -> Schema:
    """The schema of a struct with everything written out in place. Its optional fields must be `T | UnsetType`."""
    (top,), parts = msgspec.json.schema_components([kind])
    return _inlined(top, parts)


def _inlined(schema: Schema, parts: Schema) -> Schema:
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return _inlined(parts[name], parts)
    found = {key: value for key, value in schema.items() if key not in _UNSAID}
    if "properties" in found:
        found["properties"] = {name: _inlined(value, parts) for name, value in found["properties"].items()}
        if not found.get("required"):
            found.pop("required", None)
        # A struct's docstring is for readers of the code.
        found.pop("description", None)
    if "items" in found:
        found["items"] = _inlined(found["items"], parts)
    if "enum" in found:
        found = {"type": "string", **found}
    return found
