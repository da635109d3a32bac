"""Rules about pairs of memories that hold whatever a model thinks: they take probability from what must never be."""

from __future__ import annotations

import re

from hindsight_core.alignment import PIECE, align, parts, pieces
from hindsight_core.attributes import Fit
from hindsight_core.handover import is_passed_on
from hindsight_core.labels import labels_differ
from hindsight_core.lexical import stem
from hindsight_core.likeness import UNSURE_BELOW, identifiers_alike
from hindsight_core.models import Memory
from hindsight_core.relations import RELATIONS, Odds, Relation
from hindsight_core.slots import Reading, facets_of, fits, subject_differs, value_conflict
from hindsight_core.subjects import restated
from hindsight_core.succession import Succession, succession

RAISING = frozenset({"record", "repeats", "renews", "reset", "restated"})
"""Those of the rules that may find more of a change, or of a repetition, than they were given."""

GAP = 0.3
_TWIN = 0.5
_LITTLE = 4
_WITH_USER = re.compile(r"\b(?:i|we|me|us|our)\b|我们|咱|[和跟与同]我")
_LONG = {"en": 600, "zh": 200}
_EXPLICIT = 0.92
_ELSEWHERE = 0.8
_ASKED = 0.6
_RESTATED = 0.4
_BY_RECORD: dict[Succession, Relation] = {"replaces": "supersede", "adds": "coexist", "other": "unrelated"}


def is_weak(new: Memory, old: Memory) -> bool:
    """Whether the new one may not replace the old one: a guess, hearsay or a plan, or much less certain."""
    return (
        new.status == "pending"
        or new.kind == "speculation"
        or new.confidence < min(UNSURE_BELOW, old.confidence)
        or (new.source == "agent" and old.source != "agent" and new.confidence < old.confidence)
        or new.confidence < old.confidence - GAP
    )


def guarded(odds: Odds, new: Memory, old: Memory, a: Reading, b: Reading) -> tuple[Odds, list[str]]:
    """The probabilities after the rules that hold whatever a model thinks, and the names of those that spoke.

    `weak`: a guess, hearsay or a plan replaces nothing: what it would replace, it leaves pending. `sure`: what is sure
    is not pending. `record`: a tool's record that says every field of an older one again replaces it, and leaves those
    of other things alone. `differs`: texts that differ in a number, date, code or name, in what things have one of
    (a colour, rent or own), or in what one denies, say different things. `denies`: nor is a denial a repetition; it is
    asked whether it replaces. `restated`: what says another value of the same subject in much the same words, or of
    what both name by the same words, is asked about; `reset` where both say nothing but a number or code of it: the
    newer one replaces. `repeats`: the same words in the same order are one. `label`: what is said of forklift 1 leaves
    forklift 3 alone, what is said of one address those of others and for other uses, what is the user's what is told
    of a relative, and a long text what it has few words of. `which`: where only one of the two says which one of a kind
    it means, it is asked. `renews`: who moved, changed or switched and tells the new thing of a kind replaces the old
    one; `named` where both name that very thing. `passing`: what ends by itself stands beside what does not, which
    would be gone when it ends. `author`: what somebody else wrote (“Anna wrote: …”) says nothing of what the user did.
    """
    kept: Odds = dict(odds)
    spoke: list[str] = []
    if is_weak(new, old):
        spoke.append("weak")
        kept["pending"] += kept["supersede"]
        kept["supersede"] = 0.0
    elif kept["pending"] > 0.05 and not b.hedge:
        spoke.append("sure")
        kept = _spread(kept, "pending")
    record = succession(a.text, b.text) if new.source == old.source == "tool" and "weak" not in spoke else None
    if record is not None:
        spoke.append("record")
        return {name: 0.97 if name == _BY_RECORD[record] else 0.006 for name in RELATIONS}, spoke
    if _repeats(a, b):
        spoke.append("repeats")
        for name in RELATIONS:
            kept[name] *= 0.03
        kept["duplicate"] += 0.97
    elif _differs(a, b) or _rejects(a, b):
        spoke.append("differs")
        before, twin = kept["supersede"], kept["duplicate"]
        kept = _spread(_spread(kept, "duplicate"), "refine") if value_conflict(a, b) else _spread(kept, "duplicate")
        if facets_of(a, b)[1] and not subject_differs(a, b) and "weak" not in spoke:
            # Taken for the same, but for what a thing has one of: perhaps another value of it. That is to be asked.
            kept = _set(kept, "supersede", max(before, min(before + twin, _ASKED)))
        elif twin > _TWIN and kept["supersede"] > max(before, _ASKED):
            # What was taken for the same and is not need not be the contrary.
            kept = _set(kept, "supersede", max(before, _ASKED))
    elif _denies(a, b):
        spoke.append("denies")
        to: Relation = "pending" if "weak" in spoke else "supersede"
        gained = kept[to] + kept["duplicate"] + kept["refine"]
        kept["duplicate"] = kept["refine"] = 0.0
        kept = _set(kept, to, max(kept[to], min(gained, _ASKED)) if to == "supersede" else gained)
    named = fits(a, b)
    if labels_differ(a, b) or named == "other" or _hardly_speaks_of(a, b) or _of_a_relative(a, b):
        spoke.append("label")
        moved = kept["supersede"] * _ELSEWHERE
        kept["supersede"] -= moved
        kept["unrelated"] += moved
    elif named == "near" and kept["supersede"] > _ASKED:
        spoke.append("which")
        kept = _set(kept, "supersede", _ASKED)
    elif named != "near" and "weak" not in spoke and "repeats" not in spoke and _renews(a, b, named):
        spoke += ["renews"] if named is None else ["renews", "named"]
        kept = _set(kept, "supersede", max(kept["supersede"], _EXPLICIT))
    if named == "same" and "weak" not in spoke and "label" not in spoke and _reset(a, b):
        spoke.append("reset")
        kept = _set(kept, "supersede", max(kept["supersede"], _EXPLICIT))
    again = named == "same" and (value_conflict(a, b) or facets_of(a, b)[1] > 0)
    if "weak" not in spoke and "label" not in spoke and kept["supersede"] < _RESTATED and (again or restated(a, b)):
        spoke.append("restated")
        kept = _set(kept, "supersede", _RESTATED)
    if is_passed_on(new.content) != is_passed_on(old.content):
        spoke.append("author")
        kept = {name: 1.0 if name == "unrelated" else 0.0 for name in RELATIONS}
    if new.expires_at is not None and old.expires_at is None and kept["supersede"] + kept["refine"] > 0:
        spoke.append("passing")
        kept["coexist"] += kept["supersede"] + kept["refine"]
        kept["supersede"] = kept["refine"] = 0.0
    return kept, spoke


