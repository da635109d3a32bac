"""What callers send. Unknown fields are refused; an absent field differs from null only where `UNSET` says so."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from hindsight_core.models import (
    Content,
    ForgetMode,
    Fraction,
    Kind,
    MemoryType,
    MetadataValue,
    Namespace,
    Precision,
    Scalar,
    ScopeId,
    Source,
    Status,
    Tag,
    Visibility,
)

BATCH_LIMIT = 500
FILTER_LIMIT = 1000
Role: TypeAlias = Literal["user", "assistant", "tool", "system"]
Mode: TypeAlias = Literal["always", "auto"]
Profile: TypeAlias = Literal["task", "default", "companion"]
Extract: TypeAlias = Literal["auto", "none"]
Reconcile: TypeAlias = Literal["auto", "none", "judge"]
Wait: TypeAlias = Literal["searchable", "durable"]
Resolution: TypeAlias = Literal["supersede", "coexist", "duplicate", "refine", "retract"]
Policy: TypeAlias = Literal["expire", "evict", "idle", "promote", "purge", "tasks", "consolidate", "logs"]
Ttl: TypeAlias = Annotated[str, Meta(min_length=2, max_length=40)] | Annotated[float, Meta(gt=0)]
Key: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256)]
MemoryId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=64)]
Metadata: TypeAlias = dict[Annotated[str, Meta(min_length=1, max_length=128)], MetadataValue]
Reason: TypeAlias = Annotated[str, Meta(max_length=1000)]
Timezone: TypeAlias = Annotated[str, Meta(min_length=1, max_length=64)]
Speaker: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256)]
Query: TypeAlias = Annotated[str, Meta(min_length=1, max_length=8000)]
Task: TypeAlias = Annotated[str, Meta(max_length=2000)]
Recent: TypeAlias = Annotated[tuple[Annotated[str, Meta(max_length=8000)], ...], Meta(max_length=BATCH_LIMIT)]
IdempotencyKey: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256)]


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every request may carry: the scope, and `now` in place of the server's clock."""

    namespace: Namespace | None = None
    user_id: ScopeId | None = None
    agent_id: ScopeId | None = None
    session_id: ScopeId | None = None
    task_id: ScopeId | None = None
    now: datetime | None = None


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One turn of a conversation, or one record of a tool."""

    role: Role
    text: Annotated[str, Meta(max_length=100_000)]
    speaker: Speaker | None = None
    at: datetime | None = None
    metadata: Metadata = {}


class WriteRequest(Request, frozen=True, kw_only=True):
    """Either one `content`, kept whole, or `messages` from which candidates are extracted."""

    content: Content | None = None
    messages: Annotated[tuple[Message, ...], Meta(max_length=BATCH_LIMIT)] | None = None
    extract: Extract = "auto"
    memory_type: MemoryType | None = None
    kind: Kind | None = None
    key: Key | None = None
    source: Source | None = None
    speaker: Speaker | None = None
    context: Annotated[str, Meta(max_length=8000)] | None = None
    confidence: Fraction | None = None
    ttl: Ttl | None = None
    expires_at: datetime | None = None
    observed_at: datetime | None = None
    precision: Precision = "instant"
    timezone: Timezone | None = None
    valid_from: datetime | None = None
    half_life_days: Annotated[float, Meta(gt=0, le=36_500)] | None = None
    tags: tuple[Tag, ...] = ()
    metadata: Metadata = {}
    visibility: Visibility = "shared"
    pinned: bool = False
    supersedes: tuple[MemoryId, ...] = ()
    task: Task | None = None
    force: bool = False
    reconcile: Reconcile = "auto"
    idempotency_key: IdempotencyKey | None = None
    wait: Wait = "searchable"


class TaskRequest(Request, frozen=True, kw_only=True):
    """Messages for the working memory of a task, which takes its share of the model's `context_window` (tokens)."""

    messages: Annotated[tuple[Message, ...], Meta(max_length=BATCH_LIMIT)]
    context_window: Annotated[int, Meta(ge=100, le=100_000_000)] | None = None
    pinned: bool = False


class EndTaskRequest(Request, frozen=True, kw_only=True):
    """The end of a task; everything it needs is in the path."""


