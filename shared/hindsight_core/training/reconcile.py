"""Train the pair judge and measure it on writers it has not seen.

``python -m hindsight_core.training.reconcile --data DIR [--data DIR …] [--own DIR] [--out DIR]``

Every ``reconcile*.jsonl`` of a ``--data`` folder is one writer; all files of an ``--own`` folder together are one.
Each line is ``{"lang", "old": {content, source, confidence}, "new": {…}, "expect": relation}``. Each writer is judged
by a model that never saw that writer; the figures go into the card beside the weights.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.embedding import EmbeddingIdentity, open_embedder
from hindsight_core.likeness import closeness, likeness
from hindsight_core.models import Memory, Source
from hindsight_core.pair_model import (
    CLIP,
    STEPS,
    Card,
    Floats,
    Kernel,
    Points,
    concern,
    kernel,
    linked,
    packed,
    project,
    standard,
    unpacked,
)
from hindsight_core.pairs import RELATIONS, Relation, concerned, guarded
from hindsight_core.reconciliation import ReconcileSettings, verdict
from hindsight_core.slots import read

SHAPE = Kernel(
    likeness=0.45,
    likeness_wide=0.25,
    way=0.15,
    place=1.5,
    w_likeness=0.3,
    w_way=0.15,
    w_both=0.1,
    w_product=0.4,
    w_place=2.0,
    w_new_place=0.3,
    w_new=0.1,
    w_old=0.1,
)
RIDGE = 0.15
OWN_RIDGE = 0.3
SHRINK = 0.1
DIMENSIONS = 128
DAMPING = 0.075
CROWD = 16
LENIENCE = 30.0
_LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


class Side(msgspec.Struct, frozen=True):
    content: str
    source: Source
    confidence: float

    def memory(self, memory_id: str) -> Memory:
        return Memory(
            id=memory_id,
            namespace="training",
            content=self.content,
            source=self.source,
            confidence=self.confidence,
            valid_from=_LONG_AGO,
            created_at=_LONG_AGO,
            updated_at=_LONG_AGO,
        )


class Pair(msgspec.Struct, frozen=True):
    lang: str
    old: Side
    new: Side
    expect: Relation
    writer: str = ""
    own: bool = False


class Corpus(msgspec.Struct, frozen=True, eq=False):
    """Pairs with their features (n, d), vectors (n, dimension) twice, and labels (n,)."""

    pairs: list[Pair]
    names: tuple[str, ...]
    rows: Floats
    old: Floats
    new: Floats
    labels: NDArray[np.int64]

    @property
    def groups(self) -> NDArray[np.str_]:
        return np.array(["own" if pair.own else pair.writer for pair in self.pairs])

    @property
    def ridge(self) -> NDArray[np.float64]:
        """How little each pair is trusted: our own contrasts half as much as what others wrote."""
        return np.array([OWN_RIDGE if pair.own else RIDGE for pair in self.pairs])


def load(data: list[Path], own: list[Path]) -> list[Pair]:
    """All pairs of these folders, in the order of file names."""
    found: list[Pair] = []
    for folder, ours in [*((d, False) for d in data), *((d, True) for d in own)]:
        for file in sorted(folder.rglob("reconcile*.jsonl")):
            for line in file.read_text("utf-8").splitlines():
                pair = msgspec.json.decode(line, type=Pair)
                found.append(msgspec.structs.replace(pair, writer=file.stem, own=ours))
    return found


async def embed(pairs: list[Pair]) -> tuple[EmbeddingIdentity, dict[str, Floats]]:
    """The vector of every text, by the default embedder."""
    embedder = open_embedder()
    texts = list(dict.fromkeys(text for pair in pairs for text in (pair.old.content, pair.new.content)))
    vectors = await embedder.embed(texts, "passage")
    identity = embedder.identity
    await embedder.aclose()
    return identity, dict(zip(texts, vectors, strict=True))


def corpus(pairs: list[Pair], vectors: dict[str, Floats]) -> Corpus:
    old = np.stack([vectors[pair.old.content] for pair in pairs])
    new = np.stack([vectors[pair.new.content] for pair in pairs])
    each = [
        likeness(pair.new.memory("new"), pair.old.memory("old"), read(pair.old.content), read(pair.new.content))
        for pair in pairs
    ]
    names = tuple(each[0])
    rows = np.array([[row[name] for name in names] for row in each], dtype=np.float32)
    rows = np.hstack([rows, (old * new).sum(1, keepdims=True)]).astype(np.float32)
    labels = np.array([RELATIONS.index(pair.expect) for pair in pairs])
    return Corpus(pairs, (*names, "cosine"), rows, old, new, labels)


class Base(msgspec.Struct, frozen=True, eq=False):
    """What is common to all folds: standardised, projected and rounded pairs, and their kernel matrix."""

    centre: Floats
    scale: Floats
    middle: Floats
    projection: Floats
    points: Points
    spread: dict[str, float]
    norm: float
    gram: Floats


def base(data: Corpus) -> Base:
    centre, scale = data.rows.mean(0), data.rows.std(0) + np.float32(1e-6)
    texts = np.vstack([data.old, data.new])
    middle = texts.mean(0)
    spans, axes = np.linalg.eigh((texts - middle).T @ (texts - middle))
    spans, axes = spans[::-1][:DIMENSIONS], axes[:, ::-1][:, :DIMENSIONS]
    # A little less of the widest directions: they tell topics apart, not what is said about them.
    projection = (axes * (spans / spans[0]) ** -DAMPING).astype(np.float16).astype(np.float32)
    points = Points(
        np.round(standard(data.rows, centre, scale) * (STEPS / CLIP)).astype(np.float32) * (CLIP / STEPS),
        unpacked(*packed(project(data.old, middle, projection))),
        unpacked(*packed(project(data.new, middle, projection))),
    )
    spread = {
        "likeness": float(points.likeness.var(0).sum()),
        "step": float(np.abs(points.old - points.new).var(0).sum()),
        "product": float((points.old * points.new).var(0).sum()),
    }
    gram = kernel(points, points, SHAPE, spread)
    norm = float(np.diag(gram).mean())
    return Base(centre, scale, middle, projection, points, spread, norm, gram / np.float32(norm))


def solve(
    gram: Floats, labels: NDArray[np.int64], ridge: NDArray[np.float64], prior: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Kernel ridge regression on one-hot labels less their prior: weights of shape (n, 6)."""
    targets = np.eye(len(RELATIONS))[labels] - prior
    return np.asarray(np.linalg.solve(gram + np.diag(ridge), targets), dtype=np.float64)


