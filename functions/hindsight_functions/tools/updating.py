"""`memory_update`: change a memory, or settle which of two holds."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from hindsight_core.errors import Conflict, InvalidInput
from hindsight_core.models import Content, Fraction
from hindsight_core.requests import Reason, Request, Resolution, ResolveRequest, UpdateRequest
from hindsight_functions.tools.connection import Connection
from hindsight_functions.tools.memory import Shown, line, shown
from hindsight_functions.tools.tool import Answer, Tool, given, value


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    memory_id: Annotated[str, Meta(description="With resolves: the newer memory.")]
    reason: Reason
    new_content: Content | UnsetType = UNSET
    resolves: Annotated[str, Meta(description="Id of the older.")] | UnsetType = UNSET
    resolution: (
        Annotated[
            Resolution,
            Meta(
                description="supersede: older ended; coexist: both hold; duplicate: same; refine: newer is fuller; "
                "retract: newer is wrong."
            ),
        ]
        | UnsetType
    ) = UNSET
    confidence: Annotated[Fraction, Meta(description="0 to 1")] | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    pinned: bool | UnsetType = UNSET
    user_id: str | UnsetType = UNSET


class Updated(msgspec.Struct, frozen=True, kw_only=True):
    """The memory as it is now; `other` is the older one of a settled pair."""

    memory: Shown
    other: Shown | UnsetType = UNSET


async def run(arguments: Arguments, connection: Connection) -> Answer:
    scope = connection.scope(value(arguments.user_id))
    changes = given(
        content=arguments.new_content,
        confidence=arguments.confidence,
        tags=UNSET if arguments.tags is UNSET else tuple(arguments.tags),
        pinned=arguments.pinned,
    )
    settles = arguments.resolves is not UNSET or arguments.resolution is not UNSET
    if settles and arguments.pinned is False:
        del changes["pinned"]  # what models fill in where nothing is to be said
    if (arguments.resolves is UNSET) != (arguments.resolution is UNSET):
        missing = "resolves" if arguments.resolves is UNSET else "resolution"
        raise InvalidInput.of(missing, "is missing: resolves and resolution go together")
    if isinstance(arguments.resolves, UnsetType) or isinstance(arguments.resolution, UnsetType):
        if not changes:
            raise InvalidInput.of("new_content", "nothing to change is named; give it, or resolves and resolution")
        request = UpdateRequest(reason=arguments.reason, **scope, **changes)
        memory = shown((await connection.memories.update(arguments.memory_id, request)).memory)
        return Answer(f"Changed; the history keeps what it was.\n{line(memory)}", Updated(memory=memory))
    if changes:
        raise InvalidInput.of(next(iter(changes)), "cannot be changed while settling; use a call of its own")
    return await _settle(arguments, arguments.resolves, arguments.resolution, connection)


async def _settle(arguments: Arguments, older: str, resolution: Resolution, connection: Connection) -> Answer:
    scope = connection.scope(value(arguments.user_id))
    request = ResolveRequest(other=older, decision=resolution, reason=arguments.reason, **scope)
    try:
        settled = await connection.memories.resolve(arguments.memory_id, request)
    except Conflict:
        given_as_newer = await connection.memories.get(arguments.memory_id, Request(**scope))
        if any(link.id == older for link in given_as_newer.contested_by):
            raise InvalidInput.of(
                "memory_id",
                f"{arguments.memory_id} is the older one; call again with memory_id={older} and "
                f"resolves={arguments.memory_id}, and the resolution read that way round",
            ) from None
        raise
    memory, other = shown(settled.memory), shown(settled.other)
    words = f"Settled ({resolution}): {memory.id} is {memory.status}, {other.id} is {other.status}."
    return Answer(f"{words}\n{line(memory)}\n{line(other)}", Updated(memory=memory, other=other))


TOOL = Tool(
    name="memory_update",
    title="Correct or settle",
    description=(
        "Correct a memory, or settle a pair that memory_write contests; ask the user if unsure. For a value that "
        "changed use memory_write."
    ),
    arguments=Arguments,
    answer=Updated,
    run=run,
    destructive=True,
)
