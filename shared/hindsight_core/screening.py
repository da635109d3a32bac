"""A new memory among its neighbours: who is a bystander, what the learned model makes of the others, and the last word.

The last word waits for a `PairReader`, where there is one: `screen` says whom it should read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from hindsight_core.closeness import closeness
from hindsight_core.guards import RAISING
from hindsight_core.likeness import likeness
from hindsight_core.models import Memory
from hindsight_core.pair_model import shipped
from hindsight_core.pairs import Candidate, PairDecision, weighed
from hindsight_core.relations import RELATIONS, Odds, only
from hindsight_core.slots import Reading, fits, read, same_text

# On one writer's memories in one store, 15 of 16 neighbours are bystanders. Reading the eight nearest of them and
# judging the four that most seem concerned misses 6 % of the pairs that matter and costs a fifth of judging all.
_EQUAL = 1e-5
_NOTHING: Mapping[str, NDArray[np.float32]] = MappingProxyType({})
_READ = 8
_JUDGED = 4
# On pairs of writers left out, a quarter is settled so; of what is decided, a tenth of a per cent becomes another.
_SURE = 0.95
_IDLE = 0.1
_BYSTANDER = 0.2
_NAMED = frozenset(["same", "default"])
CONCERNED = 0.5
"""From which concern on two texts that stand beside each other are related."""

_ENOUGH = 0.75
_ENOUGH_AMONG = 0.97


def decide_pair(
    new: Memory,
    old: Memory,
    *,
    cosine: float,
    new_vector: NDArray[np.float32] | None = None,
    old_vector: NDArray[np.float32] | None = None,
    embedding_model: str | None = None,
) -> PairDecision:
    """Judge one pair by what both say; which of them is newer is not asked here (`order_of`). Never raises.

    `embedding_model` is the identity of both vectors: the learned part is used where it was trained on that.
    """
    candidate = Candidate(old=old, cosine=cosine, vector=old_vector)
    return decide_pairs(new, new_vector, [candidate], embedding_model=embedding_model)[0]


def decide_pairs(
    new: Memory,
    new_vector: NDArray[np.float32] | None,
    candidates: Sequence[Candidate],
    *,
    embedding_model: str | None = None,
    least: float = 0.0,
) -> list[PairDecision]:
    """`decide_pair` for all neighbours of a new memory at once, in their order."""
    return screen(new, new_vector, candidates, embedding_model=embedding_model, least=least).decided()


class Screening:
    """A new memory among its neighbours before the last word: who is no bystander, and what the model makes of them."""

    def __init__(self, new: Memory, candidates: Sequence[Candidate]) -> None:
        self._new = new
        self._candidates = candidates
        self.found: dict[int, PairDecision] = {}
        self.concerns: dict[int, float] = {}
        self.readings: dict[int, Reading] = {}
        self.scores: dict[int, NDArray[np.float32]] = {}
        self.odds: dict[int, NDArray[np.float64]] = {}

    @property
    def unread(self) -> dict[str, float]:
        """Whom a `PairReader` could say more about, by id, and how probable it is so far that something follows."""
        model = shipped()
        if model is None or not model.hears:
            return {}
        b, count = read(self._new.content), len(self._candidates)
        found: dict[str, float] = {}
        for i, alone in self.odds.items():
            odds = concerned(alone, self.concerns[i], count)
            if not same_text(self.readings[i], b) and not settled(odds):
                found[self._candidates[i].old.id] = _follows(odds)
        return found

    def decided(self, heard: Mapping[str, NDArray[np.float32]] = _NOTHING) -> list[PairDecision]:
        """A decision a neighbour, in their order; `heard` is what a `PairReader` says, by the old one's id."""
        model, b = shipped(), read(self._new.content)
        found = dict(self.found)
        for i, scores in self.scores.items():
            assert model is not None
            candidate = self._candidates[i]
            said = heard.get(candidate.old.id)
            odds, concern, count = self.odds[i], self.concerns[i], len(self._candidates)
            if said is not None:
                odds = together(odds, model.odds(scores[None, :], said[None, :])[0], concern, count)
            learned = concerned(odds, concern, count)
            found[i] = weighed(self._new, candidate, self.readings[i], b, learned, concern, said=said)
        return [found[i] for i in range(len(self._candidates))]


