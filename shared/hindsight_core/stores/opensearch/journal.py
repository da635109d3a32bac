"""The logs: audit events, runs, receipts, and searches; whoever reads them sees everything that was written before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from hindsight_core.caller import millis
from hindsight_core.models import AuditEvent, Retrieval, Run
from hindsight_core.stores import Log, Receipt
from hindsight_core.stores.opensearch.connection import Json
from hindsight_core.stores.opensearch.documents import document_id
from hindsight_core.stores.opensearch.indices import Action, Indices, json
from hindsight_core.stores.opensearch.mapping import Index

_DECODE: dict[Log, Callable[[str], Any]] = {
    "events": msgspec.json.Decoder(AuditEvent).decode,
    "runs": msgspec.json.Decoder(Run).decode,
    "retrievals": msgspec.json.Decoder(Retrieval).decode,
}
_receipt = msgspec.json.Decoder(Receipt).decode


class Journal:
    """Reads what commits wrote, and keeps the retrieval log."""

    def __init__(self, indices: Indices) -> None:
        self._indices = indices

    async def read(
        self,
        namespace: str,
        log: Log,
        *,
        ids: Sequence[str] | None,
        memory_id: str | None,
        memory_ids: Sequence[str] | None,
        run_id: str | None,
        since: int | None,
        after: str | None,
        limit: int,
    ) -> list[Any]:
        """See `MemoryStore.read`."""
        if log == "retrievals" and run_id is not None:
            return []  # a search changes nothing, so it belongs to no run
        index: Index = "retrievals" if log == "retrievals" else "journal"
        await self._indices.refresh(index)
        filters: list[Json] = [{"term": {"namespace": namespace}}]
        if log != "retrievals":
            filters.append({"term": {"log": log.removesuffix("s")}})
        if ids is not None:
            filters.append({"terms": {"id": list(ids)}})
        if memory_id is not None and log == "runs":
            filters.append({"terms": {"id": await self._runs_of(namespace, memory_id)}})
        elif memory_id is not None:
            filters.append({"term": {"memory_ids": memory_id}})
        if memory_ids is not None:
            filters.append({"terms": {"memory_ids": list(memory_ids)}})
        if run_id is not None:
            filters.append({"term": {"run_id": run_id}})
        if since is not None:
            filters.append({"range": {"at": {"gte": since}}})
        body: Json = {"query": {"bool": {"filter": filters}}, "_source": ["body"]}
        if after is not None:
            body["search_after"] = [after]
        hits = await self._indices.pages(index, namespace, body, limit=limit)
        return [_DECODE[log](hit["_source"]["body"]) for hit in hits]

    async def _runs_of(self, namespace: str, memory_id: str) -> list[str]:
        filters: list[Json] = [{"term": {"namespace": namespace}}, {"term": {"log": "event"}}]
        filters.append({"term": {"memory_ids": memory_id}})
        body = {"query": {"bool": {"filter": filters}}, "_source": ["run_id"]}
        hits = await self._indices.pages("journal", namespace, body)
        return sorted({hit["_source"]["run_id"] for hit in hits})

    async def receipt(self, namespace: str, key: str) -> Receipt | None:
        place = document_id(namespace, "receipt", key)
        (found,) = await self._indices.documents("journal", [place], routing=namespace)
        return None if found is None else _receipt(found["_source"]["body"])

    async def erased(self, namespace: str, ids: Sequence[str]) -> set[str]:
        """See `MemoryStore.erased`."""
        places = [document_id(namespace, "tombstone", memory_id) for memory_id in ids]
        found = await self._indices.documents("journal", places, routing=namespace, source=False)
        return {memory_id for memory_id, one in zip(ids, found, strict=True) if one is not None}

    async def erased_after(self, namespace: str, version: int) -> bool:
        """Whether a change after the one of this version has erased something."""
        await self._indices.refresh("journal")
        filters: list[Json] = [{"term": {"namespace": namespace}}, {"term": {"log": "tombstone"}}]
        filters.append({"range": {"version": {"gt": version}}})
        body: Json = {"size": 1, "query": {"bool": {"filter": filters}}, "_source": False, "terminate_after": 1}
        return bool((await self._indices.search("journal", namespace, body))["hits"]["hits"])

    async def erasures(self, namespace: str, after: str | None, limit: int) -> list[str]:
        """See `MemoryStore.erasures`."""
        await self._indices.refresh("journal")
        filters: list[Json] = [{"term": {"namespace": namespace}}, {"term": {"log": "tombstone"}}]
        body: Json = {"query": {"bool": {"filter": filters}}, "_source": ["id"]}
        if after is not None:
            body["search_after"] = [after]
        hits = await self._indices.pages("journal", namespace, body, limit=limit)
        return [hit["_source"]["id"] for hit in hits]

    async def keep(self, namespace: str, retrievals: Sequence[Retrieval], existing: set[str]) -> list[Retrieval]:
        """Log searches whose hits all exist; which were kept. An erased hit may be quoted by the query."""
        kept = [entry for entry in retrievals if all(memory_id in existing for memory_id, _, _ in entry.hits)]
        actions: list[Action] = []
        for entry in kept:
            source: Json = {
                "id": entry.id,
                "namespace": namespace,
                "memory_ids": sorted({memory_id for memory_id, _, _ in entry.hits}),
                "at": millis(entry.at),
                "body": msgspec.json.encode(entry).decode(),
            }
            place = {"_id": _place(namespace, entry.id), "routing": namespace}
            actions.append(Action("retrievals", "create", place, json(source)))
        await self._indices.write(actions)
        return kept

    async def drop(self, namespace: str, ids: Sequence[str]) -> None:
        """Take logged searches back."""
        await self._indices.write(
            [Action("retrievals", "delete", {"_id": _place(namespace, name), "routing": namespace}) for name in ids]
        )

    async def prune(
        self, namespace: str, log: Literal["retrievals", "receipts"], before: int, *, limit: int | None, dry_run: bool
    ) -> int:
        """See `MemoryStore.prune`."""
        index: Index = "retrievals" if log == "retrievals" else "journal"
        await self._indices.refresh(index)
        filters: list[Json] = [{"term": {"namespace": namespace}}, {"range": {"at": {"lt": before}}}]
        if log == "receipts":
            filters.append({"term": {"log": "receipt"}})
        body: Json = {"query": {"bool": {"filter": filters}}, "_source": False}
        hits = await self._indices.pages(index, namespace, body, limit=limit)
        if not dry_run:
            await self._indices.write(
                [Action(index, "delete", {"_id": hit["_id"], "routing": namespace}) for hit in hits]
            )
        return len(hits)

    async def sizes(self, namespace: str) -> dict[str, int]:
        """How many events and runs there are."""
        await self._indices.refresh("journal")
        aggregation: Json = {"logs": {"terms": {"field": "log"}}}
        body: Json = {"size": 0, "query": {"bool": {"filter": [{"term": {"namespace": namespace}}]}}}
        answer = await self._indices.search("journal", namespace, {**body, "aggs": aggregation})
        found = {bucket["key"]: bucket["doc_count"] for bucket in answer["aggregations"]["logs"]["buckets"]}
        return {"events": found.get("event", 0), "runs": found.get("run", 0)}


def _place(namespace: str, retrieval_id: str) -> str:
    return document_id(namespace, "retrieval", retrieval_id)
