"""A place for memories on an OpenSearch, made once and emptied for each test."""

from __future__ import annotations

import contextlib
import json
import secrets
from typing import Any, Self

import httpx

from hindsight_core.stores import open_store


class OpenSearchPlace:
    """The indices of one prefix; `options` are those of the store's URL, such as `shards=3`."""

    def __init__(self, url: str, options: str = "") -> None:
        self._client = httpx.Client(base_url=url, timeout=60, trust_env=False)
        self.prefix = f"test-{secrets.token_hex(4)}"
        host = httpx.URL(url).netloc.decode()
        self.store_url = f"opensearch://{host}/{self.prefix}" + (f"?{options}" if options else "")

    async def make(self) -> None:
        """Make the indices as any process would."""
        store = open_store(self.store_url)
        await store.prepare(None)
        await store.aclose()

    def empty(self) -> None:
        """Take everything out that was written, and the knowledge of whose place this is."""
        self._call("POST", "_refresh")
        but_the_schema = {"query": {"bool": {"must_not": [{"ids": {"values": ["/schema"]}}]}}}
        self._call("POST", "_delete_by_query?refresh=true&conflicts=proceed", json=but_the_schema)

    def holding(self, text: str) -> list[str]:
        """The `_id`s of all documents that hold a text anywhere."""
        self._call("POST", "_refresh")
        return [hit["_id"] for hit in self._hits("*") if text in json.dumps(hit["_source"], ensure_ascii=False)]

    def ids(self, index: str, kind: str) -> list[str]:
        """The `_id`s of one kind of documents."""
        self._call("POST", "_refresh")
        return [hit["_id"] for hit in self._hits(index) if f"/{kind}/" in hit["_id"]]

    def _hits(self, index: str) -> list[dict[str, Any]]:
        answer = self._client.post(f"/{self.prefix}-{index}/_search", json={"size": 10_000})
        found: list[dict[str, Any]] = answer.raise_for_status().json()["hits"]["hits"]
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the indices, if there is still somebody to ask."""
        with contextlib.suppress(httpx.HTTPError):
            self._client.delete(f"/{self.prefix}-*")
        self._client.close()

    def _call(self, method: str, path: str, **options: object) -> None:
        self._client.request(method, f"/{self.prefix}-*/{path}", **options).raise_for_status()  # type: ignore[arg-type]
