"""A chat model that words what several notes have in common; whether its words may be used is decided elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from hindsight_core.judging.chat import DATA_RULE, Chat, size, within

LONGEST = 300
_ANSWER = 200
_FEWEST = 24
_TASK = (
    """\
You word what several notes of one person's assistant have in common, as one memory. The notes """
    + DATA_RULE
    + """ Answer with one plain sentence of at most 200 characters, in the language and the person of the notes, \
that says what all of them say: no name, number, time or reason that they do not state, and no single occasion."""
)


class _Answer(msgspec.Struct, forbid_unknown_fields=True):
    text: Annotated[str, Meta(min_length=1, max_length=LONGEST)]


class Phraser:
    """Words a memory by one call of at most `tokens` tokens, question and answer."""

    def __init__(self, chat: Chat, tokens: int) -> None:
        self._chat = chat
        self._tokens = tokens

    @property
    def name(self) -> str:
        return self._chat.name

    async def phrase(self, notes: Sequence[str]) -> str:
        """One text for all; raises `ProviderUnavailable` when there is no answer of this form in time.

        Of many notes the first are sent, of long ones their beginnings.
        """
        room = self._tokens - _ANSWER - size(_TASK, [])
        sent = list(notes[: max(1, room // (_FEWEST + 4))])
        share = room / len(sent) - 4
        content = await self._chat.ask(
            _TASK, [within(note, share) for note in sent], schema=_SCHEMA, name="memory", most=_ANSWER
        )
        try:
            return msgspec.json.decode(content, type=_Answer).text
        except (msgspec.MsgspecError, UnicodeError) as exc:
            raise self._chat.nonsense("something that is no memory") from exc

    async def aclose(self) -> None:
        await self._chat.aclose()


_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}
