"""The documents of a data set to memories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import msgspec

from hindsight_core.benchmark.sets import Bank, Document, sessions
from hindsight_core.caller import Caller
from hindsight_core.errors import HindsightError, InvalidInput
from hindsight_core.legibility import check_legible
from hindsight_core.requests import BATCH_LIMIT, Message, WriteRequest
from hindsight_core.responses import BatchItem
from hindsight_core.service import MemoryService

PLACE = "benchmark_document"
_OUT = frozenset({"skip", "refuse"})


class Dropped(msgspec.Struct, frozen=True, kw_only=True):
    """A document, or a piece of a long one, that is no memory, and why."""

    bank: str
    document: str
    reason: str


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """What became of documents: how many memories they are, and those that are none."""

    memories: int = 0
    dropped: tuple[Dropped, ...] = ()

    def __add__(self, other: Stored) -> Stored:
        return Stored(memories=self.memories + other.memories, dropped=self.dropped + other.dropped)


async def write(service: MemoryService, bank: Bank, caller: Caller, done: Callable[[int], None]) -> Stored:
    """Each document becomes one memory, unjudged; the one before it in its session is its context.

    A long one becomes several; what is empty, unreadable or refused becomes none. `done` is told the number of
    documents after each batch; `metadata[PLACE]` of a memory is the document's id.
    """
    stored = Stored()
    requests: list[WriteRequest] = []
    for session in sessions(bank):
        faults = {document.id: fault for document in session if (fault := _fault(document)) is not None}
        dropped = (Dropped(bank=bank.name, document=place, reason=fault) for place, fault in faults.items())
        stored += Stored(dropped=tuple(dropped))
        done(len(faults))
        requests += _requests([document for document in session if document.id not in faults])
    for some in _batches(requests):
        answer = await service.write_batch([msgspec.Raw(msgspec.json.encode(one)) for one in some], caller)
        for request, result in zip(some, answer.results, strict=True):
            stored += _stored(bank.name, request, result)
        done(sum(len(request.messages or ()) for request in some))
    return stored


def _stored(bank: str, request: WriteRequest, result: BatchItem) -> Stored:
    if result.problem is not None:
        raise HindsightError(f"{bank}: {result.problem.detail}")
    documents = [str(message.metadata[PLACE]) for message in request.messages or ()]
    decisions = result.decisions or ()
    kept = Counter(decision.index for decision in decisions if decision.decision not in _OUT)
    reasons = {index: "It became no memory." for index in range(len(documents)) if not kept[index]}
    for decision in decisions:
        if decision.decision in _OUT:
            reasons[decision.index] = f"In part: {decision.reason}" if kept[decision.index] else decision.reason
    dropped = [
        Dropped(bank=bank, document=documents[index], reason=reason) for index, reason in sorted(reasons.items())
    ]
    return Stored(memories=kept.total(), dropped=tuple(dropped))


def _fault(document: Document) -> str | None:
    """Why a text cannot be sent at all."""
    if not document.text:
        return "It is empty."
    try:
        check_legible(Message(role=document.role, text=document.text))
    except InvalidInput as exc:
        return f"It {exc.errors[0].message}."
    return None


def _requests(session: Sequence[Document]) -> Iterator[WriteRequest]:
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


def _batches(requests: Sequence[WriteRequest]) -> Iterator[list[WriteRequest]]:
    batch: list[WriteRequest] = []
    for request in requests:
        count = sum(len(one.messages or ()) for one in [*batch, request])
        if batch and count > BATCH_LIMIT:
            yield batch
            batch = []
        batch.append(request)
    if batch:
        yield batch
