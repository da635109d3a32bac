"""A new memory among its neighbours: who is a bystander, what the learned model makes of the others, and the last word.

The last word waits for a `PairReader`, where there is one: `screen` says whom it should read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from hindsight_core.closeness import closeness
from hindsight_core.guards import RAISING
from hindsight_core.likeness import likeness
from hindsight_core.models import Memory
from hindsight_core.pair_model import Floats, PairModel, shipped
from hindsight_core.pairs import Candidate, PairDecision, weighed
from hindsight_core.relations import AMONG, CHOSEN, RELATIONS, Odds, only
from hindsight_core.slots import Reading, fits, read, same_text

_EQUAL = 1e-5
_NOTHING: Mapping[str, Floats] = MappingProxyType({})
# In stories, the eight nearest hold 95 of 100 that a new line replaces.
READ = 8
JUDGED = 6
BYSTANDER = 0.06
# On pairs of writers left out, a quarter is settled so; of what is decided, a tenth of a per cent becomes another.
_SURE = 0.95
_IDLE = 0.1
_IDLE_AMONG = 0.05
_NAMED = frozenset(["same", "default"])
_ENOUGH = 0.75
_RARER = 0.7


def decide_pair(
    new: Memory,
    old: Memory,
    *,
    cosine: float,
    new_vector: Floats | None = None,
    old_vector: Floats | None = None,
    embedding_model: str | None = None,
) -> PairDecision:
    """Judge one pair by what both say; which of them is newer is not asked here (`order_of`). Never raises.

    `embedding_model` is the identity of both vectors: the learned part is used where it was trained on that.
    """
    candidate = Candidate(old=old, cosine=cosine, vector=old_vector)
    return screen(new, new_vector, [candidate], embedding_model=embedding_model).decided()[0]


class Screening:
    """A new memory among its neighbours before the last word: who is no bystander, and what the model makes of them.

    `single` are those that are judged as if somebody had chosen to compare the two: an only neighbour, and what shares
    the new one's key.
    """

    def __init__(self, new: Memory, candidates: Sequence[Candidate], model: PairModel | None) -> None:
        self._new = new
        self._candidates = candidates
        self._model = model
        self.found: dict[int, PairDecision] = {}
        self.concerns: dict[int, float] = {}
        self.readings: dict[int, Reading] = {}
        self.single: set[int] = set()
        self.scores: dict[int, Floats] = {}
        self.odds: dict[int, NDArray[np.float64]] = {}

    @property
    def unread(self) -> dict[str, float]:
        """Whom a `PairReader` could say more about, by id, and how probable it is so far that something follows."""
        if self._model is None or not self._model.hears:
            return {}
        b = read(self._new.content)
        found: dict[str, float] = {}
        for i, odds in self.odds.items():
            likely = self._likely(i, odds)
            if not same_text(self.readings[i], b) and not settled(likely, alone=i in self.single):
                found[self._candidates[i].old.id] = _follows(likely)
        return found

    def decided(self, heard: Mapping[str, Floats] = _NOTHING) -> list[PairDecision]:
        """A decision a neighbour, in their order; `heard` is what a `PairReader` says, by the old one's id."""
        b = read(self._new.content)
        found = dict(self.found)
        for i, odds in self.odds.items():
            candidate = self._candidates[i]
            said = heard.get(candidate.old.id)
            if said is not None:
                odds = self._together(i, said)
                said = said[CHOSEN if i in self.single else AMONG]
            learned = self._likely(i, odds)
            found[i] = weighed(self._new, candidate, self.readings[i], b, learned, self.concerns[i], said=said)
        return [found[i] for i in range(len(self._candidates))]

    def pass_by(self, i: int) -> None:
        """Leave this one out, but for what the guards say of a tool's records.

        These say all of one thing again, however little they sound alike.
        """
        candidate, concern = self._candidates[i], self.concerns[i]
        self.found[i] = _bystander(candidate, concern)
        if self._new.source == "tool":
            b = read(self._new.content)
            unheard = weighed(self._new, candidate, self.readings[i], b, _BYSTANDS, concern, judge="guards")
            if not RAISING.isdisjoint(unheard.evidence["guards"]):
                self.found[i] = unheard

    def score(self, rows: list[int], likenesses: list[dict[str, float]], old: Floats, new: Floats) -> None:
        """Put these to the model; `old` and `new` are what it makes of the vectors, (m, k) and (1, k)."""
        assert self._model is not None
        scores = self._model.scores(likenesses, [self._candidates[i].cosine for i in rows], old, new)
        self.scores |= dict(zip(rows, scores, strict=True))
        self.odds |= dict(zip(rows, self._model.odds(scores), strict=True))
        several = [i for i in rows if i not in self.single]
        if several:
            apart = np.stack([self.scores[i] for i in several])
            neighbours = self._model.odds(apart, concerns=[self.concerns[i] for i in several])
            for i, neighbour in zip(several, neighbours, strict=True):
                self.odds[i] = among(neighbour, self.odds[i])

    def _together(self, i: int, said: Floats) -> NDArray[np.float64]:
        assert self._model is not None
        scores = self.scores[i][None, :]
        chosen_pair = self._model.odds(scores, said[None, :])[0]
        if i in self.single:
            return together(self.odds[i], chosen_pair, self.concerns[i])
        return among(self._model.odds(scores, said[None, :], [self.concerns[i]])[0], chosen_pair)

    def _likely(self, i: int, odds: NDArray[np.float64]) -> Odds:
        if i in self.single:
            return concerned(odds, self.concerns[i])
        return {name: float(p) for name, p in zip(RELATIONS, odds, strict=True)}


