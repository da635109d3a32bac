"""From when and until when a text says that what it tells holds: what is so for a while only, or not before a day."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import msgspec

from hindsight_core.cues import LANGUAGES, language_of, present, sentence, table
from hindsight_core.spans import ends_asking, stands_alone
from hindsight_core.temporal import TimeRange, find_ranges

# What ends or begins later is no passing state and no announcement.
_LONGEST = timedelta(days=366)
_CLAUSE = re.compile(r"[,;:，；：。！？!?\n]|\.(?=\s)|\b(?:and|but|so|or|because)\b|但是?|不过|而且|所以|因为")


class Validity(msgspec.Struct, frozen=True, kw_only=True):
    """`start`: it does not hold before; `end`: it holds no longer. `words` are those of the text that say so."""

    words: str
    start: datetime | None = None
    end: datetime | None = None

    def evidence(self) -> dict[str, object]:
        """What was read, for the decision's evidence, in the language of the words."""
        field = "until" if self.end is not None else "from"
        return {"words": self.words, "why": sentence(f"evidence.{field}", language_of(self.words), "validity")}


def validity(text: str, told: datetime, *, momentary: bool, event: bool = False) -> Validity | None:
    """When what a text tells holds, as far as it says so itself; read at `told`, in the zone of the teller.

    It ends with a time that is named as its limit (“until Friday”, 到周五为止), as the only one (“this week only”), or
    as the one in which somebody is somewhere or on something (“on call this week”); what is `momentary` ends with any
    time that is running. It begins with a time to come that is named as its beginning (“from next month”, 下个月起).
    None for all else: what comes again, what is due or has its own end, what happened, an `event` of the running week,
    a plan that is known before its day, what ends or begins more than a year ahead, and a text that tells more.
    """
    plain = text.replace("’", "'")
    ranges = find_ranges(plain, told)
    if len(ranges) != 1 or ends_asking(plain) or _has("lasting", plain):
        return None
    (found,) = ranges
    clause, others = _clauses(plain, found)
    if any(stands_alone(other) for other in others):
        return None
    before, after = plain[: found.at].rstrip(), plain[found.at + len(found.text) :]
    if _opens(found, before) and found.start is not None and told < found.start <= told + _LONGEST:
        return None if _has("planned", plain) else Validity(words=_quoted(plain, found), start=found.start)
    if found.end is None or not told < found.end <= told + _LONGEST:
        return None
    running = found.start is not None and found.start <= told
    limit = running and _has("until", found.text)
    limit = limit or _has("until_before", before)
    if not limit and "past" in present(plain):
        return None
    only = running and (_has("only_before", before) or _has("only_after", after))
    stays = running and not event and _has("this", found.text) and _has("staying", clause)
    stays = stays and not _has("intended", clause)
    if limit or only or stays or (momentary and running and found.kind != "deadline"):
        return Validity(words=found.text, end=found.end)
    return None


def _has(name: str, text: str) -> bool:
    return any(table("validity", language).patterns[name].search(text) for language in LANGUAGES)


def _opens(found: TimeRange, before: str) -> bool:
    if found.kind == "after":
        return _has("from", found.text)
    return found.kind in {"date", "relative"} and _has("from_before", before)


def _quoted(text: str, found: TimeRange) -> str:
    """The words of a beginning, with the one that makes it one."""
    head = text[: found.at].rstrip()
    patterns = [table("validity", language).patterns["from_before"] for language in LANGUAGES]
    cue = next((match for pattern in patterns if (match := pattern.search(head)) is not None), None)
    return text[cue.start() if cue is not None else found.at : found.at + len(found.text)]


def _clauses(text: str, found: TimeRange) -> tuple[str, list[str]]:
    """The clause that names the time, without it, and the others."""
    end = found.at + len(found.text)
    cuts = [match.span() for match in _CLAUSE.finditer(text) if match.end() <= found.at or match.start() >= end]
    edges = [0, *(edge for cut in cuts for edge in cut), len(text)]
    pieces = list(zip(edges[::2], edges[1::2], strict=True))
    own = next((piece for piece in pieces if piece[0] <= found.at and end <= piece[1]), (0, len(text)))
    # A time in a clause of its own (“Until Friday, …”) goes with the one beside it.
    rest = text[own[0] : found.at] + text[end : own[1]]
    others = [piece for piece in pieces if piece != own]
    if not re.search(r"\w{2,}", rest) and others:
        after = next((piece for piece in others if piece[0] >= own[1]), others[-1])
        rest = text[slice(*after)]
        others.remove(after)
    return rest.strip(), [piece for a, b in others if (piece := text[a:b].strip())]
