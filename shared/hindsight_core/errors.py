"""Every error a caller can meet.

::

    HindsightError
    ├── InvalidInput            422  a field is wrong; `errors` names each
    │   └── Malformed           400  the body is not JSON
    ├── Unauthenticated         401  no token, or one that is unknown or expired
    ├── Forbidden               403  the token does not allow this verb or namespace
    ├── NotFound                404  no such memory, run or retrieval in this scope
    ├── Conflict                409  it changed meanwhile, or a key was reused
    │   ├── SlotTaken           409  another memory is active under its key
    │   └── UnderWay            409  the same is being done by another call
    ├── TooLarge                413  body or batch over its limit
    ├── UnsupportedMedia        415  another content type than the route takes
    ├── TooManyRequests         429  over the rate limit; `retry_after` in seconds
    ├── ConfigurationError      500  a setting is wrong; raised at start, never by a request
    │   └── MissingExtra        500  an optional part is not installed; names the extra
    └── Unavailable             503  something we depend on is down; says which
        ├── StoreUnavailable    503
        │   └── OutcomeUnknown  503  the change was asked for, and its answer is lost
        └── ProviderUnavailable 503  an embedder, judge or cache

Each has a stable `code`, an HTTP `status`, a short `title`, and a `remedy`: what to do about it.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec


class FieldError(msgspec.Struct, frozen=True):
    """One field at fault: its dotted path (`messages[2].text`) and what is wrong with it."""

    field: str
    message: str


class HindsightError(Exception):
    """Base of all errors; `detail` is one sentence for a person."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "Something went wrong"

    def __init__(self, detail: str, *, remedy: str = "", errors: tuple[FieldError, ...] = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.remedy = remedy
        self.errors = errors


class InvalidInput(HindsightError):
    """A field of the request is wrong. Nothing was stored."""

    code, status, title = "invalid_input", 422, "The request is not valid"

    @classmethod
    def of(cls, field: str, message: str, *, remedy: str = "") -> InvalidInput:
        """The usual case: exactly one field is at fault."""
        return cls(f"{field}: {message}", remedy=remedy, errors=(FieldError(field, message),))


class Malformed(InvalidInput):
    """The body could not be read as JSON. Nothing was stored."""

    code, status, title = "malformed", 400, "The body is not valid JSON"


class Unauthenticated(HindsightError):
    code, status, title = "unauthenticated", 401, "A valid token is needed"


class Forbidden(HindsightError):
    code, status, title = "forbidden", 403, "The token does not allow this"


class NotFound(HindsightError):
    code, status, title = "not_found", 404, "Not found"


class Conflict(HindsightError):
    """The stored state is not the one the request was made for. Nothing was changed."""

    code, status, title = "conflict", 409, "It changed meanwhile"


class SlotTaken(Conflict):
    """Another memory of the same user is active under the same key. Nothing was changed."""

    code, title = "slot_taken", "The slot is taken"


class UnderWay(Conflict):
    """Another call is doing the same at this moment. Nothing was changed."""

    code, title = "under_way", "It is under way already"


class TooLarge(HindsightError):
    code, status, title = "too_large", 413, "Too large"


class UnsupportedMedia(HindsightError):
    code, status, title = "unsupported_media_type", 415, "The content type is not supported here"


class TooManyRequests(HindsightError):
    """Over the rate limit; try again after `retry_after` seconds."""

    code, status, title = "too_many_requests", 429, "Too many requests"

    def __init__(self, detail: str, *, retry_after: int, remedy: str = "") -> None:
        super().__init__(detail, remedy=remedy)
        self.retry_after = retry_after


class ConfigurationError(HindsightError):
    """A setting is missing or wrong; raised while starting."""

    code, status, title = "configuration", 500, "A setting is wrong"


class MissingExtra(ConfigurationError):
    """An optional part is not installed; the remedy is the command that installs it."""

    code, title = "missing_extra", "An optional part is not installed"

    @classmethod
    def of(cls, what: str, extra: str) -> MissingExtra:
        return cls(f"{what} is not installed.", remedy=f'pip install "hindsight-memory[{extra}]"')


class Unavailable(HindsightError):
    """Something Hindsight depends on is down. Nothing of the request was applied, but for `OutcomeUnknown`."""

    code, status, title = "unavailable", 503, "A dependency is not available"


class StoreUnavailable(Unavailable):
    code, title = "store_unavailable", "The store is not available"


class OutcomeUnknown(StoreUnavailable):
    """A change was sent to where memories are kept, a store or a server, and no answer came: it may have been made."""

    code, title = "outcome_unknown", "It is not known whether it was done"

    @classmethod
    def after(cls, lost: Unavailable) -> OutcomeUnknown:
        """What a failure to answer means for a change."""
        return cls(
            f"{lost.detail} The change may or may not have been made.",
            remedy=f"Look before you repeat it. {lost.remedy}".strip(),
        )


class ProviderUnavailable(Unavailable):
    code, title = "provider_unavailable", "A provider is not available"
