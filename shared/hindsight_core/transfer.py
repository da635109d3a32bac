"""Export and import of whole memories, as JSON Lines: a header line, then one memory a line."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from typing import Literal

import msgspec

from hindsight_core.caller import Caller, instant
from hindsight_core.decoding import decode
from hindsight_core.drafting import SPECULATION_CAP, check_labels, check_no_secret
from hindsight_core.embedding import Embedder
from hindsight_core.errors import Conflict, HindsightError, InvalidInput
from hindsight_core.filtering import where_of
from hindsight_core.indexing import index_fields
from hindsight_core.ledger import open_ledger
from hindsight_core.legibility import check_legible
from hindsight_core.models import Memory
from hindsight_core.passages import Passages
from hindsight_core.requests import BATCH_LIMIT, ListRequest, Request
from hindsight_core.responses import ImportProblem, ImportReport, problem_of
from hindsight_core.stores import MemoryStore, Record

FORMAT: Literal[1] = 1
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_INSTANTS = (
    "observed_at",
    "valid_from",
    "valid_to",
    "created_at",
    "updated_at",
    "last_accessed_at",
    "expires_at",
    "forgotten_at",
)
_LONGEST = {"content": 8000, "context": 8000, "summary": 1000, "key": 256, "speaker": 256, "status_reason": 4000}
_NARROWER = ("user_id", "agent_id", "session_id", "task_id")
_ATTEMPTS = 8
PAGE = 500


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of an export: its format's version and the namespace it came from."""

    hindsight_export: Literal[1]
    namespace: str
    exported_at: str = ""


class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every other line."""

    memory: Memory


class Transfer:
    def __init__(self, store: MemoryStore, embedder: Embedder | None) -> None:
        self._store = store
        self._embedder = embedder

    async def export(self, request: ListRequest, caller: Caller) -> AsyncIterator[bytes]:
        """Every memory of the scope, of any status, one JSON line each, after a header line; streamed by pages."""
        scope = caller.scope(request)
        where = where_of(scope, request.filters, zone=request.timezone, everything=True)
        now = caller.clock(request)
        yield _json(Header(hindsight_export=FORMAT, namespace=scope.namespace, exported_at=now.isoformat()))
        after: str | None = None
        while page := await self._store.scan(scope.namespace, where, after=after, limit=PAGE):
            for record in page:
                yield _json(Line(memory=record.memory))
            after = page[-1].memory.id

    async def import_lines(self, lines: Sequence[bytes], request: Request, caller: Caller) -> ImportReport:
        """Store exported memories as they are, ids kept; ids that exist are left alone.

        A line at fault is reported by its number and kept out; the others are stored. At most 500 lines a call.
        """
        for name in _NARROWER:
            if getattr(request, name) is not None:
                raise InvalidInput.of(name, "an import keeps whose its memories are")
        if len(lines) > BATCH_LIMIT + 1:
            raise InvalidInput.of("lines", f"at most {BATCH_LIMIT} a call")
        target, now = caller.scope(request).namespace, caller.clock(request)
        read: list[Memory] = []
        problems: list[ImportProblem] = []
        for number, line in enumerate(lines, start=1):
            try:
                memory = _read(line, target)
            except HindsightError as exc:
                problems.append(ImportProblem(line=number, problem=problem_of(exc, caller.request_id)))
            else:
                if memory is not None:
                    read.append(memory)
        passages = Passages(self._embedder)
        fresh: list[Memory] = []
        for attempt in range(_ATTEMPTS):
            known = {record.memory.id for record in await self._store.get(target, [memory.id for memory in read])}
            fresh = list({memory.id: memory for memory in read if memory.id not in known}.values())
            if not fresh:
                break
            ledger = open_ledger("import", target, now, caller)
            for record in await self._records(fresh, passages):
                ledger.add(record, "imported", "Imported as it was.")
            try:
                await self._store.commit(target, ledger.changes())
                break
            except Conflict:
                # Another import of the same memories came first; what it has stored exists now.
                if attempt == _ATTEMPTS - 1:
                    raise
        return ImportReport(stored=len(fresh), existing=len(read) - len(fresh), problems=tuple(problems))

    async def _records(self, memories: list[Memory], passages: Passages) -> list[Record]:
        texts = [(memory.embedded_text, memory.content, memory.context) for memory in memories]
        await passages.of([text for several in texts for text in several if text])
        records: list[Record] = []
        for memory in memories:
            previous = [memory.context] if memory.context else []
            bare, mixed = await passages.pair(memory.embedded_text, memory.content, previous)
            stored = msgspec.structs.replace(memory, version=1, embedding_model=passages.model)
            records.append(Record(memory=stored, index=index_fields(stored), bare=bare, mixed=mixed))
        return records


def _read(line: bytes, namespace: str) -> Memory | None:
    """The memory of a line; None for a header or an empty line."""
    if not line.strip():
        return None
    if b'"hindsight_export"' in line[:64]:
        decode(line, Header)
        return None
    found = decode(line, Line)
    check_legible(found)
    memory = found.memory
    _check(memory)
    instants = {
        name: instant(value, f"memory.{name}") for name in _INSTANTS if (value := getattr(memory, name)) is not None
    }
    confidence = min(memory.confidence, SPECULATION_CAP) if memory.kind == "speculation" else memory.confidence
    memory = msgspec.structs.replace(memory, namespace=namespace, confidence=confidence, **instants)
    if memory.valid_to is not None and memory.valid_to <= memory.valid_from:
        raise InvalidInput.of("memory.valid_to", "is not after memory.valid_from")
    return memory


def _check(memory: Memory) -> None:
    """The limits of a write, and no secret anywhere."""
    if not _ID.fullmatch(memory.id):
        raise InvalidInput.of("memory.id", "is not 1 to 64 letters, digits, dots, dashes or underscores")
    if memory.memory_type == "working":
        raise InvalidInput.of("memory.memory_type", "working memory belongs to a task and is not imported")
    if memory.visibility == "private" and memory.agent_id is None:
        raise InvalidInput.of("memory.agent_id", "a private memory needs the agent it belongs to")
    if memory.access_count < 0:
        raise InvalidInput.of("memory.access_count", "is below 0")
    check_labels(memory.tags, memory.metadata, within="memory.")
    for name, longest in _LONGEST.items():
        text = getattr(memory, name)
        if text is not None and len(text) > longest:
            raise InvalidInput.of(f"memory.{name}", f"is over {longest} characters")
        if text is not None:
            check_no_secret(text, f"memory.{name}")


def _json(value: msgspec.Struct) -> bytes:
    return msgspec.json.encode(value) + b"\n"
