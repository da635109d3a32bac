"""Cues: what the wording of a text shows, by name, from the pattern files in `language/`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Literal, TypeAlias

import msgspec

Language: TypeAlias = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
_LATIN = re.compile("[A-Za-z]")
# Not `\W`, nor the P of a named group.
_CAPITAL = re.compile(r"\\.|\(\?P|[A-Z]", re.DOTALL)
_WORD = re.compile(r"[A-Za-z]+(?:['’][A-Za-z]+)*")


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """One pattern file: compiled cues by name, the sentences for answers, and the bare lists, by `section.name`."""

    patterns: Mapping[str, re.Pattern[str]]
    sentences: Mapping[str, str]
    lists: Mapping[str, tuple[str, ...]]


def language_of(text: str) -> Language:
    """`zh` where Chinese characters weigh at least as much as Latin words (two characters are about one word)."""
    han = len(_HAN.findall(text))
    return "zh" if han and han / 2 >= len(_WORD.findall(text)) else "en"


def languages_of(text: str) -> tuple[Language, ...]:
    """Those whose cues are looked for in a text: an English one may hold Chinese words."""
    return ("zh",) if language_of(text) == "zh" else ("en", "zh")


@cache
def table(name: str, language: Language) -> Table:
    """The pattern file `language/<language>/<name>.toml`; English patterns match whole words, in any case."""
    file = resources.files("hindsight_core.language") / language / f"{name}.toml"
    raw = msgspec.convert(tomllib.loads(file.read_text("utf-8")), dict[str, dict[str, str | list[str]]])
    patterns: dict[str, re.Pattern[str]] = {}
    sentences: dict[str, str] = {}
    lists: dict[str, tuple[str, ...]] = {}
    for section, entries in raw.items():
        for key, value in entries.items():
            if isinstance(value, str):
                sentences[f"{section}.{key}"] = value
            elif section != "cues":
                lists[f"{section}.{key}"] = tuple(value)
            else:
                either = "|".join(f"(?:{alternative})" for alternative in value)
                whole = rf"(?<!\w)(?:{either})(?!\w)" if language == "en" else either
                patterns[key] = re.compile(whole, re.IGNORECASE)
    return Table(patterns=patterns, sentences=sentences, lists=lists)


@cache
def lower_case(name: str, language: Language) -> Mapping[str, re.Pattern[str]]:
    """The cues of a file for texts that are in lower case: to ignore case takes a search twice as long."""
    found = table(name, language).patterns
    return {cue: re.compile(_CAPITAL.sub(_lower, pattern.pattern)) for cue, pattern in found.items()}


def _lower(match: re.Match[str]) -> str:
    return match[0] if len(match[0]) > 1 else match[0].lower()


def present(text: str, name: str = "gate") -> frozenset[str]:
    """The cues of the file that occur in the text; each language is looked for where its script occurs."""
    plain = text.replace("’", "'").lower()
    spoken: list[Language] = []
    if _LATIN.search(plain):
        spoken.append("en")
    if _HAN.search(plain):
        spoken.append("zh")
    return frozenset(
        cue for language in spoken for cue, pattern in lower_case(name, language).items() if pattern.search(plain)
    )


def sentence(key: str, language: Language, name: str = "gate") -> str:
    """A sentence of the file, such as `reasons.keep`; raises KeyError for an unknown one."""
    return table(name, language).sentences[key]
