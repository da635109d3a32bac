"""Orders to forget that the user gives in a message: found, kept out of memory, and obeyed after the write."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hindsight_core.caller import Caller, millis
from hindsight_core.commands import forget_request
from hindsight_core.cues import language_of, sentence
from hindsight_core.embedding import Embedder
from hindsight_core.extraction import Candidate
from hindsight_core.forgetting import Forgetter
from hindsight_core.models import Decision
from hindsight_core.naming import Name, named
from hindsight_core.requests import ForgetRequest, Message, WriteRequest
from hindsight_core.responses import ForgetResponse, WriteResponse
from hindsight_core.stores import MemoryStore, Where

_QUERY = 8000


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is an order; `name` is what is to be forgotten, None where it points at what was not said."""

    index: int
    name: Name | None


def orders(request: WriteRequest) -> list[Order]:
    """The orders among the user's messages; logs and backfills, which are stored as they are, are not obeyed."""
    if request.messages is None or request.extract == "none" or request.reconcile == "none" or request.force:
        return []
    found: list[Order] = []
    for index, message in enumerate(request.messages):
        asked = forget_request(message.text) if message.role == "user" else None
        if asked is None:
            continue
        name: Name | None = None
        if asked.what:
            words, about = asked.what[-_QUERY:], asked.about[-_QUERY:] or asked.what[-_QUERY:]
            name = Name(words=words, message=about, all=asked.all, reason=asked.reason, somebody=asked.somebody)
        elif before := _said_before(request.messages[:index]):
            name = Name(words=before, message=before, pointed=True)
        found.append(Order(index=index, name=name))
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


class Obedience:
    """Does what orders in messages say, in one store."""

    def __init__(self, store: MemoryStore, embedder: Embedder | None, forgetter: Forgetter) -> None:
        self._store = store
        self._embedder = embedder
        self._forgetter = forgetter

    async def obey(
        self, given: Sequence[Order], response: WriteResponse, request: WriteRequest, caller: Caller
    ) -> WriteResponse:
        """Suppress what the orders mean; their decisions then say what was taken, and by which run."""
        decisions = list(response.results)
        for order in given:
            answer = await self._forget(order.name, request, caller) if order.name is not None else None
            for i, decision in enumerate(decisions):
                if decision.index == order.index:
                    decisions[i] = _told(decision, order.name, answer)
        return msgspec.structs.replace(response, results=tuple(decisions))

    async def _forget(self, name: Name, request: WriteRequest, caller: Caller) -> ForgetResponse | None:
        scope = caller.scope(request)
        theirs = Where(
            user_id=scope.user_id,
            no_user=scope.user_id is None,
            reader="*" if scope.agent_id is None else scope.agent_id,
            statuses=("active", "pending", "superseded"),
        )
        now = millis(caller.clock(request))
        ids = await named(name, self._store, self._embedder, scope.namespace, theirs, now)
        if not ids:
            return None
        fields = {field: getattr(request, field) for field in ("namespace", "user_id", "agent_id", "now")}
        asked = ForgetRequest(ids=tuple(ids), mode="suppress", reason="Asked for in a message.", **fields)
        return await self._forgetter.forget(asked, caller)


def _told(decision: Decision, name: Name | None, answer: ForgetResponse | None) -> Decision:
    language = language_of(decision.text)
    if name is None or answer is None or not answer.count:
        return msgspec.structs.replace(decision, reason=sentence("order.nothing", language, "commands"))
    taken = [{"id": one.id, "excerpt": one.excerpt} for one in answer.affected]
    evidence: dict[str, object] = {"what": name.words, "run_id": answer.run_id, "suppressed": taken}
    return msgspec.structs.replace(
        decision,
        reason=sentence("order.obeyed", language, "commands").replace("{count}", str(answer.count)),
        related=tuple(one.id for one in answer.affected),
        evidence={**decision.evidence, "forgot": evidence},
    )


def _said_before(messages: Sequence[Message]) -> str | None:
    """The user's last turn, with what was said after it; else the last turn of the assistant."""
    said = [message for message in messages if message.role in {"user", "assistant"} and message.text.strip()]
    last = max((i for i, message in enumerate(said) if message.role == "user"), default=len(said) - 1)
    told = said[last].text.strip() if said else ""
    return told[-_QUERY:] or None
