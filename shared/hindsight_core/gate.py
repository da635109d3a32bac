"""The gate: four scores decide whether a candidate becomes a memory, as what, and how sure.

`total = Σ weight · score / Σ weight` over density, relevance, durability and explicitness, each in [0, 1]; a candidate
is kept where the total reaches the threshold. Secrets are refused, texts handed over to be worked on are never kept.

* *Density*, what there is to know in it: a small model's probability that the text is worth keeping, stretched in two
  straight lines. The probability from which keeping is right (measured, by role, on writers left out of the training)
  falls on the density with which a plain text of this source reaches the default threshold under the default weights.
  A short answer to a question about somebody is worth keeping, whatever it says alone. What bears on something
  remembered gains up to 0.5: it is how news about it looks.
* *Relevance*, how near it is to the task: neutral (0.6) without one, else up to 0.3 above or below that.
* *Durability*: density, of which up to 0.3 are lost where the model does not expect it to be true in three months.
* *Explicitness*: the confidence (the source's, unless one is given), of which a guess counts 0.5 at most; in between
  by the probability that it is a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.cues import Language, language_of, sentence
from hindsight_core.extraction import Candidate
from hindsight_core.hearing import Heard, hear
from hindsight_core.learned import Reading, shipped
from hindsight_core.models import Kind, MemoryType, Scores, Source
from hindsight_core.redaction import find_secret as find_secret
from hindsight_core.wording import Wording

CONFIDENCE: Mapping[Source, float] = {"user": 1.0, "tool": 0.8, "agent": 0.5}
SPECULATION_CAP = 0.5
MOMENTARY_TTL = 14 * 86_400.0
MOMENTARY_BELOW = 0.2
NEUTRAL = 0.6
TASK_PULL = 0.3
UNRELATED = 0.25
PASSING_COSTS = 0.3
PLAIN_LASTING = 0.3
ANSWER_LEAD = 0.2
# The same for what harms when it is forgotten.
VITAL_LEAD = 0.6
# From which cosine to a memory on a text bears on it, and what density it gains by that.
BEARS_AT = 0.3
BEARING = 1.3
BEARING_CAP = 0.5
_KINDS: tuple[Kind, ...] = ("fact", "preference", "instruction", "event", "speculation")
_REASONS = (  # the first cue that is there names why it was not kept
    "acknowledgement",
    "greeting",
    "fiction",
    "hypothetical",
    "question",
    "request",
    "laughter",
    "momentary",
    "general",
)
_HEDGES = frozenset({"hedge", "hearsay", "guess"})
_SPANS_OF_TIME = frozenset({"standing", "habit", "phase", "momentary", "past", "future", "change"})


class GateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Weights of density, relevance, durability, explicitness, and the total from which a candidate is kept."""

    threshold: float = 0.6
    weights: tuple[float, float, float, float] = (0.3, 0.2, 0.3, 0.2)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate says of one candidate.

    `refused` is for secrets alone. `ttl_seconds` is a suggestion for what will not hold for long. `reason` is one plain
    sentence in the candidate's language. `evidence` holds what each score was made of, the model's probability of each
    kind, and whether the vector was used (`by_meaning`). `vital`: it harms somebody when it is forgotten.
    """

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
    vital: bool = False


def judge(
    candidate: Candidate,
    *,
    vector: NDArray[np.float32] | None,
    task_similarity: float | None = None,
    settings: GateSettings = GateSettings(),
    kind: Kind | None = None,
    confidence: float | None = None,
    embedding_model: str | None = None,
    known: float | None = None,
    heard: Heard | None = None,
    reading: Reading | None = None,
) -> Verdict:
    """Whether to keep a candidate, and as what. Pure: the same arguments give the same verdict.

    `vector` is the centred unit passage vector of the candidate's `statement`; without one, or with one of another
    model than the weights were made for (`embedding_model`; None means theirs), the wording decides alone.
    `task_similarity`, in [0, 1], says how near the text is to the task; `known` is its cosine to the nearest memory of
    its user; `heard` and `reading` are what `hear` and `weigh` say of the candidate, where somebody has asked them. A
    given `kind` or `confidence` is taken as it is, except that speculation is never surer than 0.5; without them a
    hedge lowers the confidence by how much of a guess it makes it.
    """
    if heard is None:
        secret = find_secret(candidate.text)
        if secret is not None:
            return _refused(secret, candidate, settings, kind, confidence)
        heard = hear(candidate)
    wording, language = heard.wording, heard.language
    if reading is None:
        reading = weigh(heard, vector, embedding_model)
    odds = reading.probabilities
    worth = 1.0 - odds["none"]
    if heard.answers:
        worth = max(worth, reading.threshold + ANSWER_LEAD * (1 - reading.threshold))
    if heard.vital:
        worth = max(worth, reading.threshold + VITAL_LEAD * (1 - reading.threshold))
    lasting = min(1.0, max(0.0, (float(reading.scores[len(odds)]) + 1.0) / 2))
    doubt = odds["speculation"] / worth if worth > 0 else 0.0
    chosen = kind or _kind(odds, wording, answers=heard.answers)
    stated = CONFIDENCE[candidate.source] if confidence is None else confidence
    hedged = confidence is None and bool(wording.cues & _HEDGES)
    sure = _guessed(stated, 1.0 if chosen == "speculation" else doubt if hedged else 0.0)
    bears = 0.0
    if known is not None and reading.by_meaning and candidate.role != "assistant":
        bears = _between(0.0, BEARING * (known - BEARS_AT), BEARING_CAP)
    density = 0.0 if heard.handed_over else min(1.0, _density(worth, reading.threshold, candidate.source) + bears)
    scores = _scores(
        density,
        NEUTRAL if task_similarity is None else NEUTRAL + TASK_PULL * _between(-1, task_similarity / UNRELATED - 1, 1),
        density * (1 - PASSING_COSTS * (1 - lasting)),
        _guessed(stated, 1.0 if kind == "speculation" else doubt),
        settings,
    )
    keep = scores.total >= settings.threshold and not heard.handed_over
    status: Literal["active", "pending"] = "pending" if chosen == "speculation" else "active"
    momentary = "momentary" in wording.cues and lasting < MOMENTARY_BELOW and chosen != "event"
    evidence: dict[str, object] = {
        "density": {
            "worth": round(worth, 4),
            "needed": reading.threshold,
            "words": reading.told,
            "cues": sorted(wording.cues - _HEDGES - _SPANS_OF_TIME),
            "handed_over": heard.handed_over,
            "answers": heard.answers,
            "vital": heard.vital,
            "bears": round(bears, 4),
        },
        "relevance": {"similarity": None if task_similarity is None else round(task_similarity, 4)},
        "durability": {"lasting": round(lasting, 4), "cues": sorted(wording.cues & _SPANS_OF_TIME)},
        "explicitness": {
            "source": candidate.source,
            "confidence": stated,
            "doubt": round(doubt, 4),
            "cues": sorted(wording.cues & _HEDGES),
        },
        "kinds": {name: round(each, 4) for name, each in odds.items()},
        "by_meaning": reading.by_meaning,
    }
    return Verdict(
        keep=keep,
        refused=False,
        scores=scores,
        kind=chosen,
        memory_type="episodic" if chosen == "event" else "semantic",
        status=status,
        confidence=round(sure, 2),
        ttl_seconds=MOMENTARY_TTL if keep and momentary else None,
        reason=_reason(status, chosen, scores, language) if keep else _why_not(heard, candidate, scores),
        evidence=evidence,
        vital=heard.vital,
    )


def weigh(heard: Heard, vector: NDArray[np.float32] | None, embedding_model: str | None = None) -> Reading:
    """The model's word on a candidate; for the vector see `judge`."""
    return shipped("gate").read(heard.spoken, vector, embedding_model=embedding_model)


