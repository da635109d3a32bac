"""What is done to a model's own vectors so that a cosine means the same for every model and language.

Embedding models squeeze all cosines into a narrow band (multilingual-e5: .7 to .9), because every vector shares a
large common part, and texts of one language share another one. Two steps remove them: the mean of neutral texts is
subtracted, and so is a share of what lies along the line from the Chinese to the English mean. Without the second step
a Chinese question finds any Chinese text before the English one that answers it. `lo` and `hi` then say which cosine
means "unrelated" and which means "as close as an answer is to its question".
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
from numpy.typing import NDArray

from hindsight_core.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from hindsight_core.embedding.model import Model

Vectors = NDArray[np.float32]

LANGUAGE_SHARE = 0.4
"""How much of the line between the languages is taken away.

The line also tells topics apart within one language. Taking all of it costs English retrieval 1.0 points of R@10 and
1.1 of nDCG@10 (LoCoMo, similarity and words, 83.5 / 68.3 with none of it taken); two fifths cost .2 and .6. Of 72
short questions, the answers in both languages come first for 18 with none of it taken, 64 with two fifths, 70 with all.
"""

RECIPE = "2"
"""Counts the changes of `measure`; part of the fingerprint of models that are calibrated while starting."""

_REMEDY = "Write it again with: hindsight calibrate --embedder URL --out FILE"


class NeutralText(msgspec.Struct, frozen=True):
    """One everyday statement and a question that it answers, in both languages."""

    zh: str
    en: str
    zh_question: str
    en_question: str


class Calibration(msgspec.Struct, frozen=True, eq=False):
    """The cosines that mean 0 and 1; the mean, shape (dimension,); the unit vector between the languages, same shape.

    `share`, in [0, 1], says how much of what lies along that vector is taken away. `recipe` is set when the
    calibration was measured while starting, see `fingerprint`.
    """

    lo: float
    hi: float
    mean: Vectors
    axis: Vectors
    share: float = LANGUAGE_SHARE
    recipe: str = ""

    @property
    def dimension(self) -> int:
        return int(self.mean.shape[0])

    @property
    def fingerprint(self) -> str:
        """Tells calibrations apart in a few characters: the recipe, else a hash of all the numbers.

        A model calibrated while starting has numbers that differ in their last digits from process to process; what
        is the same in all of them, and makes their vectors comparable, is the recipe.
        """
        if self.recipe:
            return self.recipe
        digest = hashlib.sha256(_pack(self.mean) + _pack(self.axis))
        digest.update(f"{self.lo:.6f} {self.hi:.6f} {self.share:.6f}".encode())
        return digest.hexdigest()[:8]

    def similarity(self, cosine: float) -> float:
        """clip((cosine - lo) / (hi - lo), 0, 1)."""
        return min(1.0, max(0.0, (cosine - self.lo) / (self.hi - self.lo)))

    def centre(self, raw: Vectors) -> Vectors:
        """The model's vectors, shape (n, dimension), without the mean and with less of the language, at unit length.

        A row with no direction left becomes the first axis.
        """
        out = unit(raw) - self.mean
        out -= np.outer(out @ self.axis, self.axis * np.float32(self.share))
        lost = np.linalg.norm(out, axis=1) < _NOTHING
        out[lost] = first_axis(self.dimension)
        return unit(out)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: str
    dimension: int
    lo: float
    hi: float
    share: float
    mean: str
    axis: str
    recipe: str = ""


_NOTHING = 1e-6  # what float32 leaves of a vector minus itself


def first_axis(dimension: int) -> Vectors:
    """(1, 0, …, 0): the vector of a text that says nothing."""
    axis = np.zeros(dimension, dtype=np.float32)
    axis[0] = 1.0
    return axis


def unit(vectors: Vectors) -> Vectors:
    """Each row at unit length, in float32; a row of zeros stays one."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.where(norms > 0, norms, 1.0), dtype=np.float32)


def encode(model: str, calibration: Calibration) -> bytes:
    """The calibration as a JSON file; vectors as base64 of little-endian float32."""
    record = _File(
        model=model,
        dimension=calibration.dimension,
        lo=calibration.lo,
        hi=calibration.hi,
        share=calibration.share,
        mean=base64.b64encode(_pack(calibration.mean)).decode("ascii"),
        axis=base64.b64encode(_pack(calibration.axis)).decode("ascii"),
        recipe=calibration.recipe,
    )
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


