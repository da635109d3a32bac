"""What a sweep does to logs: searches and receipts that were kept long enough go, and no memory changes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Literal

from hindsight_core.caller import millis
from hindsight_core.passes import Page, View

_AT_ONCE = 5000


async def outdated(view: View, after: str | None) -> AsyncGenerator[Page]:
    """Removes as many at a time as a change may hold, and tells how many; nothing of this can be undone."""
    del after
    logs: dict[Literal["retrievals", "receipts"], timedelta | None] = {
        "retrievals": view.rules.retrievals_kept,
        "receipts": view.rules.receipts_kept,
    }
    for log, kept in logs.items():
        if kept is None:
            continue
        before = millis(view.now - kept)
        while True:
            limit = None if view.dry_run else _AT_ONCE
            gone = await view.store.prune(view.namespace, log, before, limit=limit, dry_run=view.dry_run)
            yield Page([], gone, actions={f"{log} removed": gone} if gone else {})
            if limit is None or gone < limit:
                break
