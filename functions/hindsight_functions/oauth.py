"""What an OAuth client finds where a token is wanted (RFC 6749, 6750, 8414, 9728, and MCP's authorization pages).

Tokens are made by who runs the server, with `hindsight token create`. Nobody signs in, so there is one grant, client
credentials: the name of a token and the token, which come back as the access token. Clients that would open a browser
or register themselves are told so in the words of their protocol.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, get_args
from urllib.parse import parse_qs, unquote_plus

import msgspec
from litestar import Request, Response, get, post

from hindsight_core.access import Principal
from hindsight_core.errors import Forbidden, Unauthenticated
from hindsight_core.tokens import Verb
from hindsight_functions.address import address_of
from hindsight_functions.admission import OPEN, identify

_RESOURCE = "/.well-known/oauth-protected-resource"
_SERVER = "/.well-known/oauth-authorization-server"
_AUTHORIZE, _TOKEN, _REGISTER = "/oauth/authorize", "/oauth/token", "/oauth/register"
_GRANT = "client_credentials"
_MCP = "/mcp"
_LONGEST_FORM = 8192
_NO_SIGN_IN = (
    "Nobody signs in at this server. Make a token with `hindsight token create NAME` where it runs, and set it in the "
    "client as the header `Authorization: Bearer TOKEN`, or as the secret of the client id NAME."
)


class ProtectedResource(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of RFC 9728."""

    resource: str
    authorization_servers: tuple[str, ...]
    resource_name: str = "Hindsight"
    bearer_methods_supported: tuple[str, ...] = ("header",)
    scopes_supported: tuple[str, ...] = get_args(Verb)


class AuthorizationServer(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of RFC 8414."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str
    response_types_supported: tuple[str, ...] = ()
    grant_types_supported: tuple[str, ...] = (_GRANT,)
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic", "client_secret_post")
    scopes_supported: tuple[str, ...] = get_args(Verb)


class AccessToken(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of the token endpoint."""

    access_token: str
    token_type: str = "Bearer"  # noqa: S105 (its kind)
    scope: str


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """An error as OAuth tells it."""

    error: str
    error_description: str


@get([_RESOURCE, _RESOURCE + _MCP], sync_to_thread=False, opt=dict(OPEN))
def get_protected_resource(request: Request[Any, Any, Any]) -> ProtectedResource:
    """How this server is authorized against: bearer tokens, who gives them, and the scopes there are."""
    address = address_of(request)
    resource = address + request.scope["path"].removeprefix(_RESOURCE)
    return ProtectedResource(resource=resource, authorization_servers=(address,))


@get(_SERVER, sync_to_thread=False, opt=dict(OPEN))
def get_authorization_server(request: Request[Any, Any, Any]) -> AuthorizationServer:
    """Where OAuth clients get their access token, and by which grant."""
    address = address_of(request)
    return AuthorizationServer(
        issuer=address,
        authorization_endpoint=address + _AUTHORIZE,
        token_endpoint=address + _TOKEN,
        registration_endpoint=address + _REGISTER,
    )


@post(_TOKEN, opt=dict(OPEN) | {"reads": "application/x-www-form-urlencoded"})
async def grant_token(request: Request[Any, Any, Any]) -> Response[AccessToken | Refusal]:
    """The access token for client credentials: the name or id of a token, and the token as its secret."""
    body = await request.body()
    if len(body) > _LONGEST_FORM:
        return _refused("invalid_request", f"The form is over {_LONGEST_FORM} bytes.")
    form = {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
    if form.get("grant_type") != _GRANT:
        return _refused("unsupported_grant_type", f"grant_type: the one there is is {_GRANT}. {_NO_SIGN_IN}")
    basic = _basic(request.headers.get("authorization", ""))
    client_id, secret = basic or (form.get("client_id", ""), form.get("client_secret", ""))
    try:
        principal = await identify(request, f"Bearer {secret}")
    except Unauthenticated as exc:
        return _refused("invalid_client", exc.detail, status=401)
    if not _is_its_owner(client_id, principal):
        return _refused("invalid_client", "client_id: name the token that is the secret, or its id.", status=401)
    # Clients ask for every scope there is, and are given those that the token has.
    asked = form.get("scope", "").split()
    if asked and not set(asked) & set(principal.verbs):
        return _refused("invalid_scope", f"scope: the token allows {' '.join(principal.verbs)}.")
    found = AccessToken(access_token=secret, scope=" ".join(principal.verbs))
    return Response(found, status_code=200, headers={"Cache-Control": "no-store"})


@post(_REGISTER, sync_to_thread=False, opt=dict(OPEN))
def register() -> Response[Refusal]:
    """That clients cannot register themselves, and what to do instead."""
    return _refused("access_denied", _NO_SIGN_IN, status=403)


@get(_AUTHORIZE, sync_to_thread=False, opt=dict(OPEN))
def authorize() -> None:
    """That there is no page to sign in at, and what to do instead."""
    raise Forbidden("Nobody signs in at this server.", remedy=_NO_SIGN_IN)


ROUTES = [get_protected_resource, get_authorization_server, grant_token, register, authorize]


def challenge(request: Request[Any, Any, Any], error: Unauthenticated) -> str:
    """The `WWW-Authenticate` of a 401."""
    parts = ['realm="hindsight"']
    if "authorization" in request.headers:
        parts += ['error="invalid_token"', f'error_description="{_quoted(error.detail)}"']
    path = _MCP if request.scope["path"].rstrip("/") == _MCP else ""
    parts.append(f'resource_metadata="{address_of(request)}{_RESOURCE}{path}"')
    return "Bearer " + ", ".join(parts)


def _refused(error: str, why: str, *, status: int = 400) -> Response[Any]:
    headers = {"Cache-Control": "no-store"}
    if status == 401:
        headers["WWW-Authenticate"] = 'Basic realm="hindsight"'
    return Response(Refusal(error=error, error_description=why), status_code=status, headers=headers)


def _basic(header: str) -> tuple[str, str] | None:
    """The client id and the secret of a Basic header, each of which is form-encoded (RFC 6749 §2.3.1)."""
    scheme, _, encoded = header.strip().partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        client_id, _, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeError):
        return "", ""
    return unquote_plus(client_id), unquote_plus(secret)


def _is_its_owner(client_id: str, principal: Principal) -> bool:
    return principal.token is not None and client_id in {principal.token, principal.actor.removeprefix("token:")}


def _quoted(text: str) -> str:
    return re.sub(r"[^\x20-\x7e]", "?", text).replace("\\", "").replace('"', "'")
