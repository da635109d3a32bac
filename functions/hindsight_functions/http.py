"""The frame of every function: its lifespan, request ids, measures, and what `/health` and its siblings answer."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Any, TypeAlias, cast

from litestar import Litestar, Request, Response, get
from litestar.datastructures import MutableScopeHeaders, State
from litestar.di import Provide
from litestar.enums import ScopeType
from litestar.types import (
    ControllerRouterHandler,
    LifeSpanReceive,
    LifeSpanScope,
    LifeSpanSend,
    Message,
    Receive,
    Scope,
    Send,
)

from hindsight_core.access import Access
from hindsight_core.config import Settings, load
from hindsight_core.errors import Forbidden, HindsightError, StoreUnavailable, Unauthenticated
from hindsight_core.home import data_dir
from hindsight_core.ids import new_id
from hindsight_core.limits import Limits
from hindsight_core.release import release
from hindsight_core.responses import Component, Readiness
from hindsight_core.service import MemoryService, open_service
from hindsight_functions import logs
from hindsight_functions.admission import OPEN, admit, identify, is_near
from hindsight_functions.body import BodyRequest
from hindsight_functions.call import provide_call
from hindsight_functions.cors import headers_for, preflight
from hindsight_functions.metrics import CONTENT_TYPE, Metrics
from hindsight_functions.oauth import ROUTES as OAUTH
from hindsight_functions.openapi import get_schema
from hindsight_functions.problems import answer_problem

Lifespan: TypeAlias = Callable[[Litestar], AbstractAsyncContextManager[None]]

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
# Seconds, before a probe gives up.
_PATIENCE = 2.0
_UNMATCHED = "(no route)"
_log = logging.getLogger("hindsight.http")


class Function(Litestar):
    """An ASGI app that gives each request an id, measures it, and logs it as an event without its text.

    The id is the caller's `X-Request-Id` where that is printable ASCII of at most 128 characters.
    """

    async def __call__(
        self, scope: Scope | LifeSpanScope, receive: Receive | LifeSpanReceive, send: Send | LifeSpanSend
    ) -> None:
        if scope["type"] != ScopeType.HTTP:
            await super().__call__(scope, receive, _in_words(send))
            return
        # What follows reads and sends what ASGI says of HTTP; the union of scopes would hide it.
        http, reply = cast("dict[str, Any]", scope), cast("Send", send)
        started = time.perf_counter()
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in http["headers"]}
        sent = headers.get("x-request-id", "")
        request_id = sent if _REQUEST_ID.fullmatch(sent) else new_id(datetime.now(UTC))
        http["state"] = {"request_id": request_id}
        access: Access = self.state.access

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = MutableScopeHeaders(message)
                added["X-Request-Id"] = request_id
                for name, value in headers_for(access, headers.get("origin", "")).items():
                    added[name] = value
                seconds = time.perf_counter() - started
                method, route, status = http["method"], http.get("path_template") or _UNMATCHED, message["status"]
                metrics: Metrics = self.state.metrics
                metrics.answered(method, route, status, seconds)
                fields = {"method": method, "route": route, "status": status, "ms": round(seconds * 1e3, 1)}
                _log.info("http.answered", extra={**fields, "request_id": request_id})
            await reply(message)

        asked_first = preflight(access, http["method"], headers)
        if asked_first is not None:
            raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in asked_first.items()]
            await answer({"type": "http.response.start", "status": 204, "headers": raw})
            await answer({"type": "http.response.body", "body": b"", "more_body": False})
            return
        await super().__call__(scope, receive, answer)


def create_app(
    routes: Sequence[ControllerRouterHandler],
    *,
    name: str,
    embedder: bool,
    writes: bool = False,
    settings: Settings | None = None,
    service: MemoryService | None = None,
    lifespan: Sequence[Lifespan] = (),
) -> Function:
    """The app of one function. Nothing is opened or read from the environment before its lifespan.

    `settings` default to the environment's. A `service` that is given is used as it is, started and closed by who
    gives it; otherwise the app opens its own, with or without an `embedder`. With one it does before its first calls
    what searches would wait for, and where it `writes` what decisions about texts would, too. `lifespan` are further
    ones, entered after it; they find it as `app.state.service`.
    """

    @asynccontextmanager
    async def serve(app: Litestar) -> AsyncGenerator[None]:
        found = settings or load(os.environ, data_dir=data_dir())
        with logs.events(found.log_level):
            own = service or open_service(found, embedder=embedder)
            app.state.settings, app.state.service = found, own
            app.state.access, app.state.limits = Access(own.tokens, found), Limits(own.cache, found)
            app.state.metrics.vectors = own.vectors
            warming: asyncio.Task[None] | None = None
            try:
                if service is None:
                    await own.start()
                if embedder:
                    warming = asyncio.create_task(own.warm(writes=writes))
                yield
            finally:
                if warming is not None:
                    warming.cancel()
                    await asyncio.wait([warming])
                if service is None:
                    await own.aclose()

    return Function(
        [*routes, health, ready, metrics, get_schema, *OAUTH],
        guards=[admit],
        lifespan=[serve, *lifespan],
        dependencies={"call": Provide(provide_call)},
        exception_handlers={Exception: answer_problem},
        request_class=BodyRequest,
        # `BodyRequest` holds bodies to the limit of the settings, which are not known yet.
        request_max_body_size=None,
        openapi_config=None,
        # Events go through `logs`; Litestar's own logging would configure the process while importing.
        logging_config=None,
        state=State({"metrics": Metrics(), "name": name}),
        debug=False,
    )


def _in_words(send: LifeSpanSend | Send) -> LifeSpanSend:
    """What a server is told of a start that fails: what is wrong and what to do, where a traceback would stand."""

    async def tell(message: Any) -> None:  # noqa: ANN401 (what ASGI says of lifespans)
        failed = sys.exception()
        while isinstance(failed, BaseExceptionGroup):
            failed = cast("BaseExceptionGroup[BaseException]", failed).exceptions[0]
        if message["type"] == "lifespan.startup.failed" and isinstance(failed, HindsightError):
            message = {**message, "message": f"{failed.title}: {failed.detail} {failed.remedy}".rstrip()}
        await send(message)

    return tell


@get("/health", sync_to_thread=False, opt=dict(OPEN))
def health() -> dict[str, str]:
    """Whether the process answers."""
    return {"status": "ok", "version": release()}


@get("/ready", opt=dict(OPEN))
async def ready(request: Request[Any, Any, State]) -> Response[Readiness]:
    """Whether what it needs answers: 503 when something is down, and for who may call it what to do about it."""
    readiness, may_know = await asyncio.gather(_readiness(request), _may_know(request))
    if not may_know:
        # A probe has no token; names of hosts and files are not for everybody.
        bare = tuple(Component(name=one.name, status=one.status, detail="") for one in readiness.components)
        readiness = Readiness(ready=readiness.ready, components=bare)
    return Response(readiness, status_code=200 if readiness.ready else 503)


async def _readiness(request: Request[Any, Any, State]) -> Readiness:
    service: MemoryService = request.app.state.service
    try:
        return await service.ready(_PATIENCE)
    except HindsightError as exc:  # a store that cannot even be asked
        store = Component(name="store", status="down", detail=exc.detail, remedy=exc.remedy)
        return Readiness(ready=False, components=(store,))


async def _may_know(request: Request[Any, Any, State]) -> bool:
    try:
        async with asyncio.timeout(_PATIENCE):
            await identify(request)
    except (StoreUnavailable, TimeoutError):
        return is_near(request)
    except (Unauthenticated, Forbidden):
        return False
    return True


@get("/metrics", media_type=CONTENT_TYPE, sync_to_thread=False)
def metrics(request: Request[object, object, State]) -> bytes:
    """Counters and durations of this process for Prometheus."""
    found: Metrics = request.app.state.metrics
    return found.text()
