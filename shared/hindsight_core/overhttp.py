"""The way to a server: calls over HTTP, sent again only where that does no more than sending them once."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from hindsight_core import calls
from hindsight_core.calls import HttpCall
from hindsight_core.config import TOKEN_VARIABLE
from hindsight_core.errors import HindsightError, InvalidInput, OutcomeUnknown, TooManyRequests, Unavailable
from hindsight_core.loopback import is_loopback

T = TypeVar("T")
RETRY_AFTER = (0.2, 1.0)
_LONGEST_WAIT = 30.0
_NEVER_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)


class _Server:
    """Where the server is, and when a call to it is worth a second try."""

    def __init__(self, url: str, namespace: str | None, token: str | None, timeout: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise InvalidInput.of("url", f"{url!r} is no http:// or https:// address")
        # The address that MCP clients are given is at hand, and it is one path of the same server.
        self._url = url = url.rstrip("/").removesuffix("/mcp")
        headers = {"Accept": calls.JSON}
        if namespace is not None:
            headers["Hindsight-Namespace"] = namespace
        sent = os.environ.get(TOKEN_VARIABLE) if token is None else token
        if sent:
            headers["Authorization"] = f"Bearer {sent}"
        # A proxy of the environment cannot reach this machine's loopback for us.
        self._options: dict[str, Any] = {
            "base_url": url,
            "headers": headers,
            "timeout": httpx.Timeout(timeout, connect=min(5.0, timeout)),
            "trust_env": not is_loopback(parts.hostname),
        }

    def _content(self, call: HttpCall[Any]) -> dict[str, Any]:
        headers = {} if call.body is None else {"Content-Type": call.content_type}
        return {"params": call.params or None, "content": call.body, "headers": headers}

    def _wait(self, call: HttpCall[Any], error: Exception, tried: int) -> float | None:
        """Seconds until the call is tried again; None when it must not be, or is not worth it."""
        if tried >= len(RETRY_AFTER):
            return None
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return RETRY_AFTER[tried]  # it never arrived
        if isinstance(error, TooManyRequests):
            return error.retry_after if error.retry_after <= _LONGEST_WAIT else None
        if isinstance(error, Unavailable | httpx.TransportError) and call.repeatable:
            return RETRY_AFTER[tried]
        return None

    def _told(self, error: Exception, *, lost: bool = False) -> HindsightError:
        """The error to raise; `lost` says that a change was sent, and that what became of it nobody knows."""
        told = error if isinstance(error, HindsightError) else self._unavailable(error)
        if not lost or not isinstance(told, Unavailable) or isinstance(told, OutcomeUnknown):
            return told
        return OutcomeUnknown.after(told)

    def _unavailable(self, error: Exception) -> Unavailable:
        if isinstance(error, _NEVER_SENT):
            return Unavailable(
                f"{self._url} cannot be reached: {error}.",
                remedy="Start the server with `hindsight serve`, or correct the URL.",
            )
        if isinstance(error, httpx.TimeoutException):
            return Unavailable(f"{self._url} did not answer in time.", remedy="Send less at once, or look at it.")
        return Unavailable(f"The connection to {self._url} broke: {error}.", remedy="Look at it and its proxies.")

    def _check_whole(self, rest: bytes) -> None:
        if rest:
            raise Unavailable(f"The answer of {self._url} ended in the middle of a line.", remedy="Ask for it again.")

    @staticmethod
    def _read(call: HttpCall[T], response: httpx.Response) -> T:
        return calls.read_answer(call, response.status_code, response.content, response.headers.get("Retry-After"))


def _lost(call: HttpCall[Any], error: Exception) -> bool:
    """Whether a change was sent whose answer was lost on the way."""
    broke = isinstance(error, httpx.HTTPError) and not isinstance(error, _NEVER_SENT)
    return not call.reads and (broke or isinstance(error, OutcomeUnknown))


class OverHttp(_Server):
    """Blocking calls; `timeout` is in seconds, for one try of a call."""

    def __init__(
        self, url: str, namespace: str | None, token: str | None, timeout: float, transport: httpx.BaseTransport | None
    ) -> None:
        super().__init__(url, namespace, token, timeout)
        self._http = httpx.Client(transport=transport, **self._options)

    def start(self) -> None:
        """A connection is made with the first call."""

    def close(self) -> None:
        self._http.close()

    def send(self, call: HttpCall[T]) -> T:
        tried, lost = 0, False
        while True:
            try:
                return self._read(call, self._http.request(call.method, call.path, **self._content(call)))
            except (httpx.HTTPError, HindsightError) as exc:
                lost = lost or _lost(call, exc)
                wait = self._wait(call, exc, tried)
                if wait is None:
                    raise self._told(exc, lost=lost) from exc
            tried += 1
            time.sleep(wait)

    def lines(self, call: HttpCall[bytes]) -> Iterator[bytes]:
        """The answer line by line, as it arrives."""
        try:
            with self._http.stream(call.method, call.path, **self._content(call)) as response:
                if response.status_code >= 400:
                    raise calls.error_of(response.status_code, response.read(), None)
                rest = b""
                for chunk in response.iter_bytes():
                    *lines, rest = (rest + chunk).split(b"\n")
                    yield from (line + b"\n" for line in lines)
                self._check_whole(rest)
        except httpx.HTTPError as exc:
            raise self._told(exc) from exc


class AsyncOverHttp(_Server):
    """`OverHttp` for async code."""

    def __init__(
        self,
        url: str,
        namespace: str | None,
        token: str | None,
        timeout: float,
        transport: httpx.AsyncBaseTransport | None,
    ) -> None:
        super().__init__(url, namespace, token, timeout)
        self._http = httpx.AsyncClient(transport=transport, **self._options)

    async def start(self) -> None:
        """A connection is made with the first call."""

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, call: HttpCall[T]) -> T:
        tried, lost = 0, False
        while True:
            try:
                return self._read(call, await self._http.request(call.method, call.path, **self._content(call)))
            except (httpx.HTTPError, HindsightError) as exc:
                lost = lost or _lost(call, exc)
                wait = self._wait(call, exc, tried)
                if wait is None:
                    raise self._told(exc, lost=lost) from exc
            tried += 1
            await asyncio.sleep(wait)

    async def lines(self, call: HttpCall[bytes]) -> AsyncIterator[bytes]:
        """The answer line by line, as it arrives."""
        try:
            async with self._http.stream(call.method, call.path, **self._content(call)) as response:
                if response.status_code >= 400:
                    raise calls.error_of(response.status_code, await response.aread(), None)
                rest = b""
                async for chunk in response.aiter_bytes():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        yield line + b"\n"
                self._check_whole(rest)
        except httpx.HTTPError as exc:
            raise self._told(exc) from exc
