"""How long the vectors of a store are: decided by the first one, and the same ever after."""

from __future__ import annotations

from collections.abc import Sequence

from hindsight_core.errors import ConfigurationError
from hindsight_core.stores import Record
from hindsight_core.stores.opensearch.connection import Connection
from hindsight_core.stores.opensearch.documents import vectors
from hindsight_core.stores.opensearch.indices import Action, Indices, json
from hindsight_core.stores.opensearch.mapping import fact, vector_fields

DIMENSION = "/dimension"


class Dimensions:
    """Knows the dimension once there is one; before it does, it asks."""

    def __init__(self, connection: Connection, indices: Indices) -> None:
        self._connection = connection
        self._indices = indices
        self._known: int | None = None

    @property
    def place(self) -> str:
        """The `_id` of what is known."""
        return fact(DIMENSION, self._indices.generation)

    async def known(self) -> int | None:
        """The dimension, None as long as nothing has a vector; its fields are mapped."""
        if self._known is None:
            (found,) = await self._indices.documents("state", [self.place])
            if found is not None:
                self._known = int(found["_source"]["value"])
        return self._known

    async def admit(self, records: Sequence[Record]) -> None:
        """Raise `ConfigurationError` if a vector is of another dimension; the first one decides."""
        lengths = {len(vector) for record in records for vector in vectors(record) if vector is not None}
        if not lengths:
            return
        known = await self.known()
        if known is None:
            known = await self._decide(min(lengths))
        if lengths != {known}:
            raise ConfigurationError(
                f"A vector of {max(lengths - {known})} dimensions does not fit into a store of {known}.",
                remedy="Use the embedder that the store was filled with.",
            )

    async def _decide(self, dimension: int) -> int:
        # The fields come first: who knows the dimension may search them.
        path = f"/{self._indices.name('memories')}/_mapping"
        await self._connection.request("PUT", path, vector_fields(dimension))
        source = json({"value": str(dimension)})
        await self._indices.write([Action("state", "create", {"_id": self.place}, source)])
        known = await self.known()
        assert known is not None
        return known
