"""The way to a store in this process: calls to a service of its own, without HTTP and without tokens."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import msgspec

from hindsight_core.caller import Caller
from hindsight_core.calls import HttpCall
from hindsight_core.config import Settings, load, variable
from hindsight_core.decoding import decode
from hindsight_core.errors import StoreUnavailable
from hindsight_core.home import data_dir
from hindsight_core.ids import new_id
from hindsight_core.requests import Request
from hindsight_core.service import MemoryService, open_service

T = TypeVar("T")


class InProcess:
    """Calls to `service`, each made by `actor`, now, in `namespace` unless its request names one.

    The service is started by the first call, unless it has been `started`, and closed with this; one that could not
    start is replaced by a new one from `again`.
    """

    def __init__(
        self,
        service: MemoryService,
        namespace: str,
        *,
        actor: str = "local",
        started: bool = False,
        again: Callable[[], MemoryService] | None = None,
    ) -> None:
        self.service = service
        self._again = again
        self._namespace = namespace
        self._actor = actor
        self._started = started
        self._starting = asyncio.Lock()

    @classmethod
    def opened(cls, store: str | None, namespace: str | None, settings: Settings | None) -> Self:
        """Over the service that the settings describe, those of the environment where none are given."""
        if settings is None:
            settings = _of_environment(store, namespace)
        else:
            given = {"store": store, "namespace": namespace}
            settings = msgspec.structs.replace(settings, **{name: text for name, text in given.items() if text})
        again = partial(open_service, settings)
        return cls(again(), settings.namespace, again=again)

    async def start(self) -> None:
        async with self._starting:
            if self._started:
                return
            try:
                await self.service.start()
            except BaseException:
                await self.service.aclose()
                if self._again is not None:
                    self.service = self._again()  # for the next call, by which what was down may be up
                raise
            self._started = True

    async def close(self) -> None:
        await self.service.aclose()

    async def send(self, call: HttpCall[T]) -> T:
        await self.start()
        if call.operation == "ready":
            return cast("T", await self.service.ready())
        operation = getattr(self.service, call.operation)
        return cast("T", await operation(*map(_checked, call.arguments), self._caller()))

    async def lines(self, call: HttpCall[bytes]) -> AsyncGenerator[bytes]:
        """The answer line by line."""
        await self.start()
        operation = getattr(self.service, call.operation)
        found: AsyncGenerator[bytes] = operation(*map(_checked, call.arguments), self._caller())
        async for line in found:
            yield line

    def _caller(self) -> Caller:
        now = datetime.now(UTC)
        return Caller(
            now=now.replace(microsecond=now.microsecond // 1000 * 1000),
            new_id=new_id,
            namespace=self._namespace,
            actor=self._actor,
            request_id=new_id(now),
        )


class InThread:
    """`InProcess` for plain code: its event loop runs in a thread of its own, until this is closed."""

    def __init__(self, way: InProcess) -> None:
        self._way = way
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="hindsight", daemon=True)
        self._thread.start()

    @classmethod
    def opened(cls, store: str | None, namespace: str | None, settings: Settings | None) -> Self:
        """See `InProcess.opened`."""
        return cls(InProcess.opened(store, namespace, settings))

    def start(self) -> None:
        try:
            self._run(self._way.start())
        except BaseException:
            self._stop()
            raise

    def close(self) -> None:
        if self._loop.is_closed():
            return
        try:
            self._run(self._way.close())
        finally:
            self._stop()

    def send(self, call: HttpCall[T]) -> T:
        return self._run(self._way.send(call))

    def lines(self, call: HttpCall[bytes]) -> Iterator[bytes]:
        """The answer line by line."""
        found = self._way.lines(call)

        async def following() -> bytes | None:
            return await anext(found, None)

        try:
            while (line := self._run(following())) is not None:
                yield line
        finally:
            self._run(found.aclose())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            work.close()
            raise StoreUnavailable("This client is closed.", remedy="Open another.")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _of_environment(store: str | None, namespace: str | None) -> Settings:
    # Where data belongs is asked for only when nothing names a store: it takes a package of its own to know.
    named = store or os.environ.get(variable("store"))
    return load(os.environ, data_dir=Path() if named else data_dir(), store=store, namespace=namespace)


def _checked(argument: Any) -> Any:  # noqa: ANN401 (whatever a service takes)
    """A request as a server would read it, so that what is wrong with it is the same error here and there."""
    return decode(msgspec.json.encode(argument), type(argument)) if isinstance(argument, Request) else argument