def screen(
    new: Memory,
    new_vector: Floats | None,
    candidates: Sequence[Candidate],
    *,
    embedding_model: str | None = None,
    model: PairModel | None = None,
) -> Screening:
    """Tell bystanders from neighbours that a new memory concerns, and score the latter; by `model`, or what ships.

    The more there are, the more of them are bystanders: only the nearest are looked at, only those that may be
    concerned are judged by the model, and of the rest a tool's records by the guards alone, as if it had said
    `unrelated`. Memories that share the new one's key, or name what it names, are always judged.
    """
    model = model or shipped()
    screening = Screening(new, candidates, model)
    found, concerns, readings = screening.found, screening.concerns, screening.readings
    b = read(new.content)
    if model is None or new_vector is None or not model.fits(embedding_model):
        found |= {i: weighed(new, each, read(each.old.content), b, None, None) for i, each in enumerate(candidates)}
        return screening
    best, count = max((each.cosine for each in candidates), default=0.0), len(candidates)
    likenesses: dict[int, dict[str, float]] = {}
    several: dict[int, dict[str, float]] = {}
    meanings: dict[int, Floats] = {}
    certain: set[int] = set()
    for place, rank, i in _ranked(candidates):
        old, one_slot = candidates[i].old, new.key is not None and new.key == candidates[i].old.key
        vector, cosine = candidates[i].vector, candidates[i].cosine
        if vector is None or old.embedding_model not in {None, embedding_model}:
            found[i] = weighed(new, candidates[i], read(old.content), b, None, None)
        elif place >= READ and not one_slot and (b.attribute is None or fits(read(old.content), b) not in _NAMED):
            found[i] = _bystander(candidates[i], 0.0)
        else:
            a = readings[i] = read(old.content)
            meanings[i] = np.asarray(vector, dtype=np.float32)
            near = closeness(a, b, cosine, best, rank, count)
            if one_slot:
                screening.single.add(i)
                concerns[i] = 1.0
            elif count == 1:
                screening.single.add(i)
                likenesses[i] = likeness(new, old, a, b)
                concerns[i] = model.concern_alone(near | likenesses[i])
            else:
                several[i] = near
                if same_text(a, b) or (b.attribute is not None and fits(a, b) in _NAMED):
                    certain.add(i)
    if not meanings:
        return screening
    placed = dict(zip(meanings, model.projected(np.stack(list(meanings.values()))), strict=True))
    meant = model.projected(np.asarray(new_vector, dtype=np.float32)[None, :])
    likely: dict[int, float] = {}
    if several:
        near_by = np.stack([placed[i] for i in several])
        likely = dict(zip(several, model.concerns(list(several.values()), near_by, meant), strict=True))
        concerns |= likely
    judged = screening.single | chosen(likely) | certain
    for i in concerns.keys() - judged:
        screening.pass_by(i)
    if judged:
        rows = sorted(judged)
        each = [likenesses.get(i) or likeness(new, candidates[i].old, readings[i], b) for i in rows]
        screening.score(rows, each, np.stack([placed[i] for i in rows]), meant)
    return screening


