"""Which of several like things a text is about, by number, letter or colour: forklift 3, team red, 三号楼."""

from __future__ import annotations

import re
from functools import cache

from hindsight_core.readings import kept
from hindsight_core.slots import Language, Reading, wording

_HEAD = {"en": 24, "zh": 8}
_SIGN = r"\d{1,4}[a-z]?|[a-z]\d{0,3}"


@cache
def _pattern(language: Language) -> re.Pattern[str]:
    """Two groups: thing and label in English, label and thing in Chinese, where the label may come last, too."""
    lists = wording(language)
    words = "|".join(map(re.escape, lists.label))
    if language == "en":
        return re.compile(rf"(?<![\w'-])([a-z]{{3,}})s? ({_SIGN}|{words})(?![\w%:.'/-])(?! (?:am|pm|o'clock)\b)")
    things = "|".join(sorted(map(re.escape, lists.labelled), key=len, reverse=True))
    return re.compile(rf"({_SIGN}|{words})((?:号)?(?:{things}))")


@cache
def _predicate(language: Language) -> re.Pattern[str]:
    words = "|".join(map(re.escape, wording(language).predicate))
    return re.compile(rf"(?<!^)\b(?:{words})\b" if language == "en" else rf"(?<!^)(?:{words})")


@kept(4096)
def _labels(language: Language, text: str) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    lists = wording(language)
    # What comes after a verb is said of the thing (the printer is in room B), and may change.
    subject = _predicate(language).split(text[: 2 * _HEAD[language]], maxsplit=1)[0]
    for match in _pattern(language).finditer(subject):
        thing, label = match.groups() if language == "en" else (match[2], match[1])
        # Right behind "I" or "she" stands a verb, and the number behind that is a value: "I weigh 80 kg".
        said = subject[: match.start()].strip() in {*lists.opening.self, *lists.opening.pronoun}
        if match.start() <= _HEAD[language] and thing not in lists.unlabelled and not (language == "en" and said):
            found.setdefault(thing, set()).add(label)
    return {thing: frozenset(labels) for thing, labels in found.items()}


def labels_differ(a: Reading, b: Reading) -> bool:
    """Whether both begin with a thing of one kind, and with different ones of that kind."""
    if a.language != b.language:
        return False
    before, after = _labels(a.language, a.text), _labels(b.language, b.text)
    both = before.keys() & after.keys()
    return bool(both) and not any(before[thing] & after[thing] for thing in both)
