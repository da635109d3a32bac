"""What first calls would wait for, done before them: patterns compiled, weights and word lists read."""

from __future__ import annotations

from datetime import UTC, datetime

from hindsight_core import pair_model, question, slots
from hindsight_core.commands import forget_request
from hindsight_core.extraction import extract
from hindsight_core.gate import judge
from hindsight_core.recall import recall_needed
from hindsight_core.requests import Message

_SAID = ("I was in Oslo last week, and when will I be there again?", "我上周在苏州。下次什么时候去？")
_NOW = datetime(2025, 1, 1, tzinfo=UTC)


def warm(*, writes: bool = True) -> None:
    """Read a text of each language in every way; about half a second, once in the life of a process.

    Without `writes` only what searches need. Raises `ConfigurationError` where the weights are missing.
    """
    for text in _SAID:
        question.read(text, _NOW, frozenset())
        recall_needed(text)
    if not writes:
        return
    pair_model.shipped()
    for text in _SAID:
        forget_request(text)
        for candidate in extract([Message(role="user", text=text)]):
            judge(candidate, vector=None)
            slots.read(candidate.text)
