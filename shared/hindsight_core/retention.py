"""Who expires, who makes room, who is forgotten for idleness, who is purged: pure functions of memories and `now`.

Every answer carries its reason in words, which goes into the history: "why was this forgotten?" is answered there.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from hindsight_core.config import Settings
from hindsight_core.durations import duration
from hindsight_core.errors import ConfigurationError, InvalidInput
from hindsight_core.models import Memory, MemoryType, Status

Action: TypeAlias = Literal[
    "archived", "extended", "promoted", "erased", "induced", "updated", "withdrawn", "suppressed", "retracted"
]

# The retention value is Σ weight · part; each part and the value lie in [0, 1]:
#   freshness   0.5 ^ (age / half-life), age since it was last answered to somebody, or else since it was stored
#   use         log(1 + accesses) / log(1 + 20), at most 1: twenty answers are as good as any number
#   confidence  how sure it is
#   links       a third for each memory that it replaced or was induced from, at most 1
FRESHNESS, USE, CONFIDENCE, LINKS = 0.35, 0.25, 0.25, 0.15
HALF_LIFE_DAYS: dict[MemoryType, float] = {"working": 1.0, "episodic": 30.0, "semantic": 180.0}
MUCH_USED = 20
WELL_LINKED = 3
_DAY = timedelta(days=1)


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What the policies go by.

    Capacities count active, pending and superseded memories; 0 is no limit, and `of_type` holds for one user. An access
    extends a life to `extension` after it, until `lifetime` after the memory was stored; a `purge_after` of None keeps
    what is archived for good, a `consolidate_within` of None consolidates nothing; logged searches
    and receipts are kept so long, with None for good.
    """

    namespace: int = 0
    user: int = 0
    of_type: dict[MemoryType, int] = {}
    extension: timedelta = timedelta()
    lifetime: timedelta = timedelta(days=90)
    idle_after: timedelta | None = timedelta(days=180)
    idle_confidence: float = 0.5
    task_idle: timedelta | None = timedelta(days=7)
    purge_after: timedelta | None = timedelta(days=365)
    consolidate_within: timedelta | None = timedelta(days=90)
    retrievals_kept: timedelta | None = timedelta(days=90)
    receipts_kept: timedelta | None = timedelta(days=30)

    @property
    def limited(self) -> bool:
        """Whether there is any capacity at all."""
        return bool(self.namespace or self.user or any(self.of_type.values()))


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy does to a memory, and why. `fields` are what changes besides the status."""

    action: Action
    reason: str
    fields: dict[str, object] = {}


class Worth(msgspec.Struct, frozen=True, kw_only=True):
    """The retention value of a memory and its parts, all in [0, 1]."""

    value: float
    freshness: float
    use: float
    confidence: float
    links: float

    def __str__(self) -> str:
        parts = (
            ("freshness", FRESHNESS, self.freshness),
            ("use", USE, self.use),
            ("confidence", CONFIDENCE, self.confidence),
            ("links", LINKS, self.links),
        )
        return f"{self.value:.3f} = " + " + ".join(f"{weight:g} × {part:.2f} {name}" for name, weight, part in parts)


_BECOMES: dict[Action, Status] = {
    "archived": "archived",
    "withdrawn": "archived",
    "promoted": "active",
    "suppressed": "suppressed",
    "retracted": "retracted",
}


def applied(memory: Memory, verdict: Verdict, now: datetime) -> Memory | None:
    """The memory after the verdict, None where it is erased. Nothing looks fresher than before."""
    if verdict.action == "erased":
        return None
    fields: dict[str, object] = {}
    if (status := _BECOMES.get(verdict.action)) is not None:
        fields = {"status": status, "status_reason": verdict.reason}
        if status != "active":
            fields["forgotten_at"] = now
    return replace(memory, **(fields | verdict.fields))


def rules_of(settings: Settings) -> Rules:
    """The rules that the settings describe; `ConfigurationError` names a duration that is none."""
    return Rules(
        namespace=settings.capacity_namespace,
        user=settings.capacity_user,
        of_type={"episodic": settings.capacity_episodic, "semantic": settings.capacity_semantic},
        extension=_span(settings.access_extends, "HINDSIGHT_ACCESS_EXTENDS") or timedelta(),
        lifetime=_span(settings.access_extends_until, "HINDSIGHT_ACCESS_EXTENDS_UNTIL") or timedelta(),
        idle_after=_span(settings.idle_after, "HINDSIGHT_IDLE_AFTER"),
        idle_confidence=settings.idle_confidence,
        task_idle=_span(settings.task_idle, "HINDSIGHT_TASK_IDLE"),
        purge_after=_span(settings.purge_after, "HINDSIGHT_PURGE_AFTER"),
        consolidate_within=_span(settings.consolidate_within, "HINDSIGHT_CONSOLIDATE_WITHIN"),
        retrievals_kept=_span(settings.retrievals_kept, "HINDSIGHT_RETRIEVALS_KEPT"),
        receipts_kept=_span(settings.receipts_kept, "HINDSIGHT_RECEIPTS_KEPT"),
    )


def _span(text: str, variable: str) -> timedelta | None:
    if text.strip().lower() in {"", "never"}:
        return None
    try:
        return duration(float(text) if text.replace(".", "", 1).isdigit() else text, variable)
    except InvalidInput as exc:
        raise ConfigurationError(
            f"{variable}: {exc.errors[0].message}.", remedy="Give a duration such as 90d, or `never`."
        ) from exc


def worth(memory: Memory, now: datetime) -> Worth:
    """How much a memory is worth keeping; see the formula above. What is not dated before `now` is fresh."""
    age = max(timedelta(), now - (memory.last_accessed_at or memory.created_at))
    half_life = memory.half_life_days or HALF_LIFE_DAYS[memory.memory_type]
    freshness = 0.5 ** (age / _DAY / half_life)
    use = min(1.0, math.log1p(memory.access_count) / math.log1p(MUCH_USED))
    links = min(1.0, (len(memory.supersedes) + len(memory.derived_from)) / WELL_LINKED)
    value = FRESHNESS * freshness + USE * use + CONFIDENCE * memory.confidence + LINKS * links
    return Worth(value=value, freshness=freshness, use=use, confidence=memory.confidence, links=links)


def rank(memory: Memory, now: datetime) -> tuple[int, float, str]:
    """The order in which memories make room, first to last: what nobody sees any more, then by retention value.

    So the newest of a slot never goes before what it superseded.
    """
    ended = memory.valid_to is None or memory.valid_to <= now
    unseen = (memory.status == "superseded" and ended) or (memory.expires_at is not None and memory.expires_at <= now)
    return (0 if unseen else 1, worth(memory, now).value, memory.id)


def expire(memory: Memory, rules: Rules, now: datetime) -> Verdict | None:
    """Archive what has expired; what was accessed lives on for a while, within its cap. Never shortens a life."""
    if memory.expires_at is None or memory.pinned or memory.status not in {"active", "pending"}:
        return None
    if rules.extension and memory.last_accessed_at is not None:
        until = min(memory.last_accessed_at + rules.extension, memory.created_at + rules.lifetime)
        if until > max(memory.expires_at, now):
            reason = f"Accessed on {_day(memory.last_accessed_at)}, so it lives until {_day(until)}."
            return Verdict(action="extended", reason=reason, fields={"expires_at": until})
    if memory.expires_at > now:
        return None
    return Verdict(action="archived", reason=f"Expired on {_day(memory.expires_at)}.")


def due(rules: Rules, now: datetime) -> datetime:
    """Until when a memory may expire that `expire` has a say about at `now`."""
    return now + rules.extension


def idle(memory: Memory, rules: Rules, now: datetime) -> Verdict | None:
    """Archive what is not sure and was of no use to anybody for a long time."""
    if rules.idle_after is None or memory.pinned or memory.status not in {"active", "pending"}:
        return None
    last = max(memory.created_at, memory.updated_at, memory.last_accessed_at or memory.created_at)
    if memory.confidence > rules.idle_confidence or last + rules.idle_after > now:
        return None
    reason = (
        f"Not used since {_day(last)} and of low confidence"
        f" ({memory.confidence:.2f}, at most {rules.idle_confidence:.2f})."
    )
    return Verdict(action="archived", reason=reason)


def evict(memory: Memory, place: str, held: int, capacity: int, now: datetime) -> Verdict:
    """Archive a memory that makes room in `place`, which holds `held` and may hold `capacity`."""
    return Verdict(
        action="archived",
        reason=f"Made room: {place} held {held}, and {capacity} fit. Its retention value was among the lowest:"
        f" {worth(memory, now)}.",
    )


def dead(memory: Memory, last: datetime, rules: Rules, now: datetime) -> Verdict | None:
    """Archive the working memory of a task whose last message, at `last`, is long past: it ended without saying so."""
    if memory.memory_type != "working" or memory.pinned or memory.status not in {"active", "pending"}:
        return None
    if rules.task_idle is None or last + rules.task_idle > now:
        return None
    return Verdict(action="archived", reason=f"Its task was last heard of on {_day(last)}.")


def purge(memory: Memory, rules: Rules, now: datetime) -> Verdict | None:
    """Erase what has been archived for as long as it is kept."""
    since = memory.forgotten_at or memory.updated_at
    if rules.purge_after is None or memory.pinned or memory.status != "archived" or since + rules.purge_after > now:
        return None
    return Verdict(action="erased", reason=f"Archived since {_day(since)}, longer than it is kept.")


def _day(at: datetime) -> str:
    return at.date().isoformat()
