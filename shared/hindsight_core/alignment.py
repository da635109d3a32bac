"""Two texts side by side: which of their words and characters match, and what is left of each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

import msgspec

from hindsight_core.lexical import stem
from hindsight_core.readings import kept
from hindsight_core.slots import Reading
from hindsight_core.subjects import HAN

PIECE = re.compile(rf"[{HAN}]|[^\W_{HAN}]+(?:['.:/-][^\W_{HAN}]+)*")
_IS_HAN = re.compile(f"[{HAN}]")
_EMPTY = frozenset("的了我用户是们家") | frozenset(
    "a an the user user's i my me we our is are was has have had and of to in on at for it".split()  # noqa: SIM905
)
_LONGEST = 60


@kept(4096)
def pieces(text: str) -> tuple[str, ...]:
    """Words and single Han characters in order, without those that carry nothing."""
    return tuple(piece for piece in PIECE.findall(text) if piece not in _EMPTY)


class Alignment(msgspec.Struct, frozen=True):
    """The pieces of two texts side by side: how many match, how much of both ends agrees, what is left of each."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    matched: int
    longest: int
    runs: int
    head: int
    tail: int
    left_old: tuple[str, ...]
    left_new: tuple[str, ...]


@kept(4096)
def align(before: str, after: str) -> Alignment:
    """Align two `normalised` texts (Ratcliff and Obershelp, 1988), the stems of the first sixty pieces of each."""
    old, new = _roots(before), _roots(after)
    blocks = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()[:-1] if {*old} & {*new} else []
    in_old = {i for block in blocks for i in range(block.a, block.a + block.size)}
    in_new = {i for block in blocks for i in range(block.b, block.b + block.size)}
    return Alignment(
        old=old,
        new=new,
        matched=len(in_old),
        longest=max((block.size for block in blocks), default=0),
        runs=len(blocks),
        head=_agreeing(old, new),
        tail=_agreeing(old[::-1], new[::-1]),
        left_old=tuple(piece for i, piece in enumerate(old) if i not in in_old),
        left_new=tuple(piece for i, piece in enumerate(new) if i not in in_new),
    )


@kept(4096)
def _roots(text: str) -> tuple[str, ...]:
    return tuple(piece if _IS_HAN.match(piece) else stem(piece.removesuffix("'s")) for piece in pieces(text)[:_LONGEST])


def _agreeing(old: Sequence[str], new: Sequence[str]) -> int:
    pairs = zip(old, new, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(old), len(new)))


def parts(a: Reading, b: Reading) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The stems of the old and of the new text that have no counterpart in the other."""
    found = align(a.text, b.text)
    return found.left_old, found.left_new


def swaps_one(a: Reading, b: Reading) -> bool:
    """Whether the new text is the old one with something else in one place, and half of the shorter one is the same."""
    found = align(a.text, b.text)
    sides = ((found.old, found.left_old), (found.new, found.left_new))
    frame = found.head + found.tail
    return 2 * frame >= min(len(whole) for whole, _ in sides) and all(
        left and frame == len(whole) - len(left) for whole, left in sides
    )
