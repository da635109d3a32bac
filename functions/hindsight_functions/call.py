"""One request's way to the service: whose it is, when it is, and which namespace it may touch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
from litestar import Request as LitestarRequest

from hindsight_core.access import Principal
from hindsight_core.caller import Caller
from hindsight_core.config import Settings
from hindsight_core.decoding import convert
from hindsight_core.errors import Forbidden, InvalidInput, StoreUnavailable
from hindsight_core.ids import new_id
from hindsight_core.limits import Limits
from hindsight_core.models import Namespace
from hindsight_core.requests import IdempotencyKey, Request, UpdateRequest, WriteRequest
from hindsight_core.service import MemoryService
from hindsight_core.tokens import Verb
from hindsight_functions.admission import principal_of
from hindsight_functions.metrics import Metrics


class _Named(msgspec.Struct):
    """The part of a batch item that access depends on."""

    namespace: str | None = None
    user_id: str | None = None
    agent_id: str | None = None


def _named(item: msgspec.Raw) -> str | None:
    try:
        return msgspec.json.decode(item, type=_Named).namespace
    except msgspec.DecodeError:
        return None  # the item is refused later, by itself


class Call:
    """What a handler needs besides its request."""

    def __init__(self, request: LitestarRequest[Any, Any, Any]) -> None:
        state = request.app.state
        self.service: MemoryService = state.service
        self.metrics: Metrics = state.metrics
        self._settings: Settings = state.settings
        self._limits: Limits = state.limits
        self._headers = request.headers
        self._id: str = request.scope["state"]["request_id"]
        self._principal = principal_of(request)
        self._counted = False

    async def by(self, data: Request, verb: Verb) -> Caller:
        """The caller of a decoded request, allowed to do it: every handler asks before it touches the service."""
        return msgspec.structs.replace(await self.within(data.namespace, verb), decoded=True)

    async def within(self, namespace: str | None, verb: Verb) -> Caller:
        """The caller in a namespace, counted; None: the header's, the token's, or the default one."""
        principal, found = self._allowed(namespace, verb)
        await self._limits.count(principal, found)
        return self._caller(principal, found)

    def _caller(self, principal: Principal, namespace: str) -> Caller:
        now = datetime.now(UTC)
        return Caller(
            now=now.replace(microsecond=now.microsecond // 1000 * 1000),
            new_id=new_id,
            namespace=namespace,
            actor=principal.actor,
            request_id=self._id,
            admin="admin" in principal.verbs,
        )

    async def once(self, verb: Verb) -> Caller:
        """As `within` no namespace, for a message of several steps: it counts with the first of them."""
        principal, found = self._allowed(None, verb)
        if not self._counted:
            self._counted = True
            await self._limits.count(principal, found)
        return self._caller(principal, found)

    def check_namespace(self) -> None:
        """Raise what is wrong with the namespace of the headers, for a protocol that does not know the verb yet."""
        with suppress(StoreUnavailable):
            self._allowed(None, None)

    def speaks_for(self, user_id: str | None, agent_id: str | None) -> tuple[str | None, str | None]:
        """The user and the agent of a connection whose headers name these; see `Principal.narrowed`."""
        if isinstance(self._principal, StoreUnavailable):
            return user_id, agent_id
        return self._principal.narrowed(user_id, agent_id)

    def _allowed(self, namespace: str | None, verb: Verb | None) -> tuple[Principal, str]:
        named = namespace or self._header("Hindsight-Namespace", Namespace)
        if isinstance(self._principal, StoreUnavailable):
            raise self._principal
        found = self._principal.within(named, self._settings.namespace)
        self._principal.authorize(verb, found)
        return self._principal, found

    async def among(self, items: Sequence[msgspec.Raw], namespace: str | None, verb: Verb) -> Caller:
        """The caller of a batch in its `namespace`, let into every one that its items name; it counts once in each."""
        named = [_named(item) or namespace for item in items]
        found = {self._allowed(name, verb)[1] for name in named if name is not None}
        # Where every item says its namespace, nobody needs a default one.
        caller = await self.within(namespace or (None if None in named or not named else named[0]), verb)
        principal, _ = self._allowed(caller.namespace, verb)
        for other in sorted(found - {caller.namespace}):
            await self._limits.count(principal, other)
        return caller

    def narrowed(self, items: list[msgspec.Raw]) -> list[msgspec.Raw]:
        """The items of a batch as the caller may write them: with the user and the agent that its token is for."""
        principal = self._principal
        if isinstance(principal, StoreUnavailable) or not principal.is_narrow:
            return items
        narrow: list[msgspec.Raw] = []
        for item in items:
            try:
                fields = msgspec.json.decode(item, type=dict[str, msgspec.Raw])
                named = msgspec.json.decode(item, type=_Named)
            except msgspec.DecodeError:
                narrow.append(item)  # it is refused later, by itself
                continue
            user_id, agent_id = principal.narrowed(named.user_id, named.agent_id)
            for name, value in (("user_id", user_id), ("agent_id", agent_id)):
                if value is not None:
                    fields[name] = msgspec.Raw(msgspec.json.encode(value))
            narrow.append(msgspec.Raw(msgspec.json.encode(fields)))
        return narrow

    def whole(self) -> None:
        """Raise `Forbidden` for a token that is for one user or agent, where what is sent may be anybody's."""
        if isinstance(self._principal, Principal) and self._principal.is_narrow:
            raise Forbidden(
                "The token is for one user or agent, and an import may hold memories of any.",
                remedy="Use a token for the whole namespace.",
            )

    def keyed(self, data: WriteRequest) -> WriteRequest:
        """The write with the key of the `Idempotency-Key` header, where there is one."""
        # Blank is absent, as for `matching`.
        key = self._header("Idempotency-Key", IdempotencyKey) if self._headers.get("Idempotency-Key") else None
        if key is None or key == data.idempotency_key:
            return data
        if data.idempotency_key is not None:
            raise InvalidInput.of("Idempotency-Key", "differs from `idempotency_key` in the body")
        return msgspec.structs.replace(data, idempotency_key=key)

    def unkeyed(self) -> None:
        """Refuse an `Idempotency-Key` where it would not be kept."""
        if self._headers.get("Idempotency-Key"):
            raise InvalidInput.of(
                "Idempotency-Key", "is for one memory; give each item an `idempotency_key` of its own"
            )

    def matching(self, data: UpdateRequest) -> UpdateRequest:
        """The update with the version of the `If-Match` header, where there is one; `*` is any version."""
        # Blank is absent: so workflow builders send what nobody filled in.
        tag = self._headers.get("If-Match", "")
        if tag.strip() in {"", "*"}:
            return data
        digits = tag.strip().strip('"')
        if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
            raise InvalidInput.of("If-Match", f'{tag!r} is no version; send the ETag of the memory, such as "3"')
        if data.version not in {None, int(digits)}:
            raise InvalidInput.of("If-Match", "differs from `version` in the body")
        return msgspec.structs.replace(data, version=int(digits))

    def _header(self, name: str, kind: Any) -> str | None:  # noqa: ANN401 (a constrained text is no class)
        value = self._headers.get(name)
        if value is None:
            return None
        if len(set(self._headers.getall(name))) > 1:
            raise InvalidInput.of(name, "is sent twice, with different values")
        try:
            return str(convert(value, kind))
        except InvalidInput as exc:
            raise InvalidInput.of(name, exc.errors[0].message) from None


async def provide_call(request: LitestarRequest[Any, Any, Any]) -> Call:
    return Call(request)
