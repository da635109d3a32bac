"""Bearer tokens: who may do what in which namespaces. The store keeps digests; a token itself is shown once.

A token is `hst_ID_SECRET`: the id finds the entry, the secret (32 random bytes) proves it. With so much randomness a
plain SHA-256 cannot be guessed back, and a slow hash would only slow every request down.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from hindsight_core.decoding import convert
from hindsight_core.errors import Conflict, InvalidInput, NotFound
from hindsight_core.models import Namespace, ScopeId

if TYPE_CHECKING:
    from hindsight_core.stores import MemoryStore

Verb: TypeAlias = Literal["read", "write", "admin"]
TokenState: TypeAlias = Literal["valid", "expired", "revoked"]
TokenName: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:@-]{1,64}\Z")]

PREFIX = "hst"
ANY_NAMESPACE = "*"
# Seconds for which a process goes by what it has read: so long a new or revoked token may go unnoticed.
FRESH = 1.0
_NOTE = "tokens"
_ATTEMPTS = 20
_LONGEST = 256
_NOBODYS = "0" * 64


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a token.

    `namespaces` holds `*` for any; `user_id` and `agent_id` are the only ones it may speak for, None for any; `rate`
    is its requests a minute, if it has its own.
    """

    id: str
    name: TokenName
    digest: str
    namespaces: tuple[str, ...]
    verbs: tuple[Verb, ...]
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    user_id: ScopeId | None = None
    agent_id: ScopeId | None = None
    rate: Annotated[int, Meta(ge=1)] | None = None

    def state(self, now: datetime) -> TokenState:
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "valid"


_Change: TypeAlias = Callable[[tuple[Token, ...]], tuple[Token, ...]]
_DECODE = msgspec.json.Decoder(tuple[Token, ...]).decode


class Tokens:
    """The tokens of a store, which all processes over it share.

    Once one was made they are needed, also when all of them are expired or revoked: only dropping the last one from
    the list opens a server to its own machine again.
    """

    def __init__(self, store: MemoryStore, *, fresh: float = FRESH) -> None:
        self._store = store
        self._fresh = fresh
        self._known: dict[str, Token] = {}
        self._until = 0.0

    async def all(self) -> tuple[Token, ...]:
        """Every token that was made and not dropped, oldest first, as it is now."""
        return _read((await self._store.note(_NOTE)).text)

    async def exist(self) -> bool:
        """Whether there are any, valid or not, as of at most a second ago."""
        return bool(await self._recent())

    async def find(self, presented: str) -> Token | None:
        """The token that was presented, of any state; None for one that nobody made."""
        prefix, _, rest = presented[:_LONGEST].partition("_")
        token_id, _, secret = rest.partition("_")
        found = (await self._recent()).get(token_id)
        kept = _NOBODYS if found is None else found.digest
        same = hmac.compare_digest(kept.encode(), digest_of(secret).encode())
        return found if same and prefix == PREFIX else None

    async def create(self, token: Token) -> None:
        """Keep a token; raises `InvalidInput` where it allows nothing, or its name is taken by a valid one."""
        _check(token)

        def add(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
            if any(other.name == token.name and other.state(token.created_at) == "valid" for other in tokens):
                raise InvalidInput.of("name", f"there is a valid token {token.name!r}; revoke it, or take another name")
            return (*tokens, token)

        await self._change(add)

    async def revoke(self, which: str, now: datetime, *, drop: bool = False) -> Token:
        """End the token with this id or name, as it is afterwards; `drop` takes it off the list.

        Raises `NotFound`.
        """
        revoked: list[Token] = []

        def end(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
            old = _named(tokens, which, now)
            new = replace(old, revoked_at=old.revoked_at or now)
            revoked[:] = [new]
            return tuple(new if token is old else token for token in tokens if not (drop and token is old))

        await self._change(end)
        return revoked[0]

    async def _recent(self) -> dict[str, Token]:
        now = asyncio.get_running_loop().time()
        if now >= self._until:
            self._known = {token.id: token for token in await self.all()}
            self._until = now + self._fresh
        return self._known

    async def _change(self, change: _Change) -> None:
        for _ in range(_ATTEMPTS):
            note = await self._store.note(_NOTE)
            text = msgspec.json.encode(change(_read(note.text))).decode()
            try:
                await self._store.keep(_NOTE, text, expected=note.version)
            except Conflict:
                continue
            self._until = 0.0
            return
        raise Conflict("The tokens are being changed by others.", remedy="Try again.")


def written(token_id: str, secret: str) -> str:
    """The token as its owner sends it."""
    return f"{PREFIX}_{token_id}_{secret}"


def digest_of(secret: str) -> str:
    """What is kept of a secret: its SHA-256 in hexadecimal."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _check(token: Token) -> None:
    named = [("namespaces", name, Namespace) for name in token.namespaces if name != ANY_NAMESPACE]
    speaks_for = [("user_id", token.user_id), ("agent_id", token.agent_id)]
    named += [(field, who, ScopeId) for field, who in speaks_for if who is not None]
    kind: Any  # a constrained text is no class
    for field, value, kind in (("name", token.name, TokenName), *named):
        try:
            convert(value, kind)
        except InvalidInput as exc:
            raise InvalidInput.of(field, f"{value!r}: {exc.errors[0].message}") from None
    for field, allowed in (("namespaces", token.namespaces), ("verbs", token.verbs)):
        if not allowed:
            raise InvalidInput.of(field, "is empty: such a token would allow nothing")
    if token.state(token.created_at) != "valid":
        raise InvalidInput.of("expires_at", "has passed already")


def _read(text: str) -> tuple[Token, ...]:
    return _DECODE(text) if text else ()


def _named(tokens: tuple[Token, ...], which: str, now: datetime) -> Token:
    found = [token for token in tokens if token.id == which]
    # A name may have been used before: the valid one is meant, or the last.
    named = [token for token in tokens if token.name == which]
    found = found or [token for token in named if token.state(now) == "valid"] or named[-1:]
    if not found:
        raise NotFound(f"There is no token {which!r}.", remedy="See `hindsight token list`.")
    return found[0]
