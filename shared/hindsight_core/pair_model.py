"""The learned part of the pair judge: a kernel machine over what both texts say and what both vectors mean.

Scores are `Σ_i k(pair, pair_i) · a_i` over the training pairs i (kernel ridge regression, one column a class), turned
into probabilities by a multinomial logistic regression fitted on pairs of writers that were left out. The kernel is a
weighted sum of products of Gaussian kernels over the `likeness` features, over |u − v| and u·v, and of inner products
of the old texts' and of the new texts' vectors (u, v: centred unit vectors, projected to fewer dimensions): two pairs
are alike when their old texts, their new texts, and the way from one to the other are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from operator import itemgetter

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.learned import Link, linked
from hindsight_core.once import once
from hindsight_core.relations import CHOSEN

Floats = NDArray[np.float32]
CLIP = 4.0
STEPS = 127.0
BLOCK = 400


class Kernel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Widths and weights; every distance is divided by its mean over the training pairs first."""

    likeness: float
    likeness_wide: float
    way: float
    place: float
    w_likeness: float
    w_way: float
    w_both: float
    w_product: float
    w_place: float
    w_new_place: float
    w_new: float
    w_old: float


class Gate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether a new text concerns an old one: a logistic regression over named features and over what both texts mean.

    `old` and `new` weigh the projected vectors of either: of some notes there is news sooner, and some texts are news.
    """

    features: dict[str, float]
    offset: float
    old: tuple[float, ...] = ()
    new: tuple[float, ...] = ()


class Card(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the weights were made for and from: read beside the arrays.

    `model`, `dimension` and `calibration` are those of the vectors' `EmbeddingIdentity`; `features` names the columns
    of `likeness` in order, followed by the cosine; `weigh`, at most 1, how much each counts in distances; `spread` are
    the mean distances; `gate` weighs `closeness` among several neighbours, `lone` that and `likeness` of one alone.
    `alone` makes probabilities of the scores of one pair, `among` of the scores of one of several neighbours and of how
    far it is concerned; `alone_read` and `among_read` of these and of the words of a `PairReader`. `figures` are the
    measures of the leave-one-writer-out run.
    """

    model: str
    dimension: int
    calibration: str
    features: tuple[str, ...]
    centre: tuple[float, ...]
    scale: tuple[float, ...]
    weigh: tuple[float, ...]
    kernel: Kernel
    spread: dict[str, float]
    norm: float
    alone: Link
    among: Link
    gate: Gate
    lone: Gate
    pairs: int
    alone_read: Link | None = None
    among_read: Link | None = None
    figures: dict[str, dict[str, float]] = {}


class Points:
    """Pairs as the kernel sees them: standardised features, projected old and new vectors, and what follows from them.

    `step` is |u − v|, `product` u·v; `lengths` are the squared lengths of features, steps and products. Many pairs may
    lie in blocks, with one more axis before all others (see `blocks`).
    """

    def __init__(self, likeness: Floats, old: Floats, new: Floats) -> None:
        """Arrays of shapes (n, features), (n, k), (n, k), or (blocks, n, …)."""
        self.likeness, self.old, self.new = likeness, old, new
        self.step: Floats = np.abs(old - new)
        self.product: Floats = old * new
        self.lengths = _lengths(likeness), _lengths(self.step), _lengths(self.product)


