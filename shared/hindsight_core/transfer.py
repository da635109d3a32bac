"""Export and import of whole memories with their histories.

JSON Lines: a header with the format's version; one line a memory, with the events of its history; further lines of
events where a history is long; where a whole namespace is exported, its runs and the ids of what was erased in it; and
an end that tells how many there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from typing import get_args

import msgspec
from msgspec.structs import replace

from hindsight_core.caller import Caller
from hindsight_core.embedding import Embedder
from hindsight_core.errors import Conflict, HindsightError, InvalidInput
from hindsight_core.filtering import where_of
from hindsight_core.ledger import open_ledger
from hindsight_core.lines import FORMAT, Counts, End, Erased, Events, Header, Line, Runs
from hindsight_core.models import AuditEvent, Memory, Run, Status
from hindsight_core.passages import Passages
from hindsight_core.requests import BATCH_LIMIT, ExportRequest, ListRequest, Request
from hindsight_core.responses import ImportProblem, ImportReport, problem_of
from hindsight_core.stores import MemoryStore, Where
from hindsight_core.transcription import Parsed, parsed

_NARROWER = ("user_id", "agent_id", "session_id", "task_id")
_ATTEMPTS = 8
PAGE = 500
# A line of about so many bytes fits into a request together with others; longer histories take more lines.
_LONG_LINE = 100_000
_NOTE = "Histories, runs and erasures were left out: to bring those along takes the verb admin."


class Transfer:
    def __init__(self, store: MemoryStore, embedder: Embedder | None) -> None:
        self._store = store
        self._embedder = embedder

    async def export(self, request: ListRequest, caller: Caller) -> AsyncIterator[bytes]:
        """Every memory of the scope, of any status, with its history if that is asked for; streamed by pages.

        A caller that is not an admin gets no suppressed ones. With histories the export of a whole namespace holds its
        runs, too.
        """
        scope = caller.scope(request)
        where = where_of(scope, request.filters, zone=request.timezone, everything=True)
        whole = where == Where()
        if not caller.admin:
            wanted: tuple[Status, ...] = where.statuses or get_args(Status)
            where = replace(where, statuses=tuple(status for status in wanted if status != "suppressed"))
        now = caller.clock(request)
        history = isinstance(request, ExportRequest) and request.history
        counts = Counter[str]()
        yield _json(
            Header(
                hindsight_export=FORMAT,
                namespace=scope.namespace,
                exported_at=now.isoformat(),
                history=history,
            )
        )
        async with aclosing(self._store.whole(scope.namespace, where, vectors=False)) as pages:
            async for page in pages:
                memories = [record.memory for record in page]
                histories = await self._histories(scope.namespace, memories) if history else {}
                for memory in memories:
                    first, *more = _pieces(histories.get(memory.id, []))
                    counts["memories"] += 1
                    counts["events"] += len(first) + sum(map(len, more))
                    yield _json(Line(memory=memory, history=tuple(first)))
                    for piece in more:
                        yield _json(Events(events=tuple(piece)))
        if not history:
            return
        if whole and caller.admin:
            async for runs in self._runs(scope.namespace):
                counts["runs"] += len(runs)
                yield _json(Runs(runs=tuple(runs)))
            async for gone in self._erasures(scope.namespace):
                counts["erased"] += len(gone)
                yield _json(Erased(erased=tuple(gone)))
        yield _json(End(end=Counts(**counts)))

    async def _histories(self, namespace: str, memories: Sequence[Memory]) -> dict[str, list[AuditEvent]]:
        """The events that made these memories what they are here; later ones belong to what they are by now."""
        versions = {memory.id: memory.version for memory in memories}
        found: dict[str, list[AuditEvent]] = {}
        for start in range(0, len(memories), PAGE):
            after: str | None = None
            ids = [memory.id for memory in memories[start : start + PAGE]]
            while events := await self._store.read(namespace, "events", memory_ids=ids, after=after, limit=PAGE):
                for event in events:
                    assert isinstance(event, AuditEvent)
                    after = event.id
                    if event.after is None or event.after.version <= versions[event.memory_id]:
                        found.setdefault(event.memory_id, []).append(event)
        return found

    async def _runs(self, namespace: str) -> AsyncIterator[list[Run]]:
        after: str | None = None
        while page := await self._store.read(namespace, "runs", after=after, limit=PAGE):
            runs = [run for run in page if isinstance(run, Run)]
            after = runs[-1].run_id
            yield runs

    async def _erasures(self, namespace: str) -> AsyncIterator[list[str]]:
        after: str | None = None
        while page := await self._store.erasures(namespace, after=after, limit=PAGE):
            yield page
            after = page[-1]

    async def import_lines(self, lines: Sequence[bytes], request: Request, caller: Caller) -> ImportReport:
        """Store exported memories as they are, ids, versions and histories kept; ids that exist are left alone.

        A line at fault is reported by its number and kept out; the others are stored. What was erased here does not
        come back. At most 500 lines a call; histories take an admin.
        """
        for name in _NARROWER:
            if getattr(request, name) is not None:
                raise InvalidInput.of(name, "an import keeps whose its memories are")
        if len(lines) > BATCH_LIMIT + 1:
            raise InvalidInput.of("lines", f"at most {BATCH_LIMIT} a call")
        target, now = caller.scope(request).namespace, caller.clock(request)
        read: list[tuple[int, Parsed]] = []
        problems: list[ImportProblem] = []
        for number, line in enumerate(lines, start=1):
            try:
                read.append((number, parsed(line, target)))
            except HindsightError as exc:
                problems.append(ImportProblem(line=number, problem=problem_of(exc, caller.request_id)))
        passages = Passages(self._embedder)
        work = _Import(self._store, target, read, caller)
        for attempt in range(_ATTEMPTS):
            work = _Import(self._store, target, read, caller)
            await work.look()
            ledger = open_ledger("import", target, now, caller)
            for record in await passages.records(work.fresh):
                ledger.add(record, "imported", "Imported as it was.")
            changes = ledger.changes(imported=tuple(work.runs), history=work.events, tombstones=tuple(work.gone))
            if not (changes.events or changes.imported or changes.tombstones):
                break
            try:
                await self._store.commit(target, changes)
                break
            except Conflict:
                # Another import of the same memories came first; what it has stored exists now.
                if attempt == _ATTEMPTS - 1:
                    raise
        return ImportReport(
            stored=len(work.fresh),
            existing=work.existing,
            events=len(work.events),
            erased=len(work.gone),
            note=_NOTE if work.left_out else "",
            problems=tuple(sorted([*problems, *work.problems], key=lambda problem: problem.line)),
        )


class _Import:
    """What of the lines of one call is new to a namespace, as it is now."""

    def __init__(self, store: MemoryStore, namespace: str, read: Sequence[tuple[int, Parsed]], caller: Caller) -> None:
        self._store = store
        self._namespace = namespace
        self._read = read
        self._caller = caller
        self.fresh: list[Memory] = []
        self.existing = 0
        self.events: list[AuditEvent] = []
        self.runs: list[Run] = []
        self.gone: list[str] = []
        self.problems: list[ImportProblem] = []
        self.left_out = False

    async def look(self) -> None:
        memories = [line.memory for _, line in self._read if line.memory is not None]
        ids = list(dict.fromkeys([memory.id for memory in memories] + [e.memory_id for e in self._told()]))
        known = {record.memory.id for record in await self._store.get(self._namespace, ids)}
        erased = await self._store.erased(self._namespace, [id_ for id_ in ids if id_ not in known])
        here = set(known)
        for number, line in self._read:
            memory = line.memory
            if memory is None:
                continue
            if memory.id in erased:
                self._refuse(number, "memory.id", f"{memory.id!r} was erased here, and is not brought back")
            elif memory.id in here:
                self.existing += 1
            else:
                here.add(memory.id)
                self.fresh.append(memory)
        await self._take_histories(here)
        await self._take_runs()
        await self._take_erasures()

    def _told(self) -> Iterator[AuditEvent]:
        for _, line in self._read:
            yield from line.events

    async def _take_histories(self, here: set[str]) -> None:
        """The events that are not known yet, of memories that are here: no text comes without its memory."""
        told = {event.id: event for event in self._told()}
        if not self._caller.admin:
            self.left_out = bool(told)
            return
        known: set[str] = set()
        ids = list(told)
        for start in range(0, len(ids), PAGE):
            some = ids[start : start + PAGE]
            found = await self._store.read(self._namespace, "events", ids=some, limit=PAGE)
            known.update(event.id for event in found if isinstance(event, AuditEvent))
        for number, line in self._read:
            for event in line.events:
                if line.memory is None and event.memory_id not in here:
                    self._refuse(number, "events", f"the memory {event.memory_id!r} of this history is not here")
                    break
                if event.id not in known and event.memory_id in here:
                    known.add(event.id)
                    self.events.append(event)

    async def _take_runs(self) -> None:
        runs = [run for _, line in self._read for run in line.runs]
        if runs and not self._caller.admin:
            self.left_out = True
            return
        # A change keeps what is known already as it is.
        self.runs = list({run.run_id: run for run in runs}.values())

    async def _take_erasures(self) -> None:
        """What was erased there stays erased here; what is here all the same is left alone."""
        told = list(dict.fromkeys(memory_id for _, line in self._read for memory_id in line.erased))
        if told and not self._caller.admin:
            self.left_out = True
            return
        fresh = {memory.id for memory in self.fresh}
        for start in range(0, len(told), PAGE):
            some = told[start : start + PAGE]
            known = {record.memory.id for record in await self._store.get(self._namespace, some)}
            known |= await self._store.erased(self._namespace, some)
            self.gone += [memory_id for memory_id in some if memory_id not in known and memory_id not in fresh]

    def _refuse(self, line: int, field: str, why: str) -> None:
        problem = problem_of(InvalidInput.of(field, why), self._caller.request_id)
        self.problems.append(ImportProblem(line=line, problem=problem))


def _pieces(events: Sequence[AuditEvent]) -> list[list[AuditEvent]]:
    """The events in groups of about one line each; at least one group."""
    pieces: list[list[AuditEvent]] = [[]]
    size = 0
    for event in events:
        length = len(msgspec.json.encode(event))
        if pieces[-1] and size + length > _LONG_LINE:
            pieces.append([])
            size = 0
        pieces[-1].append(event)
        size += length
    return pieces


def _json(value: msgspec.Struct) -> bytes:
    return msgspec.json.encode(value) + b"\n"
