"""A text that finds but one neighbour: how to tell whether the two speak of one matter, learned from random pairs."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.closeness import closeness
from hindsight_core.likeness import likeness
from hindsight_core.pair_model import Gate
from hindsight_core.slots import read
from hindsight_core.training.pairs import Corpus
from hindsight_core.training.solving import gate

LENIENCE = 12.0
SEED = 1


def features(data: Corpus, new: int, old: int) -> dict[str, float]:
    """Of the new text of one pair and the old text of another (or the same), as if they were alone in a store."""
    one, other = data.pairs[new].new.memory("new"), data.pairs[old].old.memory("old")
    a, b = read(other.content), read(one.content)
    cosine = float(data.old[old] @ data.new[new])
    return closeness(a, b, cosine, cosine, 0) | likeness(one, other, a, b)


class Lone:
    """Every pair as it is, and every new text with an old text of another pair by the same writer, drawn by lot."""

    def __init__(self, data: Corpus) -> None:
        draw = np.random.default_rng(SEED)
        languages, groups = np.array([pair.lang for pair in data.pairs]), data.groups
        found: list[dict[str, float]] = []
        chosen: list[int] = []
        of: list[int] = []
        for i, pair in enumerate(data.pairs):
            same: list[int] = np.flatnonzero((groups == groups[i]) & (languages == languages[i])).tolist()
            others = [j for j in same if data.pairs[j].old.content != pair.old.content and abs(i - j) > 1]
            for j, concerned in ((i, 1), (int(draw.choice(others)), 0)):
                found.append(features(data, i, j))
                chosen.append(concerned)
                of.append(i)
        self.names = tuple(found[0])
        self.rows = np.array([[row[name] for name in self.names] for row in found])
        self.chosen = np.array(chosen, dtype=np.int64)
        self.pair = np.array(of)

    def gate(self, among: NDArray[np.bool_]) -> Gate:
        """Of the probability that the two are concerned, from the pairs that `among` selects."""
        taken = among[self.pair]
        found = gate(self.names, self.rows[taken], self.chosen[taken], shrink=20.0)
        return msgspec.structs.replace(found, offset=found.offset + math.log(LENIENCE))
