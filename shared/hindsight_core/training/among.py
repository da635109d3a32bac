"""A new line among several neighbours: whom it concerns, and what of, learned from stories (`training/stories.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.closeness import closeness
from hindsight_core.learned import Link, linked
from hindsight_core.pair_model import Floats, Gate, PairModel, doubts, project
from hindsight_core.pairs import Candidate
from hindsight_core.relations import RELATIONS
from hindsight_core.screening import READ, screen
from hindsight_core.slots import read
from hindsight_core.training import solving
from hindsight_core.training.solving import Base, link, linkage
from hindsight_core.training.stories import Meeting

# So many directions of meaning tell the same of writers left out with five times as much or a half.
GATE_SHRINK = 200.0


class Among(msgspec.Struct, frozen=True, eq=False):
    """The neighbours of all meetings, end to end: `rows` of `closeness`, the index of the relation and of the meeting.

    `old` and `new` are the projected vectors of both texts. `writers` are of the meetings, `keys` name the pairs as the
    words of readers do.
    """

    names: tuple[str, ...]
    rows: NDArray[np.float64]
    old: Floats
    new: Floats
    relation: NDArray[np.int64]
    meeting: NDArray[np.int64]
    writers: NDArray[np.str_]
    keys: list[str]

    @property
    def writer(self) -> NDArray[np.str_]:
        """Whose each neighbour is."""
        return self.writers[self.meeting]


def among(met: list[Meeting], vectors: Mapping[str, Floats], common: Base) -> Among:
    """The nearest `READ` of each meeting with several neighbours."""
    place = {text: i for i, text in enumerate(vectors)}
    places = project(np.stack(list(vectors.values())), common.middle, common.projection)
    olds: list[int] = []
    news: list[int] = []
    near: list[dict[str, float]] = []
    relation: list[int] = []
    which: list[int] = []
    keys: list[str] = []
    for number, each in enumerate(met):
        if len(each.near) < 2:
            continue
        b, best = read(each.new.content), each.near[0][1]
        for rank, (old, cosine) in enumerate(each.near[:READ]):
            near.append(closeness(read(old.content), b, cosine, best, rank, len(each.near)))
            relation.append(RELATIONS.index(each.expect[rank]))
            which.append(number)
            keys.append(f"{old.content}\n{each.new.content}")
            olds.append(place[old.content])
            news.append(place[each.new.content])
    names = tuple(near[0])
    return Among(
        names=names,
        rows=np.array([[row[name] for name in names] for row in near]),
        old=places[olds],
        new=places[news],
        relation=np.array(relation),
        meeting=np.array(which),
        writers=np.array([each.story.writer for each in met]),
        keys=keys,
    )


def gate(data: Among, taken: NDArray[np.bool_]) -> Gate:
    """Of the probability that a neighbour is concerned, from the rows that `taken` selects."""
    concerned = (data.relation[taken] != RELATIONS.index("unrelated")).astype(np.int64)
    meant = data.old[taken], data.new[taken]
    return solving.gate(data.names, data.rows[taken], concerned, shrink=GATE_SHRINK, meant=meant)


class Rows(msgspec.Struct, frozen=True, eq=False):
    """Those whom the model judges, by their place in `Among`: what the links see of them, without a reader's words.

    `read`, (n, 12), are these words; NaN where there are none.
    """

    at: NDArray[np.int64]
    rows: Floats
    relation: NDArray[np.int64]
    writer: NDArray[np.str_]
    read: NDArray[np.float64]


def judged(
    data: Among, met: list[Meeting], vectors: dict[str, Floats], model: PairModel, said: Mapping[str, Floats]
) -> Rows:
    """Screened as the product does, by gates that have not seen the writer; `model` knows none of these stories."""
    models: dict[str, PairModel] = {}
    for writer in sorted(set(data.writer.tolist())):
        models[writer] = model.with_gate(gate(data, data.writer != writer))
    at: list[int] = []
    rows: list[Floats] = []
    for number, places in _by_meeting(data):
        each = met[number]
        candidates = [Candidate(old=old, cosine=cosine, vector=vectors[old.content]) for old, cosine in each.near]
        found = screen(
            each.new,
            vectors[each.new.content],
            candidates,
            embedding_model=each.new.embedding_model,
            model=models[each.story.writer],
        )
        kept = [i for i in sorted(found.scores) if i < len(places)]
        if kept:
            at += [places[i] for i in kept]
            scores = np.stack([found.scores[i] for i in kept])
            rows.append(np.hstack([scores, doubts([found.concerns[i] for i in kept])]))
    nothing = np.full(2 * len(RELATIONS), np.nan, dtype=np.float32)
    return Rows(
        at=np.array(at),
        rows=np.vstack(rows),
        relation=data.relation[at],
        writer=data.writer[at],
        read=np.stack([said.get(data.keys[i], nothing) for i in at]).astype(np.float64),
    )


def links(found: Rows, taken: NDArray[np.bool_], *, heard: bool) -> Link:
    """From the rows that `taken` selects to probabilities; with `heard` from the words of readers, too."""
    rows = np.hstack([found.rows, found.read]) if heard else found.rows
    if heard:
        taken = taken & ~np.isnan(found.read[:, 0])
    return linkage(link(np.asarray(rows[taken], dtype=np.float64), found.relation[taken]))


def left_out(found: Rows, *, heard: bool) -> NDArray[np.float64]:
    """Probabilities (n, 6) by links that have not seen the writer; NaN where there are no words to go by."""
    odds = np.full((len(found.at), len(RELATIONS)), np.nan)
    rows = np.hstack([found.rows, found.read]) if heard else found.rows
    for writer in sorted(set(found.writer.tolist())):
        test = found.writer == writer
        if heard:
            test &= ~np.isnan(found.read[:, 0])
        if test.any():
            odds[test] = linked(rows[test], links(found, found.writer != writer, heard=heard))
    return odds


def _by_meeting(data: Among) -> Iterator[tuple[int, list[int]]]:
    starts = np.flatnonzero(np.r_[True, np.diff(data.meeting) > 0]).tolist()
    for start, end in zip(starts, [*starts[1:], len(data.meeting)], strict=True):
        yield int(data.meeting[start]), list(range(start, end))
