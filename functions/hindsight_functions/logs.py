"""Log lines: an event, then its fields, as `key=value`; never secrets, memory text at debug only."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

_STANDARD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}
_QUIET = ("httpx", "httpcore", "opensearch", "apscheduler", "mangum")


class EventFormatter(logging.Formatter):
    """`2025-05-01T08:00:00.000Z info memory.superseded id=… by=…`; values with spaces are quoted."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields = "".join(f" {key}={_value(value)}" for key, value in vars(record).items() if key not in _STANDARD)
        line = f"{at} {record.levelname.lower()} {record.getMessage()}{fields}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def configure(level: str) -> None:
    """Send the events of this process to standard error, from `level` on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(EventFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("hindsight").setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def _value(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and text and not set(text) & set(' ="') else json.dumps(text, ensure_ascii=False)
