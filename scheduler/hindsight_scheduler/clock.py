"""The clock of the scheduler."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """The present instant, in UTC with milliseconds."""
    at = datetime.now(UTC)
    return at.replace(microsecond=at.microsecond // 1000 * 1000)
