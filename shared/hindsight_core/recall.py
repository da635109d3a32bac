"""Whether a message needs memory at all: a search that is not needed costs time and brings in noise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hindsight_core.cues import counts, language_of, sentence
from hindsight_core.responses import Recall


def recall_needed(
    text: str,
    *,
    recent: Sequence[str] = (),
    task: str | None = None,
    previous_task: str | None = None,
    vector: NDArray[np.float32] | None = None,
) -> Recall:
    """Whether memory should be searched for this message, given the `recent` turns and the tasks; and why."""
    del vector
    language = language_of(text)
    cue = counts(text, "recall")
    if task and previous_task and task != previous_task:
        return Recall(needed=True, why=sentence("why.task", language, "recall"))
    z = -0.6 + 2.0 * ("past" in cue) + 1.2 * ("personal" in cue) + 1.5 * ("usual" in cue) + 0.8 * ("decision" in cue)
    z += 1.0 * ("reference" in cue and not recent) - 1.5 * ("general" in cue) - 2.5 * ("chat" in cue)
    for name in ("usual", "past", "personal", "decision", "reference"):
        if z >= 0 and name in cue:
            return Recall(needed=True, why=sentence(f"why.{name}", language, "recall"))
    return Recall(needed=z >= 0, why=sentence("why.none", language, "recall"))
