"""The gateway as a client meets it, without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx

from hindsight_core.config import Settings
from hindsight_core.service import MemoryService
from hindsight_functions.gateway import gateway
from hindsight_functions.http import Function

URL = "http://localhost"


@asynccontextmanager
async def serving(service: MemoryService, settings: Settings) -> AsyncGenerator[httpx.AsyncClient]:
    """A client of all functions over `service`; what a handler raises is answered, not raised."""
    async with running(gateway(settings, service)) as client:
        yield client


@asynccontextmanager
async def running(app: Function) -> AsyncGenerator[httpx.AsyncClient]:
    """A client of an app inside its lifespan."""
    started, done = asyncio.Event(), asyncio.Event()

    async def live() -> None:
        async with app.lifespan():
            started.set()
            await done.wait()

    # A lifespan must end in the task it began in, and fixtures are set up and torn down in different ones.
    life = asyncio.create_task(live())
    await asyncio.wait({life, asyncio.create_task(started.wait())}, return_when=asyncio.FIRST_COMPLETED)
    if life.done():
        await life
    try:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=URL) as client:
            yield client
    finally:
        done.set()
        await life