def _spread(odds: Odds, name: Relation) -> Odds:
    """Without `name`, whose share the others get in proportion."""
    rest = 1.0 - odds[name]
    if rest < 1e-6:
        others: list[Relation] = ["supersede", "coexist", "unrelated"]
        return {each: (1 / 3 if each in others else 0.0) for each in RELATIONS}
    return {each: (0.0 if each == name else p / rest) for each, p in odds.items()}


def _set(odds: Odds, name: Relation, to: float) -> Odds:
    """With this probability of `name`; what the others lose or gain, they do in proportion. The sum is 1."""
    rest = sum(p for each, p in odds.items() if each != name)
    if rest < 1e-6:
        return {each: to if each == name else (1.0 - to) * (each == "unrelated") for each in odds}
    return {each: to if each == name else p * (1.0 - to) / rest for each, p in odds.items()}


def _repeats(a: Reading, b: Reading) -> bool:
    before, after = pieces(a.text), pieces(b.text)
    return bool(before) and before == after and a.kin == b.kin and bool(a.negation) == bool(b.negation)


def _differs(a: Reading, b: Reading) -> bool:
    if value_conflict(a, b) or identifiers_alike(a, b):
        return True
    if facets_of(a, b)[1] and bool(a.negation) == bool(b.negation):
        return True
    # Names count where little else differs (Anna leads / Anja leads); the first word of a sentence only may be one.
    said = {*pieces(a.text)}, {*pieces(b.text)}
    gone, came = (a.names | a.first) - said[1], (b.names | b.first) - said[0]
    certain = bool(gone & a.names) or bool(came & b.names)
    return certain and bool(gone) and bool(came) and all(len(left) <= _LITTLE for left in parts(a, b))


def _rejects(a: Reading, b: Reading) -> bool:
    """Whether one denies the very word that the other affirms: "not Bob", 别叫小波."""
    if bool(a.negation) == bool(b.negation) or len(a.negation) + len(b.negation) > 1 or b.restating:
        return False
    denying, affirming = (b, a) if b.negation else (a, b)
    known, said = {*pieces(affirming.text)}, PIECE.findall(denying.text)
    cue = PIECE.findall((*a.negation, *b.negation)[0])
    after = (said[i + len(cue)] for i in range(len(said) - len(cue)) if said[i : i + len(cue)] == cue)
    return any(piece in known for piece in after)


def _renews(a: Reading, b: Reading, named: Fit | None) -> bool:
    changed = [cue for cue in b.change if cue not in {"new", "新", "新的"}]
    of_it = bool(b.renewed & a.terms) or (named is not None and bool(b.renewed))
    someone = named is None and subject_differs(a, b)
    return bool(changed) and of_it and not b.addition and not b.hedge and not someone


def _reset(a: Reading, b: Reading) -> bool:
    """Whether both give one number or code for the same thing, other ones, and say nothing else."""
    said = a.content[1] == b.content[1] and len(a.values) == len(b.values) == 1 and not b.addition and not b.hedge
    return said and a.values[0].kind == b.values[0].kind in {"number", "code"} and value_conflict(a, b)


def _of_a_relative(a: Reading, b: Reading) -> bool:
    """Whether the old one tells of a relative alone and the new one names something of the user's own."""
    mine = b.attribute is not None and b.attribute.owner == "" and not b.kin
    return mine and a.subject.kind == "kin" and _WITH_USER.search(a.text) is None


def _hardly_speaks_of(a: Reading, b: Reading) -> bool:
    """Whether the new one is long and has few of the old one's words: in so much there is always something alike."""
    (_, before), (_, after) = a.content, b.content
    return len(b.text) > _LONG[b.language] and 2 * len(before & after) < len(before)


def _denies(a: Reading, b: Reading) -> bool:
    """Whether one affirms what the other denies, and little else tells them apart."""
    if bool(a.negation) == bool(b.negation) or not align(a.text, b.text).matched:
        return False
    cues = {stem(piece) for cue in (*a.negation, *b.negation, *b.change, *b.end) for piece in pieces(cue)}
    return all(len([piece for piece in left if piece not in cues]) <= 1 for left in parts(a, b))
