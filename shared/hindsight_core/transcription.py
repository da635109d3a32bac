"""Reading the lines of an export back: what each holds, checked as a write is."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from hindsight_core.caller import instant
from hindsight_core.decoding import decode
from hindsight_core.drafting import SPECULATION_CAP, check_labels, check_no_secret
from hindsight_core.errors import InvalidInput
from hindsight_core.legibility import check_legible
from hindsight_core.lines import Erased, Events, Header, Line, Runs
from hindsight_core.models import AuditEvent, Memory, Run

T = TypeVar("T", bound=msgspec.Struct)
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
_TOLD = {"actor": 256, "action": 64, "operation": 64, "reason": 4000, "request_id": 128}


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """What a line holds, checked and moved to the namespace that it is read into."""

    memory: Memory | None = None
    events: tuple[AuditEvent, ...] = ()
    runs: tuple[Run, ...] = ()
    erased: tuple[str, ...] = ()


def parsed(line: bytes, namespace: str) -> Parsed:
    """What a line holds; nothing for a header, an end or an empty line. `InvalidInput` names what is wrong."""
    start = line.lstrip()[:24]
    if not start or start.startswith(b'{"end"'):
        return Parsed()
    if start.startswith(b'{"hindsight_export"'):
        decode(line, Header)
        return Parsed()
    if start.startswith(b'{"events"'):
        told = _legible(decode(line, Events)).events
        return Parsed(events=tuple(_event(event, f"events[{i}]", namespace) for i, event in enumerate(told)))
    if start.startswith(b'{"runs"'):
        return Parsed(
            runs=tuple(_run(run, f"runs[{i}]", namespace) for i, run in enumerate(_legible(decode(line, Runs)).runs))
        )
    if start.startswith(b'{"erased"'):
        gone = decode(line, Erased).erased
        for i, memory_id in enumerate(gone):
            _check_id(memory_id, f"erased[{i}]")
        return Parsed(erased=gone)
    found = _legible(decode(line, Line))
    memory = _moved(found.memory, "memory", namespace)
    events = tuple(_event(event, f"history[{i}]", namespace) for i, event in enumerate(found.history))
    for i, event in enumerate(events):
        if event.memory_id != memory.id:
            raise InvalidInput.of(f"history[{i}].memory_id", "is another memory's")
    return Parsed(memory=memory, events=events)


def _legible(line: T) -> T:
    check_legible(line)
    return line


def _event(event: AuditEvent, at: str, namespace: str) -> AuditEvent:
    for name in ("id", "memory_id", "run_id"):
        _check_id(getattr(event, name), f"{at}.{name}")
    _check_told(event, at)
    before = None if event.before is None else _moved(event.before, f"{at}.before", namespace)
    after = None if event.after is None else _moved(event.after, f"{at}.after", namespace)
    for state in (before, after):
        if state is not None and state.id != event.memory_id:
            raise InvalidInput.of(f"{at}.memory_id", "is not the id of the memory that it tells of")
    return replace(event, namespace=namespace, at=instant(event.at, f"{at}.at"), before=before, after=after)


def _run(run: Run, at: str, namespace: str) -> Run:
    _check_id(run.run_id, f"{at}.run_id")
    _check_told(run, at)
    if run.count < 0:
        raise InvalidInput.of(f"{at}.count", "is below 0")
    return replace(run, namespace=namespace, at=instant(run.at, f"{at}.at"))


def _check_told(told: AuditEvent | Run, at: str) -> None:
    for name, longest in _TOLD.items():
        text = getattr(told, name, "")
        if len(text) > longest:
            raise InvalidInput.of(f"{at}.{name}", f"is over {longest} characters")
        check_no_secret(text, f"{at}.{name}")


def _moved(memory: Memory, at: str, namespace: str) -> Memory:
    """The memory in its new namespace, within the limits of a write."""
    _check(memory, at)
    instants = {
        name: instant(value, f"{at}.{name}") for name in _INSTANTS if (value := getattr(memory, name)) is not None
    }
    confidence = min(memory.confidence, SPECULATION_CAP) if memory.kind == "speculation" else memory.confidence
    memory = replace(memory, namespace=namespace, confidence=confidence, **instants)
    if memory.valid_to is not None and memory.valid_to <= memory.valid_from:
        raise InvalidInput.of(f"{at}.valid_to", f"is not after {at}.valid_from")
    return memory


def _check(memory: Memory, at: str) -> None:
    """The limits of a write, and no secret anywhere."""
    _check_id(memory.id, f"{at}.id")
    if memory.memory_type == "working" and memory.task_id is None:
        raise InvalidInput.of(f"{at}.task_id", "working memory belongs to a task")
    if memory.visibility == "private" and memory.agent_id is None:
        raise InvalidInput.of(f"{at}.agent_id", "a private memory needs the agent it belongs to")
    if memory.access_count < 0:
        raise InvalidInput.of(f"{at}.access_count", "is below 0")
    if not 1 <= memory.version < 1 << 31:
        raise InvalidInput.of(f"{at}.version", "is not 1 or more")
    check_labels(memory.tags, memory.metadata, within=f"{at}.")
    for name, longest in _LONGEST.items():
        text = getattr(memory, name)
        if text is not None and len(text) > longest:
            raise InvalidInput.of(f"{at}.{name}", f"is over {longest} characters")
        if text is not None:
            check_no_secret(text, f"{at}.{name}")


def _check_id(text: str, at: str) -> None:
    if not _ID.fullmatch(text):
        raise InvalidInput.of(at, "is not 1 to 64 letters, digits, dots, dashes or underscores")
