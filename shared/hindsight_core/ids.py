"""Ids: ULIDs that sort by the instant they were made for, and ids that the same parts always give, dated or not.

A ULID (github.com/ulid/spec) is 48 bits of Unix milliseconds and 80 bits that tell ids of one millisecond apart,
written as 26 characters of Crockford's base 32.
"""

from __future__ import annotations

import hashlib
import itertools
import secrets
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache

from hindsight_core.caller import millis

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_RANDOM_BITS = 40
_COUNTER_BITS = 40


class IdSource:
    """Makes ids; `bits(n)` gives n random bits.

    Of the 80 bits after the time the upper half counts, from a random start, and the lower half is random. So ids of
    one millisecond rise in the order they were asked for, from any thread and however the instants alternate, and
    two processes share an id only if both halves agree.
    """

    def __init__(self, bits: Callable[[int], int] = secrets.randbits) -> None:
        self._bits = bits
        # `next` on a count is one step of the interpreter: no lock is needed. One bit stays free for counting up.
        self._counter = itertools.count(bits(_COUNTER_BITS - 1))

    def __call__(self, at: datetime) -> str:
        """A fresh id for an aware instant; instants before 1970 count as 1970."""
        count = next(self._counter) & ((1 << _COUNTER_BITS) - 1)
        time = max(0, millis(at))
        return _encode(time << 80 | count << _RANDOM_BITS | self._bits(_RANDOM_BITS))


new_id = IdSource()
"""`new_id(at)`: a fresh ULID of this process for an aware instant."""


def first_id(at: datetime) -> str:
    """The lowest ULID of an aware instant: those of that millisecond and later sort after it."""
    return _encode(max(0, millis(at)) << 80)


def stable_id(*parts: str) -> str:
    """The id of these parts: 26 characters like a ULID's, always the same, different for any other parts."""
    return _encode(_digest(16, parts))


def dated_id(at: datetime, position: int, *parts: str) -> str:
    """Like `stable_id`, but sorting by an aware instant, then by a position up to 65 535; 64 bits are of the parts."""
    return _encode(max(0, millis(at)) << 80 | min(position, 0xFFFF) << 64 | _digest(8, parts))


def _digest(size: int, parts: tuple[str, ...]) -> int:
    digest = hashlib.blake2b(digest_size=size)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        # The length keeps ("ab", "c") apart from ("a", "bc").
        digest.update(len(data).to_bytes(8, "big") + data)
    return int.from_bytes(digest.digest(), "big")


@lru_cache(maxsize=1 << 16)
def stamp(text: str) -> int:
    """64 bits that stand for a text in every process; two texts that meet in practice do not share them."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _encode(value: int) -> str:
    return "".join(_ALPHABET[value >> shift & 31] for shift in range(125, -1, -5))
