"""Who calls, when: what every service method needs besides its request."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from hindsight_core.errors import InvalidInput
from hindsight_core.models import Scope
from hindsight_core.requests import Request


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """One call: `now` is the server's clock, `namespace` what the header or token says when the request names none.

    `actor` and `request_id` go into the audit events; `admin` says whether it may do everything in its namespaces,
    `decoded` that the request was decoded from what was sent, so that its fields hold what their types say. `new_id`
    gives a fresh sortable id for an instant.
    """

    now: datetime
    new_id: Callable[[datetime], str]
    namespace: str = "default"
    actor: str = "local"
    request_id: str = ""
    admin: bool = True
    decoded: bool = False

    def clock(self, request: Request) -> datetime:
        """The instant at which the request happens, in UTC with milliseconds."""
        return self.now if request.now is None else instant(request.now, "now")

    def scope(self, request: Request) -> Scope:
        return Scope(
            namespace=request.namespace or self.namespace,
            user_id=request.user_id,
            agent_id=request.agent_id,
            session_id=request.session_id,
            task_id=request.task_id,
        )


def instant(value: datetime, field: str, zone: str | None = None) -> datetime:
    """`value` in UTC with milliseconds; a naive one is read in `zone`, and refused without one."""
    if value.tzinfo is None:
        if zone is None:
            raise InvalidInput.of(field, "has no offset; add one, such as +08:00 or Z, or name a `timezone`")
        value = value.replace(tzinfo=time_zone(zone))
    # The margin leaves room for every zone and for the longest ttl.
    if not _FIRST_YEAR <= value.year <= _LAST_YEAR:
        raise InvalidInput.of(field, f"is outside the years {_FIRST_YEAR} to {_LAST_YEAR}")
    utc = value.astimezone(UTC)
    return utc.replace(microsecond=utc.microsecond // 1000 * 1000)


def time_zone(name: str | None) -> ZoneInfo:
    """The zone of an IANA name; UTC for None."""
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidInput.of("timezone", f"{name!r} is not a known zone; use a name such as Asia/Shanghai") from None


def millis(value: datetime) -> int:
    """Unix milliseconds of an aware instant, exact."""
    delta = value - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1000 + delta.microseconds // 1000


_FIRST_YEAR, _LAST_YEAR = 2, 9000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
