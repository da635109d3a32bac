"""The OpenAPI document of an app, made from its routes and from the very structs that validate them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from inspect import cleandoc
from typing import Any, TypeAlias

import msgspec
from litestar import Litestar, MediaType, Request, get
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute

from hindsight_core.release import release
from hindsight_core.responses import Problem
from hindsight_functions.address import address_of
from hindsight_functions.admission import OPEN
from hindsight_functions.query import METADATA, parameters

Document: TypeAlias = dict[str, Any]

_JSON, _PROBLEM, _ANY_VALUE = "application/json", "application/problem+json", {"type": "string"}
_BEARER = "bearer"
# In words and no parameters of each operation: workflow builders send every parameter, blank where nobody filled it in.
_HEADERS = (
    "Headers that every operation takes: `Hindsight-Namespace`, the namespace of a request that names none; "
    "`X-Request-Id`, which comes back in the answer and stands in the audit, and is made up when absent."
)
_MORE_HEADERS = {
    ("POST", "/v1/memories"): {"Idempotency-Key": "Makes the write safe to repeat."},
    ("PATCH", "/v1/memories/{memory_id}"): {"If-Match": "The version that the change is for: the ETag of the memory."},
}


@get(
    ["/schema", "/schema/openapi.json"],
    sync_to_thread=False,
    media_type="application/vnd.oai.openapi+json",
    opt=dict(OPEN),
)
def get_schema(request: Request[Any, Any, Any]) -> Document:
    """The OpenAPI document of this server."""
    return describe(request.app, address_of(request))


def describe(app: Litestar, address: str) -> Document:
    """The OpenAPI 3.1 document of an app that is reached at `address`.

    Its schemas hold every limit that requests are checked against.
    """
    handlers = list(_handlers(app))
    kinds = {kind for _, _, handler in handlers for kind in (_body(handler), _answer(handler)) if kind is not None}
    found, components = msgspec.json.schema_components(
        [*(ordered := sorted(kinds, key=str)), Problem],
        schema_hook=_anything,
        ref_template="#/components/schemas/{name}",
    )
    schemas = dict(zip([*ordered, Problem], found, strict=True))
    paths: dict[str, Document] = {}
    for path, method, handler in handlers:
        paths.setdefault(path, {})[method.lower()] = _operation(path, method, handler, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": f"Hindsight: {app.state.name}", "version": release(), "description": _HEADERS},
        "servers": [{"url": address}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {_BEARER: {"type": "http", "scheme": "bearer"}}},
        # Either way: a server without tokens answers its own machine.
        "security": [{_BEARER: []}, {}],
    }


def _anything(kind: type[object]) -> Document:
    """The schema of `object`, which evidence and logged requests hold: any JSON."""
    if kind is not object:
        raise NotImplementedError(kind)
    return {"description": "Any JSON."}


def _handlers(app: Litestar) -> Iterator[tuple[str, str, HTTPRouteHandler]]:
    for route in sorted(app.routes, key=lambda route: route.path_format):
        if isinstance(route, HTTPRoute):
            for handler in route.route_handlers:
                for method in sorted(handler.http_methods):
                    if method != "OPTIONS" and handler.resolve_include_in_schema():
                        yield route.path_format, str(method), handler


def _operation(path: str, method: str, handler: HTTPRouteHandler, schemas: Mapping[Any, Document]) -> Document:
    text = cleandoc(handler.fn.__doc__ or "")
    answer, body = _answer(handler), _body(handler)
    media = _JSON if answer is not None or handler.media_type == MediaType.JSON else str(handler.media_type)
    success = {"description": "Done.", "content": {media: {"schema": schemas.get(answer, _ANY_VALUE)}}}
    responses: dict[str, Document] = {str(handler.status_code): success}
    for status, meaning in handler.opt.get("also", {}).items():
        responses[str(status)] = {**success, "description": meaning}
    problem = {"description": "What went wrong.", "content": {_PROBLEM: {"schema": schemas[Problem]}}}
    operation: Document = {
        "operationId": handler.handler_name,
        "summary": text.partition("\n")[0],
        "parameters": [*_parameters(path, method, handler)],
        "responses": {**responses, "default": problem},
    }
    if handler.opt.get("open"):
        operation["security"] = []
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {_JSON: {"schema": schemas[body]}}}
    elif reads := handler.opt.get("reads"):
        operation["requestBody"] = {"required": True, "content": {reads: {"schema": _ANY_VALUE}}}
    return operation


def _parameters(path: str, method: str, handler: HTTPRouteHandler) -> Iterator[Document]:
    for step in path.split("/"):
        if step.startswith("{"):
            yield {"name": step.strip("{}"), "in": "path", "required": True, "schema": _ANY_VALUE}
    if not path.startswith("/v1/"):
        return
    for name, meaning in _MORE_HEADERS.get((method, path), {}).items():
        yield {"name": name, "in": "header", "description": meaning, "schema": _ANY_VALUE}
    asked = handler.opt.get("asked")
    for name, hint in ({} if asked is None else parameters(asked)).items():
        yield {"name": name, "in": "query", "schema": msgspec.json.schema(hint)}
        if name == "ids":
            meaning = f"`{METADATA}KEY=VALUE`, for any key; repeated values mean any of them."
            yield {"name": f"{METADATA}KEY", "in": "query", "description": meaning, "schema": _ANY_VALUE}


def _body(handler: HTTPRouteHandler) -> Any:  # noqa: ANN401 (a type, of any kind)
    field = handler.parsed_data_field
    return None if field is None else field.annotation


def _answer(handler: HTTPRouteHandler) -> Any:  # noqa: ANN401 (a type, of any kind)
    field = handler.parsed_return_field
    for found in (field, *field.inner_types):  # `Response[Memory]` answers a Memory
        if isinstance(found.annotation, type) and issubclass(found.annotation, msgspec.Struct):
            return found.annotation
    return None
