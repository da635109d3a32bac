"""The documents of a data set to memories."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from hindsight_core.benchmark.sets import Bank, Document, sessions
from hindsight_core.caller import Caller
from hindsight_core.errors import HindsightError
from hindsight_core.requests import BATCH_LIMIT, Message, WriteRequest
from hindsight_core.service import MemoryService

PLACE = "benchmark_document"


async def write(service: MemoryService, bank: Bank, caller: Caller, done: Callable[[int], None]) -> None:
    """Each document becomes one memory, unjudged; the one before it in its session is its context.

    `done` is told the number of documents after each batch; `metadata[PLACE]` of a memory is the document's id.
    """
    items = [item for session in sessions(bank) for item in _items(session)]
    for some in _batches(items):
        answer = await service.write_batch([msgspec.Raw(msgspec.json.encode(item)) for item in some], caller)
        for result in answer.results:
            if result.problem is not None:
                raise HindsightError(f"{bank.name}: {result.problem.detail}")
        done(sum(len(item.messages or ()) for item in some))


def _items(session: Sequence[Document]) -> Iterator[WriteRequest]:
    for start in range(0, len(session), BATCH_LIMIT):
        some = session[start : start + BATCH_LIMIT]
        yield WriteRequest(
            session_id=some[0].session or None,
            messages=tuple(
                Message(
                    role=document.role,
                    text=document.text,
                    speaker=document.speaker or None,
                    at=document.at,
                    metadata={PLACE: document.id},
                )
                for document in some
            ),
            precision="day" if some[0].day_only else "instant",
            extract="none",
            reconcile="none",
            force=True,
            memory_type="episodic",
            kind="event",
        )


def _batches(items: Sequence[WriteRequest]) -> Iterator[list[WriteRequest]]:
    batch: list[WriteRequest] = []
    for item in items:
        count = sum(len(one.messages or ()) for one in [*batch, item])
        if batch and count > BATCH_LIMIT:
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch
