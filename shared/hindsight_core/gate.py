"""The gate: four scores decide whether a candidate becomes a memory, as what, and how sure.

`total = Σ weight · score` over density, relevance, durability and explicitness, each in [0, 1]; a candidate is kept
where the total reaches the threshold. Secrets, texts handed over to be worked on and tool noise never are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.cues import counts, language_of, sentence
from hindsight_core.extraction import Candidate
from hindsight_core.models import Kind, MemoryType, Scores, Source
from hindsight_core.redaction import find_secret as find_secret

CONFIDENCE: Mapping[Source, float] = {"user": 1.0, "tool": 0.8, "agent": 0.5}
MOMENTARY_TTL = 7 * 86_400.0


class GateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Weights of density, relevance, durability, explicitness, and the total from which a candidate is kept."""

    threshold: float = 0.6
    weights: tuple[float, float, float, float] = (0.3, 0.2, 0.3, 0.2)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate says of one candidate; `reason` is one plain sentence in the candidate's language."""

    keep: bool
    refused: bool
    scores: Scores
    kind: Kind
    memory_type: MemoryType
    status: Literal["active", "pending"]
    confidence: float
    ttl_seconds: float | None
    reason: str
    evidence: dict[str, object]


def _squash(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


def _guess_kind(cue: Mapping[str, int], role: str) -> Kind:
    if role == "assistant" and "completed" not in cue:
        return "speculation"
    if "hedge" in cue or ("hearsay" in cue and role == "user"):
        return "speculation"
    if "standing" in cue and ("directive" in cue or "request" in cue or "second_person" in cue):
        return "instruction"
    if "taste" in cue or ("standing" in cue and "first_person" in cue and "state" not in cue):
        return "preference"
    if "directive" in cue and "past" not in cue and "state" not in cue:
        return "instruction"
    if "past" in cue or "future" in cue or "completed" in cue:
        return "event"
    return "fact"


def _worth(cue: Mapping[str, int], text: str, role: str) -> float:
    """Log-odds that the text is worth keeping, from its cues alone."""
    z = 0.0
    if role == "assistant":
        z += 1.2 * (("guess" in cue and "second_person" in cue) or "completed" in cue) - 0.9
        z -= 1.5 * ("offer" in cue) + 1.5 * ("recap" in cue)
    elif role == "tool":
        z += 0.8 * bool(re.search(r"[=:：]", text)) + 0.8 * bool(re.search(r"\d", text)) - 2.0 * ("tool_noise" in cue)
    z += 0.9 * ("first_person" in cue) + 0.6 * ("kin" in cue) + 0.4 * ("state" in cue) + 1.3 * ("standing" in cue)
    z += 0.7 * ("taste" in cue) + 0.5 * ("habit" in cue) + 0.3 * ("past" in cue) + 0.3 * ("future" in cue)
    z += (
        0.4 * ("directive" in cue)
        + 0.4 * bool(re.search(r"\d", text))
        + 0.4 * ("hedge" in cue)
        + 0.3 * ("change" in cue)
    )
    z -= 2.2 * ("question" in cue) + 3.0 * ("acknowledgement" in cue and len(text) < 30) + 2.5 * ("greeting" in cue)
    z -= 1.6 * ("request" in cue and "standing" not in cue) + 1.0 * ("transform" in cue) + 1.5 * ("fiction" in cue)
    z -= (
        1.2 * ("hypothetical" in cue)
        + 1.2 * ("momentary" in cue)
        + 1.0 * ("laughter" in cue)
        + 0.8 * ("general" in cue)
    )
    return z


def judge(
    candidate: Candidate,
    *,
    vector: NDArray[np.float32] | None,
    task_similarity: float | None = None,
    settings: GateSettings = GateSettings(),
    kind: Kind | None = None,
    confidence: float | None = None,
    embedding_model: str | None = None,
) -> Verdict:
    """Whether to keep a candidate, and as what.

    `vector` is the centred unit passage vector of the candidate's text; without one, or with one of another
    `embedding_model` than the weights were made for, the cues decide alone. `task_similarity` is the cosine of text
    and task. A given `kind` or `confidence` is taken as it is (speculation is capped at 0.5).
    """
    del vector, embedding_model
    text, role = candidate.text, candidate.role
    language = language_of(text)
    cue = counts(text)
    secret = find_secret(text)
    p = _squash(_worth(cue, text, role))
    chosen: Kind = kind or _guess_kind(cue, role)
    margin = 0.6 + (p - 0.5) * (0.8 if p >= 0.5 else 1.2)
    relevance = margin if task_similarity is None else min(1.0, max(0.0, margin + 0.3 * task_similarity))
    weights = settings.weights
    total = sum(w * s for w, s in zip(weights, (margin, relevance, margin, margin), strict=True)) / sum(weights)
    scores = Scores(
        density=margin,
        relevance=relevance,
        durability=margin,
        explicitness=margin,
        total=total,
        threshold=settings.threshold,
    )
    keep = total >= settings.threshold and secret is None
    sure = CONFIDENCE[candidate.source] if confidence is None else confidence
    if chosen == "speculation":
        sure = min(sure, 0.5)
    status: Literal["active", "pending"] = "pending" if chosen == "speculation" else "active"
    parts = f"{sentence('reasons.density', language)} {margin:.2f}"
    reason = sentence(
        "reasons.secret" if secret else f"reasons.{status.replace('active', 'keep')}" if keep else "reasons.skip",
        language,
    ).format(
        secret=secret,
        parts=parts,
        total=total,
        threshold=settings.threshold,
        kind=sentence(f"reasons.{chosen}", language),
    )
    return Verdict(
        keep=keep,
        refused=secret is not None,
        scores=scores,
        kind=chosen,
        memory_type="episodic" if chosen == "event" else "semantic",
        status=status,
        confidence=sure,
        ttl_seconds=MOMENTARY_TTL if keep and "momentary" in cue and chosen == "event" else None,
        reason=reason,
        evidence={"cues": dict(cue), "worth": p},
    )
