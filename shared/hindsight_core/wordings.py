"""Words of a model for what episodes add up to, held to what the episodes say, or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hindsight_core.errors import ProviderUnavailable
from hindsight_core.gate import find_secret
from hindsight_core.indexing import asks, index_fields
from hindsight_core.lexical import tokens
from hindsight_core.passages import Passages
from hindsight_core.slots import language_of
from hindsight_core.stores import Record
from hindsight_core.values import read_values, same_value

if TYPE_CHECKING:
    from hindsight_core.judging.phrasing import Phraser

# So much of what is said must be said in an episode, too.
_FROM_THEM = 0.6
_EXTRACTED = "Memories were induced in the words of an episode:"


class Wording:
    """Words the memories that one sweep induces: one call each, and none any more after one that failed.

    `degraded` then says why, in words for the caller.
    """

    def __init__(self, phraser: Phraser, passages: Passages) -> None:
        self._phraser = phraser
        self._passages = passages
        self.degraded: str | None = None

    @property
    def name(self) -> str:
        """What reasons call it."""
        return self._phraser.name

    async def of(self, extract: Record, group: Sequence[Record]) -> Record | None:
        """`extract` in words of the model, with their vectors; None where it has none that may be used."""
        if self._passages.model is None:
            self.degraded = f"{_EXTRACTED} this process has no embedder."
        if self.degraded is not None:
            return None
        said = [extract.memory.content, *(record.memory.content for record in group)]
        try:
            text = await self._phraser.phrase(list(dict.fromkeys(said)))
            if not rests_on(text, said):
                return None
            bare, mixed = await self._passages.pair(text, text, [])
        except ProviderUnavailable as exc:
            self.degraded = f"{_EXTRACTED} {exc.detail}"
            return None
        memory = replace(
            extract.memory,
            content=text,
            summary=None,
            status_reason=f"{extract.memory.status_reason[:-1]}, in words of {self.name}.",
            embedding_model=self._passages.model,
        )
        return Record(memory=memory, index=index_fields(memory), bare=bare, mixed=mixed)


def rests_on(text: str, said: Sequence[str]) -> bool:
    """Whether a text says no more than these: one line in the language of the first, no question, no secret.

    Each number, time and code in it stands in one of them, and at least 60 % of its words do.
    """
    if text != text.strip() or not text.isprintable() or asks(text) or find_secret(text) is not None:
        return False
    if language_of(text) != language_of(said[0]):
        return False
    known = [value for one in said for value in read_values(one)]
    if not all(any(same_value(value, other) for other in known) for value in read_values(text)):
        return False
    words, theirs = set(tokens(text)), {word for one in said for word in tokens(one)}
    return bool(words) and len(words & theirs) >= _FROM_THEM * len(words)
