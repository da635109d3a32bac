"""A new memory and its neighbours: add, duplicate, refine, supersede, pending, coexist, contest or refuse.

Decides only what is clear and contests the rest. The pair judge (`pairs.py`) says what two texts mean for each other;
this module says what follows for the store: who is newer, who is trusted, who may be replaced, and how many at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, tzinfo
from types import MappingProxyType

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.alignment import swaps_one
from hindsight_core.fitting import fitting
from hindsight_core.guards import is_weak
from hindsight_core.judging import Ruling
from hindsight_core.lateness import is_late, news_first, turned
from hindsight_core.models import DecisionName, Memory
from hindsight_core.occurrence import happened_again, says_no_more
from hindsight_core.pairs import Candidate, PairDecision
from hindsight_core.relations import Odds
from hindsight_core.screening import decide_pair, screen
from hindsight_core.sides import Taken, take_sides
from hindsight_core.slots import Language, language_of, read, same_text, value_conflict, wording
from hindsight_core.stores import Neighbour
from hindsight_core.succession import reports
from hindsight_core.verdicts import DEFAULTS, Judged, ReconcileSettings, by_probability, judge_pair, ruled

__all__ = ["Contender", "Outcome", "PairDecision", "ReconcileSettings", "decide_pair", "reconcile"]

_QUOTE = 60
# From which concern on a memory is related to its only neighbour, beside which it stands.
_CONCERNED = 0.5
# From which probability of saying the same on a text with a further value says no more than the old one.
_SURELY_SAME = 0.75
# Of several memories that a new one may have replaced, those are contested that are about as likely as the first.
_AS_LIKELY = 0.1


class Contender(msgspec.Struct, frozen=True, kw_only=True):
    """An old memory put in doubt: how probably it no longer holds, why, and the question that settles it.

    Where the new one is `late`, it is the one in doubt, because of this one.
    """

    id: str
    probability: float
    why: str
    ask: str
    late: bool = False


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What to do with the new memory.

    `targets`: the ids superseded, duplicated, refined, or contradicted by a pending one; for `coexist` and `add` the
    related ones. `late`: it is older than its targets and is to be stored as already superseded by them. `doubted`:
    the pairs that it contests or would, had one write no limit; `near`: those that may be concerned at all; `unread`:
    those that a reader might say more of. `settled` and `restored`: known pairs that it settles, as `sides.Taken`.
    """

    decision: DecisionName
    targets: tuple[str, ...] = ()
    contests: tuple[Contender, ...] = ()
    reason: str = ""
    late: bool = False
    evidence: dict[str, object] = {}
    doubted: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    unread: dict[str, float] = {}
    settled: tuple[tuple[str, str], ...] = ()
    restored: tuple[tuple[str, str], ...] = ()


def reconcile(
    new: Memory,
    vector: NDArray[np.float32] | None,
    neighbours: Sequence[Neighbour],
    *,
    settings: ReconcileSettings = DEFAULTS,
    embedding_model: str | None = None,
    rulings: Mapping[str, Ruling] = MappingProxyType({}),
    zone: tzinfo = UTC,
    heard: Mapping[str, NDArray[np.float32]] = MappingProxyType({}),
) -> Outcome:
    """Decide about `new` among `neighbours` (active, pending and suppressed, of its scope). Pure; never raises.

    Explicit `supersedes` ids are the caller's affair; an equal `key` is one slot and is handled here. `rulings` are
    what a judge said, by the old one's id: they settle what rules leave open, but never against what rules forbid.
    `zone` is where the user's days begin and end. `heard` is what a `PairReader` says of pairs, by the old one's id; of
    which others it might say more is in the outcome (`unread`).
    """
    others = [neighbour for neighbour in neighbours if neighbour.record.memory.id != new.id]
    # What must not be mentioned is no neighbour: each is compared by itself.
    banned = [[n] for n in others if n.record.memory.status == "suppressed"]
    live = [n for n in others if n.record.memory.status != "suppressed"]
    # Of these it is the known one that is the news, and so the one to be heard as such.
    late = {n.record.memory.id for n in live if is_late(new, n.record.memory)}
    forward = {i: said for i, said in heard.items() if i not in late}
    pairs: dict[str, PairDecision] = {}
    unread: dict[str, float] = {}
    for group in (*banned, live):
        candidates = [Candidate(old=n.record.memory, cosine=n.cosine, vector=n.record.bare) for n in group]
        screening = screen(new, vector, candidates, embedding_model=embedding_model)
        found = screening.decided(forward)
        pairs |= {n.record.memory.id: pair for n, pair in zip(group, found, strict=True)}
        unread |= {i: share for i, share in screening.unread.items() if i not in heard and i not in late}
        for known in candidates:
            if (i := known.old.id) in late:
                other = turned(new, vector, known, pairs[i], heard.get(i), alone=len(group) == 1)
                pairs[i] = other.pair
                unread |= {} if other.unread is None else {i: other.unread}
    outcome = _judged(new, others, pairs, settings, rulings, zone, alone=len(live) == 1)
    return msgspec.structs.replace(outcome, unread=unread)


