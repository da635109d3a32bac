"""Excerpts: of a long text what fits, in its own words, and what is asked for first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection

from hindsight_core.lexical import tokens
from hindsight_core.sentences import sentences

GAP = "…"
_SHORTEST = 20


def excerpt(text: str, terms: Collection[str], room: int, cost: Callable[[str], int]) -> str:
    """Sentences of `text` in their order, `…` where some are left out; at most `room` by `cost`, empty if none fits.

    First those that hold most of the `terms` (tokens of a question), a rare one counting for more; then from the
    beginning. A sentence that is too long by itself is cut at its end. `cost` of a whole is at most that of its parts.
    """
    spans = sentences(text)
    pieces = [text[start:end] for start, end in spans]
    held = [set(tokens(piece)) & set(terms) for piece in pieces]
    often = Counter(term for found in held for term in found)
    worth = [sum(math.log(1 + len(pieces) / often[term]) for term in found) for found in held]
    gap = cost(GAP)
    left = room - gap
    chosen: list[int] = []
    for number in sorted(range(len(pieces)), key=lambda number: -worth[number]):
        price = cost(pieces[number]) + gap
        if price <= left:
            chosen.append(number)
            left -= price
        elif not chosen:
            return _cut(pieces[number], room, cost)
        elif not worth[number]:
            break
    return _joined(text, spans, chosen)


def _joined(text: str, spans: list[tuple[int, int]], chosen: list[int]) -> str:
    """The chosen sentences, those that follow each other as they stand in the text."""
    runs: list[list[int]] = []
    for number in sorted(chosen):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    parts = [text[spans[first][0] : spans[last][1]] for first, last in runs]
    before = [] if runs and runs[0][0] == 0 else [GAP]
    after = [] if runs and runs[-1][1] == len(spans) - 1 else [GAP]
    return " ".join([*before, f" {GAP} ".join(parts), *after]) if parts else ""


def _cut(piece: str, room: int, cost: Callable[[str], int]) -> str:
    """The longest beginning that fits, up to a space where there is one near; nothing that says too little."""
    low, high = 0, len(piece)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if cost(f"{piece[:middle]} {GAP}") <= room else (low, middle - 1)
    head = piece[:low]
    space = head.rfind(" ", low * 3 // 4)
    head = head[:space] if space > 0 else head
    return f"{head} {GAP}" if low >= _SHORTEST else ""
