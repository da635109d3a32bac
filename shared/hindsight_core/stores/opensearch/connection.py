"""Requests to OpenSearch: one client per event loop, timeouts, repeats of what may be repeated, errors in our words."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast
from weakref import WeakSet

import msgspec
from opensearchpy import AsyncHttpConnection, AsyncOpenSearch
from opensearchpy.exceptions import ConnectionError as NotConnected
from opensearchpy.exceptions import ConnectionTimeout, OpenSearchException, TransportError
from opensearchpy.serializer import Serializer

from hindsight_core.errors import ConfigurationError, MissingExtra, StoreUnavailable
from hindsight_core.loops import PerLoop
from hindsight_core.stores.opensearch.address import Address

# What travels as JSON, either way; what an answer holds is known where it was asked for.
Value: TypeAlias = Any
Json: TypeAlias = dict[str, Value]

# Seconds before the same is asked again: of a node that is busy, and over a connection that broke.
_WHILE_BUSY = (0.05, 0.15, 0.5, 1.5, 4.0)
_WHILE_BROKEN = (0.05, 0.2)
_REJECTED = 429
_BUSY = frozenset({502, 503, 504})
_CONNECTIONS = 32


class Refused(StoreUnavailable):
    """OpenSearch answers, and refuses; `said` is its reason. The same again is no use."""

    def __init__(self, detail: str, *, remedy: str, said: str) -> None:
        super().__init__(detail, remedy=remedy)
        self.said = said


class _Fast(Serializer):
    """JSON by msgspec: pages with vectors are large."""

    mimetype = "application/json"

    def dumps(self, data: Value) -> Value:
        return data if isinstance(data, (bytes, str)) else msgspec.json.encode(data)

    def loads(self, s: Value) -> Value:
        return msgspec.json.decode(s)


class Connection:
    """The requests of one process to one OpenSearch.

    Every failure is a `StoreUnavailable` that says where, what and what to do; a missing document is no failure.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self._clients: PerLoop[AsyncOpenSearch] = PerLoop(self._open)
        self._closed: WeakSet[asyncio.AbstractEventLoop] = WeakSet()

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | Json | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        repeatable: bool = True,
    ) -> Value:
        """The answer, decoded. What is `repeatable` is sent again when the connection broke or the node is busy."""
        timeout = self.address.options.timeout
        attempt = 0
        while True:
            try:
                return await self._send(method, path, body, params)
            except TransportError as exc:
                pauses = _pauses(exc, repeatable=repeatable)
                if attempt >= len(pauses):
                    raise explained(exc, self.address, timeout) from exc
            except (OpenSearchException, msgspec.DecodeError, UnicodeError) as exc:
                raise StoreUnavailable(
                    f"What answers at {self.address} does not answer as OpenSearch does: {exc}.",
                    remedy="Correct the address in HINDSIGHT_STORE.",
                ) from exc
            await asyncio.sleep(pauses[attempt])
            attempt += 1

    async def aclose(self) -> None:
        """Close what the running loop has opened; what it still has under way fails rather than open it again."""
        self._closed.add(asyncio.get_running_loop())
        client = self._clients.pop()
        if client is not None:
            await client.close()

    async def _send(
        self, method: str, path: str, body: bytes | Json | None, params: Mapping[str, Value] | None
    ) -> Value:
        """One request; the seam at which tests let a process stop."""
        if asyncio.get_running_loop() in self._closed:
            raise StoreUnavailable(f"The store {self.address} is closed.", remedy="Open it again.")
        transport = self._clients.get().transport
        return await transport.perform_request(
            method, path, params=dict(params or {}), body=body, timeout=self.address.options.timeout
        )

    def _open(self) -> AsyncOpenSearch:
        address = self.address
        headers: dict[str, str] = {}
        if address.user is not None:
            login = f"{address.user}:{address.password}".encode()
            headers["authorization"] = f"Basic {base64.b64encode(login).decode()}"
        return AsyncOpenSearch(
            hosts=[{"host": address.host, "port": address.port}],
            connection_class=AsyncHttpConnection,
            headers=headers,
            http_auth=signer(address) if address.signed else None,
            use_ssl=address.tls,
            verify_certs=address.options.verify,
            ssl_show_warn=False,
            serializer=_Fast(),
            pool_maxsize=_CONNECTIONS,
            max_retries=0,  # what may be repeated is known here, not there
        )