def _ranked(candidates: Sequence[Candidate]) -> Iterator[tuple[int, int, int]]:
    """Their indices by cosine, each after its place in that order and its rank, which equal texts share."""
    rank, last = 0, math.inf
    for place, i in enumerate(
        sorted(range(len(candidates)), key=lambda i: (-candidates[i].cosine, candidates[i].old.id))
    ):
        if candidates[i].cosine < last - _EQUAL:
            rank, last = place, candidates[i].cosine
        yield place, rank, i


def chosen(concerns: Mapping[int, float]) -> set[int]:
    """Whom of several neighbours the model judges: those that most seem concerned."""
    likeliest = sorted(concerns, key=lambda i: (-concerns[i], i))[:JUDGED]
    return {i for i in likeliest if concerns[i] >= BYSTANDER}


def concerned(odds: NDArray[np.float64], concern: float) -> Odds:
    """The model's probabilities for two texts that speak of one matter with probability `concern`.

    They count in full from `_ENOUGH` on: somebody chose to compare the two. What the doubt takes from the relations
    that change something goes to those that leave the old one alone.
    """
    found: Odds = {name: float(p) for name, p in zip(RELATIONS, odds, strict=True)}
    share = _share(concern)
    taken = 0.0
    for name in RELATIONS[:4]:
        taken += found[name] * (1.0 - share)
        found[name] *= share
    beside = found["coexist"] / max(found["coexist"] + found["unrelated"], 1e-9)
    found["coexist"] += taken * beside
    found["unrelated"] += taken * (1.0 - beside)
    return found


def among(neighbour: NDArray[np.float64], chosen_pair: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities (6,) of one of several neighbours: whether it is concerned at all as in stories, how as if chosen.

    Stories are full of news: nearly every second line replaces something. Elsewhere that is `_RARER`, and what is said
    again is not, so that of them is taken only who is concerned at all.
    """
    beside = RELATIONS.index("unrelated")
    for_it = _RARER * (1 - neighbour[beside])
    concerned_at_all = for_it / (for_it + neighbour[beside])
    found = np.delete(chosen_pair, beside)
    return np.append(found * (concerned_at_all / found.sum()), 1 - concerned_at_all)


def settled(odds: Odds, *, alone: bool = True) -> bool:
    """Whether the kernel is so sure of one relation, or that nothing follows, that reading changes next to nothing."""
    return max(odds.values()) >= _SURE or _follows(odds) < (_IDLE if alone else _IDLE_AMONG)


def _follows(odds: Odds) -> float:
    """How probable it is that something becomes of the old one."""
    return sum(odds[name] for name in RELATIONS[:4])


def together(odds: NDArray[np.float64], read: NDArray[np.float64], concern: float) -> NDArray[np.float64]:
    """The kernel's probabilities and those of both: the reader knows pairs of one matter, and counts as far as this is.

    All have shape (6,); `concern` as of `concerned`.
    """
    share = _share(concern)
    return (1 - share) * odds + share * read


def _share(concern: float) -> float:
    """How much of the model's word counts; see `concerned`."""
    return min(1.0, concern / _ENOUGH)


_BYSTANDS = only("unrelated")


def _bystander(candidate: Candidate, concern: float) -> PairDecision:
    evidence: dict[str, object] = {
        "judge": "screen",
        "cosine": round(candidate.cosine, 4),
        "concern": round(concern, 4),
    }
    return PairDecision(
        relation="unrelated",
        probabilities=_BYSTANDS.copy(),
        why="why_model",
        evidence=evidence,
        concern=concern,
    )
