"""Notes in OpenSearch: documents of the state index, replaced by compare-and-set."""

from __future__ import annotations

from typing import Any

from hindsight_core.errors import Conflict
from hindsight_core.stores import Note
from hindsight_core.stores.notes import check, packed, unpacked
from hindsight_core.stores.opensearch.connection import Json
from hindsight_core.stores.opensearch.indices import Action, Indices, json


class Notes:
    """Reads notes as they are now, and replaces them."""

    def __init__(self, indices: Indices) -> None:
        self._indices = indices

    async def read(self, name: str) -> Note:
        found = await self._found(name)
        return Note() if found is None else unpacked(found["_source"]["value"])

    async def write(self, name: str, text: str, expected: int) -> Note:
        """Raises `Conflict` as `MemoryStore.keep` says."""
        found = await self._found(name)
        check(name, Note() if found is None else unpacked(found["_source"]["value"]), expected)
        note = Note(text=text, version=expected + 1)
        fields: dict[str, Any] = {"_id": _place(name)}
        if found is not None:
            fields |= {"if_seq_no": found["_seq_no"], "if_primary_term": found["_primary_term"]}
        action = Action("state", "create" if found is None else "index", fields, json({"value": packed(note)}))
        # Never repeated blindly: the first try may have succeeded unseen, and would look like somebody else's.
        (outcome,) = await self._indices.write([action], repeatable=False)
        if outcome.status == 409:
            raise Conflict(f"The note {name!r} was changed just now.", remedy="Read it again and retry.")
        return note

    async def _found(self, name: str) -> Json | None:
        (found,) = await self._indices.documents("state", [_place(name)])
        return found


def _place(name: str) -> str:
    # No namespace has a slash in its name.
    return f"/note/{name}"
