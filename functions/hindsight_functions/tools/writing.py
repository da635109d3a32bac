"""`memory_write`: remember one thing, and ask the agent where it may contradict another."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from hindsight_core.context import escape
from hindsight_core.models import Content, Decision, Fraction, Kind, Source, Visibility
from hindsight_core.requests import WriteRequest
from hindsight_functions.tools.connection import Connection
from hindsight_functions.tools.tool import Answer, Timezone, Tool, given, value


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    content: Annotated[Content, Meta(description="One self-contained statement, in the user's language.")]
    memory_type: Literal["episodic", "semantic"] | UnsetType = UNSET
    kind: Kind | UnsetType = UNSET
    key: Annotated[str, Meta(description="Slot of one value, e.g. user.address")] | UnsetType = UNSET
    confidence: Annotated[Fraction, Meta(description="0 to 1")] | UnsetType = UNSET
    source: Annotated[Source, Meta(description="agent: your own guess. Default user.")] | UnsetType = UNSET
    ttl: Annotated[str, Meta(description="e.g. 30d or PT1H")] | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    observed_at: Annotated[datetime, Meta(description="If not now.")] | UnsetType = UNSET
    timezone: Timezone | UnsetType = UNSET
    visibility: Annotated[Visibility, Meta(description="private: this agent only.")] | UnsetType = UNSET
    supersedes: list[str] | UnsetType = UNSET
    force: Annotated[bool, Meta(description="Store what was skipped.")] | UnsetType = UNSET
    user_id: str | UnsetType = UNSET


class Contradiction(msgspec.Struct, frozen=True, kw_only=True):
    """A memory that the new one may have made untrue; where the new one is `late`, it is the other way round."""

    id: str
    content: str
    probability: float
    why: str
    ask: str
    late: bool


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the content; `contests` is to be settled with `memory_update`."""

    decision: str
    stored: bool
    reason: str
    superseded: list[str]
    related: list[str]
    contests: list[Contradiction]
    memory_id: str | UnsetType = UNSET
    status: str | UnsetType = UNSET


async def run(arguments: Arguments, connection: Connection) -> Answer:
    request = WriteRequest(
        content=arguments.content,
        **connection.scope(value(arguments.user_id)),
        **given(
            memory_type=arguments.memory_type,
            kind=arguments.kind,
            key=arguments.key,
            confidence=arguments.confidence,
            source=arguments.source,
            ttl=UNSET if arguments.ttl is UNSET else seconds_or_words(arguments.ttl),
            tags=UNSET if arguments.tags is UNSET else tuple(arguments.tags),
            observed_at=arguments.observed_at,
            timezone=arguments.timezone,
            visibility=arguments.visibility,
            supersedes=UNSET if arguments.supersedes is UNSET else tuple(arguments.supersedes),
            force=arguments.force,
            idempotency_key=UNSET if connection.new_key is None else connection.new_key(),
        ),
    )
    answer = await connection.memories.write(request)
    if not answer.results:
        nothing = Decision(index=0, text="", decision="skip", reason="Nothing in it states anything.")
        return Answer(words(nothing), _data(nothing, stored=False))
    decision = answer.results[0]
    text = words(decision)
    if answer.degraded is not None:
        text += f"\n{answer.degraded}"
    return Answer(text, _data(decision, stored=answer.stored))


def seconds_or_words(ttl: str) -> str | float:
    """A lifetime as the service takes it: seconds, or words such as 30d."""
    try:
        return float(ttl)
    except ValueError:
        return ttl


def _data(decision: Decision, *, stored: bool) -> Written:
    return Written(
        decision=decision.decision,
        stored=stored,
        reason=decision.reason,
        superseded=list(decision.superseded),
        related=list(decision.related),
        contests=[
            Contradiction(
                id=old.id,
                content=old.content,
                probability=old.probability,
                why=old.why,
                ask=old.ask,
                late=old.late,
            )
            for old in decision.contests
        ],
        memory_id=decision.memory_id or UNSET,
        status=UNSET if decision.memory is None else decision.memory.status,
    )


def words(decision: Decision) -> str:
    """What an agent reads of a decision. docs/dify/hindsight-memory.yml reads of it whether something is contested."""
    done = _done(decision)
    if not decision.contests:
        return done
    if decision.decision == "contest" and not decision.superseded:
        return f"Stored as {decision.memory_id}, but it may contradict what is remembered:\n{_questions(decision)}"
    return f"{done}\nIt may contradict what else is remembered:\n{_questions(decision)}"


def _done(decision: Decision) -> str:
    memory_id, related = decision.memory_id, ", ".join(decision.related)
    reason = escape(decision.reason)
    match decision.decision:
        case "skip":
            return f"Not stored: {reason} Only if the user insists, write it again with force=true."
        case "refuse":
            return f"Refused, nothing was stored: {reason}"
        case "duplicate":
            return f"Known already as {memory_id}; nothing new was stored."
        case "pending":
            kept = f"Kept as {memory_id}, unconfirmed: {reason}"
            if related:
                kept += (
                    f" It differs from {related}. Once the user confirms it, call "
                    f'memory_update(memory_id="{memory_id}", resolves="{decision.related[0]}", '
                    'resolution="supersede", reason=…).'
                )
            return kept
        case "supersede" | "refine" if decision.superseded:
            return f"Stored as {memory_id}. It replaces {', '.join(decision.superseded)}: {reason}"
        case _ if decision.superseded:
            return f"Stored as {memory_id}. It settles that {', '.join(decision.superseded)} no longer holds: {reason}"
        case _:
            return f"Stored as {memory_id}."


def _questions(decision: Decision) -> str:
    lines: list[str] = []
    newer: str | None
    older: str | None
    for other in decision.contests:
        if other.late:
            newer, older = other.id, decision.memory_id
            lines.append(f"- It is older than {other.id} ({other.probability:.0%}): {escape(other.content)}")
        else:
            newer, older = decision.memory_id, other.id
            lines.append(f"- {other.id} ({other.probability:.0%}): {escape(other.content)}")
        lines.append(f"  {escape(other.ask)}")
        lines.append(
            f'  Settle it: memory_update(memory_id="{newer}", resolves="{older}", resolution=…, '
            "reason=…). supersede: the old one no longer holds; coexist: both hold; retract: the new one is wrong."
        )
    lines.append("Ask the user where you cannot tell. Until then both are kept and the old one is marked.")
    return "\n".join(lines)


TOOL = Tool(
    name="memory_write",
    title="Remember",
    description=(
        "Remember one lasting fact, preference, instruction or event, or its new value, when the user states it; one "
        "call each. Not for questions, small talk, secrets, or what memory told. Settle contests with memory_update."
    ),
    arguments=Arguments,
    answer=Written,
    run=run,
)
