"""`memory_forget`: forget one memory, or those that a query finds."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from hindsight_core.context import escape
from hindsight_core.errors import InvalidInput
from hindsight_core.models import ForgetMode
from hindsight_core.requests import ForgetRequest, Query, Reason, Request
from hindsight_functions.tools.connection import Connection
from hindsight_functions.tools.tool import Answer, Tool, given, value

_SHOWN = 20


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    memory_id: str | UnsetType = UNSET
    query: Query | UnsetType = UNSET
    mode: Annotated[
        ForgetMode,
        Meta(description="archive: restorable; suppress: never mention again; retract: was wrong; erase: for good."),
    ] = "archive"
    reason: Reason | UnsetType = UNSET
    dry_run: Annotated[bool, Meta(description="Only list.")] = False
    user_id: str | UnsetType = UNSET


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """One memory that is, or would be, forgotten."""

    id: str
    excerpt: str
    status: str


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """What was forgotten; `run_id` takes it back, except an erasure."""

    dry_run: bool
    count: int
    run_id: str
    affected: list[Gone]


async def run(arguments: Arguments, connection: Connection) -> Answer:
    scope = connection.scope(value(arguments.user_id))
    memory_id, query = arguments.memory_id, arguments.query
    if isinstance(memory_id, UnsetType) == isinstance(query, UnsetType):
        raise InvalidInput.of("memory_id", "give either memory_id or query")
    if not isinstance(memory_id, UnsetType):
        # An id that nobody has is an error an agent should hear of, not an empty success.
        await connection.memories.get(memory_id, Request(**scope))
    request = ForgetRequest(
        ids=None if isinstance(memory_id, UnsetType) else (memory_id,),
        query=value(query),
        mode=arguments.mode,
        dry_run=arguments.dry_run,
        **scope,
        **given(reason=arguments.reason),
    )
    answer = await connection.memories.forget(request)
    affected = [Gone(id=one.id, excerpt=one.excerpt, status=one.after) for one in answer.affected]
    data = Forgotten(dry_run=answer.dry_run, count=answer.count, run_id=answer.run_id, affected=affected)
    return Answer(_words(data, arguments.mode), data)


def _words(done: Forgotten, mode: ForgetMode) -> str:
    if not done.count:
        return "Nothing matched, so nothing was forgotten."
    if done.dry_run:
        words = f"{mode} would forget {done.count}; nothing was changed. Confirm with the user, then call by id:"
    elif mode == "erase":
        words = f"{done.count} erased for good:"
    else:
        words = f"{done.count} forgotten ({mode}); run {done.run_id} can be undone:"
    lines = [f"- {one.id} {escape(one.excerpt)}" for one in done.affected[:_SHOWN]]
    if done.count > _SHOWN:
        lines.append(f"and {done.count - _SHOWN} more")
    return "\n".join([words, *lines])


TOOL = Tool(
    name="memory_forget",
    title="Forget",
    description=(
        "Forget, when the user asks, by id or query. By query first dry_run, then by id. For a value that changed use "
        "memory_write."
    ),
    arguments=Arguments,
    answer=Forgotten,
    run=run,
    destructive=True,
    idempotent=True,
)
