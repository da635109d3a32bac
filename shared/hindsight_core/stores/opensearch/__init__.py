"""The OpenSearch store; `open_opensearch` is what `stores.open_store` calls for its URLs."""

from __future__ import annotations

from hindsight_core.stores.opensearch.address import parse
from hindsight_core.stores.opensearch.connection import Connection
from hindsight_core.stores.opensearch.store import OpenSearchStore

__all__ = ["OpenSearchStore", "open_opensearch"]


def open_opensearch(url: str) -> OpenSearchStore:
    """The store at `opensearch://USER:PASSWORD@HOST:PORT/PREFIX?OPTION=VALUE` (see `address.Options`).

    Nothing is opened before the first call. Raises `ConfigurationError` for a URL that is wrong.
    """
    return OpenSearchStore(Connection(parse(url)))
