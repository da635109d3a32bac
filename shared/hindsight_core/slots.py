"""What one statement is about: whose, which of several like things, and how it is put.

The word lists are data, one file a language (`language/*/reconcile.toml`); a text is read with the lists of the
language it is written in. English words match whole, Chinese ones anywhere.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Literal, TypeAlias

import msgspec

from hindsight_core.attributes import Attribute, Fit, Naming, attribute_of, fit
from hindsight_core.lexical import stop_words, tokens
from hindsight_core.readings import kept
from hindsight_core.subjects import Opening, Subject, content_of, subject_of
from hindsight_core.values import Value, ValueKind, normalised, read_values, same_value

Language: TypeAlias = Literal["zh", "en"]

_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
_NAME = re.compile(r"(?<![.!?:;\n]\s)(?<!^)(?<!\w)[A-ZÀ-Þ][\w'’-]*\w")
_RENEWED = re.compile(r"新的?([\u3400-\u4dbf\u4e00-\u9fff]{2,4})|\bnew ((?:[a-z-]+ )?[a-z-]+)")
_FIRST = re.compile(r"^\W*([A-ZÀ-Þ][\w-]*\w)")
_EDGES = re.compile(r"^(?:(?!-\d)[\W_])+|[\W_]+$")
_GAPS = re.compile(r"[\s\W_]+")
_LONG_NUMBER = 3
_CUES = ("change", "hedge", "addition", "negation", "past", "end", "restating")


class Wording(msgspec.Struct, frozen=True):
    """The word lists of one language, as its data file names them."""

    ignore: tuple[str, ...]
    change: tuple[str, ...]
    hedge: tuple[str, ...]
    addition: tuple[str, ...]
    negation: tuple[str, ...]
    past: tuple[str, ...]
    end: tuple[str, ...]
    restating: tuple[str, ...]
    answer: tuple[str, ...]
    other: tuple[str, ...]
    self: tuple[str, ...]
    empty: tuple[str, ...]
    naming: Naming
    opening: Opening
    label: tuple[str, ...]
    labelled: tuple[str, ...]
    unlabelled: tuple[str, ...]
    predicate: tuple[str, ...]
    particle: tuple[str, ...]
    topic: dict[str, tuple[str, ...]]
    kin: dict[str, tuple[str, ...]]
    place: dict[str, tuple[str, ...]]
    facet: dict[str, dict[str, tuple[str, ...]]]
    say: dict[str, str]


class Reading(msgspec.Struct, frozen=True):
    """One statement, read.

    `kin` and `place` are canonical names shared by both languages (`mother`, `production`); `own` is whether it speaks
    of the user; `names` are capitalised words inside English sentences, `first` the capitalised word at the start,
    which may be one; `renewed` what is called new; `facets` pairs such as (colour, red), of which a thing has one;
    `frame` is the text without its values; `bare` the text without what does not count when texts are compared;
    `topics` what parts of a life or system its words are of; `subject` what it begins with; `attribute` what it
    names before it tells its value; `content` what it says besides values, cues and empty words, in order and as a set.
    Of the values, `states` are kinds and normal forms, `norms` these by kind, `units` the units, and `identifiers` the
    codes, and bare numbers of three digits or more without a unit.
    """

    language: Language
    text: str
    bare: str
    values: tuple[Value, ...]
    frame: str
    terms: frozenset[str]
    names: frozenset[str]
    first: frozenset[str]
    own: bool
    kin: frozenset[str]
    place: frozenset[str]
    topics: frozenset[str]
    change: tuple[str, ...]
    hedge: tuple[str, ...]
    addition: tuple[str, ...]
    negation: tuple[str, ...]
    past: tuple[str, ...]
    end: tuple[str, ...]
    restating: tuple[str, ...]
    other: tuple[str, ...]
    renewed: frozenset[str]
    facets: frozenset[tuple[str, str]]
    subject: Subject
    attribute: Attribute | None
    content: tuple[tuple[str, ...], frozenset[str]]
    states: frozenset[tuple[str, str]]
    norms: dict[ValueKind, frozenset[str]]
    units: frozenset[str]
    identifiers: frozenset[str]


def language_of(text: str) -> Language:
    """`zh` where at least a fifth of the letters are Han, else `en`."""
    letters = sum(c.isalpha() for c in text)
    return "zh" if letters and 5 * len(_HAN.findall(text)) >= letters else "en"


@cache
def wording(language: Language) -> Wording:
    """The word lists of a language."""
    file = resources.files("hindsight_core.language") / language / "reconcile.toml"
    return msgspec.convert(tomllib.loads(file.read_text("utf-8")), Wording)


@cache
def _empty(language: Language) -> frozenset[str]:
    return frozenset(wording(language).empty)


@cache
def matcher(language: Language, name: str) -> re.Pattern[str]:
    """Any word of one list of a language."""
    return _pattern(language, getattr(wording(language), name))


@cache
def _groups(language: Language, name: str) -> tuple[re.Pattern[str], dict[str, str]]:
    """One pattern for all words of all groups, and each word's group."""
    lists: dict[str, tuple[str, ...]] = getattr(wording(language), name)
    words = {word: group for group, members in lists.items() for word in members}
    return _pattern(language, words), words


