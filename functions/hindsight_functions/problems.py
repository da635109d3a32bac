"""Errors to answers: whatever a handler or a router raises, as `application/problem+json` (RFC 9457)."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException

from hindsight_core.errors import FieldError, HindsightError, TooManyRequests, Unauthenticated
from hindsight_core.responses import Problem, problem_of
from hindsight_functions.oauth import challenge

_log = logging.getLogger("hindsight.http")
_MEDIA_TYPE = "application/problem+json"


def problem(error: Exception, request_id: str) -> Problem:
    """The problem that an error is to a caller; what is not meant for one says only that it happened."""
    if isinstance(error, HindsightError):
        return problem_of(error, request_id)
    status = error.status_code if isinstance(error, HTTPException) else 500
    code, detail = "internal", "An unexpected error; the log has it under this request id."
    if isinstance(error, NotFoundException):
        code, detail = "no_such_route", "There is nothing at this path."
    elif isinstance(error, MethodNotAllowedException):
        code, detail = "method_not_allowed", "This path does not take this method."
    elif isinstance(error, HTTPException) and status < 500:
        code, detail = "bad_request", error.detail
    title = HTTPStatus(status).phrase
    return Problem(
        type=f"urn:hindsight:problem:{code}",
        title=title,
        status=status,
        detail=detail,
        code=code,
        request_id=request_id,
    )


def answer_problem(request: Request[Any, Any, Any], error: Exception) -> Response[Problem]:
    """Litestar's exception handler for everything."""
    request_id = str(request.scope["state"].get("request_id", ""))
    if isinstance(error, HindsightError):
        _name_as_sent(request, error)
    found = problem(error, request_id)
    headers = dict(getattr(error, "headers", None) or {})
    if isinstance(error, TooManyRequests):
        headers["Retry-After"] = str(error.retry_after)
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = challenge(request, error)
    if found.status >= 500:
        unexpected = None if isinstance(error, HindsightError) else error
        _log.error("http.failed", extra={"request_id": request_id, "detail": str(error)}, exc_info=unexpected)
    return Response(found, status_code=found.status, media_type=_MEDIA_TYPE, headers=headers)


def _name_as_sent(request: Request[Any, Any, Any], error: HindsightError) -> None:
    """Fields that came in a header or in the query string are called what they are there."""
    headers = {"version": "If-Match", "idempotency_key": "Idempotency-Key"}
    for i, fault in enumerate(error.errors):
        header = headers.get(fault.field)
        name = header if header and request.headers.get(header, "").strip() not in {"", "*"} else fault.field
        if request.method == "GET":
            name = name.removeprefix("filters.")
        if name != fault.field:
            error.detail = error.detail.replace(f"{fault.field}: ", f"{name}: ", 1)
            error.errors = (*error.errors[:i], FieldError(name, fault.message), *error.errors[i + 1 :])
