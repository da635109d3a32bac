"""Small whole numbers in Chinese: 十二, 廿一, 二〇二四."""

from __future__ import annotations

_DIGITS = {c: i for i, c in enumerate("零一二三四五六七八九")} | {"〇": 0, "○": 0, "两": 2, "元": 1}
_TENS = {"十": 10, "廿": 20, "卅": 30}


def chinese(text: str) -> int | None:
    """The number that digits or Chinese numerals under a thousand say; None for anything else."""
    if text.isascii() and text.isdigit():
        return int(text)
    if len(text) > 1 and all(c in _DIGITS for c in text):
        return int("".join(str(_DIGITS[c]) for c in text))
    total, digit = 0, None
    for c in text:
        if c in _DIGITS:
            digit = _DIGITS[c]
        elif c in _TENS:
            total += _TENS[c] * (1 if digit is None or c != "十" else digit)
            digit = None
        elif c == "百":
            total += 100 * (1 if digit is None else digit)
            digit = None
        else:
            return None
    return total + (digit or 0) if text else None
