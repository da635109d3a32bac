"""The lines of an export.

    {"hindsight_export": 3, "namespace": …, "exported_at": …, "history": true}
    {"memory": {…}, "history": [event, …]}
    {"events": [event, …]}                      more of the history of the memory before
    {"runs": [run, …]}
    {"erased": [id, …]}                         what was erased there, of which no more is kept than that
    {"end": {"memories": n, "events": n, "runs": n, "erased": n}}

Without `history` there are a header and lines of memories alone, as in format 1. Formats 1 and 2 (which knew nothing of
what was erased) are read, too.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from hindsight_core.models import AuditEvent, Memory, Run

FORMAT: Literal[3] = 3


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of an export: its format's version, whence it came, and whether histories and an end follow."""

    hindsight_export: Literal[1, 2, 3]
    namespace: str
    exported_at: str = ""
    history: bool = False


class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A memory with its history, oldest event first."""

    memory: Memory
    history: tuple[AuditEvent, ...] = ()


class Events(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """More of a history."""

    events: tuple[AuditEvent, ...]


class Runs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Runs of a namespace."""

    runs: tuple[Run, ...]


class Erased(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ids of memories that were erased."""

    erased: tuple[str, ...]


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many of each an export holds."""

    memories: int = 0
    events: int = 0
    runs: int = 0
    erased: int = 0


class End(msgspec.Struct, frozen=True, kw_only=True):
    """The last line: without it an export was cut off."""

    end: Counts