class PairModel:
    """Six probabilities a pair, deterministic; about half a millisecond for one pair and 1 ms for four."""

    def __init__(
        self, card: Card, projection: Floats, middle: Floats, support: Points, weights: NDArray[np.float32]
    ) -> None:
        """Arrays: `projection` (dimension, k), `middle` (dimension,), `support` of n pairs, `weights` (n, 6).

        The last two in the same blocks.
        """
        self.card = card
        self._projection = projection
        self._middle = middle
        self._support = support
        self._weights = weights
        self._centre = np.asarray(card.centre, dtype=np.float32)
        self._scale = np.asarray(card.scale, dtype=np.float32)
        self._columns: Callable[[dict[str, float]], tuple[float, ...]] = itemgetter(*card.features[:-1])
        self._weigh = np.asarray(card.weigh, dtype=np.float32)
        self._gate_old = np.asarray(card.gate.old, dtype=np.float32)
        self._gate_new = np.asarray(card.gate.new, dtype=np.float32)

    def with_gate(self, gate: Gate) -> PairModel:
        """The same with another gate among several neighbours."""
        card = msgspec.structs.replace(self.card, gate=gate)
        return PairModel(card, self._projection, self._middle, self._support, self._weights)

    def fits(self, embedding_model: str | None) -> bool:
        """Whether vectors of this identity (`model@revision/dimension#calibration`) are what it was trained on."""
        if embedding_model is None:
            return False
        model, _, rest = embedding_model.partition("@")
        card = self.card
        return model == card.model and rest.partition("/")[2] == f"{card.dimension}#{card.calibration}"

    def projected(self, vectors: Floats) -> Floats:
        """Vectors of shape (m, dimension) as the model compares them, (m, k)."""
        return project(vectors, self._middle, self._projection)

    def concerns(self, closenesses: Sequence[dict[str, float]], old: Floats, new: Floats) -> list[float]:
        """In [0, 1]: how probably a new text concerns each of its several neighbours at all.

        The kernel knows pairs that somebody chose to compare. Among all neighbours of a new text most are bystanders,
        and a text that tells of a change would seem to replace each of them. `old` and `new` are `projected`, (m, k)
        and (1, k).
        """
        meant = old @ self._gate_old + new @ self._gate_new
        gate = self.card.gate
        return [concern(gate, each, more) for each, more in zip(closenesses, meant.tolist(), strict=True)]

    def concern_alone(self, features: dict[str, float]) -> float:
        """How far a text and its only neighbour speak of one matter, from `closeness` and `likeness` of both."""
        return concern(self.card.lone, features)

    def scores(
        self, likenesses: Sequence[dict[str, float]], cosines: Sequence[float], old: Floats, new: Floats
    ) -> Floats:
        """Shape (m, 6), columns as `RELATIONS`, for m pairs; `odds` makes probabilities of them.

        `old` are `projected` vectors of shape (m, k), `new` too, or (1, k) where all pairs share it.
        """
        pick = self._columns
        rows = np.array(
            [[*pick(each), cos] for each, cos in zip(likenesses, cosines, strict=True)],
            dtype=np.float32,
        )
        points = Points(standard(rows, self._centre, self._scale) * self._weigh, old, new)
        gram = kernel(points, self._support, self.card.kernel, self.card.spread)
        return np.asarray((gram @ self._weights).sum(axis=0) / np.float32(self.card.norm), dtype=np.float32)

    @property
    def hears(self) -> bool:
        """Whether it knows what to make of a `PairReader`'s word."""
        return self.card.alone_read is not None and self.card.among_read is not None

    def odds(
        self, scores: Floats, said: Floats | None = None, concerns: Sequence[float] | None = None
    ) -> NDArray[np.float64]:
        """Probabilities, shape (m, 6), of scores of that shape and of what a `PairReader` said, where it was asked.

        `concerns` are those of several neighbours of one new text; without, each row is a pair by itself.
        """
        rows: Floats = scores if concerns is None else np.hstack([scores, doubts(concerns)])
        if said is None:
            return linked(rows, self.card.alone if concerns is None else self.card.among)
        link = self.card.alone_read if concerns is None else self.card.among_read
        assert link is not None
        return linked(np.hstack([rows, said[:, CHOSEN] if concerns is None else said]), link)


def concern(gate: Gate, features: dict[str, float], meant: float = 0.0) -> float:
    """What a gate says of these features; `meant` is what the vectors add to the log-odds."""
    logit = sum([weight * features[name] for name, weight in gate.features.items()]) + gate.offset + meant
    return 1 / (1 + math.exp(-logit))


def standard(rows: Floats, centre: Floats, scale: Floats) -> Floats:
    """Features with mean 0 and deviation 1, cut at four deviations."""
    return np.asarray(np.clip((rows - centre) / scale, -CLIP, CLIP), dtype=np.float32)


def project(vectors: Floats, middle: Floats, projection: Floats) -> Floats:
    """Vectors in fewer dimensions, at unit length again."""
    low = (np.asarray(vectors, dtype=np.float32) - middle) @ projection
    length = np.linalg.norm(low, axis=1, keepdims=True)
    return np.asarray(low / np.where(length > 0, length, 1.0), dtype=np.float32)