def _kind(odds: Mapping[str, float], wording: Wording, *, answers: bool) -> Kind:
    """The likeliest kind; how things are shown to somebody is a preference, even where it is put as a rule."""
    likeliest = max(_KINDS, key=lambda each: odds[each])
    if answers and likeliest == "event" and "past" not in wording.cues:
        return "fact"
    return "preference" if likeliest == "instruction" and "display" in wording.cues else likeliest


def _guessed(confidence: float, doubt: float) -> float:
    """A confidence, of which the doubtful part counts as a guess does."""
    return confidence * (1 - doubt) + min(confidence, SPECULATION_CAP) * doubt


def _density(worth: float, threshold: float, source: Source) -> float:
    """The probability stretched in two straight lines, so that `threshold` falls on what a text of the source needs."""
    base = GateSettings()
    density, relevance, durability, explicitness = base.weights
    rest = relevance * NEUTRAL + explicitness * CONFIDENCE[source]
    needed = (base.threshold - rest) / (density + durability * (1 - PASSING_COSTS * (1 - PLAIN_LASTING)))
    if worth >= threshold:
        return needed + (1 - needed) * (worth - threshold) / (1 - threshold)
    return needed * worth / threshold


def _between(low: float, value: float, high: float) -> float:
    return max(low, min(high, value))


def _scores(density: float, relevance: float, durability: float, explicitness: float, settings: GateSettings) -> Scores:
    four = (density, relevance, durability, explicitness)
    total = sum(w * s for w, s in zip(settings.weights, four, strict=True)) / sum(settings.weights)
    rounded = [round(_between(0.0, value, 1.0), 6) for value in (*four, total)]
    return Scores(
        density=rounded[0],
        relevance=rounded[1],
        durability=rounded[2],
        explicitness=rounded[3],
        total=rounded[4],
        threshold=settings.threshold,
    )


def _refused(
    secret: str,
    candidate: Candidate,
    settings: GateSettings,
    kind: Kind | None,
    confidence: float | None,
) -> Verdict:
    language = language_of(candidate.text)
    nothing = Scores(
        density=0.0, relevance=0.0, durability=0.0, explicitness=0.0, total=0.0, threshold=settings.threshold
    )
    return Verdict(
        keep=False,
        refused=True,
        scores=nothing,
        kind=kind or "fact",
        memory_type="semantic",
        status="active",
        confidence=CONFIDENCE[candidate.source] if confidence is None else confidence,
        ttl_seconds=None,
        reason=sentence("reasons.secret", language).format(secret=sentence(f"secrets.{secret}", language)),
        evidence={"secret": secret},
    )


def insisted(verdict: Verdict, text: str) -> str:
    """The reason for a candidate that is kept because its caller insists."""
    scores, language = verdict.scores, language_of(text)
    return sentence("reasons.insisted", language).format(total=scores.total, threshold=scores.threshold)


def _reason(status: str, kind: Kind, scores: Scores, language: Language) -> str:
    parts = ", " if language == "en" else "，"
    listed = parts.join(
        f"{sentence(f'reasons.{name}', language)} {getattr(scores, name):.2f}"
        for name in ("density", "relevance", "durability", "explicitness")
    )
    key = "pending" if status == "pending" else "keep"
    return sentence(f"reasons.{key}", language).format(kind=sentence(f"reasons.{kind}", language), parts=listed)


def _why_not(heard: Heard, candidate: Candidate, scores: Scores) -> str:
    cues, language = heard.wording.cues, heard.language
    if heard.handed_over:
        what = "transform"
    elif candidate.role == "tool":
        what = "tool"
    elif candidate.role == "assistant":
        what = "recap" if "recap" in cues else "offer"
    else:
        what = next((cue for cue in _REASONS if cue in cues), "nothing")
    return sentence("reasons.skip", language).format(
        what=sentence(f"skipped.{what}", language), total=scores.total, threshold=scores.threshold
    )
