"""A caller's scope and filters to the typed conditions of the store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TypeVar

import msgspec

from hindsight_core.caller import instant, millis, time_zone
from hindsight_core.errors import InvalidInput
from hindsight_core.models import AuditEvent, Memory, Scalar, Scope, Status
from hindsight_core.requests import Filters
from hindsight_core.stores import Head, Where

T = TypeVar("T")

# How far the clocks of two callers may lie apart without either missing what the other has just written.
CLOCKS_DIFFER = timedelta(minutes=5)


def scope_where(scope: Scope, *, everything: bool = False) -> Where:
    """Whose memories: the namespace's, narrowed by user, session and task, with the private ones of this agent.

    With `everything` (listing, export, forgetting) a call that names no agent also sees private memories: they are
    the user's own.
    """
    return Where(
        user_id=scope.user_id,
        session_id=scope.session_id,
        task_id=scope.task_id,
        reader="*" if everything and scope.agent_id is None else scope.agent_id,
    )


def in_scope(memory: Memory, scope: Scope) -> bool:
    """Whether a memory lies in a scope; a scope that names no agent sees private ones too (they are the user's)."""
    if scope.user_id is not None and memory.user_id != scope.user_id:
        return False
    if scope.session_id is not None and memory.session_id != scope.session_id:
        return False
    if scope.task_id is not None and memory.task_id != scope.task_id:
        return False
    return memory.visibility == "shared" or scope.agent_id is None or memory.agent_id == scope.agent_id


def concerns(event: AuditEvent, scope: Scope) -> bool:
    """Whether an event tells of a memory of the scope; erased memories tell nothing of whose they were."""
    memory = event.after or event.before
    return scope == Scope(namespace=scope.namespace) if memory is None else in_scope(memory, scope)


def readable(memory: Memory, scope: Scope) -> bool:
    """Whether a search in this scope may show a memory: a private one only to its own agent."""
    return in_scope(memory, scope) and (memory.visibility == "shared" or memory.agent_id == scope.agent_id)


def theirs(scope: Scope, now: datetime) -> Where:
    """The memories that a new one can touch: the same user's that hold, as far as this agent may see them."""
    return Where(
        user_id=scope.user_id,
        no_user=scope.user_id is None,
        reader=scope.agent_id,
        statuses=("active", "pending"),
        alive_at=millis(now),
    )


def present_of(head: Head, now: datetime) -> datetime:
    """The instant at which a memory must hold to be seen without `as_of`: `now`, by the clock that is ahead.

    Whoever's clock is behind by up to `CLOCKS_DIFFER` sees what was last written all the same; a change that claims to
    come from further ahead moves nobody's present by more. What was replaced at the very instant at which it began
    keeps a millisecond, which is over.
    """
    ahead = min(max(head.latest - millis(now), 0), CLOCKS_DIFFER // timedelta(milliseconds=1))
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=millis(now) + ahead + 1)


def where_of(
    scope: Scope,
    filters: Filters,
    *,
    statuses: tuple[Status, ...] | None = None,
    alive_at: datetime | None = None,
    begun_at: datetime | None = None,
    lasting_at: datetime | None = None,
    zone: str | None = None,
    everything: bool = False,
) -> Where:
    """The conditions of a request; `filters.status` goes before `statuses`. Reversed ranges are refused."""
    time_zone(zone)
    start = None if filters.observed_from is None else instant(filters.observed_from, "filters.observed_from", zone)
    end = None if filters.observed_to is None else instant(filters.observed_to, "filters.observed_to", zone)
    if start is not None and end is not None and end <= start:
        raise InvalidInput.of("filters.observed_to", "is not after filters.observed_from")
    base = scope_where(scope, everything=everything)
    return Where(
        user_id=base.user_id,
        reader=base.reader,
        session_id=base.session_id,
        task_id=base.task_id,
        statuses=_many(filters.status) or statuses,
        memory_types=_many(filters.memory_type),
        kinds=_many(filters.kind),
        sources=_many(filters.source),
        key=filters.key,
        ids=filters.ids,
        tags_all=filters.tags_all,
        tags_any=filters.tags_any,
        metadata={key: _scalars(value) for key, value in filters.metadata.items()},
        observed_from=None if start is None else millis(start),
        observed_to=None if end is None else millis(end),
        begun_at=None if begun_at is None else millis(begun_at),
        lasting_at=None if lasting_at is None else millis(lasting_at),
        alive_at=None if alive_at is None else millis(alive_at),
    )


def _many(value: T | tuple[T, ...] | None) -> tuple[T, ...] | None:
    """One value or several; none at all is no condition, as agents send empty lists for what they leave open."""
    if value is None or value == ():
        return None
    return value if isinstance(value, tuple) else (value,)  # pyright: ignore[reportUnknownVariableType]


def _scalars(value: Scalar | list[Scalar]) -> tuple[Scalar, ...]:
    return tuple(value) if isinstance(value, list) else (value,)


_ASKED_AS = {
    "memory_types": "memory_type",
    "kinds": "kind",
    "statuses": "status",
    "sources": "source",
    "alive_at": "expires_at",
    "begun_at": "valid_from",
    "lasting_at": "status",
}
_AS_OF = _ASKED_AS | {"begun_at": "as_of", "lasting_at": "as_of"}


def loosened(where: Where, scope: Where, *, as_of: bool) -> dict[str, Where]:
    """The conditions with one of them taken away each, by the names callers know: what that one alone kept out.

    `scope` are the conditions that stay.
    """
    names = _AS_OF if as_of else _ASKED_AS
    found: dict[str, Where] = {}
    for name in where.__struct_fields__:
        free = getattr(scope, name)
        if getattr(where, name) != free:
            asked = names.get(name, name)
            found[asked] = msgspec.structs.replace(found.get(asked, where), **{name: free})
    return found
