"""Whether a message needs memory at all: a search that is not needed costs time and brings in noise."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.cues import language_of, sentence
from hindsight_core.embedding import Embedder
from hindsight_core.embedding.text import both_ends
from hindsight_core.errors import ProviderUnavailable
from hindsight_core.learned import shipped
from hindsight_core.requests import RecallRequest, SearchRequest
from hindsight_core.responses import Recall
from hindsight_core.spans import is_empty_talk, is_question
from hindsight_core.wording import Wording, read

TURNS = 3
_WHY = ("usual", "past", "decision", "personal", "reference")


async def recall_for(request: RecallRequest | SearchRequest, embedder: Embedder | None) -> Recall:
    """Whether the message of a request needs memory; by its wording alone where the embedder is down or absent."""
    text = request.text if isinstance(request, RecallRequest) else request.query
    plain = recall_by_rule(text, task=request.task, previous_task=request.previous_task)
    if plain is not None:
        return plain
    vector = model = None
    if embedder is not None:
        try:
            vector = (await embedder.embed([both_ends(text)], "passage"))[0]
            model = embedder.identity.name
        except ProviderUnavailable:
            vector = None
    return recall_needed(text, recent=request.recent, vector=vector, embedding_model=model)


def recall_by_rule(text: str, *, task: str | None = None, previous_task: str | None = None) -> Recall | None:
    """What needs no model: a change from one task to another wants memory, an acknowledgement or greeting does not."""
    language = language_of(text)
    if task and previous_task and task.strip() != previous_task.strip():
        evidence: dict[str, object] = {"rule": "task"}
        return Recall(needed=True, why=sentence("why.task", language, "recall"), evidence=evidence)
    if is_empty_talk(text) is not None:
        return Recall(needed=False, why=sentence("why.talk", language, "recall"), evidence={"rule": "talk"})
    return None


def recall_needed(
    text: str,
    *,
    recent: Sequence[str] = (),
    task: str | None = None,
    previous_task: str | None = None,
    vector: NDArray[np.float32] | None = None,
    embedding_model: str | None = None,
) -> Recall:
    """Whether memory should be searched for this message, and why, in one sentence in its language.

    `recent` are the turns just before it, oldest first: what they hold needs no memory. A change from one task to
    another always does. `vector` is the centred unit *passage* vector of the text, `embedding_model` who made it (None:
    the model that the weights were made with); without a vector of that model the wording decides alone. The evidence
    holds the model's probability and threshold, the cues, and the words that spoke most for or against.
    """
    plain = recall_by_rule(text, task=task, previous_task=previous_task)
    if plain is not None:
        return plain
    model = shipped("recall")
    wording = message_wording(text, recent)
    reading = model.read(model.hear(wording), vector, embedding_model=embedding_model)
    needed = reading.probabilities["yes"] >= reading.threshold
    evidence: dict[str, object] = {
        "probability": round(reading.probabilities["yes"], 4),
        "threshold": reading.threshold,
        "cues": sorted(wording.cues),
        "words": reading.told,
        "by_meaning": reading.by_meaning,
    }
    return Recall(needed=needed, why=_why(needed, wording, text), evidence=evidence)


def message_wording(text: str, recent: Sequence[str]) -> Wording:
    """The wording of a message among the turns before it, as the model was trained on it."""
    before = [turn for turn in recent[-TURNS:] if turn.strip()]
    wording = read(text, "user", file="recall", before=before)
    around: set[str] = set()
    if before:
        around.add("after turns")
        if is_question(before[-1]):
            around.add("after a question")
        if all(is_empty_talk(turn) is not None for turn in before):
            around.add("after talk")
    return msgspec.structs.replace(wording, cues=wording.cues | around)


def _why(needed: bool, wording: Wording, text: str) -> str:
    if needed:
        key = next((cue for cue in _WHY if cue in wording.cues), "learned")
    else:
        key = "turns" if "after turns" in wording.cues else "none"
    return sentence(f"why.{key}", language_of(text), "recall")
