"""What a language brings: rules that find its words of time, its tenses, and its doubts about bare words."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, Protocol

from hindsight_core.temporal.lexer import Lexer
from hindsight_core.temporal.slots import Chunk
from hindsight_core.temporal.tense import TenseReader


class Context(Protocol):
    """Judges, in one text, whether a word that could be a time is one: “on Friday” is, “our cat Friday” is not."""

    def licensed(self, chunk: Chunk, op: str | None, *, ranged: bool) -> bool:
        """Whether the chunk is a time here; `op` is the operator beside it, `ranged` whether it starts a range."""
        ...

    def wanted(self, chunk: Chunk) -> bool:
        """Whether a length of time without an anchor (“within three days”) sets a limit from now."""
        ...


class Language(NamedTuple):
    """One language of `find_ranges`. `prepare` may change a text and then says where its characters stood."""

    lexer: Lexer
    tense: TenseReader
    disguises: re.Pattern[str]
    context: Callable[[str], Context]
    prepare: Callable[[str], tuple[str, list[int]] | None]

    def plain(self, text: str) -> str:
        """The text with names, idioms, titles and short quotations struck out, at the same length."""
        return self.disguises.sub(lambda m: "\x00" * len(m[0]), text)


_INSIDE = r"[^”\"」』“「『.,!?。，！？;；:：\n]"
# The name of something in quotation marks; what somebody says follows a colon or has punctuation of its own.
QUOTED = (
    rf"(?<![:：说道问]) ?[“\"「『]{_INSIDE}{{1,16}}[”\"」』]"
    r"|(?<![\w:：])['‘](?=[^'’.,!?\n]{1,24}['’](?!\w))[^'’]{1,24}['’](?!\w)"
)
