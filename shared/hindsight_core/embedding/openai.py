"""Any endpoint that speaks OpenAI's `POST /embeddings`: OpenAI itself, Ollama, vLLM, llama.cpp, LiteLLM and others."""

from __future__ import annotations

import asyncio
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from hindsight_core.embedding.text import MAX_TOKENS, slices
from hindsight_core.endpoint import address, authorization
from hindsight_core.errors import MissingExtra, ProviderUnavailable

try:
    import httpx
except ImportError as exc:
    raise MissingExtra.of("httpx, which talks to the embedding endpoint,", "client") from exc

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from numpy.typing import NDArray

    from hindsight_core.embedding import Role

_ATTEMPTS = 4
_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


class _Item(msgspec.Struct):
    embedding: list[float]
    index: int | None = None


class _Answer(msgspec.Struct):
    data: list[_Item]


class _NotNow(Exception):
    """Worth another attempt, after `wait` seconds where the endpoint named them; `failure` is for when none is left."""

    def __init__(self, failure: ProviderUnavailable, wait: float | None = None) -> None:
        super().__init__(failure)
        self.failure = failure
        self.wait = wait


class OpenAIModel:
    """One model of one endpoint. Its API knows neither roles nor revisions: both roles are embedded alike.

    Every failure is a ProviderUnavailable that names the host and what to do; neither the key nor a text is ever in it.
    An endpoint that is busy, down or unreachable is asked again, up to three times within `timeout` seconds, after the
    time it names in Retry-After or `backoff` seconds, doubled each time.
    """

    revision = "remote"

    def __init__(
        self,
        name: str,
        base_url: str,
        *,
        api_key: str = "",
        timeout: float = 30.0,
        connect_timeout: float = 5.0,
        batch_size: int = 32,
        dimension: int | None = None,
        backoff: float = 0.5,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Raises ConfigurationError when `base_url` is not an address or the key cannot be sent in a header."""
        self.name = name
        self._url = address(base_url, "/embeddings", of="embedding endpoint")
        self._host = self._url.netloc.decode("ascii")
        self._timeout = timeout
        self._batch_size = batch_size
        self._dimension = dimension
        self._backoff = backoff
        self._sleep = sleep
        self._client = httpx.AsyncClient(
            headers=authorization(api_key, of="embedding endpoint"),
            timeout=httpx.Timeout(timeout, connect=connect_timeout),
        )

    async def load(self) -> None:
        """Nothing to do: the endpoint is first contacted for vectors."""

    async def vectors(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        del role
        parts = slices(texts, most=self._batch_size, most_tokens=float(self._batch_size * MAX_TOKENS))
        found = [await self._patiently(part) for part in parts]
        if len({part.shape[1] for part in found}) > 1:
            raise self._nonsense("vectors of different dimensions")
        return np.vstack(found)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _patiently(self, texts: list[str]) -> NDArray[np.float32]:
        try:
            async with asyncio.timeout(self._timeout):
                return await self._until_answered(texts)
        except TimeoutError as exc:
            raise self._unavailable(f"did not answer within {self._timeout:g} s", _TRY_LATER) from exc

    async def _until_answered(self, texts: list[str]) -> NDArray[np.float32]:
        left = self._timeout
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._read(await self._post(texts), len(texts))
            except _NotNow as exc:
                wait = self._backoff * 2 ** (attempt - 1) if exc.wait is None else exc.wait
                left -= wait
                if attempt == _ATTEMPTS or left <= 0:
                    raise exc.failure from exc
                await self._sleep(wait)
        raise AssertionError  # the last attempt returned or raised

    async def _post(self, texts: list[str]) -> bytes:
        body: dict[str, object] = {"model": self.name, "input": texts}
        if self._dimension is not None:
            body["dimensions"] = self._dimension
        try:
            answer = await self._client.post(
                self._url, content=msgspec.json.encode(body), headers={"Content-Type": "application/json"}
            )
        except httpx.TransportError as exc:
            raise _NotNow(self._unavailable(f"cannot be reached ({type(exc).__name__})", _TRY_LATER)) from exc
        except httpx.HTTPError as exc:
            raise self._nonsense(f"something that is not HTTP ({type(exc).__name__})") from exc
        if answer.status_code == 200:
            return answer.content
        failure = self._unavailable(f"answers {answer.status_code}", _remedy(answer.status_code))
        if answer.status_code in _AGAIN:
            raise _NotNow(failure, _retry_after(answer))
        raise failure

    def _read(self, body: bytes, count: int) -> NDArray[np.float32]:
        try:
            items = msgspec.json.decode(body, type=_Answer).data
        except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
            raise self._nonsense("something that is not an embedding response") from exc
        if len(items) != count:
            raise self._nonsense(f"{len(items)} vectors for {count} texts")
        places = [item.index for item in items]
        if any(place is not None for place in places):
            if sorted(-1 if place is None else place for place in places) != list(range(count)):
                raise self._nonsense("vectors that cannot be told apart")
            items.sort(key=lambda item: item.index or 0)
        dimension = self._dimension or len(items[0].embedding)
        lengths = {len(item.embedding) for item in items}
        if lengths != {dimension} or dimension == 0:
            raise self._nonsense(f"vectors of {', '.join(map(str, sorted(lengths)))} dimensions, not {dimension}")
        with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite and is refused below
            found = np.array([item.embedding for item in items], dtype=np.float32)
        if not np.isfinite(found).all() or not found.any(axis=1).all():
            raise self._nonsense("vectors that are not finite or all zero")
        return found

    def _nonsense(self, what: str) -> ProviderUnavailable:
        return self._unavailable(f"answers with {what}", f"Check that {self.name} is an embedding model there.")

    def _unavailable(self, what: str, remedy: str) -> ProviderUnavailable:
        return ProviderUnavailable(f"The embedding endpoint {self._host} {what}.", remedy=remedy)


_TRY_LATER = "Try again later, or check that the endpoint is running and reachable from here."


def _remedy(status: int) -> str:
    match status:
        case 401 | 403:
            return "Check the API key of the embedder and what it may be used for."
        case 404:
            return "Check the name of the model and the address, which usually ends in /v1."
        case 400 | 413 | 422:
            return "The endpoint refuses the request: check the name of the model, its dimension and the batch size."
        case 429:
            return "Its rate limit or quota is used up: try again later, or ask less of it."
        case _ if status in _AGAIN:
            return _TRY_LATER
        case _:
            return "Check the address of the endpoint; it should answer directly, without a redirect."


def _retry_after(answer: httpx.Response) -> float | None:
    """Seconds to wait; a date is read against the endpoint's own clock. None when it names none that makes sense."""
    value = answer.headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        at, now = parsedate_to_datetime(value), parsedate_to_datetime(answer.headers.get("Date", ""))
        return max(0.0, (at - now).total_seconds())
    except (ValueError, TypeError):
        return None
