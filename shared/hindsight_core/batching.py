"""Many writes in one call: each is stored or refused by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec

from hindsight_core.caller import Caller
from hindsight_core.decoding import decode
from hindsight_core.drafting import candidates
from hindsight_core.errors import HindsightError, InvalidInput, ProviderUnavailable
from hindsight_core.legibility import check_legible
from hindsight_core.passages import Passages
from hindsight_core.requests import BATCH_LIMIT, WriteRequest
from hindsight_core.responses import BatchItem, BatchResponse, WriteResponse, problem_of
from hindsight_core.summary import embedded_text

Write: TypeAlias = Callable[[WriteRequest, Caller, Passages], Awaitable[WriteResponse]]


async def write_each(items: Sequence[msgspec.Raw], caller: Caller, passages: Passages, write: Write) -> BatchResponse:
    """Write each of up to 500 requests, as JSON, with `write`; their texts are embedded together, by `passages`."""
    if not items:
        raise InvalidInput.of("items", "is empty")
    if len(items) > BATCH_LIMIT:
        raise InvalidInput.of("items", f"at most {BATCH_LIMIT} in one batch")
    read: list[WriteRequest | HindsightError] = []
    for item in items:
        try:
            request = decode(item, WriteRequest)
            check_legible(request)
            read.append(request)
        except HindsightError as exc:
            read.append(exc)
    await _embed_ahead([request for request in read if isinstance(request, WriteRequest)], passages)
    results: list[BatchItem] = []
    for index, found in enumerate(read):
        try:
            if isinstance(found, HindsightError):
                raise found
            answer = await write(found, caller, passages)
        except HindsightError as exc:
            problem = problem_of(exc, caller.request_id)
            results.append(BatchItem(index=index, status=exc.status, problem=problem))
        else:
            status = 201 if answer.stored else 200
            results.append(
                BatchItem(
                    index=index,
                    status=status,
                    decisions=answer.results,
                    run_id=answer.run_id,
                    degraded=answer.degraded,
                )
            )
    return BatchResponse(results=tuple(results))


async def _embed_ahead(requests: list[WriteRequest], passages: Passages) -> None:
    texts: list[str] = []
    for request in requests:
        if (request.content is None) == (request.messages is None):
            continue
        try:
            offered = [found.text for found in candidates(request) if found.dismissed is None]
            texts += [text for found in offered for text in (embedded_text(found), found)]
        except HindsightError:
            continue  # the write itself will name what is wrong
    try:
        await passages.of(texts)
    except ProviderUnavailable:
        return  # each item answers for itself
