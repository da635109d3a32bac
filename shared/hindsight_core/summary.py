"""What is embedded when a memory is long: one sentence picked from it, never a rewritten one."""

from __future__ import annotations

from collections import Counter

from hindsight_core.lexical import tokens
from hindsight_core.sentences import sentences

LONG = 400
SUMMARY_LENGTH = 120


def summarise(content: str) -> str | None:
    """The most central sentence of a long text, at most 120 characters; None for a text of up to 400.

    Central is the sentence whose terms are the most frequent in the whole text, on average over its distinct terms
    (SumBasic, Nenkova and Vanderwende, 2005); the earlier one wins a tie.
    """
    if len(content) <= LONG:
        return None
    pieces = [content[start:end] for start, end in sentences(content)]
    terms = [set(tokens(piece)) for piece in pieces]
    frequency = Counter(term for found in terms for term in found)
    best, best_score = content.strip(), -1.0
    for piece, found in zip(pieces, terms, strict=True):
        if len(found) >= 3:
            score = sum(frequency[term] for term in found) / len(found)
            if score > best_score:
                best, best_score = piece, score
    return _cut(best)


def embedded_text(content: str) -> str:
    """What stands for a text where its meaning is compared: its summary if it is long, else the text itself."""
    return summarise(content) or content


def _cut(sentence: str) -> str:
    if len(sentence) <= SUMMARY_LENGTH:
        return sentence
    head = sentence[:SUMMARY_LENGTH]
    space = head.rfind(" ")
    return head[:space] if space > SUMMARY_LENGTH // 2 else head
