"""What an outcome does to the ledger: memories replaced, put in doubt, confirmed or added."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import msgspec

from hindsight_core.caller import millis
from hindsight_core.contests import link, restore, settle, settle_by_repetition
from hindsight_core.extraction import Candidate
from hindsight_core.gate import Verdict, insisted
from hindsight_core.indexing import index_fields
from hindsight_core.ledger import Ledger
from hindsight_core.models import Contest, Memory
from hindsight_core.reconciliation import Outcome
from hindsight_core.stores import Access, Record, Vector

_MILLISECOND = timedelta(milliseconds=1)
_QUOTED = re.compile(r"“[^”]*”|「[^」]*」|『[^』]*』|\"[^\"]*\"")


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate past the gate, with its vectors: what reconciliation works on."""

    candidate: Candidate
    verdict: Verdict
    bare: Vector
    mixed: Vector


class Effects(msgspec.Struct, frozen=True):
    """Where the effects of one write go: the ledger, the accesses, and the instant at which all of it happens."""

    ledger: Ledger
    accesses: list[Access]
    now: datetime


def apply(
    effects: Effects, new: Memory, kept: Kept, outcome: Outcome, targets: list[Record], records: dict[str, Record]
) -> Memory | None:
    """Put the outcome into the ledger; the memory that now holds what was said, None when nothing does."""
    ledger, reason = effects.ledger, unquoted(outcome.reason)
    if outcome.decision == "refuse":
        return None
    for former, challenger in outcome.settled:
        settle(ledger, records[former], records[challenger], reason)
    for former, challenger in outcome.restored:
        restore(ledger, records[former], records[challenger], reason)
    if outcome.decision == "duplicate" and targets:
        return _confirm(effects, new, targets[0], list(records.values()))
    if outcome.decision in {"supersede", "refine"} and not outcome.late:
        for target in targets:
            old = ledger.get(target)
            ledger.change(
                old,
                "superseded",
                reason,
                status="superseded",
                status_reason=reason,
                superseded_by=new.id,
                valid_to=max(new.valid_from, old.memory.valid_from + _MILLISECOND),
                updated_at=effects.now,
            )
        new = msgspec.structs.replace(new, supersedes=tuple(target.memory.id for target in targets))
    elif outcome.decision == "pending":
        new = msgspec.structs.replace(new, status="pending", status_reason=reason)
        for target in targets:
            link(ledger, target, new, new.confidence, reason, "doubted")
    # A write can replace one memory and put another in doubt.
    if outcome.decision in {"contest", "supersede", "refine"} and not outcome.late:
        for contender in outcome.contests:
            if (doubted := records.get(contender.id)) is None:
                continue
            why = unquoted(contender.why)
            if contender.late:
                contest = Contest(id=contender.id, probability=contender.probability, reason=why)
                new = msgspec.structs.replace(new, contested_by=(*new.contested_by, contest))
            else:
                link(ledger, doubted, new, contender.probability, why, "contested")
    record = Record(memory=new, index=index_fields(new), bare=kept.bare, mixed=kept.mixed)
    ledger.add(record, "added", sentences(why_kept(kept), reason))
    return new


def _confirm(effects: Effects, new: Memory, target: Record, around: list[Record]) -> Memory:
    """Heard again: the stored memory's confidence may rise, a pending one may come true, a contested one holds.

    An agent's repetition is an echo, not corroboration.
    """
    old = effects.ledger.get(target)
    effects.accesses.append(Access(memory_id=old.memory.id, at=millis(effects.now)))
    fields = _wishes(old.memory, new)
    if new.source != "agent" and new.confidence > old.memory.confidence and new.status == "active":
        fields["confidence"] = new.confidence
    if new.source != "agent" and old.memory.status == "pending" and new.status == "active":
        fields |= {"status": "active", "status_reason": "Said again, without a doubt."}
        if old.memory.kind == "speculation":
            fields["kind"] = new.kind
    if fields:
        fields["updated_at"] = effects.now
        old = effects.ledger.change(old, "confirmed", "Said again.", **fields)
    if new.source != "agent" and new.status == "active":
        settle_by_repetition(effects.ledger, old, around)
    return effects.ledger.get(old).memory


def _wishes(old: Memory, new: Memory) -> dict[str, object]:
    """What the caller asked for this time and the stored memory does not have; nothing is taken away from it."""
    fields: dict[str, object] = {
        "tags": tuple(dict.fromkeys((*old.tags, *new.tags))),
        "metadata": old.metadata | new.metadata,
        "pinned": old.pinned or new.pinned,
        "key": old.key or new.key,
    }
    if old.expires_at is not None and (new.expires_at is None or new.expires_at > old.expires_at):
        fields["expires_at"] = new.expires_at
    return {name: value for name, value in fields.items() if value != getattr(old, name)}


def unquoted(reason: str) -> str:
    """A reason without the texts it quotes: what is kept of one memory must not hold the words of another."""
    return _QUOTED.sub("…", reason)


def why_kept(kept: Kept) -> str:
    """The gate's reason."""
    return kept.verdict.reason if kept.verdict.keep else insisted(kept.verdict, kept.candidate.text)


def sentences(*parts: str) -> str:
    """Those that say something, in a row."""
    return " ".join(part for part in parts if part)