def kernel(a: Points, b: Points, shape: Kernel, spread: dict[str, float]) -> Floats:
    """The kernel matrix of two sets of pairs, shape (a, b), or (blocks, a, b) where the second lies in blocks.

    Worked out in place: for few rows, new arrays would cost as much as the arithmetic.
    """
    alike = _apart(a.likeness, b.likeness, a.lengths[0], b.lengths[0])
    ways = _apart(a.step, b.step, a.lengths[1], b.lengths[1])
    ways *= np.float32(1 / spread["step"])
    products = _apart(a.product, b.product, a.lengths[2], b.lengths[2])
    products *= np.float32(1 / spread["product"])
    ways += products
    old, new = a.old @ _across(b.old), a.new @ _across(b.new)
    narrow, wide = _decay(alike.copy(), shape.likeness / spread["likeness"]), alike
    wide = _decay(wide, shape.likeness_wide / spread["likeness"])
    near = _decay(ways, shape.way)
    old_place, new_place = _decay(1 - old, shape.place), _decay(1 - new, shape.place)
    old_place *= np.float32(shape.w_place)
    old_place += np.float32(shape.w_new_place)
    old_place *= new_place
    total = old + np.float32(1)
    total *= (new + np.float32(1)) * np.float32(shape.w_product / 4)
    total += old_place
    total *= wide
    old *= np.float32(shape.w_old)
    total += old
    total += new * np.float32(shape.w_new)
    narrow_near = narrow * np.float32(shape.w_both)
    narrow_near += np.float32(shape.w_way)
    narrow_near *= near
    total += narrow_near
    narrow *= np.float32(shape.w_likeness)
    total += narrow
    return np.asarray(total, dtype=np.float32)


def _decay(distances: Floats, rate: float) -> Floats:
    """exp(−rate · distance), in the place of the distances."""
    distances *= np.float32(-rate)
    return np.exp(distances, out=distances)


def doubts(concerns: Sequence[float]) -> Floats:
    """The log-odds of how far each neighbour is concerned, as a column."""
    found = np.clip(np.asarray(concerns, dtype=np.float64), 1e-4, 1 - 1e-4)
    return np.asarray(np.log(found / (1 - found)), dtype=np.float32)[:, None]


def _lengths(rows: Floats) -> Floats:
    return np.asarray(np.einsum("...ij,...ij->...i", rows, rows), dtype=np.float32)


def _across(rows: Floats) -> Floats:
    return np.swapaxes(rows, -1, -2)


def blocks(rows: Floats) -> Floats:
    """Rows of shape (n, k) as (blocks, at most `BLOCK`, k), filled up with zeros, a block's columns one after another.

    BLAS copies a whole matrix before it multiplies a few rows with it, which takes longer than to multiply them; with
    blocks of this size it does not.
    """
    count = -(-len(rows) // BLOCK)
    each = -(-len(rows) // count)
    filled = np.zeros((count * each, rows.shape[1]), np.float32)
    filled[: len(rows)] = rows
    return _across(np.ascontiguousarray(_across(filled.reshape(count, each, -1))))


def _apart(a: Floats, b: Floats, a_lengths: Floats, b_lengths: Floats) -> Floats:
    """Squared distances of all rows, from their squared lengths."""
    found = (a * np.float32(-2)) @ _across(b)
    found += a_lengths[:, None]
    found += b_lengths[..., None, :]
    return np.maximum(found, np.float32(0), out=found)


@once
def shipped() -> PairModel | None:
    """The weights of this package, read once; None where they are not installed."""
    folder = resources.files("hindsight_core") / "weights"
    card_file, arrays_file = folder / "reconcile.json", folder / "reconcile.npz"
    if not card_file.is_file() or not arrays_file.is_file():
        return None
    card = msgspec.convert(json.loads(card_file.read_text("utf-8")), Card)
    with arrays_file.open("rb") as file:
        return model_of(card, dict(np.load(file)))


def model_of(card: Card, arrays: Mapping[str, NDArray[np.generic]]) -> PairModel:
    """The model that a card and the arrays of its file make."""

    def floats(name: str) -> Floats:
        return np.asarray(arrays[name], dtype=np.float32)

    def rows(name: str) -> Floats:
        return blocks(unpacked(np.asarray(arrays[name], dtype=np.int8), floats(f"{name}_step")))

    likeness = blocks(floats("likeness") * np.float32(CLIP / STEPS))
    support = Points(likeness, rows("old"), rows("new"))
    return PairModel(card, floats("projection"), floats("middle"), support, blocks(floats("weights")))


def packed(rows: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Rows in whole steps of a 127th of each row's largest entry, and those steps."""
    step = np.abs(rows).max(axis=1, keepdims=True).astype(np.float32) / np.float32(STEPS)
    return np.asarray(np.round(rows / step), dtype=np.int8), step[:, 0]


def unpacked(rows: NDArray[np.int8], step: Floats) -> Floats:
    """What `packed` kept of the rows."""
    return np.asarray(rows.astype(np.float32) * step[:, None], dtype=np.float32)
