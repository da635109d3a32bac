"""Requests to OpenSearch: one client per event loop, timeouts, repeats of what may be repeated, errors in our words."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias, cast
from weakref import WeakSet

import msgspec
from opensearchpy import AsyncHttpConnection, AsyncOpenSearch
from opensearchpy.exceptions import ConnectionError as NotConnected
from opensearchpy.exceptions import ConnectionTimeout, OpenSearchException, TransportError
from opensearchpy.serializer import Serializer

from hindsight_core.errors import StoreUnavailable
from hindsight_core.loops import PerLoop
from hindsight_core.stores.opensearch.address import Address
from hindsight_core.stores.opensearch.failures import excerpt, explained, foreign, is_blocked
from hindsight_core.stores.opensearch.signing import Signing

# What travels as JSON, either way; what an answer holds is known where it was asked for.
Value: TypeAlias = Any
Json: TypeAlias = dict[str, Value]

# Seconds before the same is asked again: of a node that is busy, and over a connection that broke.
_WHILE_BUSY = (0.05, 0.15, 0.5, 1.5, 4.0)
_WHILE_BROKEN = (0.05, 0.2)
_REJECTED = 429
_BUSY = frozenset({502, 503, 504})
_CONNECTIONS = 32


class _Fast(Serializer):
    """JSON by msgspec: pages with vectors are large."""

    mimetype = "application/json"

    def dumps(self, data: Value) -> Value:
        return data if isinstance(data, (bytes, str)) else msgspec.json.encode(data)

    def loads(self, s: Value) -> Value:
        return msgspec.json.decode(s)


class _Client(NamedTuple):
    """The client of one event loop, and what signs its requests where they are signed."""

    client: AsyncOpenSearch
    signing: Signing | None


class Connection:
    """The requests of one process to one OpenSearch.

    Every failure is a `StoreUnavailable` that says where, what and what to do; a missing document is no failure.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self._clients: PerLoop[_Client] = PerLoop(self._open)
        self._closed: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
        driver = logging.getLogger("opensearch")
        if driver.level == logging.NOTSET:
            # It logs every try with two tracebacks; what is the matter is told here, once, with what to do about it.
            driver.setLevel(logging.CRITICAL)

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | Json | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        repeatable: bool = True,
        within: float | None = None,
        part: str | None = None,
    ) -> Value:
        """The answer, decoded. What is `repeatable` is sent again when the connection broke or the node is busy.

        An answer is waited for as long as the address says, or `within` so many seconds. One without `part` is none
        of OpenSearch.
        """
        timeout = within or self.address.options.timeout
        attempt = 0
        while True:
            try:
                answer = await self._send(method, path, body, params, timeout)
            except TransportError as exc:
                pauses = _pauses(exc, repeatable=repeatable)
                if attempt >= len(pauses):
                    raise explained(exc, self.address, timeout) from exc
            except (OpenSearchException, msgspec.DecodeError, UnicodeError) as exc:
                raise foreign(self.address, str(exc)) from exc
            else:
                if not isinstance(answer, (dict, list)) or (part is not None and part not in answer):
                    raise foreign(self.address, excerpt(answer))
                return cast(Value, answer)
            await asyncio.sleep(pauses[attempt])
            attempt += 1

    async def aclose(self) -> None:
        """Close what the running loop has opened; what it still has under way fails rather than open it again."""
        self._closed.add(asyncio.get_running_loop())
        opened = self._clients.pop()
        if opened is not None:
            await opened.client.close()

    async def _send(
        self, method: str, path: str, body: bytes | Json | None, params: Mapping[str, Value] | None, within: float
    ) -> Value:
        """One request; the seam at which tests let a process stop."""
        self._admit()
        client, signing = self._clients.get()
        if signing is not None:
            await signing.current()
            self._admit()
        return await client.transport.perform_request(
            method, path, params=dict(params or {}), body=body, timeout=within
        )

    def _admit(self) -> None:
        if asyncio.get_running_loop() in self._closed:
            raise StoreUnavailable(f"The store {self.address} is closed.", remedy="Open it again.")

    def _open(self) -> _Client:
        address = self.address
        signing = Signing(address) if address.signed else None
        headers: dict[str, str] = {}
        if address.user is not None:
            login = f"{address.user}:{address.password}".encode()
            headers["authorization"] = f"Basic {base64.b64encode(login).decode()}"
        client = AsyncOpenSearch(
            hosts=[{"host": address.host, "port": address.port}],
            connection_class=AsyncHttpConnection,
            headers=headers,
            http_auth=None if signing is None else signing.signer(),
            use_ssl=address.tls,
            verify_certs=address.options.verify,
            ssl_show_warn=False,
            serializer=_Fast(),
            pool_maxsize=_CONNECTIONS,
            max_retries=0,  # what may be repeated is known here, not there
        )
        return _Client(client, signing)


def _pauses(exc: TransportError, *, repeatable: bool) -> tuple[float, ...]:
    """How often, and when, the same request is worth another try."""
    if exc.status_code == _REJECTED:  # nothing of it was done
        return () if is_blocked(_REJECTED, exc.info or exc.error) else _WHILE_BUSY
    if isinstance(exc, ConnectionTimeout) or not repeatable:
        return ()
    if isinstance(exc, NotConnected):
        return _WHILE_BROKEN
    return _WHILE_BUSY if exc.status_code in _BUSY else ()