def link(
    scores: NDArray[np.float64], labels: NDArray[np.int64], classes: int = len(RELATIONS)
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Multinomial logistic regression from scores to classes (Newton): (d, classes) coefficients, (classes,) offsets.

    Minimises the negative log-likelihood plus half of `SHRINK` times the sum of squared coefficients.
    """
    inputs = np.hstack([scores, np.ones((len(scores), 1))])
    n, d, k = len(inputs), inputs.shape[1], classes
    theta = np.zeros((d, k))
    penalty = np.full((d, k), SHRINK)
    penalty[-1] = 1e-3
    for _ in range(50):
        odds = linked(inputs, theta, np.zeros(k))
        slope = inputs.T @ (odds - np.eye(k)[labels]) + penalty * theta
        curve = np.zeros((d * k, d * k))
        for i in range(k):
            for j in range(k):
                weight = odds[:, i] * (float(i == j) - odds[:, j])
                curve[i * d : (i + 1) * d, j * d : (j + 1) * d] = (inputs * weight[:, None]).T @ inputs
        curve += np.diag(penalty.T.ravel())
        step = np.linalg.solve(curve, slope.T.ravel()).reshape(k, d).T
        theta -= step
        if np.abs(step).max() < 1e-8 * n:
            break
    return theta[:-1], theta[-1]


def left_out(data: Corpus, common: Base, prior: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores of every pair by a model without its writer."""
    scores = np.zeros((len(data.pairs), len(RELATIONS)))
    for group in sorted(set(data.groups)):
        test, train = np.flatnonzero(data.groups == group), np.flatnonzero(data.groups != group)
        weights = solve(common.gram[np.ix_(train, train)], data.labels[train], data.ridge[train], prior)
        scores[test] = common.gram[np.ix_(test, train)] @ weights
    return scores


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


def measure(decided: list[str], expected: list[Relation]) -> dict[str, float]:
    """The measures of the module's contract, shares in [0, 1], with the half-width of a 95 % interval where it counts.

    `wrong`: superseded though it still holds, of all; `missed`: neither superseded nor contested, of the true
    supersessions; `contested`, of all and of the unrelated; `accuracy` of what was decided; `settled`: the same with
    every contested pair settled rightly.
    """
    n = len(expected)
    pairs = list(zip(decided, expected, strict=True))
    true = [d for d, e in pairs if e == "supersede"]
    apart = [d for d, e in pairs if e == "unrelated"]
    clear = [(d, e) for d, e in pairs if d != "contest"]
    right = sum(d == e for d, e in clear)
    wrong = sum(d == "supersede" != e for d, e in pairs) / n
    missed = sum(d not in {"supersede", "contest"} for d in true) / max(1, len(true))
    return {
        "pairs": float(n),
        "wrong": wrong,
        "wrong_95": _half(wrong, n),
        "wrongly_refined": sum(d == "refine" and e in {"coexist", "unrelated", "pending"} for d, e in pairs) / n,
        "missed": missed,
        "missed_95": _half(missed, len(true)),
        "contested": sum(d == "contest" for d in decided) / n,
        "contested_unrelated": sum(d == "contest" for d in apart) / max(1, len(apart)),
        "accuracy": right / max(1, len(clear)),
        "accuracy_95": _half(right / max(1, len(clear)), len(clear)),
        "settled": (right + n - len(clear)) / n,
    }


def _half(share: float, n: int) -> float:
    # Half of Wilson's interval.
    n, z = max(n, 1), 1.96
    return z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))


