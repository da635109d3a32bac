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
from msgspec.structs import replace

from hindsight_core.stores import open_store
from hindsight_core.stores.opensearch.intents import pack, unpack


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

    def about(self, index: str) -> dict[str, Any]:
        """What OpenSearch says of the indices behind a name: their aliases, mappings and settings."""
        found: dict[str, Any] = self._client.get(f"/{self.prefix}-{index}").raise_for_status().json()
        return found

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

    def as_before_schema_3(self, *, schema: int = 2) -> None:
        """Make the memories' documents what an earlier schema wrote: one stored field with all of a record.

        So are those of changes under way. With `schema` 3 they were written so after all others had been renewed.
        """
        stored = {"record": {"type": "keyword", "index": False, "doc_values": False, "store": True}}
        self._client.put(f"/{self.prefix}-memories/_mapping", json={"properties": stored}).raise_for_status()
        self._call("POST", "_refresh")
        for hit in self._hits("memories"):
            place = f"/{self.prefix}-memories/_doc/{quote(hit['_id'], safe='')}"
            params = {"routing": hit["_routing"], "refresh": "true"}
            self._client.put(place, params=params, json=_before_schema_3(hit["_source"])).raise_for_status()
        for hit in self._hits("state"):
            source = hit["_source"]
            if "part" in source:
                self.put("state", hit["_id"], source | {"part": _steps_before_schema_3(source["part"])})
            elif intent := source.get("intent"):
                steps = _steps_before_schema_3(intent["steps"]) if intent["steps"] else ""
                self.put("state", hit["_id"], source | {"intent": intent | {"steps": steps}})
        self.put("state", "/schema", {"value": str(schema)})

    def of_before_schema_3(self) -> list[str]:
        """The `_id`s of memories' documents that are as an earlier schema wrote them."""
        self._call("POST", "_refresh")
        return [hit["_id"] for hit in self._hits("memories") if "record" in hit["_source"]]

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


def _before_schema_3(source: dict[str, Any]) -> dict[str, Any]:
    record = json.loads(base64.b64decode(source["kept"]))
    mixed = source.get("mixed")
    record |= {"bare": source.get("bare", mixed), "mixed": mixed if source.get("vectors") == "two" else None}
    rest = {name: value for name, value in source.items() if name not in {"kept", "mixed", "bare"}}
    return {**rest, "record": json.dumps(record)}


def _steps_before_schema_3(packed: str) -> str:
    steps = unpack(packed)
    return pack(
        [
            replace(step, source=json.dumps(_before_schema_3(json.loads(step.source))))
            if step.index == "memories" and step.source is not None
            else step
            for step in steps
        ]
    )


def _told(source: dict[str, Any]) -> str:
    """Everything a document says, in letters."""
    kept = base64.b64decode(source.get("kept", "")).decode()
    return kept + json.dumps(source, ensure_ascii=False)
