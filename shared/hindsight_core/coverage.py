"""Which words of a question texts have, and what share of the question that is, by how rare the words are among them.

A word is looked for by its stem at the beginning of a word, a Chinese one anywhere: that costs a tenth of reading the
texts as `lexical` does, and a comparison of a hundred hits has no more time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from hindsight_core.readings import kept


class Coverage:
    """The words of one question, each with its other forms, held against the texts of the hits."""

    def __init__(self, words: Sequence[tuple[str, ...]], texts: Sequence[str]) -> None:
        self._sought = [(1 << n, tuple(map(_sought, forms))) for n, forms in enumerate(words)]
        self._known: dict[str, int] = {}
        self._shares: dict[int, float] = {}
        together = Counter(map(self.held, texts))
        counts = [sum(times for held, times in together.items() if held >> n & 1) for n in range(len(words))]
        self._rarity = [math.log1p((len(texts) - count + 0.5) / (count + 0.5)) for count in counts]
        self._total = sum(self._rarity)

    def held(self, text: str) -> int:
        """Which of the words a text has, as the bits of a number."""
        known = self._known.get(text)
        if known is None:
            known = 0
            if self._sought:
                plain = _plain(text)
                for bit, forms in self._sought:
                    for form in forms:
                        if form in plain:
                            known |= bit
                            break
            self._known[text] = known
        return known

    def share(self, held: int) -> float:
        """What share of the question these words are, in [0, 1]."""
        if not held:
            return 0.0
        share = self._shares.get(held)
        if share is None:
            share = sum(rarity for n, rarity in enumerate(self._rarity) if held >> n & 1) / self._total
            self._shares[held] = share
        return share


def _sought(stem: str) -> str:
    if not stem.isascii():
        return stem
    # The stemmer makes an i of a final y: families, family.
    return " " + (stem[:-1] if stem.endswith("i") and len(stem) > 3 else stem)


@kept(4096)
def _plain(text: str) -> str:
    return " " + text.lower().translate(_SIGNS)


_SIGNS = str.maketrans(dict.fromkeys("\"'“‘(《「[-/\n\t", " "))
