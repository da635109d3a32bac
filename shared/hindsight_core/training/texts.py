"""What the training of the gate and of the recall trigger share: kernel ridge regression with writers left out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.learned import STEPS, Card, Floats, Link, dense, likely, tfidf
from hindsight_core.wording import ROLES, Wording

RARE = 2
AXES = 192
RESAMPLES = 1000
COMMON = 64
NEAR = 0.002
Places: TypeAlias = NDArray[np.intp]
Labels: TypeAlias = NDArray[np.int64]
Odds: TypeAlias = NDArray[np.float64]
Measure: TypeAlias = Callable[[Labels, Odds, Odds], dict[str, float]]


class Texts(msgspec.Struct, frozen=True, eq=False):
    """Texts as the model sees them: vectors (n, dimension), targets (n, k) in [-1, 1], classes and writers (n,).

    `apart`, where it is given: the classes after the first are told apart by what was learned from texts of these
    classes alone, those where it is true, (n,).
    """

    wordings: list[Wording]
    vectors: Floats
    targets: NDArray[np.float64]
    classes: NDArray[np.int64]
    writers: NDArray[np.str_]
    languages: NDArray[np.str_]
    apart: NDArray[np.bool_] | None = None


class Grams(msgspec.Struct, frozen=True, eq=False):
    """The grams of texts: names and idf (g,); then, an entry a gram in a text: which gram, which text, its weight."""

    names: list[str]
    idf: Floats
    gram: Places
    text: Places
    weight: Floats
    texts: int

    def kernel(self) -> Floats:
        """How much each text shares with each other, (n, n): the products of their weights, summed."""
        order = np.argsort(self.gram, kind="stable")
        starts = np.searchsorted(self.gram[order], np.arange(len(self.names) + 1))
        shared = np.zeros((self.texts, self.texts), dtype=np.float32)
        common: list[Floats] = []
        for start, end in pairwise(starts.tolist()):
            entries = order[start:end]
            text, weight = self.text[entries], self.weight[entries]
            if len(entries) <= COMMON:
                shared[np.ix_(text, text)] += np.outer(weight, weight)
            else:
                column = np.zeros(self.texts, dtype=np.float32)
                column[text] = weight
                common.append(column)
        if common:
            columns = np.stack(common)
            shared += columns.T @ columns
        return shared

    def primal(self, dual: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights of the grams, (g, k), that mean the same as those of the texts, (n, k)."""
        weights = np.zeros((len(self.names), dual.shape[1]))
        np.add.at(weights, self.gram, self.weight[:, None] * dual[self.text])
        return weights


def blank(model: str, classes: tuple[str, ...], gamma: float, texts: Texts) -> Card:
    """A card with everything but what is learned."""
    forms = np.array([wording.form for wording in texts.wordings])
    nothing = Link(tuple((0.0,) * len(classes) for _ in classes), (0.0,) * len(classes))
    return Card(
        model=model,
        classes=classes,
        cues=tuple(sorted({cue for wording in texts.wordings for cue in wording.cues})),
        form_centre=tuple(round(float(v), 5) for v in forms.mean(axis=0)),
        form_scale=tuple(round(float(v), 5) for v in np.maximum(forms.std(axis=0), 1e-3)),
        gamma=gamma,
        link=nothing,
        plain_link=nothing,
        thresholds={},
        plain_thresholds={},
        items=len(texts.wordings),
    )


def grams(wordings: Sequence[Wording], train: NDArray[np.bool_]) -> Grams:
    """Words and pairs in at least two training texts, with idf, and every text's weights of them."""
    containing: Counter[str] = Counter()
    for wording, kept in zip(wordings, train, strict=True):
        if kept:
            containing.update(wording.grams.keys())
    names = sorted(gram for gram, n in containing.items() if n >= RARE and "\n" not in gram)
    total = int(train.sum())
    idf = np.array([math.log((1 + total) / (1 + containing[gram])) + 1 for gram in names], dtype=np.float32)
    index = {gram: i for i, gram in enumerate(names)}
    each = [tfidf(wording.grams, index, idf) for wording in wordings]
    return Grams(
        names=names,
        idf=idf,
        gram=np.concatenate([found for found, _ in each]),
        text=np.repeat(np.arange(len(each)), [len(found) for found, _ in each]),
        weight=np.concatenate([weights for _, weights in each]),
        texts=len(each),
    )


def gaussian(a: Floats, b: Floats, gamma: float) -> Floats:
    squared = np.einsum("ij,ij->i", a, a)[:, None] + np.einsum("ij,ij->i", b, b)[None] - 2 * (a @ b.T)
    return np.asarray(np.exp(-gamma * np.maximum(squared, 0)), dtype=np.float32)


