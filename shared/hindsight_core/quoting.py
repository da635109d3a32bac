"""Whether a logged question quotes a text: it then tells what the text said, and goes when the text is erased."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection

from hindsight_core.lexical import runs, terms_of, tokens

# So many words in a row, stop words aside (in Chinese so many pairs of characters), are no coincidence.
_IN_A_ROW = 3
_OF_THE_TEXT = 1 / 2
_OF_THE_QUESTION = 2 / 3
# A number or code of so many characters is told from others by itself.
_TELLING = 4
# So many words are remembered with their stems: questions repeat them, and stemming costs more than all else.
_REMEMBERED = 20_000


class Quoted:
    """Tells of any question whether it quotes one of `texts`.

    It does when they share three words in a row, or half of the text's words, or two thirds of the question's, or a
    number or code of at least four characters. Words are those that searches compare: stemmed, without stop words, in
    Chinese pairs of characters. Who only asks in passing about the same thing may be taken along; who repeats what the
    text says is not missed.
    """

    def __init__(self, texts: Collection[str]) -> None:
        self._sizes: list[int] = []
        self._holding: dict[str, list[int]] = defaultdict(list)
        self._rows: set[tuple[str, ...]] = set()
        self._telling: set[str] = set()
        self._terms: dict[str, list[str]] = {}
        for text in set(texts):
            words = tokens(text)
            if not words:
                continue
            for word in set(words):
                self._holding[word].append(len(self._sizes))
            self._sizes.append(len(set(words)))
            self._rows.update(_rows(words))
            self._telling.update(word for word in words if _tells(word))

    def by(self, question: str) -> bool:
        """Whether this question quotes one of them."""
        words = [term for run in runs(question) for term in self._of(run)]
        if self._holding.keys().isdisjoint(words):
            return False
        distinct = set(words)
        if self._telling & distinct or any(row in self._rows for row in _rows(words)):
            return True
        shared = Counter(number for word in distinct for number in self._holding.get(word, ()))
        return any(
            count >= _OF_THE_QUESTION * len(distinct) or count >= _OF_THE_TEXT * self._sizes[number]
            for number, count in shared.items()
        )

    def _of(self, run: str) -> list[str]:
        if (known := self._terms.get(run)) is not None:
            return known
        if len(self._terms) >= _REMEMBERED:
            self._terms.clear()
        found = self._terms[run] = terms_of(run)
        return found


def _rows(words: list[str]) -> list[tuple[str, ...]]:
    return [tuple(words[place : place + _IN_A_ROW]) for place in range(len(words) - _IN_A_ROW + 1)]


def _tells(word: str) -> bool:
    return len(word) >= _TELLING and any(character.isdigit() for character in word)
