"""The embedder of a benchmark: each text embedded once, for all configurations and, with a file, for all runs."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from hindsight_core.embedding import Calibration, Embedder, EmbeddingIdentity, Role
from hindsight_core.errors import InvalidInput
from hindsight_core.summary import summarise

BATCH = 64


class Remembering:
    """An `Embedder` that keeps every vector that another one made."""

    def __init__(self, embedder: Embedder, kept: Path | None = None) -> None:
        self._embedder = embedder
        self._folder = kept
        self._known: dict[str, NDArray[np.float32]] = {}
        self._read = False
        self._new = False
        self.question_ms: list[float] = []
        """How long each question took that was embedded by itself, those that were known not counted."""

    @property
    def identity(self) -> EmbeddingIdentity:
        return self._embedder.identity

    @property
    def calibration(self) -> Calibration:
        return self._embedder.calibration

    async def embed(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        if not texts:
            return await self._embedder.embed(texts, role)
        await self.fill(texts, role, lambda _: None)
        return np.vstack([self._known[_key(text, role)] for text in texts])

    async def fill(self, texts: Sequence[str], role: Role, done: Callable[[int], None]) -> None:
        """Embed what is not known yet; `done` is told the number of texts after each batch."""
        if not self._read:
            await self._embedder.embed([], role)  # now the identity is known
            self._load()
        missing = [text for text in dict.fromkeys(texts) if _key(text, role) not in self._known]
        done(len(texts) - len(missing))
        for start in range(0, len(missing), BATCH):
            some = missing[start : start + BATCH]
            started = time.perf_counter()
            vectors = await self._embedder.embed(some, role)
            if role == "query" and len(some) == 1:
                self.question_ms.append((time.perf_counter() - started) * 1000)
            self._known.update((_key(text, role), vector) for text, vector in zip(some, vectors, strict=True))
            self._new = True
            done(len(some))

    def save(self) -> None:
        """Write what was embedded anew to the folder, if there is one. Raises `InvalidInput` where that cannot be."""
        if self._folder is None or not self._new:
            return
        keys = np.array(list(self._known), dtype="S32")
        file = self._file()
        # A run that is ended while it writes must not leave half a file to the next one.
        written = file.with_suffix(f".{os.getpid()}.npz")
        try:
            np.savez(written, keys=keys, vectors=np.vstack(list(self._known.values())))
            written.replace(file)
        except OSError as exc:
            raise InvalidInput.of("--vectors", f"{file}: {(exc.strerror or str(exc)).lower()}") from None
        self._new = False

    async def aclose(self) -> None:
        self.save()
        await self._embedder.aclose()

    def _load(self) -> None:
        self._read = True
        if self._folder is None or not self._file().is_file():
            return
        try:
            # numpy leaves open what it cannot read.
            with self._file().open("rb") as file, np.load(file) as found:
                keys: list[bytes] = found["keys"].tolist()
                vectors: NDArray[np.float32] = found["vectors"]
            if vectors.shape != (len(keys), self.calibration.dimension):
                raise ValueError
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            raise InvalidInput.of(
                "--vectors", f"{self._file()} cannot be read; remove it, and it is made again"
            ) from None
        self._known.update(zip((key.decode() for key in keys), vectors, strict=True))

    def _file(self) -> Path:
        assert self._folder is not None
        # A name such as model@revision/dimension#calibration is no name of a file.
        return self._folder / f"{hashlib.sha256(self.identity.name.encode()).hexdigest()[:16]}.npz"


def usable(folder: Path) -> Path:
    """The folder, made if it is not there. Raises `InvalidInput` where nothing can be written into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise InvalidInput.of("--vectors", f"{folder} is no folder: {(exc.strerror or str(exc)).lower()}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidInput.of("--vectors", f"{folder}: cannot be written to")
    return folder


class Whole:
    """An `Embedder` that gives for the summary of a long text the vector of the text: as if there were no summaries."""

    def __init__(self, embedder: Embedder, texts: Sequence[str]) -> None:
        self._embedder = embedder
        self._long = {summary: text for text in texts if (summary := summarise(text)) is not None}

    @property
    def identity(self) -> EmbeddingIdentity:
        return self._embedder.identity

    @property
    def calibration(self) -> Calibration:
        return self._embedder.calibration

    async def embed(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        return await self._embedder.embed([self._long.get(text, text) for text in texts], role)

    async def aclose(self) -> None:
        await self._embedder.aclose()


def _key(text: str, role: str) -> str:
    return hashlib.sha256(f"{role}:{text}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
