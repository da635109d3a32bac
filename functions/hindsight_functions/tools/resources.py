"""Memories as MCP resources: `hindsight://memories`, one memory of it, or all of one user's."""

from __future__ import annotations

from urllib.parse import quote, unquote

import msgspec
from mcp import types

from hindsight_core.context import escape
from hindsight_core.errors import NotFound
from hindsight_core.requests import ListRequest, Request
from hindsight_functions.tools.connection import Connection
from hindsight_functions.tools.listing import Listed
from hindsight_functions.tools.memory import shown

ALL = "hindsight://memories"
ONE = "hindsight://memories/{memory_id}"
OF_USER = "hindsight://users/{user_id}/memories"
_JSON = "application/json"
_PAGE = 50
_WHOLE = 1000
_NAME = 60

TEMPLATES = [
    types.ResourceTemplate(
        uri_template=ONE, name="memory", title="One memory", description="A memory by its id.", mime_type=_JSON
    ),
    types.ResourceTemplate(
        uri_template=OF_USER,
        name="user_memories",
        title="A user's memories",
        description="What is remembered of one user: the first thousand memories, and a cursor for memory_list.",
        mime_type=_JSON,
    ),
]


async def listed(connection: Connection, cursor: str | None) -> types.ListResourcesResult:
    """A page of the memories in reach, after the one resource that holds them all."""
    page = await connection.memories.list_memories(ListRequest(limit=_PAGE, cursor=cursor, **connection.scope()))
    whole = types.Resource(
        uri=ALL, name="memories", title="All memories", description="Everything that is remembered.", mime_type=_JSON
    )
    found = [
        types.Resource(
            uri=f"{ALL}/{quote(memory.id, safe='')}",
            name=memory.id,
            title=escape(memory.content[:_NAME]),
            description=f"{memory.kind}, {memory.status}",
            mime_type=_JSON,
        )
        for memory in page.memories
    ]
    return types.ListResourcesResult(
        resources=found if cursor is not None else [whole, *found], next_cursor=page.cursor
    )


async def read(connection: Connection, uri: str) -> types.ReadResourceResult:
    """What a resource holds, as JSON; raises `NotFound` for what is no resource of ours or not in reach."""
    found: msgspec.Struct
    scheme, _, path = uri.partition("://")
    match [unquote(step) for step in path.split("/")] if scheme == "hindsight" else []:
        case ["memories"]:
            found = await _page(connection, None)
        case ["memories", memory_id] if memory_id:
            found = shown(await connection.memories.get(memory_id, Request(**connection.scope())))
        case ["users", user_id, "memories"] if user_id:
            found = await _page(connection, user_id)
        case _:
            raise NotFound(f"There is no resource {uri!r}.", remedy=f"There are {ALL}, {ONE} and {OF_USER}.")
    text = msgspec.json.encode(found).decode()
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, mime_type=_JSON, text=text)])


async def _page(connection: Connection, user_id: str | None) -> Listed:
    request = ListRequest(limit=_WHOLE, **connection.scope(user_id))
    page = await connection.memories.list_memories(request)
    return Listed(memories=[shown(memory) for memory in page.memories], cursor=page.cursor or msgspec.UNSET)
