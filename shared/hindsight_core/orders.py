"""Orders to forget that the user gives in a message: found, kept out of memory, and obeyed after the write."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hindsight_core.caller import Caller
from hindsight_core.commands import forget_request
from hindsight_core.cues import language_of, sentence
from hindsight_core.extraction import Candidate
from hindsight_core.forgetting import Forgetter
from hindsight_core.models import Decision
from hindsight_core.requests import ForgetRequest, Message, WriteRequest
from hindsight_core.responses import ForgetResponse, WriteResponse

# How relevant a memory must be to be meant: to the words that name it, or to the whole turn that is pointed at.
NAMED_AT = 0.18
POINTED_AT = 0.45
_QUERY = 8000


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is an order; `what` is to be forgotten, None where it points at something that was not said."""

    index: int
    what: str | None
    least_relevance: float


def orders(request: WriteRequest) -> list[Order]:
    """The orders among the user's messages; logs and backfills, which are stored as they are, are not obeyed."""
    if request.messages is None or request.extract == "none" or request.reconcile == "none" or request.force:
        return []
    found: list[Order] = []
    for index, message in enumerate(request.messages):
        what = forget_request(message.text) if message.role == "user" else None
        if what:
            found.append(Order(index=index, what=what[-_QUERY:], least_relevance=NAMED_AT))
        elif what is not None:
            before = _said_before(request.messages[:index])
            found.append(Order(index=index, what=before, least_relevance=POINTED_AT))
    return found


def without_orders(offered: list[Candidate], request: WriteRequest, given: Sequence[Order]) -> list[Candidate]:
    """The candidates with those of the orders dismissed, and no order as the turn before another one."""
    indices = {order.index for order in given}
    if not indices:
        return offered
    spoken = [message.text for i, message in enumerate(request.messages or ()) if i in indices]
    return [_without_order(candidate, indices, spoken) for candidate in offered]


def _without_order(candidate: Candidate, indices: set[int], spoken: list[str]) -> Candidate:
    if candidate.index in indices:
        why = sentence("order.dismissed", language_of(candidate.text), "commands")
        return msgspec.structs.replace(candidate, dismissed=why)
    previous = tuple(turn for turn in candidate.previous if not any(turn in text for text in spoken))
    return msgspec.structs.replace(candidate, previous=previous, context=previous[0] if previous else None)


async def obey(
    given: Sequence[Order], response: WriteResponse, request: WriteRequest, caller: Caller, forgetter: Forgetter
) -> WriteResponse:
    """Suppress what the orders mean; their decisions then say what was taken, and by which run."""
    decisions = list(response.results)
    for order in given:
        answer: ForgetResponse | None = None
        if order.what is not None:
            scope = {name: getattr(request, name) for name in ("namespace", "user_id", "agent_id", "now")}
            asked = ForgetRequest(
                query=order.what, min_score=0.0, mode="suppress", reason="Asked for in a message.", **scope
            )
            answer = await forgetter.forget(asked, caller, least_relevance=order.least_relevance)
        for i, decision in enumerate(decisions):
            if decision.index == order.index:
                decisions[i] = _told(decision, order, answer)
    return msgspec.structs.replace(response, results=tuple(decisions))


def _told(decision: Decision, order: Order, answer: ForgetResponse | None) -> Decision:
    language = language_of(decision.text)
    if answer is None or not answer.count:
        return msgspec.structs.replace(decision, reason=sentence("order.nothing", language, "commands"))
    taken = [{"id": one.id, "excerpt": one.excerpt} for one in answer.affected]
    evidence: dict[str, object] = {"what": order.what, "run_id": answer.run_id, "suppressed": taken}
    return msgspec.structs.replace(
        decision,
        reason=sentence("order.obeyed", language, "commands").replace("{count}", str(answer.count)),
        related=tuple(one.id for one in answer.affected),
        evidence={**decision.evidence, "forgot": evidence},
    )


def _said_before(messages: Sequence[Message]) -> str | None:
    for message in reversed(messages):
        if message.role in {"user", "assistant"} and message.text.strip():
            return message.text.strip()[-_QUERY:]
    return None
