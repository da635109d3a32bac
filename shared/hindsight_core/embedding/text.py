"""Texts as a model can take them: clean, on one line, and no longer than it reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_TOKENS = 512
"""What the models of this size read at once."""

QUESTION_TOKENS = 192
"""How much of a question is embedded: a model's time grows with its input, and who asks waits for it."""

# Measured with multilingual-e5's tokeniser: nine of ten Chinese texts have at least 1.35 characters a token, nine of
# ten English ones at least 3.3. Both are rounded towards too many tokens, so that hardly any text is cut late.
_WIDE = 0.75
_NARROW = 0.3

_UNREADABLE = re.compile("[\x00\ud800-\udfff]")


def clean(text: str) -> str:
    """The text without NUL and lone surrogates, white space collapsed, cut at about `MAX_TOKENS` tokens."""
    text = " ".join(_UNREADABLE.sub("", text).split())
    return beginning(text, MAX_TOKENS)


def beginning(text: str, most: float) -> str:
    """The text, or as much of its beginning as is about `most` tokens."""
    return text if tokens(text) <= most else text[: _reach(text, most)].rstrip()


def both_ends(question: str) -> str:
    """A question, of which the middle is left out where it is over `QUESTION_TOKENS`: few ask there what they want."""
    if tokens(question) <= QUESTION_TOKENS:
        return question
    half = QUESTION_TOKENS / 2
    return f"{question[: _reach(question, half)]} {question[-_reach(question[::-1], half) :]}"


def _reach(text: str, most: float) -> int:
    """How many characters from the start are about so many tokens."""
    for index, char in enumerate(text):
        most -= _NARROW if char.isascii() else _WIDE
        if most < 0:
            return index
    return len(text)


def tokens(text: str) -> float:
    """An estimate of the text's tokens, on the high side."""
    narrow = len(text.encode("ascii", "ignore"))
    return narrow * _NARROW + (len(text) - narrow) * _WIDE


def slices(texts: Sequence[str], *, most: int, most_tokens: float) -> list[list[str]]:
    """The texts in order, in parts of at most `most` texts and about `most_tokens` tokens, none of them empty."""
    parts: list[list[str]] = []
    size = 0.0
    for text in texts:
        cost = tokens(text)
        if not parts or len(parts[-1]) >= most or size + cost > most_tokens:
            parts.append([])
            size = 0.0
        parts[-1].append(text)
        size += cost
    return parts
