"""A small trained model of texts: kernel ridge regression over meaning and wording, read from the package's weights.

A text's scores are `Σ_i exp(−γ·|x − x_i|²)·a_i + Σ_g tfidf(g)·w_g` over the training texts i and the words and word
pairs g: x joins the vector, projected on its main axes, with role, cues and form. Probabilities are a softmax of a
linear map of the scores, fitted on writers that were left out (Saunders, Gammerman and Vovk, 1998; Platt, 1999); which
kind a text has is learned from the texts that have one. A second set of coefficients does without the vector, for
embedders other than the one that the weights were made with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.errors import ConfigurationError
from hindsight_core.once import once
from hindsight_core.wording import ROLES, Wording

Floats: TypeAlias = NDArray[np.float32]

ROLE_WEIGHT = 0.5
CUE_WEIGHT = 0.15
FORM_WEIGHT = 0.05
STEPS = 127.0
SHOWN = 4


class Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Scores to probabilities: `softmax(scores @ weights + offset)`."""

    weights: tuple[tuple[float, ...], ...]
    offset: tuple[float, ...]


class Card(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the weights were made for, from what, and how they did on writers left out of the training.

    `model` is the full identity of the embedder; `thresholds` say, by who speaks, from which probability on the first
    question (keep, search) is answered with yes; `apart`, where there is one, tells the other classes from each other;
    `cues`, `form_centre` and `form_scale` how wording becomes numbers. What begins with `plain_` is for texts without a
    vector.
    """

    model: str
    classes: tuple[str, ...]
    cues: tuple[str, ...]
    form_centre: tuple[float, ...]
    form_scale: tuple[float, ...]
    gamma: float
    link: Link
    plain_link: Link
    apart: Link | None = None
    plain_apart: Link | None = None
    thresholds: dict[str, float]
    plain_thresholds: dict[str, float]
    items: int
    figures: dict[str, dict[str, float | str]] = {}

    @property
    def dimension(self) -> int:
        return int(self.model.split("/")[1].split("#")[0])

    def fits(self, embedding_model: str | None, dimension: int) -> bool:
        """Whether vectors of this model can be used; which calibration centred them does not matter."""
        same = embedding_model is None or embedding_model.split("#")[0] == self.model.split("#")[0]
        return same and dimension == self.dimension


class Reading(NamedTuple):
    """Class probabilities, raw scores, the threshold that applies, whether the vector took part, and what weighed most.

    `told` says how much each spoke for (above 0) or against anything but the first class.
    """

    probabilities: dict[str, float]
    scores: Floats
    threshold: float
    by_meaning: bool
    told: dict[str, float]


class Spoken(NamedTuple):
    """A text's wording, and what the model makes of it before there is a vector."""

    wording: Wording
    row: Floats
    products: Floats
    known: list[str]
    places: NDArray[np.intp]
    weights: Floats


class Learned:
    """The model. Safe to use from many threads; about half a millisecond a text."""

    def __init__(self, card: Card, arrays: Mapping[str, NDArray[np.generic]]) -> None:
        """From the arrays of the weights file.

        `projection` (dimension, p), `support` (n, d) int8 with `support_step` (d,), of which the first p columns are
        the projected vectors, `dual` and `plain_dual` (n, k), `grams` (a line each, UTF-8), `idf` (g,), `primal` and
        `plain_primal` (g, k).
        """
        self.card = card
        step = np.asarray(arrays["support_step"], dtype=np.float32)
        # In Fortran's order: what a text costs is reading them all, which goes a little faster column by column.
        self._support: Floats = np.asfortranarray(np.asarray(arrays["support"], dtype=np.float32) * step)
        self._projection = _float(arrays["projection"])
        self._wording_start = self._projection.shape[1]
        self._lengths = np.einsum("ij,ij->i", self._support, self._support)
        tail = self._support[:, self._wording_start :]
        self._plain_lengths = np.einsum("ij,ij->i", tail, tail)
        self._dual = _float(arrays["dual"]), _float(arrays["plain_dual"])
        self._primal = _float(arrays["primal"]), _float(arrays["plain_primal"])
        self._idf = _float(arrays["idf"])
        listed = np.asarray(arrays["grams"], dtype=np.uint8).tobytes().decode("utf-8").split("\n")
        self._index = {gram: i for i, gram in enumerate(listed)}

    def hear(self, wording: Wording) -> Spoken:
        """The part of `read` that needs no vector."""
        row = dense(wording, self.card)
        known = [gram for gram in wording.grams if gram in self._index]
        places, weights = tfidf(wording.grams, self._index, self._idf)
        return Spoken(wording, row, self._support[:, self._wording_start :] @ row, known, places, weights)

    def read(self, spoken: Spoken, vector: Floats | None, *, embedding_model: str | None = None) -> Reading:
        """The probabilities of a text's classes; `vector` is used where it is of the model that the weights know."""
        row, role = spoken.row, spoken.wording.role
        by_meaning = vector is not None and self.card.fits(embedding_model, vector.shape[0])
        if vector is not None and by_meaning:
            place = np.asarray(vector, dtype=np.float32) @ self._projection
            products = self._support[:, : self._wording_start] @ place + spoken.products
            squared = self._lengths + (place @ place + row @ row) - 2 * products
        else:
            squared = self._plain_lengths + row @ row - 2 * spoken.products
        which = 0 if by_meaning else 1
        scores = np.exp(-self.card.gamma * np.maximum(squared, 0)) @ self._dual[which]
        told = spoken.weights[:, None] * self._primal[which][spoken.places]
        scores = scores + told.sum(axis=0)
        link = self.card.link if by_meaning else self.card.plain_link
        odds = likely(scores[None], link, self.card.apart if by_meaning else self.card.plain_apart)[0]
        probabilities = dict(zip(self.card.classes, odds.tolist(), strict=True))
        # What speaks for the first class speaks against all others.
        spoken_for: Floats = -told[:, 0]
        strongest: list[int] = np.argsort(-np.abs(spoken_for), kind="stable")[:SHOWN].tolist()
        said = {spoken.known[i]: round(float(spoken_for[i]), 3) for i in strongest}
        thresholds = self.card.thresholds if by_meaning else self.card.plain_thresholds
        threshold = thresholds.get(role, thresholds["user"])
        return Reading(probabilities, np.asarray(scores, dtype=np.float32), threshold, by_meaning, said)


def dense(wording: Wording, card: Card) -> Floats:
    """Role, cues and form of a text as one row, weighted as the kernel wants them."""
    role = [ROLE_WEIGHT * (wording.role == name) for name in ROLES]
    cues = [CUE_WEIGHT * (name in wording.cues) for name in card.cues]
    form = [
        FORM_WEIGHT * (value - centre) / scale
        for value, centre, scale in zip(wording.form, card.form_centre, card.form_scale, strict=True)
    ]
    return np.array([*role, *cues, *form], dtype=np.float32)


def tfidf(grams: Mapping[str, int], index: Mapping[str, int], idf: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Places and weights of the known grams: `(1 + ln f)·idf`, at unit length."""
    known = [(index[gram], 1.0 + math.log(f)) for gram, f in grams.items() if gram in index]
    found = np.array([place for place, _ in known], dtype=np.intp)
    weights = np.array([f for _, f in known], dtype=np.float32) * idf[found]
    length = float(np.sqrt(weights @ weights))
    return found, weights / length if length else weights


def likely(scores: NDArray[np.floating], link: Link, apart: Link | None) -> NDArray[np.float64]:
    """Probabilities of the classes, row by row.

    With `apart`, the share of all classes after the first is divided among them by scores of their own, the last ones.
    """
    odds = linked(scores[:, : len(link.offset)], link)
    if apart is not None:
        odds[:, 1:] = (1.0 - odds[:, :1]) * linked(scores[:, -len(apart.offset) :], apart)
    return odds


def linked(scores: NDArray[np.floating], link: Link) -> NDArray[np.float64]:
    """Softmax of the linked scores, row by row."""
    return softmax(np.asarray(scores, dtype=np.float64), *_linking(link))


def softmax(
    scores: NDArray[np.float64], weights: NDArray[np.float64], offset: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Softmax of `scores @ weights + offset`, row by row."""
    logits = scores @ weights + offset
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True), dtype=np.float64)


@lru_cache(16)
def _linking(link: Link) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.array(link.weights), np.array(link.offset)


def _float(array: NDArray[np.generic]) -> Floats:
    return np.asarray(array, dtype=np.float32)


@once
def shipped(name: str) -> Learned:
    """The weights `gate` or `recall` of this package, read once; ConfigurationError where they were left out of it."""
    folder = resources.files("hindsight_core") / "weights"
    try:
        card = msgspec.json.decode((folder / f"{name}.json").read_bytes(), type=Card)
        with (folder / f"{name}.npz").open("rb") as file:
            return Learned(card, dict(np.load(file)))
    except OSError as exc:
        raise ConfigurationError(
            f"The weights {name!r} are missing from the installation.", remedy="Install hindsight-memory again."
        ) from exc
