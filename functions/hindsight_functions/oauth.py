"""What an OAuth client finds out about a server that wants a token (RFC 6750, RFC 9728, and MCP's authorization page).

Tokens are made by who runs the server, with `hindsight token create`; there is no authorization server to name.
"""

from __future__ import annotations

import re
from typing import Any, get_args

import msgspec
from litestar import Request, get

from hindsight_core.errors import Unauthenticated
from hindsight_core.tokens import Verb
from hindsight_functions.admission import OPEN

_WELL_KNOWN = "/.well-known/oauth-protected-resource"
_MCP = "/mcp"
_HOST = re.compile(r"[A-Za-z0-9._:\[\]-]{1,255}")


class ProtectedResource(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of RFC 9728."""

    resource: str
    resource_name: str = "Hindsight"
    bearer_methods_supported: tuple[str, ...] = ("header",)
    scopes_supported: tuple[str, ...] = get_args(Verb)


@get([_WELL_KNOWN, _WELL_KNOWN + _MCP], sync_to_thread=False, opt=dict(OPEN))
def get_protected_resource(request: Request[Any, Any, Any]) -> ProtectedResource:
    """How this server is authorized against: bearer tokens, and the scopes there are."""
    path = request.scope["path"].removeprefix(_WELL_KNOWN)
    return ProtectedResource(resource=_address(request) + path)


def challenge(request: Request[Any, Any, Any], error: Unauthenticated) -> str:
    """The `WWW-Authenticate` of a 401."""
    parts = ['realm="hindsight"']
    if "authorization" in request.headers:
        parts += ['error="invalid_token"', f'error_description="{_quoted(error.detail)}"']
    path = _MCP if request.scope["path"].rstrip("/") == _MCP else ""
    parts.append(f'resource_metadata="{_address(request)}{_WELL_KNOWN}{path}"')
    return "Bearer " + ", ".join(parts)


def _address(request: Request[Any, Any, Any]) -> str:
    """Where the client reached us."""
    public: str = request.app.state.settings.public_url
    if public:
        return public.rstrip("/")
    host = request.headers.get("host", "")
    return f"{request.scope['scheme']}://{host if _HOST.fullmatch(host) else 'localhost'}"


def _quoted(text: str) -> str:
    return re.sub(r"[^\x20-\x7e]", "?", text).replace("\\", "").replace('"', "'")
