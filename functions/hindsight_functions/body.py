"""The request body: read once, within its limit, to the struct that the route declares."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import msgspec
from litestar import Request as LitestarRequest
from litestar.types import Empty

from hindsight_core.decoding import convert, decode
from hindsight_core.errors import FieldError, InvalidInput, TooLarge, UnsupportedMedia
from hindsight_core.requests import Request
from hindsight_functions.admission import narrowed

_JSON = "application/json"
LINES = "application/x-ndjson"
# Litestar's own parameters: user, authentication, state.
_Base: TypeAlias = LitestarRequest[Any, Any, Any]


def _check_namespace(name: str) -> None:
    try:
        convert({"namespace": name}, Request)
    except InvalidInput as exc:
        raise InvalidInput.of("namespace", exc.errors[0].message) from None


class BodyRequest(_Base):
    """A request whose JSON becomes the struct that its handler names, or an error that names the field.

    An empty body is an empty object. `namespace` may also stand in the query string; nothing else may.
    """

    async def body(self) -> bytes:
        """The bytes as sent; raises `TooLarge` as soon as they are over the `body_limit` setting."""
        if self._body is not Empty:
            return self._body
        limit: int = self.app.state.settings.body_limit
        chunks: list[bytes] = []
        size = 0
        if (self.content_length or 0) <= limit:
            async for chunk in self.stream():
                size += len(chunk)
                if size > limit:
                    break
                chunks.append(chunk)
        if size > limit or (self.content_length or 0) > limit:
            raise TooLarge(
                f"The body is over {limit} bytes.",
                remedy="Send less at once, or raise HINDSIGHT_BODY_LIMIT.",
                errors=(FieldError("body", f"is over {limit} bytes"),),
            )
        data = b"".join(chunks)
        field = self.route_handler.parsed_data_field
        if data and field is not None and self.content_type[0] != _JSON:
            raise UnsupportedMedia(f"Content-Type is {self.content_type[0] or 'missing'!r}.", remedy=f"Send {_JSON}.")
        # Litestar takes an empty body for a missing one, so the empty object is written out here.
        self._body = data or (b"{}" if field is not None else b"")
        return self._body

    async def json(self) -> object:
        """The body as the struct of the handler's `data`; raises `Malformed` or `InvalidInput`."""
        field = self.route_handler.parsed_data_field
        kind = cast("type[msgspec.Struct]", dict if field is None else field.annotation)
        data = self._placed(decode(await self.body(), kind))
        return narrowed(self, data) if isinstance(data, Request) else data

    def _placed(self, data: msgspec.Struct) -> msgspec.Struct:
        for name in self.query_params:
            if name != "namespace" or name not in data.__struct_fields__:
                raise InvalidInput.of(name, "is not a query parameter here; put it into the body")
        if not self.query_params:
            return data
        named = self.query_params.getall("namespace")
        for name in named:
            _check_namespace(name)
        if len({*named, getattr(data, "namespace", None) or named[0]}) > 1:
            raise InvalidInput.of("namespace", "is given twice, with different values")
        return msgspec.structs.replace(data, namespace=named[0])
