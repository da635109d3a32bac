"""Which texts contain one of many others: a look at each place of a text, however many are looked for."""

from __future__ import annotations

from collections.abc import Collection

_LONGEST_START = 12


class Contained:
    """Tells of any text whether one of `texts` stands in it word for word; empty ones stand nowhere."""

    def __init__(self, texts: Collection[str]) -> None:
        wanted = [text for text in texts if text]
        self._length = min((len(text) for text in wanted), default=1)
        self._length = min(self._length, _LONGEST_START)
        self._by_start: dict[str, list[str]] = {}
        for text in wanted:
            self._by_start.setdefault(text[: self._length], []).append(text)

    def within(self, text: str) -> bool:
        """Whether one of them stands in it."""
        starts, length = self._by_start, self._length
        if not starts:
            return False
        for place in range(len(text) - length + 1):
            found = starts.get(text[place : place + length])
            if found is not None and any(text.startswith(one, place) for one in found):
                return True
        return False
