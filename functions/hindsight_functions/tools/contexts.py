"""`memory_context`: what is remembered about a question, as a block of text within a token budget."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from hindsight_core.requests import ContextRequest, Mode, Query
from hindsight_functions.tools.connection import Connection
from hindsight_functions.tools.tool import Answer, Timezone, Tool, value


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    query: Annotated[Query, Meta(description="The user's message.")]
    token_budget: Annotated[int, Meta(ge=16, le=1_000_000)] = 1000
    mode: Annotated[Mode, Meta(description="always: even if no memory is needed.")] = "auto"
    timezone: Timezone | UnsetType = UNSET
    user_id: str | UnsetType = UNSET


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The block and what it holds; the text is empty when nothing fits or no recall was needed.

    `abridged` are ids of which only an excerpt fits; `left_out`, how many memories did not fit at all.
    """

    context: str
    tokens: int
    memory_ids: list[str]
    abridged: list[str]
    left_out: int
    recall_needed: bool
    why: str


async def run(arguments: Arguments, connection: Connection) -> Answer:
    request = ContextRequest(
        query=arguments.query,
        token_budget=arguments.token_budget,
        mode=arguments.mode,
        timezone=value(arguments.timezone),
        **connection.scope(value(arguments.user_id)),
    )
    found = await connection.memories.context(request)
    data = Context(
        context=found.text,
        tokens=found.tokens,
        memory_ids=list(found.memory_ids),
        abridged=list(found.abridged),
        left_out=found.left_out,
        recall_needed=found.recall.needed,
        why=found.recall.why,
    )
    # The block alone, so that what is pasted costs what was asked for.
    if found.left_out and not found.text:
        words = f"No memory fits into {arguments.token_budget} tokens; {found.left_out} were found."
    else:
        words = found.text or f"No memories: {found.recall.why}"
    return Answer(words, data)


TOOL = Tool(
    name="memory_context",
    title="Recall as context",
    description=(
        "Memories for a message as one dated block within a token budget, to paste into a prompt. For workflows that "
        "recall before each answer; else use memory_search."
    ),
    arguments=Arguments,
    answer=Context,
    run=run,
    read_only=True,
    idempotent=True,
)