def _judged(
    new: Memory,
    others: Sequence[Neighbour],
    pairs: Mapping[str, PairDecision],
    settings: ReconcileSettings,
    rulings: Mapping[str, Ruling],
    zone: tzinfo,
    *,
    alone: bool,
) -> Outcome:
    language = language_of(new.content)
    judged: list[Judged] = []
    for old in (neighbour.record.memory for neighbour in others):
        news, former = news_first(new, old)
        single = alone or old.status == "suppressed"
        item = ruled(news, judge_pair(news, former, pairs[old.id], settings, alone=single), rulings.get(old.id))
        judged.append(item if news is new else msgspec.structs.replace(item, old=old, order="older"))
    judged = fitting(new, judged)
    for item in judged:
        if item.old.status == "suppressed" and _means_the_same(item, settings.suppressed_at):
            return Outcome(
                decision="refuse",
                targets=(item.old.id,),
                reason=wording(language).say["suppressed"],
                evidence={"suppressed": item.old.id},
            )
    open_ = [_whole(new, _apart(new, item, zone)) for item in judged if item.old.status in {"active", "pending"}]
    slot = [item for item in open_ if new.key is not None and item.old.key == new.key]
    if slot:
        return _same_slot(new, slot, language)
    taken = take_sides(new, open_)
    outcome = _weigh(new, taken, settings, language)
    if outcome.decision != "pending" and not outcome.late:
        outcome = msgspec.structs.replace(outcome, settled=taken.settled, restored=taken.restored)
    doubted = [item for item in taken.items if item.verdict == "contest"]
    near = [item for item in open_ if item.pair.evidence["judge"] != "screen"]
    return msgspec.structs.replace(
        outcome,
        doubted=tuple(item.old.id for item in sorted(doubted, key=by_probability)) if outcome.contests else (),
        near=tuple(item.old.id for item in sorted(near, key=by_probability)),
    )


def _means_the_same(item: Judged, at: float) -> bool:
    return item.pair.probabilities["duplicate"] >= at or item.pair.relation in {"duplicate", "refine"}


def _same_slot(new: Memory, slot: list[Judged], language: Language) -> Outcome:
    say = wording(language).say
    slot = sorted(slot, key=lambda item: (item.old.status == "active", item.old.valid_from, item.old.id), reverse=True)
    head = slot[0]
    quoted = {"key": new.key or "", "old": quote(head.old.content)}
    evidence: dict[str, object] = {"key": new.key, "pairs": {i.old.id: i.pair.probabilities for i in slot}}
    if head.old.status == "active" and _same_value(new, head):
        return Outcome(
            decision="duplicate",
            targets=(head.old.id,),
            reason=say["key_same"].format(**quoted),
            evidence=evidence | {"corroborates": _corroborates(new)},
        )
    if is_weak(new, head.old):
        return Outcome(
            decision="pending", targets=(head.old.id,), reason=say["key_weak"].format(**quoted), evidence=evidence
        )
    newer = tuple(item.old.id for item in slot if item.order == "older" and item.old.status == "active")
    if newer:
        announced = all(item.old.valid_from > new.created_at for item in slot if item.old.id in newer)
        return Outcome(
            decision="add",
            targets=newer,
            reason=say["key_until" if announced else "key_late"].format(**quoted),
            late=True,
            evidence=evidence | {"late": True},
        )
    targets = tuple(item.old.id for item in slot)
    return Outcome(decision="supersede", targets=targets, reason=say["key_new"].format(**quoted), evidence=evidence)