def decode(data: bytes, *, model: str, source: str) -> Calibration:
    """Reads what `encode` wrote. Raises ConfigurationError when it is damaged or made for another model."""
    try:
        record = msgspec.json.decode(data, type=_File)
        mean, axis = _unpack(record.mean), _unpack(record.axis)
    except (msgspec.MsgspecError, binascii.Error, ValueError) as exc:
        raise ConfigurationError(f"{source} is not a calibration file: {exc}.", remedy=_REMEDY) from exc
    if record.model != model:
        raise ConfigurationError(f"{source} calibrates {record.model}, not {model}.", remedy=_REMEDY)
    sound = mean.shape == axis.shape == (record.dimension,) and bool(np.isfinite([mean, axis]).all())
    if not sound or not record.lo < record.hi or not 0 <= record.share <= 1:
        raise ConfigurationError(f"{source} is damaged.", remedy=_REMEDY)
    return Calibration(record.lo, record.hi, mean, axis, record.share, record.recipe)


def read(path: Path | None, *, model: str) -> Calibration | None:
    """The calibration in `path`, else the one that ships for `model`, else None."""
    if path is not None:
        try:
            data = path.read_bytes()
        except OSError as exc:
            detail = f"Cannot read the calibration file {path}: {exc.strerror}."
            raise ConfigurationError(detail, remedy=_REMEDY) from exc
        return decode(data, model=model, source=str(path))
    shipped = files(__name__).joinpath(file_name(model))
    return decode(shipped.read_bytes(), model=model, source=shipped.name) if shipped.is_file() else None


def file_name(model: str) -> str:
    """The name of the file that ships for a model: `org/name` is in `org--name.json`."""
    return "".join(char if char.isalnum() or char in "-_." else "--" for char in model) + ".json"


@lru_cache(maxsize=1)
def neutral_texts() -> tuple[NeutralText, ...]:
    """The everyday sentences from which calibrations are measured; they ship with the package."""
    return msgspec.json.decode(_neutral_file(), type=tuple[NeutralText, ...])


async def measure(model: Model) -> Calibration:
    """The calibration of a model from its own vectors of `neutral_texts`, with the recipe as its fingerprint.

    One mean for both languages and both roles, each counting the same: on texts not used for the mean it separates
    related from unrelated ones as well as a mean per role, and keeps vectors of both roles comparable. `lo` is 0, what
    unrelated texts have on average after centring; `hi` is the cosine that one in ten questions reaches with the
    statement that answers it, in steps of .05.
    """
    texts = neutral_texts()
    zh = unit(await model.vectors([item.zh for item in texts], "passage"))
    en = unit(await model.vectors([item.en for item in texts], "passage"))
    zh_questions = unit(await model.vectors([item.zh_question for item in texts], "query"))
    en_questions = unit(await model.vectors([item.en_question for item in texts], "query"))
    zh_mean = np.vstack([zh, zh_questions]).mean(axis=0)
    en_mean = np.vstack([en, en_questions]).mean(axis=0)
    plain = Calibration(0.0, 1.0, (zh_mean + en_mean) / 2, unit(zh_mean - en_mean))
    statements, questions = plain.centre(np.vstack([zh, en])), plain.centre(np.vstack([zh_questions, en_questions]))
    answered = np.quantile(np.sum(statements * questions, axis=1), 0.9)
    hi = max(0.1, round(float(answered) * 20) / 20)
    recipe = hashlib.sha256(_neutral_file() + RECIPE.encode()).hexdigest()[:6]
    return Calibration(plain.lo, hi, plain.mean, plain.axis, plain.share, f"auto-{recipe}")


def _neutral_file() -> bytes:
    return files(__name__).joinpath("neutral.json").read_bytes()


def _pack(vector: Vectors) -> bytes:
    return vector.astype("<f4").tobytes()


def _unpack(text: str) -> Vectors:
    return np.frombuffer(base64.b64decode(text, validate=True), dtype="<f4").astype(np.float32)
