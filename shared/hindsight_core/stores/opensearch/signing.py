"""Signatures for Amazon, with credentials that are found and renewed beside the event loop.

Both may ask a server of Amazon's, which botocore does in the calling thread; a request is signed with what is at hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias

from opensearchpy import AWSV4SignerAsyncAuth

from hindsight_core.errors import ConfigurationError, MissingExtra, StoreUnavailable
from hindsight_core.stores.opensearch.address import Address

# Botocore says nothing of the types of its credentials.
Credentials: TypeAlias = Any

# For so many seconds credentials must still hold to sign a request while others are on their way.
_ENOUGH = 60


class Signing:
    """Signs the requests of one event loop to one address; `current` comes before each of them."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._source: Credentials = None
        self._frozen: Credentials = None
        self._renewal: asyncio.Task[None] | None = None

    async def current(self) -> None:
        """Returns when there are credentials that hold; where they will soon not, new ones are got in the meantime.

        `ConfigurationError` where there are none, `StoreUnavailable` where who gives them does not.
        """
        if self._frozen is not None and not self._lapses_within(None):
            return
        if self._renewal is None:
            self._renewal = asyncio.create_task(self._renew())
            self._renewal.add_done_callback(_looked_at)
        if self._frozen is None or self._lapses_within(_ENOUGH):
            # Shielded: one request that is given up does not take them from the others.
            await asyncio.shield(self._renewal)

    def signer(self) -> Callable[..., dict[str, str]]:
        """What makes the headers of a signed request."""
        options = self._address.options
        return AWSV4SignerAsyncAuth(self, options.region, options.service)

    def get_frozen_credentials(self) -> Credentials:
        """What the signer asks for; never more than what is at hand."""
        return self._frozen

    def _lapses_within(self, seconds: int | None) -> bool:
        """Whether the credentials end so soon; None is when botocore begins to renew them. Most users' never do."""
        needed: Callable[[int | None], bool] | None = getattr(self._source, "refresh_needed", None)
        return needed is not None and needed(seconds)

    async def _renew(self) -> None:
        try:
            if self._source is None:
                self._source = await asyncio.to_thread(found, self._address)
            self._frozen = await asyncio.to_thread(_frozen, self._source, self._address)
        finally:
            self._renewal = None


def found(address: Address) -> Credentials:
    """The credentials of this process, found as by every AWS program."""
    try:
        from botocore.session import Session
    except ImportError as exc:
        raise MissingExtra.of("Signing of requests to Amazon", "aws") from exc
    source = _told(address, Session().get_credentials)
    if source is None:
        raise ConfigurationError(
            f"There are no AWS credentials to sign requests to {address} with.",
            remedy="Give this process a role, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        )
    return source


def _frozen(source: Credentials, address: Address) -> Credentials:
    return _told(address, source.get_frozen_credentials)


def _told(address: Address, ask: Callable[[], Credentials]) -> Credentials:
    try:
        return ask()
    except Exception as exc:  # botocore lets through whatever one of its many sources raises
        raise StoreUnavailable(
            f"The AWS credentials to sign requests to {address} with are not to be had ({type(exc).__name__}: {exc}).",
            remedy="Look at the role of this process, and at what gives it its credentials.",
        ) from exc


def _looked_at(renewal: asyncio.Task[None]) -> None:
    """Nobody may have waited for it; botocore has logged why it failed, and the next request tries again."""
    if not renewal.cancelled():
        renewal.exception()
