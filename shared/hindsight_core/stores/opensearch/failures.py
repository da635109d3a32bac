"""Failures of requests to OpenSearch, in words for an operator: what happened, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec
from opensearchpy.exceptions import ConnectionError as NotConnected
from opensearchpy.exceptions import ConnectionTimeout, TransportError

from hindsight_core.errors import StoreUnavailable
from hindsight_core.stores.opensearch.address import Address

# An answer of OpenSearch, or an item of one, decoded or not.
Answer: TypeAlias = Any

_REJECTED = 429
_BUSY = frozenset({408, _REJECTED, 502, 503, 504})
_DENIED = frozenset({401, 403})
_TOO_LARGE = 413
# What stands between may answer with these in its own words; everything else is told in OpenSearch's JSON.
_OF_ANYBODY = _BUSY | _DENIED | {_TOO_LARGE}
_EXCERPT = 80


class Refused(StoreUnavailable):
    """OpenSearch answers, and refuses; `said` is its reason. Nothing was done, and the same again is no use."""

    def __init__(self, detail: str, *, remedy: str, said: str) -> None:
        super().__init__(detail, remedy=remedy)
        self.said = said


class Missing(Refused):
    """What was named does not exist, be it an index, a task or a search that was under way."""


class Foreign(StoreUnavailable):
    """What answers is no OpenSearch. One that stands behind it may have done what was asked all the same."""


class _Cause(msgspec.Struct):
    type: str | None = None
    reason: str | None = None
    caused_by: _Cause | None = None
    root_cause: tuple[_Cause, ...] = ()

    @property
    def said(self) -> str | None:
        inner = self.caused_by or next(iter(self.root_cause), None)
        return (inner and inner.said) or self.reason


class _Failure(msgspec.Struct):
    error: _Cause | str = ""
    message: str = ""  # Amazon's, of what does not reach OpenSearch

    @property
    def said(self) -> str | None:
        return (self.error if isinstance(self.error, str) else self.error.said) or self.message or None


def explained(exc: TransportError, address: Address, timeout: float) -> StoreUnavailable:
    """The error of a request that failed; it was given `timeout` seconds."""
    where = f"OpenSearch at {address}"
    if isinstance(exc, ConnectionTimeout):
        # A longer timeout helps only what the timeout of a call has ended.
        helps = timeout == address.options.timeout
        remedy = "give HINDSIGHT_STORE a longer ?timeout=." if helps else "correct the address in HINDSIGHT_STORE."
        return StoreUnavailable(
            f"{where} did not answer within {timeout:g} s.", remedy=f"Look at its load, or {remedy}"
        )
    if isinstance(exc, NotConnected):
        return StoreUnavailable(
            f"{where} cannot be reached: {exc.error}.", remedy="Start it, or correct the address in HINDSIGHT_STORE."
        )
    # The connection that signs requests leaves the answer as it came.
    answer, status = exc.info or exc.error, int(exc.status_code)
    failure = _read(answer)
    if failure is None and status not in _OF_ANYBODY:
        told = foreign(address, f"{status}, {excerpt(answer)}")
        return told if status < 500 else _passing(told)
    return _told(where, status, _said(failure, answer), "refuses a request")


def refusal(address: Address, doing: str, info: Mapping[str, Any]) -> StoreUnavailable:
    """The error of an item of an answer; `doing` is what OpenSearch does not, such as "does not search"."""
    failure = _read(dict(info))
    status = info.get("status")
    if status is None:  # items of reads have none
        cause = failure and failure.error
        status = 404 if isinstance(cause, _Cause) and cause.type == "index_not_found_exception" else 500
    return _told(f"OpenSearch at {address}", status, _said(failure, info), doing)


def foreign(address: Address, said: str) -> Foreign:
    """The error of an answer that no OpenSearch gives."""
    return Foreign(
        f"What answers at {address} does not answer as OpenSearch does: {said}.",
        remedy="Correct the address in HINDSIGHT_STORE.",
    )


def _passing(told: Foreign) -> StoreUnavailable:
    """The same of what stands in front of an OpenSearch and has trouble of its own, which may pass."""
    return StoreUnavailable(
        told.detail, remedy="Look at what stands between, or correct the address in HINDSIGHT_STORE."
    )


def is_blocked(status: int, answer: Answer) -> bool:
    """Whether writes are refused until somebody does something about it: asking again is no use."""
    return status in {403, _REJECTED} and "blocked by:" in _said(_read(answer), answer)


def _told(where: str, status: int, said: str, doing: str) -> StoreUnavailable:
    if is_blocked(status, said):
        detail = f"{where} takes no writes: {said}."
        remedy = "Its disk is probably full: free space, then remove the block from its indices if it is still there."
        if "index write (api)" in said:
            remedy = (
                "Its memories are probably changing over to another embedding model: try again in a moment. If that was"
                " broken off, run `hindsight reembed` again; else somebody has set index.blocks.write of the index:"
                " remove that."
            )
        return Refused(detail, remedy=remedy, said=said)
    if status in _BUSY:
        return StoreUnavailable(f"{where} is busy or starting: {said}.", remedy="Try again in a moment.")
    if status >= 500:
        return StoreUnavailable(f"{where} {doing}: {said}.", remedy="Look at the state of its shards and indices.")
    if status in _DENIED:
        detail = f"{where} refuses the credentials: {said}."
        remedy = "Correct user and password in HINDSIGHT_STORE, or what their role may do."
    elif status == 404:
        return _missing(f"{where} lacks something that was there: {said}.", said)
    elif status == _TOO_LARGE:
        detail, remedy = f"{where} takes no request of this size.", "Raise its http.max_content_length."
    else:
        detail = f"{where} {doing} ({status}): {said}."
        remedy = "Use OpenSearch 2.19 or newer with its k-NN plugin."
    return Refused(detail, remedy=remedy, said=said)


def _missing(detail: str, said: str) -> Missing:
    if "no such index" in said:
        remedy = (
            "Restore the index from a snapshot. To begin with an empty store instead, delete all indices of the prefix"
            " and restart Hindsight."
        )
    else:
        remedy = "It was probably restarted: try again."
    return Missing(detail, remedy=remedy, said=said)


def _read(answer: Answer) -> _Failure | None:
    """What OpenSearch says is wrong; None when these are not its words."""
    try:
        found = (
            msgspec.json.decode(answer, type=_Failure)
            if isinstance(answer, str)
            else msgspec.convert(answer, type=_Failure)
        )
    except (msgspec.DecodeError, UnicodeError):
        return None
    return None if found.said is None else found


def _said(failure: _Failure | None, answer: Answer) -> str:
    return ((failure and failure.said) or str(answer)).rstrip(".")


def excerpt(answer: Answer) -> str:
    """The beginning of what was answered, on one line."""
    text = " ".join(str(answer).split())
    return repr(text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…")
