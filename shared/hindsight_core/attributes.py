"""What a statement names before it tells its value: whose, which one, of what kind ("my billing address is")."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from hindsight_core.lexical import stem
from hindsight_core.subjects import HAN

Fit: TypeAlias = Literal["same", "default", "near", "other"]

_ENGLISH = re.compile(
    r"(?:\b(?P<own>my|our|user's|the|his|her|their|[^\W_][\w-]*'s) |\b(?=new ))"
    r"(?P<phrase>(?:[\w'-]+ ){0,4}?[\w-]+)(?: (?:is|are|will be|has changed to|changed to)\b|:)"
)
_CHINESE = re.compile(rf"(?:^|[^{HAN}])(?P<phrase>[{HAN}]{{2,14}}?)(?:将?是|改为|改成|换成|变成|:)")
_SELF = ("my", "our", "user's", "the", None)
_OTHERS = ("his", "her", "their", "他", "她")
_PRONOUN = "?"
_NAME = "@"
_HEAD = 2


class Attribute(msgspec.Struct, frozen=True):
    """One attribute of somebody or something.

    `owner` is "" for the user, else a relative, or "@" and a name; `which` tells it from others of its kind, `what` is
    the kind. English words are stems; Chinese has the last two characters for `what`, and all before for `which`.
    """

    owner: str
    which: frozenset[str]
    what: str


class Naming(msgspec.Struct, frozen=True):
    """The words of one language: those that tell nothing apart, those no name has in it, those that mean the home."""

    plain: tuple[str, ...]
    broken: tuple[str, ...]
    default: tuple[str, ...]


def attribute_of(
    text: str, lists: Naming, kin: tuple[re.Pattern[str], Mapping[str, str]], *, spaced: bool
) -> Attribute | None:
    """The last attribute that a `normalised` text names and tells the value of, if any."""
    named: Attribute | None = None
    for match in (_ENGLISH if spaced else _CHINESE).finditer(text):
        found = _spaced(match, lists, kin[1]) if spaced else _unspaced(match, lists, kin)
        if found is not None and found.owner == _PRONOUN:
            people = {kin[1][word] for word in kin[0].findall(text[: match.start()])}
            found = msgspec.structs.replace(found, owner=people.pop()) if len(people) == 1 else None
        named = found or named
    return named


def _spaced(match: re.Match[str], lists: Naming, kin: Mapping[str, str]) -> Attribute | None:
    own = match["own"]
    owner = "" if own in _SELF else _PRONOUN if own in _OTHERS else _owner(own, kin)
    *words, last = match["phrase"].split()
    which: set[str] = set()
    for word in words:
        if word in lists.broken:
            return None
        if word.endswith("'s"):
            owner = next((kin[each] for each in words if each in kin), _owner(word, kin))
            which.clear()
        elif word not in lists.plain:
            which.add(stem(word))
    if last in lists.broken or last in lists.plain:
        return None
    return Attribute(owner, frozenset(which), stem(last))


def _owner(word: str, kin: Mapping[str, str]) -> str:
    name = word.removesuffix("'s")
    return kin.get(name, _NAME + name)


def _unspaced(match: re.Match[str], lists: Naming, kin: tuple[re.Pattern[str], Mapping[str, str]]) -> Attribute | None:
    phrase = match["phrase"]
    owner = ""
    if phrase[0] in _OTHERS:
        owner, phrase = _PRONOUN, phrase[1:]
    for start in (0, 1):  # 我妈 is one word for her, and the beginning of 我妈妈
        relative = kin[0].match(phrase, start)
        if relative and phrase[relative.end() : relative.end() + 1] in {"的", "家"}:
            owner, phrase = kin[1][relative.group()], phrase[relative.end() :]
            break
    for word in lists.plain:
        phrase = phrase.replace(word, "")
    if len(phrase) < _HEAD or any(word in phrase for word in lists.broken):
        return None
    rest = phrase[:-_HEAD]
    return Attribute(owner, frozenset([rest] if rest else []), phrase[-_HEAD:])


def fit(old: Attribute | None, new: Attribute | None, lists: Naming) -> Fit | None:
    """How far a new value may be one of what the old one named; None where they name no two things of one kind.

    `same`: the same one, by the same words. `default`: the new one is called by its kind alone, and the old one is what
    that mostly means (where one lives). `near`: only one of them says which. `other`: of somebody else, or another one.
    """
    if old is None or new is None or old.what != new.what:
        return None
    if old.owner != new.owner:
        # Anna may be the sister.
        unknown = old.owner and new.owner and old.owner.startswith(_NAME) != new.owner.startswith(_NAME)
        return None if unknown else "other"
    if old.which == new.which:
        return "same"
    if not new.which and all(word in lists.default for word in old.which):
        return "default"
    return "near" if not new.which or not old.which or new.which < old.which or old.which < new.which else "other"
