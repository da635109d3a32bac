"""Whether a message needs memory at all: a search that is not needed costs time and brings in noise."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.cues import language_of, present, sentence, table
from hindsight_core.embedding import Embedder
from hindsight_core.embedding.text import both_ends
from hindsight_core.errors import ProviderUnavailable
from hindsight_core.learned import shipped
from hindsight_core.requests import RecallRequest, SearchRequest
from hindsight_core.responses import Recall
from hindsight_core.slots import read as read_statement
from hindsight_core.spans import is_empty_talk, is_question
from hindsight_core.wording import Wording, read

TURNS = 3
_WHY = ("usual", "past", "decision", "personal", "reference")
# What is left of the threshold after a change of task, and from which probability on a bare name is not that of
# somebody whom everybody knows.
_SWITCHED = 0.5
_NAMED = 0.02
_QUOTED = re.compile('["“”「『《]')
# A name at the beginning, where every word has a capital.
_NAMED_FIRST = re.compile(r"^[A-Z][a-z]+(?:'s|'ll| (?:is|was|has|had|will|would|can|and|said|\w+ed|\w+s))\b")


async def recall_for(request: RecallRequest | SearchRequest, embedder: Embedder | None) -> Recall:
    """Whether the message of a request needs memory; by its wording alone where the embedder is down or absent."""
    text = request.text if isinstance(request, RecallRequest) else request.query
    tasks = {"task": request.task, "previous_task": request.previous_task}
    plain = recall_by_rule(text, recent=request.recent, **tasks)
    if plain is not None:
        return plain
    vector = model = None
    if embedder is not None:
        try:
            vector = (await embedder.embed([both_ends(text)], "passage"))[0]
            model = embedder.identity.name
        except ProviderUnavailable:
            vector = None
    return recall_needed(text, recent=request.recent, vector=vector, embedding_model=model, **tasks)


def recall_by_rule(
    text: str, *, recent: Sequence[str] = (), task: str | None = None, previous_task: str | None = None
) -> Recall | None:
    """What needs no model.

    To carry on after a change of task wants memory, any other acknowledgement or greeting does not; a question for
    somebody (“What did she say?”) does where nothing before it says who that is.
    """
    language = language_of(text)
    cues = present(text.strip(), "bare")
    if "carries_on" in cues and _switched(task, previous_task):
        return Recall(needed=True, why=sentence("why.task", language, "recall"), evidence={"rule": "task"})
    if is_empty_talk(text) is not None:
        return Recall(needed=False, why=sentence("why.talk", language, "recall"), evidence={"rule": "talk"})
    if "somebody_asked" in cues and not _QUOTED.search(text) and not any(map(_of_somebody, recent[-TURNS:])):
        return Recall(needed=True, why=sentence("why.reference", language, "recall"), evidence={"rule": "reference"})
    return None


def _switched(task: str | None, previous_task: str | None) -> bool:
    return bool(task and previous_task and task.strip() != previous_task.strip())


def _of_somebody(turn: str) -> bool:
    """Whether a turn may be about somebody, whom a pronoun after it then means."""
    said = read_statement(turn)
    named = said.names or (said.first and _NAMED_FIRST.match(turn.replace("’", "'").strip()))
    return bool(named or said.kin) or "somebody" in present(turn, "bare")


def _asks_who(text: str, recent: Sequence[str]) -> bool:
    """Whether the message asks who somebody is, whom it calls by one name that was not said before it."""
    language = language_of(text)
    found = table("bare", language).patterns["who_asked"].match(text.replace("’", "'").strip())
    name = next((group for group in found.groups() if group), "") if found is not None else ""
    # In English the capital tells a name.
    if not name or (language == "en" and not name[0].isupper()):
        return False
    return all(name not in turn for turn in recent[-TURNS:])


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
    another lowers the threshold, but for what anybody can answer; so does a bare name that is asked for. `vector` is
    the centred unit *passage* vector of the text, `embedding_model` who made it (None: the model that the weights were
    made with); without a vector of that model the wording decides alone. The evidence holds the model's probability and
    threshold, the cues, and the words that spoke most for or against.
    """
    plain = recall_by_rule(text, recent=recent, task=task, previous_task=previous_task)
    if plain is not None:
        return plain
    model = shipped("recall")
    wording = message_wording(text, recent)
    reading = model.read(model.hear(wording), vector, embedding_model=embedding_model)
    probability, threshold = reading.probabilities["yes"], reading.threshold
    if _switched(task, previous_task) and "general" not in wording.cues:
        threshold *= _SWITCHED
    asked = _asks_who(text, recent)
    if asked:
        threshold = _NAMED if reading.by_meaning else 0.0
    needed = probability >= threshold
    evidence: dict[str, object] = {
        "probability": round(probability, 4),
        "threshold": threshold,
        "cues": sorted(wording.cues),
        "words": reading.told,
        "by_meaning": reading.by_meaning,
    }
    if needed and probability < reading.threshold:
        why = sentence("why.reference" if asked else "why.task", language_of(text), "recall")
    else:
        why = _why(needed, wording, text)
    return Recall(needed=needed, why=why, evidence=evidence)


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
