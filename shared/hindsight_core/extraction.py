"""Messages to candidates: the sentences and clauses that state something, verbatim, with who said them and when."""

from __future__ import annotations

from datetime import datetime

import msgspec

from hindsight_core.models import MetadataValue, Source
from hindsight_core.requests import Role


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """Something that may become a memory.

    `index` is the message it came from and `text` is verbatim. `context` is what was said just before (kept beside
    the memory as a second retrieval field), `previous` the turns before it, latest first (they are mixed into its
    vector). `dismissed` says why it is no candidate at all (a question, a greeting …): it is then answered as skipped.
    """

    index: int
    text: str
    role: Role = "user"
    source: Source = "user"
    speaker: str | None = None
    at: datetime | None = None
    context: str | None = None
    previous: tuple[str, ...] = ()
    metadata: dict[str, MetadataValue] = {}
    dismissed: str | None = None
