"""Pages of other places that may read answers (CORS): those whose origin `Access` lets in, and no others.

By hand in place of Litestar's middleware, which wants the origins while the app is made: settings are read later.
"""

from __future__ import annotations

from collections.abc import Mapping

from hindsight_core.access import Access

# What a page may read of an answer besides its body.
_EXPOSED = "ETag, Retry-After, WWW-Authenticate, X-Request-Id"
_METHODS = "GET, POST, PATCH, DELETE"
# Seconds for which a browser need not ask again.
_KEPT = "600"


def headers_for(access: Access, origin: str) -> Mapping[str, str]:
    """What to add to an answer to a page of this origin; nothing where it may not read it."""
    if not origin or not access.admits_page(origin):
        return {}
    return {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": _EXPOSED, "Vary": "Origin"}


def preflight(access: Access, method: str, headers: Mapping[str, str]) -> Mapping[str, str] | None:
    """What a browser that asks first is told beside `headers_for`; None when it is another request."""
    if method != "OPTIONS" or "access-control-request-method" not in headers:
        return None
    if not headers_for(access, headers.get("origin", "")):
        return {}
    asked = headers.get("access-control-request-headers", "")
    allowed = {"Access-Control-Allow-Headers": asked} if asked else {}
    return {**allowed, "Access-Control-Allow-Methods": _METHODS, "Access-Control-Max-Age": _KEPT}