def _topics(language: Language, text: str) -> frozenset[str]:
    pattern, meanings = topic_words(language)
    return frozenset(topic for word in pattern.findall(text) for topic in meanings[word])


@cache
def topic_words(language: Language) -> tuple[re.Pattern[str], dict[str, tuple[str, ...]]]:
    """One pattern for the words of all topics, and the topics of each, of which a word may have several."""
    words: dict[str, tuple[str, ...]] = {}
    for topic, members in wording(language).topic.items():
        for word in members:
            words[word.lower()] = (*words.get(word.lower(), ()), topic)
    return _pattern(language, words), words


@cache
def _facets(language: Language) -> tuple[re.Pattern[str], dict[str, tuple[str, str]]]:
    """One pattern for the words of all facets, and what each stands for."""
    lists = wording(language).facet
    words = {word: (facet, value) for facet, values in lists.items() for value, each in values.items() for word in each}
    return _pattern(language, words), words


def _pattern(language: Language, words: Iterable[str]) -> re.Pattern[str]:
    """Any of the words, the longest that fits; told apart by their first letter, which spares trying each of them."""
    rests: dict[str, list[str]] = {}
    for word in sorted(words, key=len, reverse=True):
        rests.setdefault(word[0], []).append(re.escape(word[1:]))
    either = "|".join(f"{re.escape(first)}(?:{'|'.join(rest)})" for first, rest in rests.items())
    return re.compile(either if language == "zh" else rf"(?<![\w'-])(?:{either})(?![\w-])")


def same_text(a: Reading, b: Reading) -> bool:
    """Whether two texts differ at most in case, width, spacing and punctuation at word edges."""
    return a.bare == b.bare


def _bare(plain: str) -> str:
    # Signs inside a value (3.5, -4, 12:30) are content; elsewhere punctuation and spaces are not.
    return _GAPS.sub(lambda m: m.group() if _between_digits(m, plain) else "", _EDGES.sub("", plain)) or plain


def _between_digits(match: re.Match[str], text: str) -> bool:
    before, after = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
    return after.isdigit() and (before.isdigit() or match.group().endswith("-"))


