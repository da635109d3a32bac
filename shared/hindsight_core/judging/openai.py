"""A chat model that settles pairs: OpenAI, Ollama, vLLM, llama.cpp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from hindsight_core.judging import Question, Ruling, Verdict
from hindsight_core.judging.chat import DATA_RULE, Chat, size, within
from hindsight_core.relations import RELATIONS

_PER_ANSWER = 24
_ENVELOPE = 48
_FEWEST = 24

_TASK = (
    """\
You compare memories of one person's assistant. For each pair say what the new memory means for the old one:
supersede: same subject and same single-valued attribute, the old one no longer holds, also by consequence
duplicate: says nothing new
refine: adds detail to the old one and contradicts nothing
pending: would change the old one, but is a guess, hearsay or a plan
coexist: same topic, both hold
unrelated: touches nothing of the old one: another subject, another object, another sense
unclear: cannot be told from the two texts
The pairs """
    + DATA_RULE
    + " Answer with one verdict for each pair, in their order."
)
_BLANK = Question(old="", new="")


class _Answers(msgspec.Struct, forbid_unknown_fields=True):
    verdicts: list[Literal["supersede", "duplicate", "refine", "pending", "coexist", "unrelated", "unclear"]]


class OpenAIJudge:
    """One chat model of one endpoint; see `Chat`. The answer can only be a list of verdicts, one a question."""

    def __init__(
        self, model: str, base_url: str, *, api_key: str = "", timeout: float = 10.0, tokens: int = 2000
    ) -> None:
        """Raises ConfigurationError when `base_url` is not an address or the key cannot be sent in a header."""
        self._chat = Chat(model, base_url, api_key=api_key, timeout=timeout)
        self._tokens = tokens

    @property
    def name(self) -> str:
        return self._chat.name

    async def rule(self, questions: Sequence[Question]) -> list[Ruling]:
        """See `Judge.rule`; questions for which the tokens do not suffice are `unclear`."""
        asked = questions[: self._most()]
        if not asked:
            return [Ruling(verdict="unclear", by=self.name)] * len(questions)
        answer = _ENVELOPE + _PER_ANSWER * len(asked)
        content = await self._chat.ask(_TASK, self._cut(asked, answer), schema=_SCHEMA, name="verdicts", most=answer)
        rulings = [Ruling(verdict=verdict, by=self.name) for verdict in self._read(content, len(asked))]
        return [*rulings, *[Ruling(verdict="unclear", by=self.name)] * (len(questions) - len(asked))]

    async def aclose(self) -> None:
        await self._chat.aclose()

    def _most(self) -> int:
        """How many pairs find room with at least `_FEWEST` tokens for each text."""
        fixed = size(_TASK, []) + _ENVELOPE
        each = _PER_ANSWER + 2 * _FEWEST + size(_TASK, [_BLANK]) - size(_TASK, [])
        return max(0, (self._tokens - fixed) // each)

    def _cut(self, questions: Sequence[Question], answer: int) -> list[Question]:
        left = self._tokens - answer - size(_TASK, [_BLANK] * len(questions))
        share = left / (2 * len(questions))
        return [
            msgspec.structs.replace(each, old=within(each.old, share), new=within(each.new, share))
            for each in questions
        ]

    def _read(self, content: str, expected: int) -> list[Verdict]:
        try:
            verdicts = msgspec.json.decode(content, type=_Answers).verdicts if content else []
        except (msgspec.MsgspecError, UnicodeError) as exc:
            raise self._chat.nonsense("something that is no list of verdicts") from exc
        if len(verdicts) != expected:
            raise self._chat.nonsense(f"{len(verdicts)} verdicts for {expected} pairs")
        return list(verdicts)


_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {"verdicts": {"type": "array", "items": {"type": "string", "enum": [*RELATIONS, "unclear"]}}},
    "required": ["verdicts"],
    "additionalProperties": False,
}
