"""What time alone decides: what has expired, what is idle, whose task is dead, what was archived long ago."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import datetime

from hindsight_core.caller import millis
from hindsight_core.derivation import orphans
from hindsight_core.models import Memory
from hindsight_core.passes import LIVE, STORED, Found, Page, View
from hindsight_core.retention import Verdict, dead, due, expire, idle, purge
from hindsight_core.stores import Where


async def expired(view: View, after: str | None) -> AsyncGenerator[Page]:
    """What has expired, and what an access has given a longer life."""
    where = Where(statuses=LIVE, expired_at=millis(due(view.rules, view.now)))
    async for page in view.walk(where, after, lambda memory: expire(memory, view.rules, view.now)):
        yield page


async def unused(view: View, after: str | None) -> AsyncGenerator[Page]:
    """What is not sure and was of no use for a long time."""
    if view.rules.idle_after is None:
        return
    where = Where(statuses=LIVE, memory_types=STORED)
    async for page in view.walk(where, after, lambda memory: idle(memory, view.rules, view.now)):
        yield page


async def abandoned(view: View, after: str | None) -> AsyncGenerator[Page]:
    """The working memory of dead tasks. Looks through twice: a message alone does not tell whether its task goes on."""
    if view.rules.task_idle is None:
        return
    where = Where(statuses=LIVE, memory_types=("working",))
    last: dict[tuple[str | None, str | None], datetime] = {}
    at: str | None = None
    while records := await view.scan(where, at):
        at = records[-1].memory.id
        for record in records:
            memory = view.seen(record.memory)
            if memory is None or memory.status not in LIVE:
                continue
            task = (memory.user_id, memory.task_id)
            last[task] = max(memory.created_at, last.get(task, memory.created_at))

    def judge(memory: Memory) -> Verdict | None:
        heard = last.get((memory.user_id, memory.task_id), view.now)
        return dead(memory, heard, view.rules, view.now)

    async for page in view.walk(where, after, judge):
        yield page


async def next_outlived(view: View, after: str | None, most: int) -> list[Memory]:
    """What `outlived` finds next, about `most` of it."""
    found: list[Memory] = []
    pages = outlived(view, after)
    async for page in pages:
        found += [one.memory for one in page.found]
        if len(found) >= most:
            break
    await pages.aclose()
    return found


async def outlived(view: View, after: str | None) -> AsyncGenerator[Page]:
    """What was archived long ago, and what was derived from it, which goes first or at least does without it."""
    if view.rules.purge_after is None:
        return
    where = Where(statuses=("archived",))
    async for page in view.walk(where, after, lambda memory: purge(memory, view.rules, view.now)):
        gone = {one.memory.id for one in page.found}
        derived = await orphans(view.store, view.namespace, gone, "erased", view.seen)
        before = [Found(memory=memory, verdict=verdict) for memory, verdict in derived]
        yield Page([*before, *page.found], page.examined, page.after)