def signer(address: Address) -> Callable[..., Value]:
    try:
        from botocore.session import Session
    except ImportError as exc:
        raise MissingExtra.of("Signing of requests to Amazon", "aws") from exc
    from opensearchpy import AWSV4SignerAsyncAuth

    credentials = cast(Value, Session().get_credentials())
    if credentials is None:
        raise ConfigurationError(
            f"There are no AWS credentials to sign requests to {address} with.",
            remedy="Give this process a role, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        )
    return AWSV4SignerAsyncAuth(credentials, address.options.region, address.options.service)


def _pauses(exc: TransportError, *, repeatable: bool) -> tuple[float, ...]:
    """How often, and when, the same request is worth another try."""
    if exc.status_code == _REJECTED:
        return _WHILE_BUSY  # nothing of it was done
    if isinstance(exc, ConnectionTimeout) or not repeatable:
        return ()
    if isinstance(exc, NotConnected):
        return _WHILE_BROKEN
    return _WHILE_BUSY if exc.status_code in _BUSY else ()


class _Cause(msgspec.Struct):
    reason: str | None = None
    caused_by: _Cause | None = None
    root_cause: tuple[_Cause, ...] = ()

    @property
    def said(self) -> str | None:
        inner = self.caused_by or next(iter(self.root_cause), None)
        return (inner and inner.said) or self.reason


class _Failure(msgspec.Struct):
    error: _Cause | str = ""
    message: str = ""  # Amazon's, of what does not reach OpenSearch


def reason(info: Value) -> str:
    """What OpenSearch says is wrong, in its own words; `info` is its answer, decoded or not."""
    try:
        failure = msgspec.json.decode(info, type=_Failure) if isinstance(info, str) else msgspec.convert(info, _Failure)
    except msgspec.DecodeError:
        return str(info)
    error = failure.error if isinstance(failure.error, str) else failure.error.said
    return (error or failure.message or str(info)).rstrip(".")


def explained(exc: TransportError, address: Address, timeout: float) -> StoreUnavailable:
    """The error of a request in words for an operator."""
    where = f"OpenSearch at {address}"
    if isinstance(exc, ConnectionTimeout):
        return StoreUnavailable(
            f"{where} did not answer within {timeout:g} s.",
            remedy="Look at its load, or give HINDSIGHT_STORE a longer ?timeout=.",
        )
    if isinstance(exc, NotConnected):
        return StoreUnavailable(
            f"{where} cannot be reached: {exc.error}.", remedy="Start it, or correct the address in HINDSIGHT_STORE."
        )
    # The connection that signs requests leaves the answer as it came.
    said, status = reason(exc.info or exc.error), int(exc.status_code)
    match status:
        case 429 | 502 | 503 | 504:
            return StoreUnavailable(f"{where} is busy or starting: {said}.", remedy="Try again in a moment.")
        case 401 | 403 if "block" not in said:
            detail = f"{where} refuses the credentials: {said}."
            remedy = "Correct user and password in HINDSIGHT_STORE, or what their role may do."
        case 403:
            detail = f"{where} takes no writes: {said}."
            remedy = "Its disk is probably full: free space, then remove the block from the index."
        case 404:
            detail = f"{where} lacks something that was there: {said}."
            remedy = "Restore the index from a snapshot, or restart Hindsight to begin with an empty one."
        case 413:
            detail, remedy = f"{where} takes no request of this size.", "Raise its http.max_content_length."
        case _:
            detail = f"{where} refuses a request ({status}): {said}."
            remedy = "Use OpenSearch 2.19 or newer with its k-NN plugin."
    return Refused(detail, remedy=remedy, said=said)
