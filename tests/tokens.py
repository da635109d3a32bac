"""Tokens for tests: made in a store directly, as `hindsight token create` does."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta

from hindsight_core.tokens import Token, Tokens, Verb, digest_of, written

MADE = datetime.now(UTC) - timedelta(days=2)


async def token_for(
    tokens: Tokens,
    *namespaces: str,
    verbs: tuple[Verb, ...] = ("read", "write"),
    name: str = "",
    days: float | None = None,
    rate: int | None = None,
    user_id: str | None = None,
    agent_id: str | None = None,
) -> str:
    """A new token, made two days ago, valid for `days` from then."""
    token_id, secret = secrets.token_hex(5), secrets.token_urlsafe(32)
    await tokens.create(
        Token(
            id=token_id,
            name=name or token_id,
            digest=digest_of(secret),
            namespaces=namespaces or ("default",),
            verbs=verbs,
            created_at=MADE,
            expires_at=None if days is None else MADE + timedelta(days=days),
            rate=rate,
            user_id=user_id,
            agent_id=agent_id,
        )
    )
    return written(token_id, secret)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
