"""Log lines: an event, then its fields, as `key=value`; never secrets, memory text at debug only."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime

_STANDARD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}


class EventFormatter(logging.Formatter):
    """`2025-05-01T08:00:00.000Z info memory.superseded id=… by=…`; values with spaces are quoted."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields = "".join(f" {key}={_value(value)}" for key, value in vars(record).items() if key not in _STANDARD)
        line = f"{at} {record.levelname.lower()} {record.getMessage()}{fields}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


@contextmanager
def events(level: str) -> Generator[None]:
    """Send the events of this process to standard error, from `level` on; afterwards logging is as it was before."""
    root, ours = logging.getLogger(), logging.getLogger("hindsight")
    before = (root.handlers[:], root.level, ours.level)
    handler = _StandardError()
    handler.setFormatter(EventFormatter())
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    ours.setLevel(level.upper())
    try:
        yield
    finally:
        root.handlers[:] = before[0]
        root.setLevel(before[1])
        ours.setLevel(before[2])


class _StandardError(logging.Handler):
    """Writes to what standard error is by then, which a process may redirect."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr, flush=True)  # noqa: T201 (a log is what is printed)


def _value(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and text and not set(text) & set(' ="') else json.dumps(text, ensure_ascii=False)
