"""A change set, checked against the documents it was made for, as the steps that bring it about."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from hindsight_core.caller import millis
from hindsight_core.errors import Conflict
from hindsight_core.loops import both
from hindsight_core.models import AuditEvent, Memory, Run
from hindsight_core.stores import ChangeSet, Receipt, Record
from hindsight_core.stores.opensearch.connection import Json
from hindsight_core.stores.opensearch.documents import access_id, document, document_id, kept_in_document
from hindsight_core.stores.opensearch.erasure import texts_of, versioned, without_quotes, without_text
from hindsight_core.stores.opensearch.heads import State
from hindsight_core.stores.opensearch.indices import Action, Indices, json

_STRING = re.compile(rb'"([^"\\]{1,256})"')
_TOUCH = (
    "if (ctx._source.count < params.count) { ctx._source.count = params.count; }"
    " if (params.at != null && (ctx._source.at == null || ctx._source.at < params.at)) { ctx._source.at = params.at; }"
)

_encode = msgspec.json.Encoder().encode
_run = msgspec.json.Decoder(Run).decode


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What the head becomes, and the actions that make it true; `after` holds no intent yet.

    `piecemeal` as `Intent` says it.
    """

    after: State
    piecemeal: bool
    steps: list[Action]


class Planner:
    """Plans change sets for one namespace whose head is `state`; reads nothing that is older than it."""

    def __init__(self, indices: Indices, namespace: str, state: State) -> None:
        self._indices = indices
        self._namespace = namespace
        self._state = state
        self._after = replace(state, sequence=state.sequence + 1)
        self._memories: dict[str, Json | None] = {}
        self._speakers = Counter(state.speakers)
        self._grown = 0

    async def plan(self, changes: ChangeSet) -> Plan:
        """Raises `Conflict` as `MemoryStore.commit` says."""
        latest = max(millis(run.at) for run in (changes.run, *(changes.imported or ())))
        self._after = replace(self._after, at=max(self._state.at, latest))
        named = [*(record.memory.id for record in changes.puts), *changes.erases, *changes.tombstones]
        ids = list(dict.fromkeys(named))
        whole = bool(changes.erases) or _archives(changes)
        _, journal = await both(self._read(ids, whole=whole), self._entries(changes))
        piecemeal = _archives(changes) and all(self._only_archives(record) for record in changes.puts)
        erased = set(changes.erases)
        texts = self._erased_texts(changes)
        steps = self._puts(changes.puts, erased, imported=changes.imported is not None)
        steps += self._erases(changes.erases)
        buried = [memory_id for memory_id in changes.tombstones if self._memories[memory_id] is None]
        steps += [self._entry("tombstone", memory_id, memory_ids=[memory_id]) for memory_id in buried]
        steps += self._journal(changes, journal, texts)
        after = replace(
            self._after,
            memories=self._state.memories + self._grown,
            speakers={speaker: n for speaker, n in self._speakers.items() if n > 0},
            basis=_basis(self._state) if piecemeal else self._after.sequence,
        )
        return Plan(after=after, piecemeal=piecemeal, steps=steps)

    async def _read(self, ids: Sequence[str], *, whole: bool) -> None:
        wanted = ["version", "born", "speaker", *(["kept", "record"] if whole else [])]
        places = [document_id(self._namespace, memory_id) for memory_id in ids]
        found = await self._indices.documents("memories", places, routing=self._namespace, source=wanted)
        sources = [None if one is None else one["_source"] for one in found]
        self._memories = dict(zip(ids, sources, strict=True))

    def _only_archives(self, record: Record) -> bool:
        """Whether a memory is there, and stays what it is but for being archived."""
        source = self._memories[record.memory.id]
        if source is None:
            return False
        held = kept_in_document(source)
        return held.index == record.index and _archived(held.memory) == _archived(record.memory)

    def _erased_texts(self, changes: ChangeSet) -> dict[str, set[str]]:
        """What the events of this very change must not quote."""
        texts: dict[str, set[str]] = {}
        for memory_id in changes.erases:
            source = self._memories[memory_id]
            texts[memory_id] = set() if source is None else texts_of([kept_in_document(source).memory])
        for event in changes.events:
            if event.memory_id in texts:
                texts[event.memory_id] |= texts_of([event.before, event.after])
        return texts

    def _puts(self, records: Sequence[Record], erased: set[str], *, imported: bool) -> list[Action]:
        steps: dict[str, Action] = {}
        touches: list[Action] = []
        for record in records:
            memory = record.memory
            held = self._memories[memory.id]
            if memory.version != (1 if held is None else held["version"] + 1) and not (imported and held is None):
                state = "does not exist" if held is None else f"is at version {held['version']}"
                raise Conflict(f"{memory.id} {state}.", remedy="Read it again and retry.")
            born = self._after.version if held is None else held["born"]
            self._grown += held is None
            self._speaks(held, -1)
            source: Json = {"version": memory.version, "born": born, "speaker": record.index.speaker}
            self._speaks(source, +1)
            self._memories[memory.id] = source
            if memory.id in erased:
                continue
            place = {"_id": document_id(self._namespace, memory.id), "routing": self._namespace}
            body = json(document(self._namespace, record, born=born, changed=self._after.version))
            steps[memory.id] = Action("memories", "index", {**place, **versioned(self._after.version)}, body)
            if memory.access_count or memory.last_accessed_at is not None:
                touches.append(_touch(access_id(self._namespace, memory.id, born), memory))
        return [*steps.values(), *touches]

    def _erases(self, ids: Sequence[str]) -> list[Action]:
        """The memories themselves are erased last, once nothing needs their texts any more."""
        for memory_id in ids:
            held = self._memories[memory_id]
            if held is not None:
                self._grown -= 1
                self._speaks(held, -1)
                self._memories[memory_id] = None
        return [self._entry("tombstone", memory_id, memory_ids=[memory_id]) for memory_id in ids]

    def _speaks(self, held: Json | None, times: int) -> None:
        if held is not None and held.get("speaker") is not None:
            self._speakers[held["speaker"]] += times

    async def _entries(self, changes: ChangeSet) -> dict[tuple[str, str], Json]:
        """What the journal holds already of that which the change will write."""
        names = [("run", changes.run.run_id), *(("event", event.id) for event in changes.events)]
        names += [("run", other.run_id) for other in changes.imported or ()]
        if changes.undone is not None:
            names.append(("run", changes.undone))
        if changes.receipt is not None:
            names.append(("receipt", changes.receipt.key))
        places = [document_id(self._namespace, *name) for name in names]
        documents = await self._indices.documents("journal", places, routing=self._namespace, source=["body", "log"])
        return {name: found["_source"] for name, found in zip(names, documents, strict=True) if found is not None}

    def _journal(
        self, changes: ChangeSet, known: dict[tuple[str, str], Json], texts: dict[str, set[str]]
    ) -> list[Action]:
        if changes.receipt is not None and ("receipt", changes.receipt.key) in known:
            raise Conflict("This idempotency key was used already.", remedy="Read its receipt.")
        if any(("event", event.id) in known for event in changes.events):
            raise Conflict("An audit event with this id exists.", remedy="Retry with fresh ids.")
        run = changes.run
        if ("run", run.run_id) in known:
            # A run that commits page by page stays one run; a reason that erasing has emptied stays empty.
            earlier = _run(known["run", run.run_id]["body"])
            run = replace(run, reason=earlier.reason, undone_by=run.undone_by or earlier.undone_by)
        if texts:
            run = replace(run, reason=without_quotes(run.reason, set[str]().union(*texts.values())))
        steps = [self._event(event, texts) for event in changes.events]
        steps.append(self._run(run))
        steps += [self._run(other) for other in changes.imported or () if ("run", other.run_id) not in known]
        if changes.undone is not None:
            undone = run if changes.undone == run.run_id else None
            if undone is None:
                if ("run", changes.undone) not in known:
                    raise Conflict(f"There is no run {changes.undone} to undo.")
                undone = _run(known["run", changes.undone]["body"])
            steps.append(self._run(replace(undone, undone_by=run.run_id)))
        if changes.receipt is not None:
            steps.append(
                self._receipt(changes.receipt, millis(run.at), [*(r.memory.id for r in changes.puts), *changes.erases])
            )
        return steps

    def _event(self, event: AuditEvent, texts: dict[str, set[str]]) -> Action:
        if event.memory_id in texts:
            event = without_text(event, texts[event.memory_id])
        return self._entry(
            "event",
            event.id,
            memory_ids=[event.memory_id],
            run_id=event.run_id,
            at=millis(event.at),
            body=_encode(event).decode(),
        )

    def _run(self, run: Run) -> Action:
        return self._entry("run", run.run_id, run_id=run.run_id, at=millis(run.at), body=_encode(run).decode())

    def _receipt(self, receipt: Receipt, at: int, touched: Sequence[str]) -> Action:
        # Every string of the answer may be the id of a memory, and erasing that one removes the receipt.
        named = {text.decode("utf-8", "replace") for text in _STRING.findall(receipt.answer)}
        return self._entry(
            "receipt", receipt.key, memory_ids=sorted(named.union(touched)), at=at, body=_encode(receipt).decode()
        )

    def _entry(self, log: str, name: str, **fields: object) -> Action:
        place: dict[str, Any] = {"_id": document_id(self._namespace, log, name), "routing": self._namespace}
        source: Json = {"id": name, "namespace": self._namespace, "log": log, "version": self._after.version, **fields}
        return Action("journal", "index", {**place, **versioned(self._after.version)}, json(source))


def _archives(changes: ChangeSet) -> bool:
    """Whether a change may be one that archives memories and does nothing else to any."""
    others = changes.erases or changes.tombstones or changes.imported is not None
    return bool(changes.puts) and not others and all(one.memory.status == "archived" for one in changes.puts)


def _archived(memory: Memory) -> Memory:
    """The memory without what archiving changes, and without its access counter, which lies elsewhere."""
    return replace(
        memory,
        status="archived",
        status_reason="",
        forgotten_at=None,
        version=0,
        access_count=0,
        last_accessed_at=None,
    )


def _basis(state: State) -> int:
    return state.sequence if state.basis is None else state.basis


def _touch(place: str, memory: Memory) -> Action:
    """A put never takes back accesses that were counted while it was being prepared."""
    at = None if memory.last_accessed_at is None else millis(memory.last_accessed_at)
    counts: Json = {"count": memory.access_count, "at": at}
    body: Json = {"script": {"source": _TOUCH, "params": counts}, "upsert": counts}
    return Action("state", "update", {"_id": place, "retry_on_conflict": 5}, json(body))
