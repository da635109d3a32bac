"""An app as an AWS Lambda handler: started once a container, then one call an event."""

from __future__ import annotations

import asyncio
from typing import Any

from litestar import Litestar

from hindsight_core.errors import MissingExtra


class LambdaHandler:
    """Call it with an event of API Gateway, a function URL or a load balancer; raises `MissingExtra` without mangum.

    The container's freeze is the end of it: what a call acknowledged is stored, statistics of the last half second
    may be lost.
    """

    def __init__(self, app: Litestar) -> None:
        self._app = app
        self._adapter: Any = None
        # Kept referenced: nothing else holds the task that the container lives in.
        self._life: asyncio.Task[None] | None = None

    def __call__(self, event: dict[str, Any], context: object) -> dict[str, Any]:
        if self._adapter is None:
            self._adapter = self._start()
        answer: dict[str, Any] = self._adapter(event, context)
        return answer

    def _start(self) -> object:
        try:
            from mangum import Mangum
        except ImportError as exc:
            raise MissingExtra.of("The AWS Lambda adapter", "lambda") from exc
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        loop.run_until_complete(self._begin())
        # The adapter would run the lifespan around every event; here it runs around the container.
        return Mangum(self._app, lifespan="off")  # type: ignore[arg-type]

    async def _begin(self) -> None:
        started = asyncio.Event()

        async def live() -> None:
            async with self._app.lifespan():
                started.set()
                await asyncio.Event().wait()

        self._life = asyncio.create_task(live())
        begun = asyncio.create_task(started.wait())
        await asyncio.wait({self._life, begun}, return_when=asyncio.FIRST_COMPLETED)
        if self._life.done():
            begun.cancel()
            await self._life  # raises why it could not start
