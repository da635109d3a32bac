"""A place for memories on an OpenSearch, made once and emptied for each test."""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import ssl
from typing import Any, Self
from urllib.parse import quote, urlsplit

import httpx

from hindsight_core.stores import open_store


def store_address(url: str) -> str:
    """The address of a store on the node or cluster at an `http` or `https` URL, with its user and password."""
    parts = urlsplit(url)
    return f"{'opensearchs' if parts.scheme == 'https' else 'opensearch'}://{parts.netloc}"


class OpenSearchPlace:
    """The indices of one prefix; `options` are those of the store's URL, such as `shards=3`."""

    def __init__(self, url: str, options: str = "") -> None:
        # A private authority as for the store: in SSL_CERT_FILE.
        certified = ssl.create_default_context()
        self._client = httpx.Client(base_url=url, timeout=60, trust_env=False, verify=certified)
        self.prefix = f"test-{secrets.token_hex(4)}"
        self.store_url = f"{store_address(url)}/{self.prefix}" + (f"?{options}" if options else "")

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
        return [hit["_id"] for hit in self._hits("*") if text in _told(hit["_source"])]

    def ids(self, index: str, kind: str) -> list[str]:
        """The `_id`s of one kind of documents."""
        self._call("POST", "_refresh")
        return [hit["_id"] for hit in self._hits(index) if f"/{kind}/" in hit["_id"]]

    def names(self) -> list[str]:
        """The names of all indices of the prefix."""
        answer = self._client.get(f"/_cat/indices/{self.prefix}-*", params={"format": "json"})
        return [found["index"] for found in answer.raise_for_status().json()]

    def deleted(self, index: str) -> int:
        """How many deleted documents are still on the disk."""
        answer = self._client.get(f"/{self.prefix}-{index}/_stats/docs").raise_for_status().json()
        return int(answer["_all"]["total"]["docs"]["deleted"])

    def block(self, on: bool, index: str = "*") -> None:
        """Refuse writes, as OpenSearch does to every index of a node whose disk is full."""
        body = {"index": {"blocks": {"read_only_allow_delete": True if on else None}}}
        self._client.put(f"/{self.prefix}-{index}/_settings", json=body).raise_for_status()

    def put(self, index: str, name: str, document: dict[str, Any]) -> None:
        """Write one document as it is."""
        place = quote(name, safe="")
        self._client.put(f"/{self.prefix}-{index}/_doc/{place}?refresh=true", json=document).raise_for_status()

    def as_before_schema_3(self) -> None:
        """Make the memories' documents what an earlier schema wrote: one stored field with all of a record."""
        stored = {"record": {"type": "keyword", "index": False, "doc_values": False, "store": True}}
        self._client.put(f"/{self.prefix}-memories/_mapping", json={"properties": stored}).raise_for_status()
        self._call("POST", "_refresh")
        for hit in self._hits("memories"):
            source = hit["_source"]
            record = json.loads(base64.b64decode(source.pop("kept")))
            mixed = source.pop("mixed", None)
            record |= {"bare": source.pop("bare", mixed), "mixed": mixed if source.get("vectors") == "two" else None}
            source["record"] = json.dumps(record)
            place = f"/{self.prefix}-memories/_doc/{quote(hit['_id'], safe='')}?refresh=true"
            self._client.put(place, params={"routing": hit["_routing"]}, json=source).raise_for_status()
        self.put("state", "/schema", {"value": "2"})

    def remove(self, index: str = "*") -> None:
        """Remove the indices, or one of them."""
        self._client.delete(f"/{self.prefix}-{index}" + ("" if index == "*" else "-000001")).raise_for_status()

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


def _told(source: dict[str, Any]) -> str:
    """Everything a document says, in letters."""
    kept = base64.b64decode(source.get("kept", "")).decode()
    return kept + json.dumps(source, ensure_ascii=False)
