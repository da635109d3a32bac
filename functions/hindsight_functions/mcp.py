"""The MCP function: the tools over streamable HTTP at `/mcp`, for every client of the protocol.

Stateless, and every answer is JSON: any replica takes any message. Whose memories a connection works on is said by
its headers: `Hindsight-Namespace`, `Hindsight-User`, `Hindsight-Agent`, `Hindsight-Session`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from litestar import Litestar, Request, asgi
from litestar.exceptions import MethodNotAllowedException
from litestar.types import Receive, Scope, Send

from hindsight_core.decoding import convert
from hindsight_core.errors import InvalidInput, MissingExtra, TooLarge
from hindsight_core.models import ScopeId
from hindsight_functions.admission import TELLS_OUTAGES
from hindsight_functions.aws import LambdaHandler
from hindsight_functions.call import Call
from hindsight_functions.http import create_app
from hindsight_functions.tools.connection import Connection, ServiceMemories

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

_CONNECTION = "hindsight.connection"


class Endpoint:
    """What answers at `/mcp` while `live` runs."""

    def __init__(self) -> None:
        self._manager: asyncio.Future[StreamableHTTPSessionManager] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()

    async def live(self, body_limit: int) -> None:
        """Load the protocol and serve until `close`. Loading takes a while, so it is done beside everything else."""
        try:
            manager = await asyncio.to_thread(_manager, body_limit)
        except Exception as exc:  # whatever keeps it from loading, no message may wait for it
            failed: Exception = exc
            if isinstance(exc, ModuleNotFoundError):
                failed = MissingExtra.of("The MCP SDK", "mcp")
                failed.__cause__ = exc
            self._manager.set_exception(failed)
            self._manager.exception()  # nobody may ever ask for it
            return
        async with manager.run():
            self._manager.set_result(manager)
            await self._closing.wait()

    async def ready(self) -> None:
        """Wait until messages are answered; raises `MissingExtra` when they never will be."""
        await asyncio.shield(self._manager)

    def close(self) -> None:
        self._closing.set()

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one message; raises the errors of `Call` and `TooLarge` before the protocol sees it."""
        request = Request[Any, Any, Any](scope, receive)
        if request.method != "POST":
            # No streams and no sessions here, so there is nothing to get or to delete.
            raise MethodNotAllowedException(headers={"Allow": "POST"})
        call = Call(request)
        call.check_namespace()
        limit: int = request.app.state.settings.body_limit
        if (request.content_length or 0) > limit:
            raise TooLarge(f"The message is over {limit} bytes.", remedy="Send less, or raise HINDSIGHT_BODY_LIMIT.")
        user_id, agent_id = call.speaks_for(_named(request, "Hindsight-User"), _named(request, "Hindsight-Agent"))
        inner = cast("dict[str, Any]", scope)
        inner[_CONNECTION] = Connection(
            memories=ServiceMemories(call.service, call.once, call.metrics),
            user_id=user_id,
            agent_id=agent_id,
            session_id=_named(request, "Hindsight-Session"),
        )
        if "accept" not in request.headers:
            inner["headers"] = [*inner["headers"], (b"accept", b"*/*")]
        manager = await asyncio.shield(self._manager)
        await manager.handle_request(inner, cast("Any", receive), cast("Any", send))


def _manager(body_limit: int) -> StreamableHTTPSessionManager:
    # Imported here: the protocol's SDK loads for half a second, and only what answers MCP needs it.
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from hindsight_functions.tools.server import Context, make_server

    def connection_of(context: Context) -> Connection:
        assert context.request is not None
        found: Connection = context.request.scope[_CONNECTION]
        return found

    # Hosts, origins and callers were judged by `access.authorize` before a message gets there.
    return StreamableHTTPSessionManager(
        make_server(connection_of), stateless=True, json_response=True, max_request_body_size=body_limit
    )


def _named(request: Request[Any, Any, Any], header: str) -> str | None:
    """The id in a header, which may be UTF-8. A blank one is refused: it would reach everybody's memories."""
    sent = request.headers.getall(header, [])
    if not sent:
        return None
    if len(set(sent)) > 1:
        raise InvalidInput.of(header, "is sent twice, with different values")
    text = sent[0].strip()
    if not text:
        raise InvalidInput.of(header, "is blank; name one, or leave the header out")
    with suppress(UnicodeError):  # then it was Latin-1
        text = text.encode("latin-1").decode()
    scope_id: Any = ScopeId  # a constrained text is no class
    try:
        return str(convert(text, scope_id))
    except InvalidInput as exc:
        raise InvalidInput.of(header, exc.errors[0].message) from None


@asynccontextmanager
async def lifespan(app: Litestar) -> AsyncGenerator[None]:
    """Has `/mcp` answered while the app lives."""
    endpoint = app.state.mcp = Endpoint()
    # The protocol's tasks must end where they began, and a lifespan may be left by another task.
    life = asyncio.create_task(endpoint.live(app.state.settings.body_limit))
    try:
        yield
    finally:
        endpoint.close()
        await life


@asgi("/mcp", copy_scope=True, opt=dict(TELLS_OUTAGES))
async def answer_mcp(scope: Scope, receive: Receive, send: Send) -> None:
    """MCP over streamable HTTP: POST only."""
    endpoint: Endpoint = scope["litestar_app"].state.mcp
    await endpoint.answer(scope, receive, send)


routes = [answer_mcp]
app = create_app(routes, name="mcp", embedder=True, writes=True, lifespan=[lifespan])
handler = LambdaHandler(app)
