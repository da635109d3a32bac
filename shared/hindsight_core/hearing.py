"""What the gate hears in the words of a candidate alone, and so may hear before there is a vector."""

from __future__ import annotations

import msgspec

from hindsight_core.cues import Language, language_of, present
from hindsight_core.extraction import Candidate
from hindsight_core.handover import is_handed_over
from hindsight_core.learned import Spoken, shipped
from hindsight_core.spans import is_short_answer
from hindsight_core.wording import Wording, read

_ABOUT_SOMEBODY = frozenset({"second_person", "third_person", "kin"})
_NO_ANSWER = frozenset({"request", "transform", "momentary", "thanks", "laughter"})
_OWN = frozenset({"first_person", "kin"})
_NOT_MEANT = frozenset(
    {"question", "request", "transform", "handover", "fiction", "hypothetical", "laughter", "general"}
)


class Heard(msgspec.Struct, frozen=True):
    """`wording` and `spoken` are those of the candidate's statement, the others of all of its text."""

    language: Language
    wording: Wording
    spoken: Spoken
    answers: bool
    vital: bool
    handed_over: bool


def hear(candidate: Candidate) -> Heard:
    """Read a candidate. Pure; texts with secrets are not for here."""
    wording = read(candidate.statement, candidate.role)
    return Heard(
        language=language_of(candidate.text),
        wording=wording,
        spoken=shipped("gate").hear(wording),
        answers=_answers(candidate),
        vital=_vital(candidate, wording),
        handed_over=candidate.role == "user" and is_handed_over(candidate.text),
    )


def _vital(candidate: Candidate, wording: Wording) -> bool:
    """Whether the user tells of themselves or their family what harms when it is forgotten, such as an allergy.

    To skip one of these costs more than to keep a hundred texts too many, so no probability decides about it.
    """
    if candidate.role != "user" or not wording.cues & _OWN or wording.cues & _NOT_MEANT:
        return False
    return bool(present(candidate.text, "vital"))


def _answers(candidate: Candidate) -> bool:
    """Whether it is a short answer to a question about somebody: alone it says little, with its question it is a fact.

    What answers an offer or asks back is none.
    """
    asked, text = candidate.context, candidate.text
    if candidate.role != "user" or asked is None or not is_short_answer(text, asked):
        return False
    about = present(asked)
    return bool(about & _ABOUT_SOMEBODY) and "offer" not in about and not present(text) & _NO_ANSWER