class Filters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Typed conditions, all of which must hold; a list means any of its values."""

    memory_type: MemoryType | tuple[MemoryType, ...] | None = None
    kind: Kind | tuple[Kind, ...] | None = None
    status: Status | tuple[Status, ...] | None = None
    source: Source | tuple[Source, ...] | None = None
    key: Key | None = None
    tags_all: Annotated[tuple[Tag, ...], Meta(max_length=FILTER_LIMIT)] = ()
    tags_any: Annotated[tuple[Tag, ...], Meta(max_length=FILTER_LIMIT)] = ()
    metadata: Annotated[
        dict[str, Scalar | Annotated[list[Scalar], Meta(max_length=FILTER_LIMIT)]], Meta(max_length=FILTER_LIMIT)
    ] = {}
    ids: Annotated[tuple[MemoryId, ...], Meta(max_length=FILTER_LIMIT)] | None = None
    observed_from: datetime | None = None
    observed_to: datetime | None = None


class RecallRequest(Request, frozen=True, kw_only=True):
    """A message of the user, the turns just before it (oldest first), and what the agent was and is doing."""

    text: Query
    recent: Recent = ()
    task: Task | None = None
    previous_task: Task | None = None


class SearchRequest(Request, frozen=True, kw_only=True):
    """A question. `recent`, `task` and `previous_task` help `mode: auto` to decide, and nothing else.

    `as_of` looks at which memories held at that instant, in the words they have today: edits change them for all time.
    """

    query: Query
    recent: Recent = ()
    task: Task | None = None
    previous_task: Task | None = None
    top_k: Annotated[int, Meta(ge=1, le=100)] = 8
    filters: Filters = Filters()
    as_of: datetime | None = None
    profile: Profile = "default"
    intent: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    min_score: Fraction = 0.0
    explain: bool = False
    token_budget: Annotated[int, Meta(ge=16, le=1_000_000)] | None = None
    mode: Mode = "always"
    timezone: Timezone | None = None


class ContextRequest(Request, frozen=True, kw_only=True):
    """Either a `query`, or the `messages` so far: the last user message is the question."""

    query: Query | None = None
    messages: Annotated[tuple[Message, ...], Meta(max_length=BATCH_LIMIT)] | None = None
    task: Task | None = None
    previous_task: Task | None = None
    token_budget: Annotated[int, Meta(ge=16, le=1_000_000)] = 1000
    top_k: Annotated[int, Meta(ge=1, le=100)] = 20
    filters: Filters = Filters()
    as_of: datetime | None = None
    profile: Profile = "default"
    intent: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    min_score: Fraction = 0.0
    mode: Mode = "always"
    timezone: Timezone | None = None


class ListRequest(Request, frozen=True, kw_only=True):
    filters: Filters = Filters()
    as_of: datetime | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50
    cursor: str | None = None
    timezone: Timezone | None = None


class ExportRequest(ListRequest, frozen=True, kw_only=True):
    """What to export; with `history` also every change of each memory, the runs, and an end that counts them."""

    history: bool = False


class UpdateRequest(Request, frozen=True, kw_only=True):
    """What is not named stays; null removes what can be absent. `version` comes from `If-Match`."""

    content: Content | UnsetType = UNSET
    summary: Annotated[str, Meta(max_length=1000)] | None | UnsetType = UNSET
    confidence: Fraction | UnsetType = UNSET
    kind: Kind | UnsetType = UNSET
    memory_type: MemoryType | UnsetType = UNSET
    key: Key | None | UnsetType = UNSET
    tags: tuple[Tag, ...] | UnsetType = UNSET
    metadata: Metadata | UnsetType = UNSET
    ttl: Ttl | UnsetType = UNSET
    expires_at: datetime | None | UnsetType = UNSET
    pinned: bool | UnsetType = UNSET
    visibility: Visibility | UnsetType = UNSET
    timezone: Timezone | None = None
    reason: Reason = ""
    version: int | None = None


class ResolveRequest(Request, frozen=True, kw_only=True, rename={"other": "with"}):
    """Settles a contested pair: the path names the newer memory, `with` the older one."""

    other: MemoryId
    decision: Resolution
    reason: Reason = ""


class ForgetRequest(Request, frozen=True, kw_only=True):
    """What to forget: `ids`, `filters`, `query`, or `all: true`; never everything by accident.

    `min_score` is for a `query`, 0.5 where it is not given.
    """

    ids: Annotated[tuple[MemoryId, ...], Meta(max_length=1000)] | None = None
    filters: Filters | None = None
    query: Query | None = None
    min_score: Fraction | None = None
    all: bool = False
    mode: ForgetMode = "archive"
    reason: Reason = ""
    dry_run: bool = False
    bring_back: bool = False
    timezone: Timezone | None = None


class RestoreRequest(Request, frozen=True, kw_only=True):
    reason: Reason = ""


class UndoRequest(Request, frozen=True, kw_only=True):
    reason: Reason = ""
    dry_run: bool = False


class SweepRequest(Request, frozen=True, kw_only=True):
    """Which policies to apply to a namespace, none for all of them.

    A sweep stops when it has changed `limit` memories or `budget_seconds` are over; `cursor`, from its report, goes on.
    """

    policies: tuple[Policy, ...] = ()
    dry_run: bool = False
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 10_000
    budget_seconds: Annotated[float, Meta(gt=0, le=3600)] | None = None
    cursor: Annotated[str, Meta(max_length=512)] | None = None


class PageRequest(Request, frozen=True, kw_only=True):
    """A page of events, runs or retrievals, newest last; `since` is an instant, `cursor` continues a page."""

    since: datetime | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    cursor: str | None = None
    timezone: Timezone | None = None
