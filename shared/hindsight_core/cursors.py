"""Page cursors: opaque to callers, an id inside."""

from __future__ import annotations

import base64
import binascii

from hindsight_core.errors import InvalidInput


def encode(after: str) -> str:
    """The cursor that continues after this id."""
    return base64.urlsafe_b64encode(after.encode()).decode().rstrip("=")


def decode(cursor: str | None) -> str | None:
    """The id in a cursor; raises `InvalidInput` for one that no answer ever held."""
    if cursor is None:
        return None
    try:
        after = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
    except (binascii.Error, ValueError):
        after = ""
    if not 0 < len(after) <= 64 or not after.isprintable():
        raise InvalidInput.of("cursor", "is not one of ours; pass back the cursor of the page before")
    return after
