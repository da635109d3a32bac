"""What callers get. Names may be added; what stands here stays."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from hindsight_core.errors import FieldError, HindsightError
from hindsight_core.models import AuditEvent, Decision, Hit, Memory, Retrieval, Run
from hindsight_core.requests import Policy


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """RFC 9457 problem details, with a stable `code`, the fields at fault, and what to do (`remedy`)."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: tuple[FieldError, ...] = ()
    remedy: str = ""
    request_id: str = ""


def problem_of(exc: HindsightError, request_id: str = "") -> Problem:
    """The one mapping from an error to what a caller reads of it."""
    return Problem(
        type=f"urn:hindsight:problem:{exc.code}",
        title=exc.title,
        status=exc.status,
        detail=exc.detail,
        code=exc.code,
        errors=exc.errors,
        remedy=exc.remedy,
        request_id=request_id,
    )


class WriteResponse(msgspec.Struct, frozen=True, kw_only=True):
    results: tuple[Decision, ...]
    run_id: str
    degraded: str | None = None

    @property
    def stored(self) -> bool:
        """Whether anything new is in the store."""
        return any(d.decision not in {"skip", "refuse", "duplicate"} for d in self.results)


class BatchItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One item of a batch: its decisions, or the problem that kept it out."""

    index: int
    status: int
    decisions: tuple[Decision, ...] | None = None
    run_id: str | None = None
    degraded: str | None = None
    problem: Problem | None = None


class BatchResponse(msgspec.Struct, frozen=True, kw_only=True):
    results: tuple[BatchItem, ...]


class Recall(msgspec.Struct, frozen=True, kw_only=True):
    """Whether memory should be searched at all, and why; `evidence` is what the decision was made of."""

    needed: bool
    why: str
    evidence: dict[str, object] = {}


class TimeWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A half-open range that the question named; `use` says whether it filtered or only preferred."""

    start: datetime | None
    end: datetime | None
    text: str
    use: Literal["filter", "prefer"]


class QueryReading(msgspec.Struct, frozen=True, kw_only=True):
    """How the question was understood."""

    time_range: TimeWindow | None
    past: bool
    intent: str | None
    profile: str
    recall: Recall
    speakers: tuple[str, ...] = ()


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many memories could answer, fell below `min_score`, or were filtered out (and by what)."""

    eligible: int
    below_min_score: int
    filtered: int
    filtered_by: dict[str, int] = {}


class ContextBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A block of text to paste into a prompt, its size in tokens (counted conservatively), and what it holds.

    `abridged` are those of `memory_ids` of which only an excerpt fits; `left_out`, how many hits did not fit at all.
    """

    text: str
    tokens: int
    memory_ids: tuple[str, ...]
    recall: Recall
    abridged: tuple[str, ...] = ()
    left_out: int = 0
    degraded: str | None = None


class SearchResponse(msgspec.Struct, frozen=True, kw_only=True):
    hits: tuple[Hit, ...]
    query: QueryReading
    counts: Counts
    retrieval_id: str
    took_ms: float
    degraded: str | None = None
    context: ContextBlock | None = None


class MemoryPage(msgspec.Struct, frozen=True, kw_only=True):
    memories: tuple[Memory, ...]
    cursor: str | None = None


class UpdateResponse(msgspec.Struct, frozen=True, kw_only=True):
    memory: Memory
    previous_version: int


class ResolveResponse(msgspec.Struct, frozen=True, kw_only=True):
    memory: Memory
    other: Memory
    run_id: str


class Affected(msgspec.Struct, frozen=True, kw_only=True, rename={"before": "from", "after": "to"}):
    """One memory that a run touches: its status `from` and `to`, and why, where each has a reason of its own."""

    id: str
    excerpt: str
    before: str
    after: str
    reason: str = ""


class ForgetResponse(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    dry_run: bool
    affected: tuple[Affected, ...]
    count: int
    degraded: str | None = None


class UndoResponse(msgspec.Struct, frozen=True, kw_only=True):
    """`kept` are memories that changed after the run; they stay as they are."""

    run_id: str
    undoes: str
    affected: tuple[Affected, ...]
    count: int
    kept: tuple[str, ...] = ()
    dry_run: bool = False


class PolicyReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one policy of a sweep did: how many memories it looked at, and what became of how many."""

    policy: Policy
    examined: int
    actions: dict[str, int]
    took_ms: float


class SweepReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep changed, or would change. One that is not `complete` goes on from `cursor`, under the same run.

    `degraded` says what it had to do without, None where that was nothing.
    """

    run_id: str
    dry_run: bool
    complete: bool
    cursor: str | None
    policies: tuple[PolicyReport, ...]
    affected: tuple[Affected, ...]
    count: int
    took_ms: float
    degraded: str | None = None


class TaskUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """How full the working memory of a task is, and what of it went to make room.

    `refused` are the places of messages with secrets; `promoted` says what became of what went.
    """

    task_id: str
    tokens: int
    budget: int
    messages: int
    refused: tuple[int, ...] = ()
    dropped: tuple[Affected, ...] = ()
    promoted: tuple[Decision, ...] = ()


class TaskBuffer(msgspec.Struct, frozen=True, kw_only=True):
    """The working memory of a task, oldest first, with its size and its budget in tokens."""

    task_id: str
    tokens: int
    budget: int
    messages: tuple[Memory, ...]


class TaskEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What of an ended task became memories, and what was dropped, each with its reason."""

    task_id: str
    promoted: tuple[Decision, ...]
    dropped: tuple[Decision, ...]


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    events: tuple[AuditEvent, ...]
    cursor: str | None = None


class History(msgspec.Struct, frozen=True, kw_only=True):
    memory_id: str
    events: tuple[AuditEvent, ...]


class RunPage(msgspec.Struct, frozen=True, kw_only=True):
    runs: tuple[Run, ...]
    cursor: str | None = None


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    run: Run
    events: tuple[AuditEvent, ...]


class RetrievalPage(msgspec.Struct, frozen=True, kw_only=True):
    retrievals: tuple[Retrieval, ...]
    cursor: str | None = None


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    namespace: str
    memories: int
    by_status: dict[str, int]
    by_type: dict[str, int]
    by_kind: dict[str, int]
    events: int
    runs: int
    embedding_model: str | None


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """One thing we depend on: `ok`, `degraded` (we go on without it) or `down`."""

    name: str
    status: Literal["ok", "degraded", "down"]
    detail: str = ""
    remedy: str = ""


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    ready: bool
    components: tuple[Component, ...]


class ImportProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A line of an import that was kept out, counted from 1."""

    line: int
    problem: Problem


class ImportReport(msgspec.Struct, frozen=True, kw_only=True):
    """How many memories were stored, how many were there before, and which lines were kept out.

    `events` counts what was stored of their histories, `erased` the ids that count as erased from now on; `note` says
    what of the lines was left out and why.
    """

    stored: int
    existing: int
    events: int = 0
    erased: int = 0
    note: str = ""
    problems: tuple[ImportProblem, ...] = ()
