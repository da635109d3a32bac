"""The indices: their names, settings and fields.

    PREFIX-memories     memories with everything that is searched, routed by namespace
    PREFIX-journal      audit events, runs, receipts and tombstones, by `log`
    PREFIX-retrievals   the retrieval log
    PREFIX-state        a head per namespace, large unfinished changes, access counters, and what the store is made for

Each name is an alias of an index that ends in `-000001`, so that a later one can take its place in one step: with
another embedding model names such as `PREFIX-memories.2` and `PREFIX-state.2` take the places of those two. Nothing
is mapped on its own (`dynamic: strict`); texts travel as JSON strings in fields that are kept and not looked into.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from hindsight_core.stores.opensearch.address import Address
from hindsight_core.stores.opensearch.connection import Json

Index: TypeAlias = Literal["memories", "journal", "retrievals", "state"]

# What a later schema adds to the indices of an earlier one stands in `ADDED`.
SCHEMA = 5
INDICES: tuple[Index, ...] = ("memories", "journal", "retrievals", "state")

# A longer value than this is kept but not found by; anything longer than 32 766 bytes would be refused.
_KEYWORD: Json = {"type": "keyword", "ignore_above": 8191}
_LONG: Json = {"type": "long"}
_KEPT: Json = {"type": "object", "enabled": False}
# Bytes of any number, read without reading the rest of the document.
_COLUMN: Json = {"type": "binary", "doc_values": True}

_FIELDS: dict[Index, dict[str, Json]] = {
    "memories": {
        **dict.fromkeys(
            (
                "id",
                "namespace",
                "status",
                "memory_type",
                "kind",
                "source",
                "visibility",
                "user_id",
                "agent_id",
                "session_id",
                "task_id",
                "key",
                "tags",
                "metadata",
                "derived_from",
                "speaker",
                "days",
                "question",
                "vectors",
            ),
            _KEYWORD,
        ),
        # Unix milliseconds; `moment` is absent where recency cannot tell the age, the two ends are `NEVER` when open.
        # `type` is the place of `memory_type` among the types: scripts read numbers faster than dates and words.
        **dict.fromkeys(("observed_at", "moment", "valid_from", "valid_to", "expires_at", "type"), _LONG),
        # The version of the change that wrote the document; absent where a version before schema 5 did.
        "changed": _LONG,
        "confidence": {"type": "double"},
        "half_life_days": {"type": "double"},
        "text": {"type": "rank_features"},
        "context": {"type": "rank_features"},
        **dict.fromkeys(("version", "born"), _KEPT),
        **dict.fromkeys(("kept", "mixed", "bare"), _COLUMN),
    },
    "journal": {
        **dict.fromkeys(("id", "namespace", "log", "memory_ids", "run_id"), _KEYWORD),
        **dict.fromkeys(("at", "version"), _LONG),
        "body": _KEPT,
    },
    "retrievals": {
        **dict.fromkeys(("id", "namespace", "memory_ids"), _KEYWORD),
        "at": _LONG,
        "body": _KEPT,
    },
    "state": {
        "namespace": _KEYWORD,
        "part_of": _LONG,
        **dict.fromkeys(
            (
                "value",
                "sequence",
                "epoch",
                "searchable",
                "basis",
                "memories",
                "speakers",
                "intent",
                "part",
                "count",
                "at",
            ),
            _KEPT,
        ),
    },
}

# By the schema that brought them.
ADDED: dict[int, dict[Index, list[str]]] = {
    2: {"memories": ["derived_from"]},
    3: {"memories": ["kept", "mixed", "bare"]},
    4: {"state": ["basis"]},
    5: {"memories": ["changed"]},
}

_SETTINGS: dict[Index, Json] = {
    "memories": {"knn": True},
    # Whoever reads these refreshes them first.
    "journal": {"refresh_interval": "30s"},
    "retrievals": {"refresh_interval": "30s"},
    "state": {"refresh_interval": "30s"},
}


# Whose names tell the generation: a process that works with the vectors of an earlier one finds neither of them.
OF_GENERATIONS: tuple[Index, ...] = ("memories", "state")


# The `_id` under which stands whose vectors there are, in the first generation.
IDENTITY = "/identity"


def alias(address: Address, index: Index, generation: int = 1) -> str:
    """The name under which an index is read and written; with another embedding model comes another `generation`."""
    name = f"{address.prefix}-{index}"
    return f"{name}.{generation}" if generation > 1 and index in OF_GENERATIONS else name


def fact(name: str, generation: int) -> str:
    """The `_id` of what the store knows of the vectors of a generation, such as `/identity`."""
    return f"{name}.{generation}" if generation > 1 else name


def creation(address: Address, index: Index, number: int = 1) -> tuple[str, Json]:
    """The name of the `number`th index of its kind, and the body that creates it; only the first has its alias then."""
    settings: Json = {
        "number_of_shards": address.options.shards,
        "auto_expand_replicas": "0-1",
        # A process that was held up must not bring back what was erased meanwhile: deletions are remembered for longer
        # than any request takes.
        "gc_deletes": "1h",
        "merge.policy.expunge_deletes_allowed": 0,
        **_SETTINGS[index],
    }
    mappings: Json = {"dynamic": "strict", "properties": _FIELDS[index]}
    if index != "state":
        mappings["_routing"] = {"required": True}
        if address.options.spread > 1:
            # Else one namespace's pieces would be neighbours of which most lie in the same shard.
            settings["number_of_routing_shards"] = address.options.shards
            settings["routing_partition_size"] = address.options.spread
    name = alias(address, index)
    aliases: Json = {name: {}} if number == 1 else {}
    return f"{name}-{number:06}", {"settings": {"index": settings}, "mappings": mappings, "aliases": aliases}


def added(since: int) -> dict[Index, Json]:
    """The fields that indices of the schema `since` lack, as bodies of mapping updates."""
    found: dict[Index, Json] = {}
    for schema, indices in ADDED.items():
        for index, names in indices.items():
            if schema > since:
                properties = found.setdefault(index, {"properties": {}})["properties"]
                properties.update({name: _FIELDS[index][name] for name in names})
    return found


def vector_field(which: Literal["mixed", "bare"], dimension: int) -> str:
    """The field of the vectors of one dimension."""
    return f"{which}_{dimension}"


def vector_fields(dimension: int) -> Json:
    """The fields of vectors, which are added with the first one: nobody knows its dimension before."""
    method: dict[str, Any] = {
        "name": "hnsw",
        "engine": "lucene",
        "space_type": "cosinesimil",
        "parameters": {"m": 16, "ef_construction": 100},
    }
    field: Json = {"type": "knn_vector", "dimension": dimension, "method": method}
    return {"properties": {vector_field("mixed", dimension): field, vector_field("bare", dimension): field}}
