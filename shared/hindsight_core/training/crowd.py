"""New texts among all old texts of their writer, as a store would find them, and what bystanders look like there."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.closeness import closeness
from hindsight_core.pair_model import Floats
from hindsight_core.slots import read
from hindsight_core.training.pairs import Corpus
from hindsight_core.training.solving import link

CROWD = 16
LENIENCE = 30.0


class Crowd(msgspec.Struct, frozen=True, eq=False):
    """Every new text among the old texts of its writer, as a store would find them: the nearest `CROWD`.

    `rows` are `closeness` features, `chosen` whether the writer meant this pair, `pair` the index of the new text.
    """

    names: tuple[str, ...]
    rows: NDArray[np.float64]
    chosen: NDArray[np.int64]
    pair: NDArray[np.int64]


def crowd(data: Corpus) -> Crowd:
    """Simulate the stores."""
    found: list[tuple[dict[str, float], bool, int]] = []
    groups, languages = data.groups, np.array([pair.lang for pair in data.pairs])
    for group, language in sorted({(str(g), str(x)) for g, x in zip(groups, languages, strict=True)}):
        at: list[int] = np.flatnonzero((groups == group) & (languages == language)).tolist()
        olds = {data.pairs[i].old.content: i for i in at}
        texts, vectors = list(olds), data.old[list(olds.values())]
        for i in at:
            pair = data.pairs[i]
            cosines: Floats = np.asarray(vectors @ data.new[i], dtype=np.float32)
            # Pairs that share a text may be related in more ways than the one that their writer named.
            same = {data.pairs[j].old.content for j in at if data.pairs[j].new.content == pair.new.content}
            nearest: list[int] = cosines.argsort()[::-1].tolist()
            order = [j for j in nearest if texts[j] == pair.old.content or texts[j] not in same]
            b = read(pair.new.content)
            # Once as it is, once as if the old text had never been said: then the nearest is a bystander too.
            for places in (order, [j for j in order if texts[j] != pair.old.content]):
                best = float(cosines[places[0]])
                for rank, j in enumerate(places[:CROWD]):
                    near = closeness(read(texts[j]), b, float(cosines[j]), best, rank)
                    found.append((near, texts[j] == pair.old.content, i))
    names = tuple(found[0][0])
    rows = np.array([[near[name] for name in names] for near, _, _ in found])
    return Crowd(names, rows, np.array([int(c) for _, c, _ in found]), np.array([i for _, _, i in found]))


def gate(everyone: Crowd, among: NDArray[np.bool_]) -> tuple[dict[str, float], float]:
    """Weights and offset of the probability that a neighbour is concerned, from the rows that `among` selects.

    `LENIENCE` raises the odds: a bystander let through costs a question, one shut out an outdated memory.
    """
    rows = everyone.rows[among]
    centre, scale = rows.mean(0), rows.std(0) + 1e-9
    coefficients, offset = link((rows - centre) / scale, everyone.chosen[among], classes=2)
    weights = (coefficients[:, 1] - coefficients[:, 0]) / scale
    start = offset[1] - offset[0] - float(weights @ centre) + math.log(LENIENCE)
    return {name: float(w) for name, w in zip(everyone.names, weights, strict=True)}, float(start)
