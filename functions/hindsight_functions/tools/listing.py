"""`memory_list`: page through everything that is remembered."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from hindsight_core.models import Status
from hindsight_core.requests import Filters, ListRequest
from hindsight_functions.tools.connection import Connection
from hindsight_functions.tools.memory import Shown, block, shown
from hindsight_functions.tools.tool import Answer, Tool, given, value


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    cursor: str | UnsetType = UNSET
    status: Status | UnsetType = UNSET
    user_id: str | UnsetType = UNSET


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A page, oldest first; `cursor` continues it."""

    memories: list[Shown]
    cursor: str | UnsetType = UNSET


async def run(arguments: Arguments, connection: Connection) -> Answer:
    request = ListRequest(
        limit=arguments.limit,
        filters=Filters(**given(status=arguments.status)),
        **connection.scope(value(arguments.user_id)),
        **given(cursor=arguments.cursor),
    )
    page = await connection.memories.list_memories(request)
    data = Listed(memories=[shown(memory) for memory in page.memories], cursor=page.cursor or UNSET)
    words = block(data.memories) if data.memories else "Nothing is remembered here."
    if page.cursor is not None:
        words += f'\nThere are more: cursor="{page.cursor}"'
    return Answer(words, data)


TOOL = Tool(
    name="memory_list",
    title="List memories",
    description="Page through what holds now, for an overview; to answer a question use memory_search.",
    arguments=Arguments,
    answer=Listed,
    run=run,
    read_only=True,
    idempotent=True,
)