def _same_value(new: Memory, item: Judged) -> bool:
    """Whether the slot's new text says nothing else; what only may say the same replaces, so that no value is lost."""
    before, after = read(item.old.content), read(new.content)
    if same_text(before, after):
        return True
    return item.verdict == "duplicate" and not swaps_one(before, after) and not value_conflict(before, after)


def _same_text(new: Memory, old: Memory) -> bool:
    return same_text(read(old.content), read(new.content))


def _apart(new: Memory, item: Judged, zone: tzinfo) -> Judged:
    """What happened again stands beside the last time, unless it tells more, which may change what holds."""
    settled = item.verdict in {"coexist", "unrelated", "pending"}
    if settled or not happened_again(new, item.old, zone):
        return item
    if item.verdict in {"duplicate", "refine"} or says_no_more(new, item.old):
        return msgspec.structs.replace(item, verdict="coexist", probability=0.0)
    return item


def _whole(new: Memory, item: Judged) -> Judged:
    """No duplicate that says something of its own, unless both surely mean the same: it would be lost.

    A number, time, date or code stands beside the old one, what a tool reports always does; of two sentences that
    differ in one place it is asked, unless they are of two slots.
    """
    reported = new.source == "tool" and reports(new.content, item.old.content)
    surely = item.pair.probabilities["duplicate"] >= _SURELY_SAME and not reported
    if item.verdict != "duplicate" or surely or _same_text(new, item.old):
        return item
    if swaps_one(read(item.old.content), read(new.content)):
        return msgspec.structs.replace(item, verdict="coexist" if item.why == "why_keys" else "contest")
    if read(new.content).states <= read(item.old.content).states and not reported:
        return item
    return msgspec.structs.replace(item, verdict="coexist")


def _corroborates(new: Memory) -> bool:
    # An agent that retells what it recalled is no second witness.
    return new.source != "agent" and new.status != "pending"


class _Scribe(msgspec.Struct, frozen=True):
    """Writes outcomes in one language over one body of evidence."""

    say: dict[str, str]
    evidence: dict[str, object]
    rulings: dict[str, Ruling]

    def outcome(
        self,
        decision: DecisionName,
        targets: Sequence[Judged],
        reason: str,
        *,
        contests: tuple[Contender, ...] = (),
        late: bool = False,
        **more: object,
    ) -> Outcome:
        old = quote(targets[0].old.content) if targets else ""
        found = self.evidence | {"details": {item.old.id: item.pair.evidence for item in targets[:3]}} | more
        why = self.say[reason].format(old=old)
        if self.rulings:
            found |= {"rulings": {i: msgspec.structs.asdict(ruling) for i, ruling in self.rulings.items()}}
            why = f"{why} {self.say['ruled'].format(by=next(iter(self.rulings.values())).by)}"
        return Outcome(
            decision=decision,
            targets=tuple(item.old.id for item in targets),
            contests=contests,
            reason=why,
            late=late,
            evidence=found | {"late": True} if late else found,
        )

    def beside(self, items: list[Judged]) -> Outcome:
        """Nothing is touched: what shares the topic is related."""
        alone = len(items) == 1
        related = [i for i in items if i.verdict == "coexist" and (i.pair.concern >= _CONCERNED or not alone)]
        related.sort(key=lambda item: (-item.pair.probabilities["coexist"], item.old.id))
        return self.outcome("coexist", related, "coexist") if related else self.outcome("add", [], "add")

    def contender(self, item: Judged, new: Memory, why: str) -> Contender:
        late = item.order == "older"
        former, news = (new, item.old) if late else (item.old, new)
        return Contender(
            id=item.old.id,
            probability=round(item.probability, 4),
            why=self.say[why],
            ask=self.say["ask"].format(old=quote(former.content), new=quote(news.content)),
            late=late,
        )


