"""What is done to a model's own vectors so that a cosine means the same for every model.

Embedding models squeeze all cosines into a narrow band (multilingual-e5: .7 to .9), because every vector shares a
large common part. Subtracting the mean of neutral texts removes that part; `lo` and `hi` then say which cosine means
"unrelated" and which means "as close as an answer is to its question".
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from hindsight_core.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from hindsight_core.embedding.model import Model

    Vectors = NDArray[np.float32]

_REMEDY = "Write it again with: python -m hindsight_core.embedding.calibrate --embedder URL --out FILE"


class NeutralText(msgspec.Struct, frozen=True):
    """One everyday statement and a question that it answers, in both languages."""

    zh: str
    en: str
    zh_question: str
    en_question: str


class Calibration(msgspec.Struct, frozen=True, eq=False):
    """A mean of shape (dimension,), and the cosines that mean 0 and 1."""

    lo: float
    hi: float
    mean: Vectors

    @property
    def dimension(self) -> int:
        return int(self.mean.shape[0])

    @property
    def fingerprint(self) -> str:
        """Eight hexadecimal digits of the hash of mean, lo and hi."""
        digest = hashlib.sha256(self.mean.astype("<f4").tobytes())
        digest.update(f"{self.lo:.6f} {self.hi:.6f}".encode())
        return digest.hexdigest()[:8]

    def similarity(self, cosine: float) -> float:
        """clip((cosine - lo) / (hi - lo), 0, 1)."""
        return min(1.0, max(0.0, (cosine - self.lo) / (self.hi - self.lo)))

    def centre(self, raw: Vectors) -> Vectors:
        """The model's vectors, shape (n, dimension), with the mean subtracted and at unit length.

        A row without any direction left becomes the first axis.
        """
        out = raw - self.mean
        norms = np.linalg.norm(out, axis=1)
        lost = norms < 1e-6
        out[lost] = first_axis(self.dimension)
        norms[lost] = 1.0
        return np.asarray(out / norms[:, None], dtype=np.float32)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: str
    dimension: int
    lo: float
    hi: float
    mean: str


def first_axis(dimension: int) -> Vectors:
    """(1, 0, …, 0): the vector of a text that says nothing."""
    axis = np.zeros(dimension, dtype=np.float32)
    axis[0] = 1.0
    return axis


def encode(model: str, calibration: Calibration) -> bytes:
    """The calibration as a JSON file; the mean as base64 of little-endian float32."""
    mean = base64.b64encode(calibration.mean.astype("<f4").tobytes()).decode("ascii")
    record = _File(model, calibration.dimension, calibration.lo, calibration.hi, mean)
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


def decode(data: bytes, *, model: str, source: str) -> Calibration:
    """Reads what `encode` wrote. Raises ConfigurationError when it is damaged or made for another model."""
    try:
        record = msgspec.json.decode(data, type=_File)
        mean = np.frombuffer(base64.b64decode(record.mean, validate=True), dtype="<f4").astype(np.float32)
    except (msgspec.MsgspecError, binascii.Error, ValueError) as exc:
        raise ConfigurationError(f"{source} is not a calibration file: {exc}", remedy=_REMEDY) from exc
    if record.model != model:
        raise ConfigurationError(f"{source} calibrates {record.model}, not {model}.", remedy=_REMEDY)
    if mean.shape != (record.dimension,) or not np.isfinite(mean).all() or not record.lo < record.hi:
        raise ConfigurationError(f"{source} is damaged.", remedy=_REMEDY)
    return Calibration(record.lo, record.hi, mean)


def read(path: Path | None, *, model: str) -> Calibration | None:
    """The calibration in `path`, else the one that ships for `model`, else None."""
    if path is not None:
        try:
            return decode(path.read_bytes(), model=model, source=str(path))
        except OSError as exc:
            raise ConfigurationError(
                f"Cannot read the calibration file {path}: {exc.strerror}.", remedy=_REMEDY
            ) from exc
    shipped = files(__name__).joinpath(f"{file_stem(model)}.json")
    if not shipped.is_file():
        return None
    return decode(shipped.read_bytes(), model=model, source=shipped.name)


def file_stem(model: str) -> str:
    """The model's name as a file name: `org/name` becomes `org--name`."""
    return model.replace("/", "--").replace(":", "-")


@lru_cache(maxsize=1)
def neutral_texts() -> tuple[NeutralText, ...]:
    """The everyday sentences from which calibrations are measured; they ship with the package."""
    return msgspec.json.decode(files(__name__).joinpath("neutral.json").read_bytes(), type=tuple[NeutralText, ...])


async def measure(model: Model, *, lo: float = 0.0, hi: float | None = None) -> Calibration:
    """The calibration of a model from its own vectors of `neutral_texts`.

    One mean for both languages and both roles, each counting the same: on texts not used for the mean it separates
    related from unrelated ones as well as a mean per role, and keeps vectors of both roles comparable.
    """
    texts = neutral_texts()
    zh = await model.vectors([item.zh for item in texts], "passage")
    en = await model.vectors([item.en for item in texts], "passage")
    zh_questions = await model.vectors([item.zh_question for item in texts], "query")
    en_questions = await model.vectors([item.en_question for item in texts], "query")
    mean = np.mean([part.mean(axis=0) for part in (zh, en, zh_questions, en_questions)], axis=0)
    return Calibration(lo, 0.6 if hi is None else hi, np.asarray(mean, dtype=np.float32))
