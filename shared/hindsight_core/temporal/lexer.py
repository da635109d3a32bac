"""Finding the tokens of one language in a text: an ordered list of rules, scanned in one pass."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from hindsight_core.temporal.slots import Slots, Token

Made: TypeAlias = "Slots | str | list[Token] | None"


class Rule(msgspec.Struct, frozen=True):
    """A pattern and what its match says: slots, an operator, several tokens, or None to refuse the match."""

    pattern: str
    make: Callable[[re.Match[str]], Made]


class Lexer:
    """Matches rules leftmost first, in their order at one place; where one refuses its match, the next is asked.

    Patterns are written in lower case and the text must be: ignoring case would take several times as long.
    """

    def __init__(self, rules: Iterable[Rule], *, words: bool, initials: str = "") -> None:
        """`words`: matches begin and end where words do; `initials`: the only characters that any match begins with."""
        hyphen = "(?:(?<![a-z0-9]-)|(?<=mid-)|(?<=early-)|(?<=late-))"
        first = f"(?=[{re.escape(initials)}])" if initials else ""
        left, right = (rf"(?<![\w.@#$£€])(?<!\w['’]){hyphen}", r"(?!\w)") if words else ("", "")
        listed = list(rules)
        self._rules = [(re.compile(f"(?:{rule.pattern}){right}"), rule.make) for rule in listed]
        bare = [re.sub(r"\(\?P<\w+>", "(?:", rule.pattern) for rule in listed]
        # Named at their ends: where a group begins, the engine does not see that the next character cannot fit.
        alternatives = "|".join(f"(?:{pattern})(?P<r{i}>)" for i, pattern in enumerate(bare))
        self._all = re.compile(f"{first}{left}(?:{alternatives}){right}")

    def tokens(self, text: str) -> list[Token]:
        """The tokens in order; they do not overlap."""
        found: list[Token] = []
        at = 0
        while (match := self._all.search(text, at)) is not None:
            at = match.start() + 1
            for pattern, make in self._rules[int((match.lastgroup or "r0")[1:]) :]:
                exact = pattern.match(text, match.start())
                made = make(exact) if exact is not None and exact.end() > exact.start() else None
                if exact is None or made is None:
                    continue
                at = exact.end()
                if isinstance(made, list):
                    found.extend(made)
                elif isinstance(made, str):
                    found.append(Token(*exact.span(), None, made))
                else:
                    found.append(Token(*exact.span(), made))
                break
        return found


def between(m: re.Match[str], first: Slots, last: Slots) -> list[Token]:
    """A range that one pattern states, as the three tokens it stands for."""
    start, end = m.span()
    return [Token(start, start, first), Token(start, start, None, "to"), Token(start, end, last)]


def either(words: Iterable[str]) -> str:
    """An alternation of literal words, the longest first; a space stands for any white space or hyphen."""
    ordered = sorted(set(words), key=len, reverse=True)
    return "(?:" + "|".join(re.escape(word).replace(r"\ ", r"[\s-]+") for word in ordered) + ")"
