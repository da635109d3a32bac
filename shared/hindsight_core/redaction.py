"""Secrets: texts that hold one are refused, whoever insists."""

from __future__ import annotations

import re
from functools import cache

from hindsight_core.cues import LANGUAGES, table

_TOKENS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("private key", re.compile(r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY")),
    ("API key", re.compile(r"(?<![A-Za-z0-9])(?:sk|pk|rk|ak)[-_](?:live|test|proj|ant|prod)?[-_]?[A-Za-z0-9_-]{10,}")),
    ("API key", re.compile(r"(?<![A-Za-z0-9])(?:AKIA|ASIA|AIza|LTAI)[A-Za-z0-9_-]{10,}")),
    (
        "access token",
        re.compile(
            r"(?<![A-Za-z0-9])(?:hst_|gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|hf_|npm_|dop_v1_|pypi-)[A-Za-z0-9_-]{8,}"
        ),
    ),
    ("access token", re.compile(r"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*)?")),
    ("access token", re.compile(r"(?i)\bbearer\s+[A-Za-z0-9._~+/-]{12,}")),
    ("password", re.compile(r"(?i)\b[a-z][a-z0-9+.-]*://[^\s/:@]+:[^\s/@]{3,}@")),
)
# Letters with a digit or a symbol inside, or digits with a symbol: what a person would not write as a word.
_VALUE = (
    r"(?=[^\s，。；“”\"'`]*[A-Za-z])(?=[^\s，。；“”\"'`]*[\d!@#$%^&*_+~?])(?![A-Za-z]+[?!]+(?:\s|$))"
    r"(?!https?:)[A-Za-z0-9!@#$%^&*_.+~?-]{6,}"
)
_CARD = re.compile(r"(?<![\d-])(?:\d[ -]?){12,18}\d(?![\d-])")


def _luhn(digits: str) -> bool:
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit)
        if place % 2:
            value = value * 2 - 9 * (value > 4)
        total += value
    return total % 10 == 0


@cache
def _labelled() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple(
        (sort.replace("_", " "), re.compile(pattern.pattern.replace("VALUE", _VALUE), re.IGNORECASE))
        for language in LANGUAGES
        for sort, pattern in table("gate_secrets", language).patterns.items()
    )


def find_secret(text: str) -> str | None:
    """The sort of secret in the text (`password`, `API key`, `card number`, …), or None.

    Recognised by form (key prefixes, PEM headers, JWTs, card numbers that pass Luhn) or by what the text calls it.
    The answer never holds the secret itself.
    """
    for sort, pattern in _TOKENS:
        if pattern.search(text):
            return sort
    for match in _CARD.finditer(text):
        digits = re.sub(r"\D", "", match.group())
        if 13 <= len(digits) <= 19 and digits[0] in "23456" and len(set(digits)) > 1 and _luhn(digits):
            return "card number"
    plain = text.replace("’", "'")
    return next((sort for sort, pattern in _labelled() if pattern.search(plain)), None)
