"""The memory itself, and everything that is said about one: candidates, decisions, hits, audit events.

All instants are UTC with milliseconds. Structs are frozen: a change is a new value (`msgspec.structs.replace`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

MemoryType: TypeAlias = Literal["working", "episodic", "semantic"]
Kind: TypeAlias = Literal["fact", "preference", "instruction", "event", "speculation"]
Visibility: TypeAlias = Literal["shared", "private"]
Source: TypeAlias = Literal["user", "agent", "tool"]
Precision: TypeAlias = Literal["instant", "day", "month", "year"]
Status: TypeAlias = Literal["active", "pending", "superseded", "retracted", "archived", "suppressed"]
ForgetMode: TypeAlias = Literal["archive", "suppress", "erase", "retract"]
DecisionName: TypeAlias = Literal[
    "add", "contest", "duplicate", "refine", "supersede", "pending", "coexist", "skip", "refuse"
]
Scalar: TypeAlias = str | int | float | bool
MetadataValue: TypeAlias = Scalar | list[Scalar] | None

Fraction: TypeAlias = Annotated[float, Meta(ge=0.0, le=1.0)]
Content: TypeAlias = Annotated[str, Meta(min_length=1, max_length=8000)]
Namespace: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:@-]{1,128}\Z")]
ScopeId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256)]
Tag: TypeAlias = Annotated[str, Meta(min_length=1, max_length=128)]


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Whose memory it is: the tenant, and the narrower scopes inside it."""

    namespace: Namespace
    user_id: ScopeId | None = None
    agent_id: ScopeId | None = None
    session_id: ScopeId | None = None
    task_id: ScopeId | None = None


class Contest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A newer memory may have replaced this one: which, how probably, and why."""

    id: str
    probability: Fraction
    reason: str = ""


class Memory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One memory with every field of its life.

    `valid_from` and `valid_to` bound the half-open interval in which it holds; `observed_at` is when it was true or
    said, and is None when nobody knows. `forgotten_at` is when it was archived, suppressed or retracted.
    `version` rises by one with every change.
    """

    id: str
    namespace: Namespace
    user_id: ScopeId | None = None
    agent_id: ScopeId | None = None
    session_id: ScopeId | None = None
    task_id: ScopeId | None = None
    visibility: Visibility = "shared"
    memory_type: MemoryType = "semantic"
    kind: Kind = "fact"
    key: str | None = None
    content: Content
    summary: str | None = None
    context: str | None = None
    speaker: str | None = None
    source: Source = "user"
    confidence: Fraction = 1.0
    observed_at: datetime | None = None
    precision: Precision = "instant"
    valid_from: datetime
    valid_to: datetime | None = None
    created_at: datetime
    updated_at: datetime
    last_accessed_at: datetime | None = None
    access_count: int = 0
    expires_at: datetime | None = None
    forgotten_at: datetime | None = None
    half_life_days: Annotated[float, Meta(gt=0)] | None = None
    status: Status = "active"
    status_reason: str = ""
    pinned: bool = False
    supersedes: tuple[str, ...] = ()
    superseded_by: str | None = None
    contested_by: tuple[Contest, ...] = ()
    derived_from: tuple[str, ...] = ()
    tags: tuple[Tag, ...] = ()
    metadata: dict[str, MetadataValue] = {}
    embedding_model: str | None = None
    version: int = 1

    @property
    def embedded_text(self) -> str:
        """What the vector is made of: the summary where there is one, else the content."""
        return self.summary or self.content


class Scores(msgspec.Struct, frozen=True, kw_only=True):
    """The gate's four scores, their weighted total, and the threshold it was held against; all in [0, 1]."""

    density: float
    relevance: float
    durability: float
    explicitness: float
    total: float
    threshold: float


class Contested(msgspec.Struct, frozen=True, kw_only=True):
    """One memory that a write puts in doubt, with the question its caller should settle.

    `late`: the new memory is the older one of the pair and the one in doubt; it is settled with `id` as the newer one.
    """

    id: str
    content: str
    probability: float
    why: str
    ask: str
    late: bool = False


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one candidate of a write, and why.

    `index` is the message it came from; `memory` is what is stored now (absent for `skip` and `refuse`).
    """

    index: int
    text: str
    decision: DecisionName
    memory_id: str | None = None
    memory: Memory | None = None
    scores: Scores | None = None
    reason: str = ""
    superseded: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
    contests: tuple[Contested, ...] = ()
    evidence: dict[str, object] = {}


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """The signals of one score, each in [0, 1] except `bias`."""

    similarity: float = 0.0
    lexical: float = 0.0
    relevance: float = 0.0
    recency: float = 0.0
    confidence: float = 0.0
    bias: float = 0.0


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a hit stands where it stands: contributions add up to its score.

    `evidence` is what the other hits and the question's wording add to the place where it stands, by kind; see
    `reranking`. It moves a hit and lifts no score.
    """

    sentence: str
    contributions: dict[str, float]
    age_days: float | None
    half_life_days: float | None
    matched_terms: tuple[str, ...] = ()
    matched: dict[str, bool] = {}
    links: dict[str, list[str]] = {}
    evidence: dict[str, float] = {}


Mark: TypeAlias = Literal["superseded", "pending", "contested"]


class Hit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One found memory. `marked` says that it may not hold any more; `newer` names what may have replaced it."""

    memory: Memory
    score: float
    parts: Parts
    marked: Mark | None = None
    newer: str | None = None
    note: str | None = None
    explain: Explanation | None = None


class AuditEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One change of one memory: who, when, what, why, before and after.

    `before` is None for a new memory, `after` for an erased one; erasing a memory empties both in all its events.
    """

    id: str
    namespace: str
    memory_id: str
    run_id: str
    at: datetime
    actor: str
    action: str
    reason: str = ""
    request_id: str = ""
    before: Memory | None = None
    after: Memory | None = None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One call that changed memories; the unit of undo."""

    run_id: str
    namespace: str
    at: datetime
    operation: str
    reason: str = ""
    count: int = 0
    undone_by: str | None = None
    undoes: str | None = None


class Retrieval(msgspec.Struct, frozen=True, kw_only=True):
    """One logged search, enough to replay it: the request, the ids and scores it answered, and how long it took.

    `evidence` holds for each of the hits what moved it, as `Explanation.evidence`.
    """

    id: str
    namespace: str
    at: datetime
    query: str
    request: dict[str, object]
    hits: tuple[tuple[str, float, Parts], ...]
    took_ms: float
    degraded: str | None = None
    evidence: tuple[dict[str, float], ...] = ()
