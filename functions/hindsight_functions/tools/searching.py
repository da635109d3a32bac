"""`memory_search`: find memories by meaning, words and time."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from hindsight_core.caller import instant, time_zone
from hindsight_core.errors import InvalidInput
from hindsight_core.requests import Filters, Query, SearchRequest
from hindsight_functions.tools.connection import Connection
from hindsight_functions.tools.memory import Shown, block, shown
from hindsight_functions.tools.tool import Answer, Timezone, Tool, given, value


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    query: Annotated[Query, Meta(description="The full question, in the user's language.")]
    top_k: Annotated[int, Meta(ge=1, le=100)] = 8
    memory_type_filter: list[Literal["episodic", "semantic"]] | UnsetType = UNSET
    time_range_start: Annotated[datetime, Meta(description="ISO 8601, said at or after.")] | UnsetType = UNSET
    time_range_end: Annotated[datetime, Meta(description="Said before.")] | UnsetType = UNSET
    as_of: Annotated[datetime, Meta(description="What held then.")] | UnsetType = UNSET
    timezone: Timezone | UnsetType = UNSET
    user_id: str | UnsetType = UNSET


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The hits, best first."""

    hits: list[Shown]
    degraded: str | UnsetType = UNSET


async def run(arguments: Arguments, connection: Connection) -> Answer:
    zone, kinds = value(arguments.timezone), arguments.memory_type_filter
    start = _at(arguments.time_range_start, "time_range_start", zone)
    end = _at(arguments.time_range_end, "time_range_end", zone)
    if not isinstance(start, UnsetType) and not isinstance(end, UnsetType) and end <= start:
        raise InvalidInput.of("time_range_end", "is not after time_range_start")
    memory_type = UNSET if isinstance(kinds, UnsetType) else tuple(kinds)
    filters = Filters(**given(memory_type=memory_type, observed_from=start, observed_to=end))
    request = SearchRequest(
        query=arguments.query,
        top_k=arguments.top_k,
        filters=filters,
        **connection.scope(value(arguments.user_id)),
        **given(
            as_of=_at(arguments.as_of, "as_of", zone),
            timezone=arguments.timezone,
        ),
    )
    answer = await connection.memories.search(request)
    data = Found(
        hits=[shown(hit.memory, hit, time_zone(zone)) for hit in answer.hits],
        degraded=answer.degraded or UNSET,
    )
    words = block(data.hits) if data.hits else "No memory answers this. Do not invent one."
    if answer.degraded is not None:
        words += f"\n{answer.degraded}"
    return Answer(words, data)


def _at(at: datetime | UnsetType, name: str, zone: str | None) -> datetime | UnsetType:
    return UNSET if isinstance(at, UnsetType) else instant(at, name, zone)


TOOL = Tool(
    name="memory_search",
    title="Recall",
    description=(
        "Find what is remembered. Call before answering what depends on the user, earlier talk or decisions; not for "
        "general knowledge. Words like 'before' also find replaced values. Marked hits may no longer hold."
    ),
    arguments=Arguments,
    answer=Found,
    run=run,
    read_only=True,
    idempotent=True,
)
