"""Times as people and chat programs write them."""

from __future__ import annotations

from datetime import datetime

from hindsight_core.decoding import convert
from hindsight_core.errors import InvalidInput

SHAPE = "use a form such as 2025-06-01T12:00Z"


def read_moment(text: str) -> datetime | None:
    """The instant of an ISO 8601 text: seconds may be left out, and a date alone is its first moment; None: it is none.

    Without an offset it is naive.
    """
    try:
        return convert(text, datetime)
    except InvalidInput:
        pass
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        return None
