"""MCP over standard input and output: one client, until it closes its end."""

from __future__ import annotations

import asyncio
import codecs
import json
from types import TracebackType
from typing import Any, Self, cast

from mcp import types
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from hindsight_functions.tools.connection import Connection
from hindsight_functions.tools.lines import LINE_LIMIT, Lines
from hindsight_functions.tools.server import make_server


class _Answers:
    """The stream of what is said to the client; knows which requests still wait for an answer."""

    def __init__(self, stream: Any) -> None:  # noqa: ANN401 (a stream of the SDK's, whose type it keeps to itself)
        self._stream = stream
        # An id is text or a number, and 7 is not "7".
        self._open: set[str | int | None] = set()
        self._none_open = asyncio.Event()
        self._none_open.set()

    def asked(self, request_id: str | int) -> None:
        self._open.add(request_id)
        self._none_open.clear()

    def settled(self, request_id: str | int | None) -> None:
        """An answer was given, or is wanted no more."""
        self._open.discard(request_id)
        if not self._open:
            self._none_open.set()

    async def all_given(self) -> None:
        await self._none_open.wait()

    async def refuse(self, request_id: str | int | None, code: int, why: str) -> None:
        error = types.JSONRPCError(jsonrpc="2.0", id=request_id, error=types.ErrorData(code=code, message=why))
        await self._stream.send(SessionMessage(error))

    async def send(self, item: SessionMessage, /) -> None:
        await self._stream.send(item)
        if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
            self.settled(item.message.id)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


class _Messages:
    """The lines that hold a message. What holds none is answered here, as the SDK would pass over it in silence.

    The end comes only after every request has its answer: the SDK gives up what is still open then.
    """

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._first = True
        self.answers: asyncio.Future[_Answers] = asyncio.get_running_loop().create_future()

    def __aiter__(self) -> _Messages:
        return self

    async def __anext__(self) -> str:
        answers = await self.answers
        async for line in self._lines:
            if line is None:
                await answers.refuse(None, types.INVALID_REQUEST, f"The line is over {LINE_LIMIT} bytes; send less.")
                continue
            text = line.removeprefix(codecs.BOM_UTF8) if self._first else line
            self._first = False
            if text.strip() and (message := await self._read(text, answers)) is not None:
                return message
        await answers.all_given()
        raise StopAsyncIteration

    async def _read(self, line: bytes, answers: _Answers) -> str | None:
        """The message in a line, once it is known who waits for its answer; None when it was refused."""
        try:
            text = line.decode()
            found = json.loads(text)
        except (ValueError, RecursionError) as exc:
            await answers.refuse(None, types.PARSE_ERROR, f"The line is no JSON: {exc}.")
            return None
        if not isinstance(found, dict):
            await answers.refuse(
                None, types.INVALID_REQUEST, "A line is one message, a JSON object; batches are not read."
            )
            return None
        fields = cast("dict[str, Any]", found)
        request_id = fields.get("id")
        known = request_id if isinstance(request_id, str | int) and not isinstance(request_id, bool) else None
        try:
            message = types.jsonrpc_message_adapter.validate_json(text, by_name=False)
        except ValidationError as exc:
            if "method" in fields or not fields.keys() & {"result", "error"}:
                await answers.refuse(known, types.INVALID_REQUEST, f"The message is no request: {_why(exc)}")
            return None  # a broken answer to nothing that was asked
        if isinstance(message, types.JSONRPCRequest):
            answers.asked(message.id)
        elif isinstance(message, types.JSONRPCNotification):
            if "id" in fields:
                await answers.refuse(None, types.INVALID_REQUEST, "The id of a request is text or an integer.")
                return None
            if message.method == "notifications/cancelled":
                answers.settled((message.params or {}).get("requestId"))
        return text


def _why(error: ValidationError) -> str:
    """What is wrong with a message, taken for a request."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(
        ": ".join([*(str(part) for part in fault["loc"][1:]), fault["msg"]])
        for fault in faults
        if not fault["loc"] or fault["loc"][0] == "JSONRPCRequest"
    )


async def serve(connection: Connection) -> None:
    """Answer the messages of standard input until it ends, or until nobody reads the answers any more.

    Nothing but messages of the protocol reaches standard output: what anything else prints goes to standard error.
    """
    server = make_server(lambda _: connection)
    messages = _Messages(Lines(0))
    try:
        async with stdio_server(stdin=cast("Any", messages)) as (reading, writing):
            answers = _Answers(writing)
            messages.answers.set_result(answers)
            await server.run(reading, answers, server.create_initialization_options())
    except* BrokenPipeError:
        pass  # the client went away while it was being answered