def solve(kernel: Floats, targets: NDArray[np.float64], ridge: NDArray[np.float64]) -> NDArray[np.float64]:
    system = kernel.astype(np.float64)
    system[np.diag_indices_from(system)] += ridge
    return np.asarray(np.linalg.solve(system, targets), dtype=np.float64)


def link(scores: NDArray[np.float64], classes: NDArray[np.int64], k: int, *, damping: float = 1e-3) -> Link:
    """The multinomial logistic regression of classes on scores, by Newton-free gradient steps with momentum."""
    n, d = scores.shape
    truth = np.eye(k)[classes]
    x = np.hstack([scores, np.ones((n, 1))])
    w = np.zeros((d + 1, k))
    speed = np.zeros_like(w)
    for _ in range(3000):
        logits = x @ w
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        odds /= odds.sum(axis=1, keepdims=True)
        slope = x.T @ (odds - truth) / n + damping * np.vstack([w[:-1], np.zeros((1, k))])
        speed = 0.9 * speed - 0.5 * slope
        w = w + speed
    return _linkage(w)


def _linkage(w: NDArray[np.float64]) -> Link:
    rows = [tuple(round(float(v), 5) for v in line) for line in w]
    return Link(tuple(rows[:-1]), rows[-1])


def axes(vectors: Floats) -> Floats:
    """The main axes of the vectors, (dimension, p), as they will be stored."""
    _, _, across = np.linalg.svd(vectors, full_matrices=False)
    return np.asarray(across[:AXES].T.astype(np.float16), dtype=np.float32)


def blocks(texts: Texts, card: Card) -> Floats:
    """Role, cues and form of all texts, (n, d)."""
    return np.stack([dense(wording, card) for wording in texts.wordings])


def left_out(
    texts: Texts, card: Card, ridge: NDArray[np.float64], folds: Sequence[str], *, plain: bool = False
) -> NDArray[np.float64]:
    """Scores of each fold's texts by a model that never saw that writer, as `coefficients` orders them.

    NaN for writers in no fold.
    """
    rows = blocks(texts, card)
    x = rows if plain else np.hstack([texts.vectors @ axes(texts.vectors), rows]).astype(np.float32)
    near = gaussian(x, x, card.gamma)
    scores: NDArray[np.float64] | None = None
    for fold in folds:
        out = texts.writers == fold
        kernel = near + grams(texts.wordings, ~out).kernel()
        found = kernel[out] @ coefficients(texts, kernel, ridge, ~out)
        if scores is None:
            scores = np.full((len(texts.wordings), found.shape[1]), np.nan)
        scores[out] = found
    assert scores is not None
    return scores


