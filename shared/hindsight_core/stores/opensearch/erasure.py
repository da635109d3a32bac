"""Erasing: text leaves every document that holds it, in an order that can be begun again wherever it was broken off.

First the reasons of events and runs that quote a text (while the texts are still known), then the texts in the events,
then the memories, and what names them last: a search or a receipt that is logged in between is found too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from hindsight_core.models import AuditEvent, Memory, Run
from hindsight_core.stores import Receipt
from hindsight_core.stores.opensearch.connection import Json
from hindsight_core.stores.opensearch.documents import access_id, document_id, kept_in_document
from hindsight_core.stores.opensearch.indices import Action, Indices, json
from hindsight_core.stores.opensearch.mapping import Index

_CHUNK = 100
_decode = msgspec.json.Decoder(AuditEvent).decode
_decode_run = msgspec.json.Decoder(Run).decode


def texts_of(memories: Iterable[Memory | None]) -> set[str]:
    """Everything that was said, kept or summarised in these memories."""
    return {
        text
        for memory in memories
        if memory is not None
        for text in (memory.content, memory.summary, memory.context)
        if text
    }


def without_text(event: AuditEvent, texts: Iterable[str]) -> AuditEvent:
    """The event of an erased memory: that it happened, and a reason that quotes none of `texts`."""
    return replace(event, before=None, after=None, reason=without_quotes(event.reason, texts))


def without_quotes(reason: str, texts: Iterable[str]) -> str:
    return "" if any(text in reason for text in texts) else reason


class Eraser:
    """Erases memories of a namespace and their traces.

    No search or read finds them from then on; they leave the disk as `Disk.expunge` says.
    """

    def __init__(self, indices: Indices) -> None:
        self._indices = indices

    async def erase(self, namespace: str, ids: Sequence[str], version: int) -> None:
        """As often as it is called for the same change, to the same end."""
        await self._indices.refresh("journal")
        for start in range(0, len(ids), _CHUNK):
            await self._take_texts(namespace, ids[start : start + _CHUNK], version)
        await self._indices.refresh("retrievals")
        for start in range(0, len(ids), _CHUNK):
            some = ids[start : start + _CHUNK]
            await self._remove(namespace, "retrievals", some)
            await self._empty_receipts(namespace, some, version)

    async def _take_texts(self, namespace: str, ids: Sequence[str], version: int) -> None:
        places = [document_id(namespace, memory_id) for memory_id in ids]
        documents = await self._indices.documents("memories", places, routing=namespace)
        held = [None if found is None else found["_source"] for found in documents]
        texts: dict[str, set[str]] = defaultdict(set)
        for memory_id, source in zip(ids, held, strict=True):
            if source is not None:
                texts[memory_id] |= texts_of([kept_in_document(source).memory])
        filters = [_is("namespace", namespace), _is("log", "event"), {"terms": {"memory_ids": list(ids)}}]
        hits = await self._indices.pages("journal", namespace, {"query": {"bool": {"filter": filters}}})
        events = [(hit, _decode(hit["_source"]["body"])) for hit in hits]
        for _, event in events:
            texts[event.memory_id] |= texts_of([event.before, event.after])
        quoting: list[Action] = []
        holding: list[Action] = []
        for hit, event in events:
            emptied = without_text(event, texts[event.memory_id])
            if emptied.reason != event.reason:
                quoting.append(_rewritten(namespace, hit, replace(event, reason=emptied.reason), version))
            if event.before is not None or event.after is not None:
                holding.append(_rewritten(namespace, hit, emptied, version))
        quoting += await self._quoting_runs(namespace, {event.run_id for _, event in events}, texts, version)
        await self._indices.write(quoting)
        await self._indices.write(holding)
        gone: list[Action] = []
        for memory_id, place, source in zip(ids, places, held, strict=True):
            if source is not None and source["born"] <= version:
                counter = access_id(namespace, memory_id, source["born"])
                gone.append(Action("state", "delete", {"_id": counter}))
            gone.append(Action("memories", "delete", {"_id": place, "routing": namespace, **versioned(version)}))
        await self._indices.write(gone)

    async def _quoting_runs(
        self, namespace: str, run_ids: Iterable[str], texts: dict[str, set[str]], version: int
    ) -> list[Action]:
        places = [document_id(namespace, "run", run_id) for run_id in sorted(run_ids)]
        found = await self._indices.documents("journal", places, routing=namespace)
        said = set[str]().union(*texts.values())
        actions: list[Action] = []
        for hit in found:
            run = None if hit is None else _decode_run(hit["_source"]["body"])
            if hit is not None and run is not None and (reason := without_quotes(run.reason, said)) != run.reason:
                actions.append(_rewritten(namespace, hit, replace(run, reason=reason), version))
        return actions

    async def _empty_receipts(self, namespace: str, ids: Sequence[str], version: int) -> None:
        """Take everything from the receipts that name one of the memories, but that their key was used."""
        filters = [_is("namespace", namespace), {"terms": {"memory_ids": list(ids)}}, _is("log", "receipt")]
        body: Json = {"query": {"bool": {"filter": [*filters, {"range": {"version": {"lte": version}}}]}}}
        hits = await self._indices.pages("journal", namespace, {**body, "_source": ["id", "at"]})
        actions: list[Action] = []
        for hit in hits:
            key = hit["_source"]["id"]
            emptied = msgspec.json.encode(Receipt(key=key, fingerprint="", answer=b"")).decode()
            source: Json = {"id": key, "namespace": namespace, "log": "receipt", "version": version, "body": emptied}
            source["at"] = hit["_source"].get("at")
            fields = {"_id": hit["_id"], "routing": namespace, **versioned(version)}
            actions.append(Action("journal", "index", fields, json(source)))
        await self._indices.write(actions)

    async def _remove(self, namespace: str, index: Index, ids: Sequence[str]) -> None:
        """Delete what names one of the memories."""
        filters = [_is("namespace", namespace), {"terms": {"memory_ids": list(ids)}}]
        hits = await self._indices.pages(index, namespace, {"query": {"bool": {"filter": filters}}, "_source": False})
        await self._indices.write([Action(index, "delete", {"_id": hit["_id"], "routing": namespace}) for hit in hits])


def versioned(version: int) -> dict[str, Any]:
    """Fields of an action that does nothing where a later change has been."""
    return {"version": version, "version_type": "external_gte"}


def _rewritten(namespace: str, hit: Json, entry: AuditEvent | Run, version: int) -> Action:
    source = {**hit["_source"], "body": msgspec.json.encode(entry).decode()}
    fields = {"_id": hit["_id"], "routing": namespace, **versioned(version)}
    return Action("journal", "index", fields, json(source))


def _is(field: str, value: str) -> Json:
    return {"term": {field: value}}