def decide(
    data: Corpus, odds: NDArray[np.float64], concerns: NDArray[np.float64], settings: ReconcileSettings
) -> list[str]:
    """What the product does with each pair: the gate, the guards, then the thresholds."""
    found: list[str] = []
    ceiling = settings.supersede_at - 1e-6
    for pair, row, share in zip(data.pairs, odds, concerns, strict=True):
        judged = concerned(row, float(share))
        new, old = pair.new.memory("new"), pair.old.memory("old")
        kept, _ = guarded(judged, new, old, read(old.content), read(new.content))
        sure = share >= settings.concern_at
        found.append(verdict(kept, kept["supersede"] if sure else min(kept["supersede"], ceiling), settings))
    return found


def report(data: Corpus, decided: list[str]) -> dict[str, dict[str, float]]:
    """Figures by writer and language and over all writers but our own; printed as a table, with the confusion."""
    rows: dict[str, list[int]] = {}
    for i, pair in enumerate(data.pairs):
        group = "own" if pair.own else pair.writer.removeprefix("reconcile_")
        for name in (group, *(() if pair.own else (f"all {pair.lang}", "all"))):
            rows.setdefault(name, []).append(i)
    figures = {
        name: measure([decided[i] for i in at], [data.pairs[i].expect for i in at]) for name, at in sorted(rows.items())
    }
    for name, found in figures.items():
        cells = [f"{key} {100 * v:.1f}" for key, v in found.items() if key != "pairs"]
        _say(f"{name:12} n={found['pairs']:.0f} " + " · ".join(cells))
    columns = [*RELATIONS, "contest"]
    _say("expected \\ decided: " + " ".join(columns))
    for expected in RELATIONS:
        counts = [
            sum(decided[i] == column and data.pairs[i].expect == expected for i in rows["all"]) for column in columns
        ]
        _say(f"{expected:10} " + " ".join(f"{count:5}" for count in counts))
    return figures


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def main(arguments: list[str] | None = None) -> None:
    """Read the folders, measure with each writer left out, fit on everything, write both files."""
    parser = argparse.ArgumentParser(description="Train the pair judge of reconciliation.")
    parser.add_argument("--data", type=Path, action="append", required=True, help="a folder; each file is one writer")
    parser.add_argument("--own", type=Path, action="append", default=[], help="a folder; all its files are one writer")
    parser.add_argument("--out", type=Path, help="where both files go (none: measure only)")
    parser.add_argument("--vectors", type=Path, help="keep the vectors in this file between runs")
    options = parser.parse_args(arguments)
    pairs = load(options.data, options.own)
    identity, vectors = _vectors(pairs, options.vectors)
    data = corpus(pairs, vectors)
    common = base(data)
    others = np.array([not pair.own for pair in pairs])
    prior = np.bincount(data.labels[others], minlength=len(RELATIONS)) / others.sum()
    scores = left_out(data, common, prior)
    odds = np.zeros_like(scores)
    concerns = np.zeros(len(pairs))
    everyone = crowd(data)
    for group in sorted(set(data.groups)):
        test = data.groups == group
        # Our own pairs are all contrasts: they teach the model but say little about how often it is right.
        odds[test] = linked(scores[test], *link(scores[others & ~test], data.labels[others & ~test]))
        weights, offset = gate(everyone, ~test[everyone.pair])
        for i in np.flatnonzero(test):
            cosine = float(data.rows[i, -1])
            near = closeness(read(pairs[i].old.content), read(pairs[i].new.content), cosine, cosine, 0)
            concerns[i] = concern(weights, offset, near)
    figures = report(data, decide(data, odds, concerns, ReconcileSettings()))
    if options.vectors:
        np.savez(options.vectors.with_suffix(".odds.npz"), odds=odds, concerns=concerns)
    if options.out is None:
        return
    coefficients, offsets = link(scores[others], data.labels[others])
    weights, offset = gate(everyone, np.ones(len(everyone.pair), dtype=bool))
    card = Card(
        model=identity.model,
        dimension=identity.dimension,
        calibration=identity.calibration,
        features=data.names,
        centre=tuple(round(float(x), 6) for x in common.centre),
        scale=tuple(round(float(x), 6) for x in common.scale),
        kernel=SHAPE,
        spread=common.spread,
        norm=common.norm,
        link=tuple(tuple(float(x) for x in row) for row in coefficients),
        offset=tuple(float(x) for x in offsets),
        gate=weights,
        gate_offset=offset,
        pairs=len(pairs),
        figures={name: {key: round(v, 4) for key, v in found.items()} for name, found in figures.items()},
    )
    old, old_step = packed(project(data.old, common.middle, common.projection))
    new, new_step = packed(project(data.new, common.middle, common.projection))
    options.out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        options.out / "reconcile.npz",
        likeness=np.round(standard(data.rows, common.centre, common.scale) * (STEPS / CLIP)).astype(np.int8),
        old=old,
        old_step=old_step,
        new=new,
        new_step=new_step,
        projection=common.projection.astype(np.float16),
        middle=common.middle,
        weights=solve(common.gram, data.labels, data.ridge, prior).astype(np.float32),
    )
    text = json.dumps(msgspec.to_builtins(card), ensure_ascii=False, indent=1)
    (options.out / "reconcile.json").write_text(text + "\n", "utf-8")


def _vectors(pairs: list[Pair], file: Path | None) -> tuple[EmbeddingIdentity, dict[str, Floats]]:
    texts = {text for pair in pairs for text in (pair.old.content, pair.new.content)}
    if file is not None and file.is_file():
        with np.load(file) as kept:
            known = dict(zip(kept["texts"].tolist(), kept["vectors"], strict=True))
            identity = msgspec.json.decode(kept["identity"].tobytes(), type=EmbeddingIdentity)
        if texts <= known.keys():
            return identity, known
    identity, found = asyncio.run(embed(pairs))
    if file is not None:
        np.savez(
            file,
            texts=np.array(list(found)),
            vectors=np.stack(list(found.values())),
            identity=np.frombuffer(msgspec.json.encode(identity), dtype=np.uint8),
        )
    return identity, found


if __name__ == "__main__":
    main()
