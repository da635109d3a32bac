"""Whether what the service needs answers, told in time however long the answer itself takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from hindsight_core.cache import Cache
from hindsight_core.embedding import Embedder
from hindsight_core.errors import ProviderUnavailable, StoreUnavailable
from hindsight_core.responses import Component, Readiness
from hindsight_core.stores import MemoryStore


class Checks:
    """Asks the store, and where there are any the embedder and the shared cache, whether they work."""

    def __init__(self, store: MemoryStore, embedder: Embedder | None, cache: Cache | None) -> None:
        self._store = store
        self._embedder = embedder
        self._cache = cache
        self._running: dict[str, asyncio.Task[Component]] = {}

    async def ready(self, within: float | None) -> Readiness:
        """What they say; what has said nothing `within` seconds (None: it is waited for) does not answer."""
        asked = [self._ask(self._check_store, Component(name="store", status="down"), within)]
        if self._embedder is not None:
            asked.append(self._ask(self._check_embedder, Component(name="embedder", status="degraded"), within))
        if self._cache is not None:
            asked.append(self._ask(self._cache.check, Component(name="cache", status="degraded"), within))
        components = tuple(await asyncio.gather(*asked))
        return Readiness(ready=all(component.status != "down" for component in components), components=components)

    async def aclose(self) -> None:
        """Break off what is still asked."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _ask(
        self, check: Callable[[], Coroutine[None, None, Component]], silent: Component, within: float | None
    ) -> Component:
        task = self._running.get(silent.name)
        if task is None:
            task = self._running[silent.name] = asyncio.create_task(check())
            task.add_done_callback(lambda _: self._running.pop(silent.name, None))
        # It is not broken off: whoever asks next waits for the same answer, and hangs on nothing more.
        done, _ = await asyncio.wait({task}, timeout=within)
        if done:
            return task.result()
        return Component(
            name=silent.name,
            status=silent.status,
            detail=f"The {silent.name} has not answered within {within:g} s.",
            remedy="Look at its load, and at the way to it.",
        )

    async def _check_store(self) -> Component:
        try:
            return await self._store.check()
        except StoreUnavailable as exc:
            return Component(name="store", status="down", detail=exc.detail, remedy=exc.remedy)

    async def _check_embedder(self) -> Component:
        """Without it searches go on by words alone."""
        assert self._embedder is not None
        try:
            await self._embedder.embed(["ready?"], "query")
        except ProviderUnavailable as exc:
            return Component(name="embedder", status="degraded", detail=exc.detail, remedy=exc.remedy)
        return Component(name="embedder", status="ok", detail=self._embedder.identity.name)
