"""Where clients reach the server: what documents that name its own routes are written with."""

from __future__ import annotations

import re
from typing import Any

from litestar import Request

_HOST = re.compile(r"[A-Za-z0-9._:\[\]-]{1,255}")


def address_of(request: Request[Any, Any, Any]) -> str:
    """The setting `public_url`, else where this request went; without a slash at the end."""
    public: str = request.app.state.settings.public_url
    if public:
        return public.rstrip("/")
    host = request.headers.get("host", "")
    return f"{request.scope['scheme']}://{host if _HOST.fullmatch(host) else 'localhost'}"
