"""Change a memory by hand, and settle what a write left in doubt."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
from msgspec import UNSET

from hindsight_core.caller import Caller, instant
from hindsight_core.contests import standing
from hindsight_core.drafting import check_labels, check_no_secret
from hindsight_core.durations import duration
from hindsight_core.embedding import Embedder
from hindsight_core.errors import Conflict, FieldError, InvalidInput, SlotTaken
from hindsight_core.forgetting import Forgetter
from hindsight_core.ledger import Ledger, open_ledger
from hindsight_core.models import Memory
from hindsight_core.occupancy import holders, stands, taken
from hindsight_core.passages import Passages
from hindsight_core.rebuilding import rebuilt
from hindsight_core.requests import ResolveRequest, UpdateRequest
from hindsight_core.responses import ResolveResponse, UpdateResponse
from hindsight_core.stores import MemoryStore, Record
from hindsight_core.summary import summarise

_FIELDS = ("content", "summary", "confidence", "kind", "memory_type", "key", "metadata", "pinned", "visibility")
_MILLISECOND = timedelta(milliseconds=1)
_ATTEMPTS = 64


class Updater:
    """Updates one memory at a time, each change with its reason in the history."""

    def __init__(self, store: MemoryStore, embedder: Embedder | None, forgetter: Forgetter) -> None:
        self._store = store
        self._embedder = embedder
        self._forgetter = forgetter

    async def update(self, memory_id: str, request: UpdateRequest, caller: Caller) -> UpdateResponse:
        """Change what the request names and keep the rest; re-embeds only when the text changed.

        Raises `Conflict` for a stale `version`, `InvalidInput` for fields that do not go together. A request without a
        `version` is for whatever the memory is by then: when another change comes in between, it is made after that.
        """
        for _ in range(_ATTEMPTS):
            try:
                return await self._update(memory_id, request, caller)
            except SlotTaken:
                raise
            except Conflict:
                if request.version is not None:
                    raise
        raise Conflict(f"{memory_id!r} is changed so often that this update found no turn.", remedy="Try again.")

    async def _update(self, memory_id: str, request: UpdateRequest, caller: Caller) -> UpdateResponse:
        scope, now = caller.scope(request), caller.clock(request)
        record = await self._forgetter.find(memory_id, scope)
        memory = record.memory
        if request.version is not None and request.version != memory.version:
            raise Conflict(
                f"{memory_id!r} is at version {memory.version}, not {request.version}.",
                remedy="Read it again and repeat the change on what it is now.",
                errors=(FieldError("version", f"is {memory.version} by now, not {request.version}"),),
            )
        changed = _changed(memory, request)
        if request.ttl is not UNSET and request.expires_at is not UNSET:
            raise InvalidInput.of("expires_at", "give `ttl` or `expires_at`, not both")
        if request.ttl is not UNSET:
            changed["expires_at"] = now + duration(request.ttl, "ttl")
        elif request.expires_at is None:
            changed["expires_at"] = None
        elif request.expires_at is not UNSET:
            expires_at = instant(request.expires_at, "expires_at", request.timezone)
            if expires_at <= now:
                raise InvalidInput.of("expires_at", "is in the past")
            changed["expires_at"] = expires_at
        if not changed:
            raise InvalidInput.of("content", "the request names nothing to change")
        after = msgspec.structs.replace(memory, **changed, updated_at=now)
        if after.visibility == "private" and after.agent_id is None:
            raise InvalidInput.of("visibility", "a private memory needs an agent, and this one has none")
        expected = await self._free(memory, after, now)
        renewed = await rebuilt(record, after, Passages(self._embedder))
        ledger = open_ledger("update", scope.namespace, now, caller, request.reason)
        stored = ledger.replace(record, renewed, "updated", request.reason)
        await self._store.commit(scope.namespace, ledger.changes(), expected=expected)
        return UpdateResponse(memory=stored.memory, previous_version=memory.version)

    async def _free(self, before: Memory, after: Memory, now: datetime) -> int | None:
        """Nothing else is active in the slot that a memory comes into; the sequence for which this holds."""
        moved = next((name for name in ("key", "visibility") if getattr(after, name) != getattr(before, name)), None)
        if not stands(after, now) or (stands(before, now) and moved is None):
            return None
        sequence = (await self._store.head(after.namespace)).sequence
        for holder in await holders(self._store, after, now):
            raise taken(after, holder, moved or ("pinned" if after.pinned else "expires_at"))
        return sequence

    async def resolve(self, memory_id: str, request: ResolveRequest, caller: Caller) -> ResolveResponse:
        """Settle a contested pair, or a pending memory against what it contradicts: `memory_id` is the newer one."""
        scope, now = caller.scope(request), caller.clock(request)
        new = await self._forgetter.find(memory_id, scope)
        old = await self._forgetter.find(request.other, scope)
        doubts = await standing(self._store, scope.namespace, [link.id for link in old.memory.contested_by])
        settled = {challenger for challenger, stands in doubts.items() if stands.id == memory_id}
        if memory_id == request.other or not settled:
            raise Conflict(
                f"{request.other!r} is not contested by {memory_id!r}.",
                remedy="Settle what a write reported under `contests`, or a pending memory and what it contradicts.",
            )
        for record in (new, old):
            if record.memory.status not in {"active", "pending"}:
                raise Conflict(
                    f"{record.memory.id!r} is {record.memory.status}, so there is nothing to settle.",
                    remedy="Restore it first, if it should count again.",
                )
        ledger = open_ledger("resolve", scope.namespace, now, caller, request.reason)
        reason = request.reason or f"Settled: {request.decision}."
        links = tuple(link for link in old.memory.contested_by if link.id not in settled)
        self._settle(ledger, new, old, request, reason, links)
        await self._store.commit(scope.namespace, ledger.changes())
        return ResolveResponse(memory=ledger.get(new).memory, other=ledger.get(old).memory, run_id=ledger.run.run_id)

    def _settle(
        self, ledger: Ledger, new: Record, old: Record, request: ResolveRequest, reason: str, links: tuple[object, ...]
    ) -> None:
        now = ledger.run.at
        if request.decision in {"supersede", "refine"}:
            ledger.change(
                old,
                "superseded",
                reason,
                status="superseded",
                status_reason=reason,
                superseded_by=new.memory.id,
                contested_by=links,
                valid_to=max(new.memory.valid_from, old.memory.valid_from + _MILLISECOND),
                updated_at=now,
            )
            ledger.change(
                new,
                "resolved",
                reason,
                status="active",
                status_reason=reason,
                supersedes=tuple(dict.fromkeys((*new.memory.supersedes, old.memory.id))),
                updated_at=now,
            )
            return
        ledger.change(old, "resolved", reason, contested_by=links, updated_at=now)
        if request.decision == "coexist":
            ledger.change(new, "resolved", reason, status="active", status_reason=reason, updated_at=now)
        else:
            status = "archived" if request.decision == "duplicate" else "retracted"
            ledger.change(
                new, "resolved", reason, status=status, status_reason=reason, updated_at=now, forgotten_at=now
            )


def _changed(memory: Memory, request: UpdateRequest) -> dict[str, object]:
    changed: dict[str, object] = {}
    for name in _FIELDS:
        value = getattr(request, name)
        if value is not UNSET:
            changed[name] = value
    if request.tags is not UNSET:
        changed["tags"] = tuple(dict.fromkeys(request.tags))
    check_labels(
        memory.tags if request.tags is UNSET else request.tags,
        {} if request.metadata is UNSET else request.metadata,
    )
    for name in ("summary", "key"):
        text = changed.get(name)
        if isinstance(text, str):
            check_no_secret(text, name)
    if request.memory_type == "working":
        raise InvalidInput.of("memory_type", "a stored memory cannot become working memory")
    if request.content is not UNSET:
        check_no_secret(request.content, "content")
        if request.summary is UNSET:
            changed["summary"] = summarise(request.content)
    if changed.get("kind", memory.kind) == "speculation":
        confidence = changed.get("confidence", memory.confidence)
        if isinstance(confidence, float) and confidence > 0.5:
            changed["confidence"] = 0.5
    return changed
