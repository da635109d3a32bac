"""Misspelt words of time: one letter wrong, missing, added or two swapped, or a long word with letters left out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import combinations

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_WORD = re.compile(r"(?<![A-Za-z'’])[A-Za-z]{5,12}(?![A-Za-z])")
_LONG = 8


class Spelling:
    """Corrects a closed list of words; real words that are one letter away must be named as `unlike`."""

    def __init__(self, words: Iterable[str], unlike: Iterable[str]) -> None:
        known = list(words)
        self._right: dict[str, str] = {}
        for word in known:
            for variant in _variants(word):
                self._right.setdefault(variant, word)
        for word in (*known, *unlike):
            self._right.pop(word, None)

    def corrected(self, text: str) -> tuple[str, list[int]] | None:
        """The text with such words put right and, for each of its positions, the original one; None without one."""
        pieces: list[str] = []
        places: list[int] = []
        at = 0
        for match in _WORD.finditer(text):
            right = self._right.get(match[0].lower())
            if right is None:
                continue
            pieces += [text[at : match.start()], right]
            places += range(at, match.start())
            places += [min(match.start() + i, match.end() - 1) for i in range(len(right))]
            at = match.end()
        if not pieces:
            return None
        return "".join([*pieces, text[at:]]), [*places, *range(at, len(text) + 1)]


def _variants(word: str) -> set[str]:
    halves = [(word[:i], word[i:]) for i in range(len(word) + 1)]
    found = {a + b[1:] for a, b in halves if b}
    found |= {a + b[1] + b[0] + b[2:] for a, b in halves if len(b) > 1}
    found |= {a + c + b[1:] for a, b in halves if b for c in _LETTERS}
    found |= {a + c + b for a, b in halves for c in _LETTERS}
    if len(word) >= _LONG:
        inner = range(2, len(word) - 1)
        for count in (2, 3):
            for gone in combinations(inner, count):
                found.add("".join(c for i, c in enumerate(word) if i not in gone))
    return {variant for variant in found if len(variant) > 4}
