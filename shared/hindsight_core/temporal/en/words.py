"""English words of time: the lists of `language/en/temporal.toml`, as patterns and as look-ups."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources

import msgspec

from hindsight_core.temporal.lexer import either
from hindsight_core.temporal.tense import TenseCues

DAY = r"(?:3[01]|[12]\d|0?[1-9])(?:st|nd|rd|th)?(?![\d%$])"
YEAR = r"(?:19|20)\d{2}"
SHORT_YEAR = rf"(?:{YEAR}|['’]\d\d)"
MERIDIEM = r"(?:am|pm|a\.m\.?|p\.m\.?)"
SPAN = r"(?:week|month|quarter|year|decade)"
_PIVOT = 50
_ABBREVIATION = 4


class Numbers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The section `numbers`."""

    ones: list[str]
    tens: list[str]
    ordinals: list[str]
    others: dict[str, int]


class Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`language/en/temporal.toml`."""

    numbers: Numbers
    names: dict[str, list[list[str]]]
    units: dict[str, list[str]]
    days: dict[str, int]
    parts: dict[str, tuple[int, int]]
    holidays: dict[str, list[str]]
    spelling: dict[str, list[str]]
    tense: TenseCues
    licence: dict[str, list[str | int]]
    disguises: dict[str, list[str]]


@cache
def words() -> Words:
    """The word lists of English."""
    file = resources.files("hindsight_core.language") / "en" / "temporal.toml"
    return msgspec.convert(tomllib.loads(file.read_text("utf-8")), Words)


class Vocabulary:
    """The lists as patterns (attributes) and what a match of such a pattern means (methods)."""

    def __init__(self, listed: Words) -> None:
        ones, tens = listed.numbers.ones, listed.numbers.tens
        self._numbers = {word: i for i, word in enumerate(ones)} | {word: 20 + 10 * i for i, word in enumerate(tens)}
        self._numbers |= listed.numbers.others
        self._numbers |= {f"{ten} {ones[i]}": 20 + 10 * j + i for j, ten in enumerate(tens) for i in range(1, 10)}
        self._ordinals = {word: i for i, word in enumerate(listed.numbers.ordinals) if i > 0}
        self._months = {name: i + 1 for i, names in enumerate(listed.names["months"]) for name in names}
        self._weekdays = {name: i for i, names in enumerate(listed.names["weekdays"]) for name in names}
        self._seasons = {name: i for i, names in enumerate(listed.names["seasons"]) for name in names}
        self._decades = {names[0]: int(names[1]) for names in listed.names["decades"]}
        self._units = {name: unit for unit, names in listed.units.items() for name in names}
        self._days = {plain(name): steps for name, steps in listed.days.items()}
        self._parts = listed.parts
        self._holidays = {plain(name): key for key, names in listed.holidays.items() for name in names}

        simple = either([*ones, *listed.numbers.others])
        self.number = rf"(?:\d{{1,4}}|{either(tens)}(?:[\s-]+{either(ones[1:10])})?|{simple})"
        self.unit = rf"(?:{either(self._units)}s?)"
        self.named_unit = either(
            name for name, unit in self._units.items() if unit not in {"second", "minute", "hour", "day", "fortnight"}
        )
        short = [name for name in self._months if len(name) <= _ABBREVIATION and name not in {"may", "june", "july"}]
        self.month = rf"(?:{either(name for name in self._months if name not in short)}|{either(short)}\.?)"
        self.weekday = either(self._weekdays)
        self.season = either(self._seasons)
        self.decade = either(self._decades)
        self.holiday = either(name for names in listed.holidays.values() for name in names)
        self.part = either(self._parts)
        self.relative_day = either(listed.days)
        self.ordinal_word = either(self._ordinals)
        self.ordinal = rf"(?:\d{{1,2}}(?:st|nd|rd|th)|{self.ordinal_word})"
        twelve = (word for word, value in self._numbers.items() if value <= 12 and " " not in word and len(word) > 2)
        self.hour = rf"(?:1[0-2]|0?[1-9]|{either(twelve)})"

    def value(self, text: str) -> int | None:
        """The number that digits or number words say."""
        return int(text) if text.isdigit() else self._numbers.get(plain(text))

    def ordinal_value(self, text: str) -> int:
        """The number of “21st” or “twenty-first”."""
        return self._ordinals.get(plain(text)) or digits(text)

    def counted(self, text: str) -> tuple[str, int]:
        """A unit, plural or not, and how many of it the word stands for: a fortnight is two weeks."""
        name = plain(text)
        unit = self._units.get(name) or self._units[name.removesuffix("s")]
        return ("week", 2) if unit == "fortnight" else (unit, 1)

    def unit_of(self, text: str) -> str:
        return self._units[plain(text)]

    def month_of(self, text: str) -> int:
        return self._months[plain(text)]

    def weekday_of(self, text: str) -> int:
        return self._weekdays[plain(text)]

    def season_of(self, text: str) -> int:
        return self._seasons[plain(text)]

    def decade_of(self, text: str) -> int:
        return self._decades[plain(text)]

    def holiday_of(self, text: str) -> str:
        return self._holidays[plain(text)]

    def part_of(self, text: str) -> tuple[int, int]:
        return self._parts[plain(text)]

    def day_steps(self, text: str) -> int:
        return self._days[plain(text)]


def plain(text: str) -> str:
    """The form in which words are looked up: without the hyphens, dots and further spaces that patterns allow."""
    return " ".join(text.lower().replace("-", " ").replace(".", "").split())


def digits(text: str) -> int:
    """The number of the digits in a text, 0 without any."""
    return int("".join(c for c in text if c.isdigit()) or 0)


def year(text: str) -> int:
    """A year of four digits, or of two as in '98 and '05."""
    value = digits(text)
    return value if value > 99 else 1900 + value if value >= _PIVOT else 2000 + value


def maybe_year(text: str | None) -> int | None:
    """Likewise, where a pattern's year is optional."""
    return year(text) if text else None
