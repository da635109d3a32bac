"""Whom a question names: speakers of the namespace, also those whose names are words, and none that is only a part."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from importlib import resources

from hindsight_core.lexical import tokens

# Who is called so is known by his part in the conversation; see `answers.parts_named`.
_PARTS = frozenset(
    {"user", "assistant", "agent", "bot", "chatbot", "ai", "human", "system", "tool", "用户", "助手", "助理"}
)
_HAN = re.compile(r"[\u4e00-\u9fff]")
# A word before it tells that a name does not only begin the sentence; one of time, that it is the month.
_WITHIN = "(?<=[\\w,;:] )" + "".join(
    rf"(?<!\b{word} )" for word in ("[Ii]n", "[Bb]y", "of", "[Ll]ast", "[Nn]ext", "[Tt]his", "[Ss]ince", "until")
)


def named(text: str, speakers: frozenset[str]) -> tuple[str, ...]:
    """Which of the speakers, case-folded, a text names, sorted; a Latin name as a word of its own.

    Who is called by his part (the user) is not named, and a name that is a word as well (May, Will) has to be written
    as one: with a capital inside a sentence, and not as the month.
    """
    folded = text.casefold()
    # The first test spares most names, of which there may be thousands, a pattern of their own.
    return tuple(sorted(name for name in speakers if name and name in folded and _names(text, folded, name)))


def without(text: str, names: tuple[str, ...]) -> str:
    """The text without these names, where something is left then."""
    bare = text
    for name in names:
        bare = (_written(name, bool(_HAN.search(text))) if name in _words() else _anyhow(name)).sub(" ", bare)
    bare = " ".join(bare.split())
    return bare if tokens(bare) else text


def _names(text: str, folded: str, name: str) -> bool:
    if name in _PARTS:
        return False
    if name in _words():
        return _written(name, bool(_HAN.search(text))).search(text) is not None
    if name.isascii():
        return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", folded) is not None
    return True


@cache
def _words() -> frozenset[str]:
    """The names that are words as well, of every language."""
    found: set[str] = set()
    for folder in resources.files("hindsight_core.language").iterdir():
        file = folder / "names.txt"
        if file.is_file():
            found.update(
                word for line in file.read_text("utf-8").splitlines() if line[:1] != "#" for word in line.split()
            )
    return frozenset(found)


@lru_cache(512)
def _written(name: str, han: bool) -> re.Pattern[str]:
    """A name that is a word, written as a name; among Chinese characters a capital is enough."""
    capital = re.escape(name.capitalize())
    if han:
        return re.compile(rf"(?<![A-Za-z]){capital}(?![A-Za-z])")
    return re.compile(rf"(?<!\w){capital}['’]s(?!\w)|{_WITHIN}{capital}(?!['’]?\w)(?! \d)")


@lru_cache(512)
def _anyhow(name: str) -> re.Pattern[str]:
    pattern = re.escape(name).replace(r"\ ", r"\s+")
    return re.compile(rf"{pattern}(?:['’]s)?", re.IGNORECASE)
