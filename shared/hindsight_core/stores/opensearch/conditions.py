"""The conditions of a `Where` as filters, and the form in which metadata values are compared."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from hindsight_core.models import Memory, MetadataValue, Scalar
from hindsight_core.scoring import MEMORY_TYPES
from hindsight_core.stores import Where
from hindsight_core.stores.conditions import scalar_label
from hindsight_core.stores.opensearch.connection import Json

NOTHING: Json = {"match_none": {}}
NEVER = 2**63 - 1
_LABEL = 256
# A request may have 1024 clauses, most of which its terms take; these stand in it twice.
_CLAUSES = 8
# Whether a memory holds a value of every group.
_EACH = """
def held = new HashSet(doc['FIELD']);
for (group in params.groups) {
  boolean found = false;
  for (value in group) { if (held.contains(value)) { found = true; break; } }
  if (!found) return false;
}
return true;
"""


def metadata_label(name: str, value: Scalar) -> str:
    """One entry of metadata as a keyword; equal for equal type and value (1 is 1.0, but neither True nor "1")."""
    label = f"{name}\0{scalar_label(value)}"
    if len(label) <= _LABEL:
        return label
    return f"\0{hashlib.blake2b(label.encode('utf-8', 'surrogatepass'), digest_size=32).hexdigest()}"


def metadata_labels(memory: Memory) -> list[str]:
    return sorted({metadata_label(name, value) for name, held in memory.metadata.items() for value in _scalars(held)})


def _scalars(value: MetadataValue) -> Sequence[Scalar]:
    if value is None:
        return ()
    return value if isinstance(value, list) else (value,)


def filters(namespace: str, where: Where, *, rankable: bool = False) -> list[Json]:
    """All must hold, the namespace first; `rankable` leaves working memory out."""
    found: list[Json] = [_is("namespace", namespace)]
    if rankable:
        found.append(_one_of("memory_type", [name for name in MEMORY_TYPES if name != "working"]))
    for name in ("user_id", "session_id", "task_id", "key"):
        value: str | None = getattr(where, name)
        if value is not None:
            found.append(_is(name, value))
    for name, values in (
        ("status", where.statuses),
        ("memory_type", where.memory_types),
        ("kind", where.kinds),
        ("source", where.sources),
        ("id", where.ids),
        ("tags", where.tags_any or None),
        ("derived_from", where.derived_from),
    ):
        if values is not None:
            found.append(_one_of(name, values))
    found.extend(_each_of("tags", [[tag] for tag in dict.fromkeys(where.tags_all)]))
    labels = [[metadata_label(name, value) for value in values] for name, values in where.metadata.items()]
    found.extend(_each_of("metadata", labels))
    if where.no_user:
        found.append({"bool": {"must_not": [{"exists": {"field": "user_id"}}]}})
    if where.reader is None:
        found.append(_is("visibility", "shared"))
    elif where.reader != "*":
        found.append({"bool": {"should": [_is("visibility", "shared"), _is("agent_id", where.reader)]}})
    found.extend(_instants(where))
    return found


def _instants(where: Where) -> list[Json]:
    bounds: list[tuple[str, str, int | None]] = [
        ("observed_at", "gte", where.observed_from),
        ("observed_at", "lt", where.observed_to),
        ("valid_from", "lte", where.begun_at),
        ("valid_to", "gt", where.lasting_at),
        ("expires_at", "gt", where.alive_at),
        ("expires_at", "lte", where.expired_at),
    ]
    return [{"range": {field: {bound: at}}} for field, bound, at in bounds if at is not None]


def _is(field: str, value: str) -> Json:
    return {"term": {field: value}}


def _each_of(field: str, groups: list[list[str]]) -> list[Json]:
    """One value of every group; beyond a few groups, one script looks for the rest of them."""
    found = [_one_of(field, values) for values in groups[:_CLAUSES]]
    if rest := groups[_CLAUSES:]:
        source = _EACH.replace("FIELD", field)
        found.append({"script": {"script": {"source": source, "params": {"groups": rest}}}})
    return found


def _one_of(field: str, values: Sequence[str]) -> Json:
    return {"terms": {field: list(values)}} if values else NOTHING