def screen(
    new: Memory,
    new_vector: NDArray[np.float32] | None,
    candidates: Sequence[Candidate],
    *,
    embedding_model: str | None = None,
    least: float = 0.0,
) -> Screening:
    """Tell bystanders from neighbours that a new memory concerns, and score the latter.

    The more there are, the more of them are bystanders: only the nearest are read, only those that may be concerned
    are judged by the model, and its doubt weighs more. Memories that share the new one's key, or name what it names,
    are always judged, unless that changes nothing: where all that the model can say comes to less than `least`, below
    which no probability of the first four relations counts, the guards alone judge, as if it had said `unrelated`.
    """
    screening = Screening(new, candidates)
    found, concerns = screening.found, screening.concerns
    b = read(new.content)
    model = shipped()
    if model is None or new_vector is None or not model.fits(embedding_model):
        found |= {i: weighed(new, each, read(each.old.content), b, None, None) for i, each in enumerate(candidates)}
        return screening
    order = sorted(range(len(candidates)), key=lambda i: (-candidates[i].cosine, candidates[i].old.id))
    best = candidates[order[0]].cosine if order else 0.0
    likenesses: dict[int, dict[str, float]] = {}
    named: set[int] = set()
    rank, last = 0, best
    for place, i in enumerate(order):
        candidate = candidates[i]
        if candidate.cosine < last - _EQUAL:  # equal texts share their rank
            rank, last = place, candidate.cosine
        old, one_slot = candidate.old, new.key is not None and new.key == candidate.old.key
        if candidate.vector is None or old.embedding_model not in {None, embedding_model}:
            found[i] = weighed(new, candidate, read(old.content), b, None, None)
        elif len(candidates) == 1:
            a = read(old.content)
            likenesses[i] = likeness(new, old, a, b)
            near = closeness(a, b, candidate.cosine, best, rank) | likenesses[i]
            concerns[i] = 1.0 if one_slot else model.concern_alone(near)
        elif one_slot:
            concerns[i] = 1.0
        elif place >= _READ and (b.attribute is None or fits(read(old.content), b) not in _NAMED):
            found[i] = _bystander(candidate, 0.0)
        else:
            a = read(old.content)
            concern = model.concern(closeness(a, b, candidate.cosine, best, rank))
            if fits(a, b) in _NAMED:
                named.add(i)
            if i in named or concern >= _BYSTANDER or same_text(a, b):
                concerns[i] = concern
            else:
                found[i] = _bystander(candidate, concern)
    judged = sorted(concerns, key=lambda i: -concerns[i])
    found |= {
        i: _bystander(candidates[i], concerns[i]) for i in judged[_JUDGED:] if concerns[i] < 1.0 and i not in named
    }
    readings = screening.readings
    readings |= {i: read(candidates[i].old.content) for i in judged if i not in found}
    for i, a in readings.items():
        if concerns[i] < CONCERNED and _share(concerns[i], len(candidates)) < least:
            unheard = weighed(new, candidates[i], a, b, _BYSTANDS, concerns[i], judge="guards")
            if RAISING.isdisjoint(unheard.evidence["guards"]):
                found[i] = unheard
    rows = [i for i in readings if i not in found]
    if rows:
        scores = model.scores(
            [likenesses.get(i) or likeness(new, candidates[i].old, readings[i], b) for i in rows],
            [candidates[i].cosine for i in rows],
            np.stack([np.asarray(candidates[i].vector, dtype=np.float32) for i in rows]),
            np.asarray(new_vector, dtype=np.float32)[None, :],
        )
        screening.scores |= dict(zip(rows, scores, strict=True))
        screening.odds |= dict(zip(rows, model.odds(scores), strict=True))
    return screening


def concerned(odds: NDArray[np.float64], concern: float, neighbours: int = 1) -> Odds:
    """The model's probabilities for two texts that speak of one matter with probability `concern`.

    Alone, they count in full from `_ENOUGH` on: somebody chose to compare the two. Among n neighbours, of which all
    but one are bystanders, they count by (concern / `_ENOUGH_AMONG`)^(1 + log4 n), at most in full. What the doubt
    takes from the relations that change something goes to those that leave the old one alone.
    """
    found: Odds = {name: float(p) for name, p in zip(RELATIONS, odds, strict=True)}
    share = _share(concern, neighbours)
    taken = 0.0
    for name in RELATIONS[:4]:
        taken += found[name] * (1.0 - share)
        found[name] *= share
    beside = found["coexist"] / max(found["coexist"] + found["unrelated"], 1e-9)
    found["coexist"] += taken * beside
    found["unrelated"] += taken * (1.0 - beside)
    return found


def settled(odds: Odds) -> bool:
    """Whether the kernel is so sure of one relation, or that nothing follows, that reading changes next to nothing."""
    return max(odds.values()) >= _SURE or _follows(odds) < _IDLE


def _follows(odds: Odds) -> float:
    """How probable it is that something becomes of the old one."""
    return sum(odds[name] for name in RELATIONS[:4])


def together(
    odds: NDArray[np.float64], read: NDArray[np.float64], concern: float, neighbours: int = 1
) -> NDArray[np.float64]:
    """The kernel's probabilities and those of both: the reader knows pairs of one matter, and counts as far as this is.

    All have shape (6,); `concern` and `neighbours` as of `concerned`.
    """
    share = _share(concern, neighbours)
    return (1 - share) * odds + share * read


def _share(concern: float, neighbours: int) -> float:
    """How much of the model's word counts; see `concerned`."""
    if neighbours > 1:
        return math.pow(min(1.0, concern / _ENOUGH_AMONG), 1 + math.log(neighbours, 4))
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