def _rounded(odds: Odds) -> Odds:
    # Of most neighbours it is certain that they are bystanders.
    return dict(odds) if odds["unrelated"] == 1.0 else {name: round(p, 4) for name, p in odds.items()}


def _weigh(new: Memory, taken: Taken, settings: ReconcileSettings, language: Language) -> Outcome:
    items = sorted(taken.items, key=by_probability)
    scribe = _Scribe(
        wording(language).say,
        {
            "pairs": {i.old.id: _rounded(i.pair.probabilities) for i in items},
            "judge": _judge_of(items),
        },
        {item.old.id: item.ruling for item in items if item.ruling is not None},
    )
    same = [i for i in items if i.verdict == "duplicate"]
    replaced = [i for i in items if i.order != "older" and i.verdict == "supersede"]
    kept, spilled = replaced[: settings.max_superseded], replaced[settings.max_superseded :]
    fuller = [i for i in items if i.order != "older" and i.verdict == "refine"]
    doubtful = [i for i in items if i.verdict == "contest"]
    likeliest = doubtful[0].probability if doubtful else 0.0
    doubtful = [i for i in doubtful if i.probability >= likeliest - _AS_LIKELY][: settings.max_contested]
    contests = (
        *(scribe.contender(item, new, "why_capped") for item in spilled),
        *(scribe.contender(item, new, item.why) for item in doubtful),
    )
    twin = max(same, key=lambda i: (i.old.status == "active", i.pair.probabilities["duplicate"]), default=None)
    returns = twin is not None and any(item.old.valid_from >= twin.old.valid_from for item in replaced)
    if twin is not None and (not returns or twin.old.status == "pending"):
        rest = [i for i in replaced if i is not twin]
        # What comes true is told anew: the words of a guess ("maybe", "not asked yet") would no longer be true.
        if twin.old.status == "active" or is_weak(new, twin.old) or (not rest and _same_text(new, twin.old)):
            reason = "same_meaning" if twin.old.status == "active" or is_weak(new, twin.old) else "confirms"
            return scribe.outcome("duplicate", [twin], reason, corroborates=_corroborates(new))
        return scribe.outcome("supersede", [*rest, twin], "confirms", contests=contests)

    doubted = [i for i in items if i.verdict == "pending"]
    if new.status == "pending" or doubted:
        doubted.sort(key=lambda item: (-item.pair.probabilities["pending"], item.old.id))
        return scribe.outcome("pending", doubted, "pending") if doubted else scribe.beside(items)
    older = [i for i in items if i.order == "older" and i.verdict in {"supersede", "refine"}]
    if older:
        return scribe.outcome("add", older, "late", late=True)

    if kept and twin is not None:
        targets = kept if twin in kept else [*kept, twin]
        return scribe.outcome("supersede", targets, "returns", contests=contests)
    if kept:
        reason = "confirms" if kept[0].old.id in taken.confirmed else "supersede"
        return scribe.outcome("supersede", kept, reason, contests=contests)
    if fuller:
        return scribe.outcome("refine", fuller[:1], "refine", contests=contests)
    if contests:
        reason = "contest_late" if doubtful and doubtful[0].order == "older" else "contest"
        return scribe.outcome("contest", doubtful, reason, contests=contests)
    held = {challenger for _, challenger in taken.settled}
    if held:
        return scribe.outcome("coexist", [i for i in items if i.old.id in held], "settles")
    return scribe.beside(items)


def _judge_of(items: Sequence[Judged]) -> object:
    judges = [item.pair.evidence["judge"] for item in items]
    return "model" if "model" in judges else judges[0] if judges else "rules"


def quote(text: str) -> str:
    """The text in one line, cut to what a sentence can carry."""
    line = " ".join(text.split())
    return line if len(line) <= _QUOTE else line[: _QUOTE - 1] + "…"
