"""A write request and one judged candidate to a memory that is not stored yet."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from hindsight_core.caller import Caller, instant, time_zone
from hindsight_core.durations import duration
from hindsight_core.errors import InvalidInput
from hindsight_core.extraction import Candidate, extract, whole
from hindsight_core.gate import Verdict, find_secret
from hindsight_core.models import Memory, MetadataValue, Scope, Source
from hindsight_core.requests import Message, WriteRequest
from hindsight_core.summary import summarise
from hindsight_core.validity import Validity, validity

METADATA_LIMIT = 16 * 1024
MAX_TAGS = 64
_ROLE_OF_SOURCE = {"user": "user", "agent": "assistant", "tool": "tool"}
SPECULATION_CAP = 0.5


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """The instants of a write request, all in UTC."""

    now: datetime
    observed_at: datetime | None
    valid_from: datetime | None
    expires_at: datetime | None


def check(request: WriteRequest, caller: Caller) -> Times:
    """The instants of a request whose fields agree with each other; `InvalidInput` names the first that does not."""
    if (request.content is None) == (request.messages is None):
        field = "content" if request.content is None else "messages"
        raise InvalidInput.of(field, "give exactly one of `content` and `messages`")
    if request.messages is not None and not request.messages:
        raise InvalidInput.of("messages", "is empty")
    if request.memory_type == "working":
        raise InvalidInput.of("memory_type", "working memory belongs to a task; use /v1/tasks/{task_id}/messages")
    if request.visibility == "private" and request.agent_id is None:
        raise InvalidInput.of("agent_id", "a private memory needs the agent it belongs to")
    if request.ttl is not None and request.expires_at is not None:
        raise InvalidInput.of("expires_at", "give `ttl` or `expires_at`, not both")
    check_labels(request.tags, request.metadata)
    if request.key is not None:
        check_no_secret(request.key, "key")
    for i, message in enumerate(request.messages or ()):
        check_metadata(message.metadata, f"messages[{i}].metadata")
    if request.timezone is not None:
        time_zone(request.timezone)
    now = caller.clock(request)
    expires_at = _optional(request.expires_at, "expires_at", request.timezone)
    if request.ttl is not None:
        expires_at = now + duration(request.ttl, "ttl")
    elif expires_at is not None and expires_at <= now:
        raise InvalidInput.of("expires_at", "is in the past")
    return Times(
        now=now,
        observed_at=_optional(request.observed_at, "observed_at", request.timezone),
        valid_from=_optional(request.valid_from, "valid_from", request.timezone),
        expires_at=expires_at,
    )


def check_labels(tags: tuple[str, ...], metadata: dict[str, MetadataValue], within: str = "") -> None:
    if len(tags) > MAX_TAGS:
        raise InvalidInput.of(f"{within}tags", f"at most {MAX_TAGS}")
    for i, tag in enumerate(tags):
        check_no_secret(tag, f"{within}tags[{i}]")
    check_metadata(metadata, f"{within}metadata")


def check_no_secret(text: str, field: str) -> None:
    """Raise `InvalidInput` naming the field when its text holds a secret; the error does not repeat it."""
    if (secret := find_secret(text)) is not None:
        raise InvalidInput.of(field, f"contains a secret ({secret}); secrets are never stored")


def check_metadata(metadata: dict[str, MetadataValue], field: str) -> None:
    if metadata and len(msgspec.json.encode(metadata)) > METADATA_LIMIT:
        raise InvalidInput.of(field, "is over 16 KiB")
    for name, value in metadata.items():
        for held in value if isinstance(value, list) else [value]:
            if isinstance(held, str):
                check_no_secret(held, f"{field}.{name}")


def candidates(request: WriteRequest) -> list[Candidate]:
    """What the request offers: its one content kept whole, or what its messages state."""
    if request.messages is not None:
        zoned = [_dated(message, f"messages[{i}].at", request.timezone) for i, message in enumerate(request.messages)]
        return whole(zoned) if request.extract == "none" else extract(zoned)
    source: Source = request.source or "user"
    return [
        Candidate(
            index=0,
            text=request.content or "",
            role=_ROLE_OF_SOURCE[source],  # type: ignore[arg-type]
            source=source,
            speaker=request.speaker,
            context=request.context,
            previous=(request.context,) if request.context else (),
        )
    ]


def said_to_hold(request: WriteRequest, candidate: Candidate, verdict: Verdict, times: Times) -> Validity | None:
    """From when or until when the words of a candidate say that it holds, as far as the request leaves that open.

    Read in the request's zone at the time it was told. Neither what its caller insists on, a tool's record and a guess,
    nor what harms when it is forgotten, has such a time; nor has what was over when it was written: it is history.
    """
    if request.force or verdict.status != "active" or candidate.source == "tool" or verdict.vital:
        return None
    told = _observed(candidate, times).astimezone(time_zone(request.timezone))
    kind = request.kind or verdict.kind
    found = validity(candidate.statement, told, momentary=verdict.ttl_seconds is not None, event=kind == "event")
    if found is None:
        return None
    if found.end is not None:
        given = times.expires_at is not None or request.pinned
        begins = times.valid_from or times.now
        return None if given or found.end <= max(begins, times.now) else found
    return None if times.valid_from is not None or found.start is None or found.start <= times.now else found


def draft(
    request: WriteRequest,
    candidate: Candidate,
    verdict: Verdict,
    scope: Scope,
    times: Times,
    memory_id: str,
    holds: Validity | None = None,
) -> Memory:
    """The memory that a candidate would become.

    What the request names goes before what its words say (`holds`), and that before what the gate found. A suggested
    ttl counts from when it was observed.
    """
    kind = request.kind or verdict.kind
    confidence = verdict.confidence if request.confidence is None else request.confidence
    observed = _observed(candidate, times)
    expires_at, begins = times.expires_at, times.valid_from
    if holds is not None:
        expires_at = expires_at or (None if holds.end is None else holds.end.astimezone(UTC))
        begins = begins or (None if holds.start is None else holds.start.astimezone(UTC))
    if expires_at is None and verdict.ttl_seconds is not None and not request.force and not request.pinned:
        expires_at = max(observed, begins or observed) + timedelta(seconds=verdict.ttl_seconds)
    return Memory(
        id=memory_id,
        namespace=scope.namespace,
        user_id=scope.user_id,
        agent_id=scope.agent_id,
        session_id=scope.session_id,
        task_id=scope.task_id,
        visibility=request.visibility,
        memory_type=request.memory_type or verdict.memory_type,
        kind=kind,
        key=request.key,
        content=candidate.text,
        summary=summarise(candidate.text),
        context=candidate.context,
        speaker=candidate.speaker or request.speaker,
        source=request.source or candidate.source,
        confidence=min(confidence, SPECULATION_CAP) if kind == "speculation" else confidence,
        observed_at=observed,
        precision=request.precision,
        # Only who says so means something that does not hold yet: an appointment is known before its day.
        valid_from=begins or min(observed, times.now),
        created_at=times.now,
        updated_at=times.now,
        expires_at=expires_at,
        half_life_days=request.half_life_days,
        status="active" if request.force else verdict.status,
        pinned=request.pinned,
        tags=tuple(dict.fromkeys(request.tags)),
        metadata={**request.metadata, **candidate.metadata},
    )


def _observed(candidate: Candidate, times: Times) -> datetime:
    return candidate.at or times.observed_at or times.now


def _optional(value: datetime | None, field: str, zone: str | None) -> datetime | None:
    return None if value is None else instant(value, field, zone)


def _dated(message: Message, field: str, zone: str | None) -> Message:
    if message.at is None:
        return message
    return msgspec.structs.replace(message, at=instant(message.at, field, zone))