def coefficients(
    texts: Texts, kernel: Floats, ridge: NDArray[np.float64], among: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """What each text weighs, (n, k); 0 for texts that are not `among` those to learn from.

    Where classes are told apart among themselves, there is a column more for each class after the first.
    """
    dual = np.zeros(texts.targets.shape)
    dual[among] = solve(kernel[np.ix_(among, among)], texts.targets[among], ridge[among])
    if texts.apart is None:
        return dual
    others = among & texts.apart & (texts.classes > 0)
    count = int(texts.classes.max())
    which = np.zeros((len(dual), count))
    wanted = 2.0 * np.eye(count)[texts.classes[others] - 1] - 1.0
    which[others] = solve(kernel[np.ix_(others, others)], wanted, ridge[others])
    return np.hstack([dual, which])


def fit(texts: Texts, card: Card, ridge: NDArray[np.float64]) -> dict[str, NDArray[np.generic]]:
    """The arrays of the model trained on all texts."""
    everything = np.ones(len(texts.wordings), dtype=bool)
    rows = blocks(texts, card)
    projection = axes(texts.vectors)
    x = np.hstack([texts.vectors @ projection, rows]).astype(np.float32)
    step = np.maximum(np.abs(x).max(axis=0), 1e-6).astype(np.float32) / np.float32(STEPS)
    packed: NDArray[np.int8] = np.asarray(np.round(x / step), dtype=np.int8)
    x = np.asarray(packed, dtype=np.float32) * step
    found = grams(texts.wordings, everything)
    told = found.kernel()
    dual = coefficients(texts, gaussian(x, x, card.gamma) + told, ridge, everything)
    tail = x[:, projection.shape[1] :]
    plain_dual = coefficients(texts, gaussian(tail, tail, card.gamma) + told, ridge, everything)
    return {
        "projection": projection.astype(np.float16),
        "support": packed,
        "support_step": step,
        "dual": dual.astype(np.float16),
        "plain_dual": plain_dual.astype(np.float16),
        "grams": np.frombuffer("\n".join(found.names).encode("utf-8"), dtype=np.uint8),
        "idf": found.idf.astype(np.float16),
        "primal": found.primal(dual).astype(np.float16),
        "plain_primal": found.primal(plain_dual).astype(np.float16),
    }


def evaluate(
    texts: Texts, card: Card, ridge: NDArray[np.float64], strangers: NDArray[np.bool_], measure: Measure, main: str
) -> Card:
    """The card with links, thresholds and figures, every writer judged by a model that never saw that writer.

    Link and threshold come from `strangers`, the writers most like those to come; `main` names the measure that the
    threshold is chosen for.
    """
    k = len(card.classes)
    folds = sorted(set(texts.writers[strangers].tolist()))
    roles = np.array([wording.role for wording in texts.wordings])
    figures: dict[str, dict[str, float | str]] = {}
    for plain in (False, True):
        scores = left_out(texts, card, ridge, folds, plain=plain)
        odds = np.full((len(scores), k), np.nan)
        for fold in folds:  # the links, too, come from other writers
            chosen, others = texts.writers == fold, strangers & (texts.writers != fold)
            odds[chosen] = likely(scores[chosen], *_links(texts, scores, others, k))
        thresholds = {
            role: best(texts.classes[said], odds[said], measure, main)
            for role in ROLES
            if (said := strangers & (roles == role)).any()
        }
        needed = np.array([thresholds.get(role, 0.5) for role in roles.tolist()])
        final, apart = _links(texts, scores, strangers, k)
        if plain:
            card = msgspec.structs.replace(card, plain_link=final, plain_apart=apart, plain_thresholds=thresholds)
        else:
            card = msgspec.structs.replace(card, link=final, apart=apart, thresholds=thresholds)
        label = "wording alone" if plain else "meaning and wording"
        for lang in ("en", "zh", "both"):
            spoken = np.isin(texts.languages, ["en", "zh"] if lang == "both" else [lang])
            for fold in (*folds, "strangers"):
                chosen = spoken & (strangers if fold == "strangers" else texts.writers == fold)
                if chosen.any():
                    figures[f"{label}: {fold}, {lang}"] = row(
                        texts.classes[chosen], odds[chosen], needed[chosen], measure
                    )
    return msgspec.structs.replace(card, figures=figures)


def _links(texts: Texts, scores: NDArray[np.float64], among: NDArray[np.bool_], k: int) -> tuple[Link, Link | None]:
    first = link(scores[among, :k], texts.classes[among], k)
    if texts.apart is None:
        return first, None
    others = among & texts.apart & (texts.classes > 0)
    return first, link(scores[others, -(k - 1) :], texts.classes[others] - 1, k - 1)


def best(truth: Labels, odds: Odds, measure: Measure, main: str) -> float:
    """The probability from which saying yes gives the best `main` measure: the middle of those that come near it."""
    steps = np.arange(0.25, 0.651, 0.01)
    found = np.array([measure(truth, odds, np.full(len(truth), step))[main] for step in steps])
    return round(float(np.median(steps[found >= found.max() - NEAR])), 2)


def row(truth: Labels, odds: Odds, thresholds: Odds, measure: Measure) -> dict[str, float | str]:
    """How many, the measures, and their 95 % intervals from resamples with a fixed seed."""
    dice = np.random.default_rng(0)
    picks = [dice.integers(0, len(truth), len(truth)) for _ in range(RESAMPLES)]
    drawn = [measure(truth[i], odds[i], thresholds[i]) for i in picks]
    found: dict[str, float | str] = {"n": len(truth)}
    for name, value in measure(truth, odds, thresholds).items():
        low, high = np.percentile([each[name] for each in drawn], [2.5, 97.5])
        found |= {name: round(value, 3), f"{name}_95": f"{low:.3f}-{high:.3f}"}
    return found


def report(card: Card) -> str:
    """The figures as lines of text."""
    return "\n".join(
        f"{name:40} " + "  ".join(f"{key} {value}" for key, value in figure.items())
        for name, figure in card.figures.items()
    )


def write(folder: Path, name: str, card: Card, arrays: Mapping[str, NDArray[np.generic]]) -> None:
    """The weights as `name.json` and `name.npz`; a reader sees the old ones or the new ones, never half of them."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f".{name}.npz").open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    (folder / f".{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(card), indent=1) + b"\n")
    for suffix in ("npz", "json"):
        (folder / f".{name}.{suffix}").replace(folder / f"{name}.{suffix}")