@kept(4096)
def read(text: str) -> Reading:
    """Read one statement; never raises."""
    language = language_of(text)
    plain = normalised(text)
    values = read_values(plain)

    masked = plain
    for value in values:
        if value.kind == "date":  # "may 3" is no doubt
            masked = masked[: value.start] + "#" * (value.end - value.start) + masked[value.end :]
    masked = matcher(language, "ignore").sub("#", masked)

    def found(name: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(matcher(language, name).findall(masked)))

    def groups(name: str) -> frozenset[str]:
        pattern, words = _groups(language, name)
        return frozenset(words[word] for word in pattern.findall(plain))

    pattern, meanings = _facets(language)
    cues = {name: found(name) for name in _CUES}

    return Reading(
        language=language,
        text=plain,
        bare=_bare(plain),
        values=values,
        frame=_without(plain, values),
        terms=frozenset(tokens(plain)),
        names=frozenset(m.group().lower() for m in _NAME.finditer(text)) - {"user", "i"},
        first=frozenset(m.group(1).lower() for m in [_FIRST.match(text)] if m) - stop_words() - {"user"},
        own=bool(matcher(language, "self").search(plain)),
        kin=groups("kin"),
        place=groups("place"),
        topics=_topics(language, plain),
        change=cues["change"],
        hedge=cues["hedge"],
        addition=cues["addition"],
        negation=cues["negation"],
        past=cues["past"],
        end=cues["end"],
        restating=cues["restating"],
        other=found("other"),
        renewed=frozenset(term for m in _RENEWED.finditer(plain) for term in tokens(m.group(1) or m.group(2))),
        facets=frozenset(meanings[word] for word in pattern.findall(plain)),
        subject=subject_of(plain, wording(language).opening, _groups(language, "kin"), spaced=language == "en"),
        attribute=attribute_of(plain, wording(language).naming, _groups(language, "kin"), spaced=language == "en"),
        content=content_of(plain, values, _spoken(cues), _empty(language)),
        states=frozenset([(value.kind, value.norm) for value in values]),
        norms=_norms(values),
        units=frozenset([value.unit for value in values if value.unit]),
        identifiers=frozenset([value.norm for value in values if _identifies(value)]),
    )


def _norms(values: tuple[Value, ...]) -> dict[ValueKind, frozenset[str]]:
    kinds: set[ValueKind] = {value.kind for value in values}
    return {kind: frozenset([value.norm for value in values if value.kind == kind]) for kind in kinds}


def _identifies(value: Value) -> bool:
    if value.kind == "code":
        return True
    return value.kind == "number" and not value.unit and len(value.norm) >= _LONG_NUMBER and "." not in value.norm


def _spoken(cues: dict[str, tuple[str, ...]]) -> list[str]:
    return [cue for name, each in cues.items() if name != "past" for cue in each]


def _without(text: str, values: tuple[Value, ...]) -> str:
    pieces: list[str] = []
    at = 0
    for value in values:
        pieces.append(text[at : value.start])
        at = value.end
    return _GAPS.sub(" ", "#".join([*pieces, text[at:]])).strip()


def value_conflict(a: Reading, b: Reading) -> bool:
    """Whether both state values of one kind and none of the old ones is kept; `same_value` says what is kept."""
    for kind in a.norms.keys() & b.norms.keys():
        before = [value for value in a.values if value.kind == kind]
        after = [value for value in b.values if value.kind == kind]
        if not any(same_value(v, w) for v in before for w in after):
            return True
    return False


def facets_of(a: Reading, b: Reading) -> tuple[int, int]:
    """Of how many facets both state the same value, and of how many only others."""
    if not a.facets or not b.facets:
        return 0, 0
    before, after = dict[str, set[str]](), dict[str, set[str]]()
    for reading, values in ((a, before), (b, after)):
        for facet, value in reading.facets:
            values.setdefault(facet, set()).add(value)
    shared = [facet for facet in before if facet in after]
    same = sum(bool(before[facet] & after[facet]) for facet in shared)
    return same, len(shared) - same


def fits(a: Reading, b: Reading) -> Fit | None:
    """How far the new one's value may be of what the old one names (`attributes.fit`)."""
    return fit(a.attribute, b.attribute, wording(b.language).naming) if a.language == b.language else None


def subject_differs(a: Reading, b: Reading) -> bool:
    """Whether the two speak of different people, or of different ones of several like places or things."""
    if a.kin != b.kin and not (a.kin & b.kin):
        if a.kin and b.kin:
            return True
        if (a.kin or b.kin) and a.own == b.own and not a.names & b.names:
            return True
    return bool(a.place and b.place and not a.place & b.place)
