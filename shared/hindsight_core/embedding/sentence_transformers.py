"""Any local model of the sentence-transformers library, by its name on the hub or the path of its folder."""

from __future__ import annotations

import asyncio
import hashlib
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hindsight_core.embedding.text import MAX_TOKENS, slices
from hindsight_core.errors import MissingExtra, ProviderUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hindsight_core.embedding import Role

# Which of a model's own prompts belongs to a role, most specific first.
_PROMPTS: dict[Role, tuple[str, ...]] = {"query": ("query",), "passage": ("passage", "document", "corpus")}

# The E5 models need a prefix that most of their folders do not state (model cards, "query: " and "passage: ").
_E5 = re.compile(r"(^|[-_])e5[-_](?!.*instruct)", re.IGNORECASE)


class SentenceTransformersModel:
    """Loaded on first use, on one thread of its own; the library itself uses several cores for one batch."""

    def __init__(self, name_or_path: str, *, batch_size: int = 32, dimension: int | None = None) -> None:
        self._source = name_or_path
        # A path says where this machine keeps the model; its last part is the same everywhere.
        self.name = Path(name_or_path).name if Path(name_or_path).is_absolute() else name_or_path
        self.revision: str | None = None
        self._batch_size = batch_size
        self._dimension = dimension
        self._loading = threading.Lock()
        self._model: Any = None  # the library comes without types that hold across its versions
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hindsight-embedder")

    async def load(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._pool, self._loaded)

    async def vectors(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        loop = asyncio.get_running_loop()
        parts = slices(texts, most=self._batch_size, most_tokens=float(self._batch_size * MAX_TOKENS))
        return np.vstack([await loop.run_in_executor(self._pool, self._run, part, role) for part in parts])

    async def aclose(self) -> None:
        await asyncio.to_thread(self._pool.shutdown)

    def _run(self, texts: list[str], role: Role) -> NDArray[np.float32]:
        model = self._loaded()
        found = model.encode(
            texts,
            prompt=self._prompt(model, role),
            batch_size=self._batch_size,
            show_progress_bar=False,
            convert_to_numpy=True,
            normalize_embeddings=True,
        )
        vectors = np.asarray(found, dtype=np.float32)
        if not np.isfinite(vectors).all():
            raise ProviderUnavailable(f"{self.name} makes vectors that are not finite.", remedy=_OTHER_MODEL)
        return vectors

    def _prompt(self, model: Any, role: Role) -> str:  # noqa: ANN401 - see `_model`
        prompts: dict[str, str] = model.prompts or {}
        own = next((prompts[key] for key in _PROMPTS[role] if prompts.get(key)), "")
        return own or (f"{role}: " if _E5.search(Path(self.name).name) else "")

    def _loaded(self) -> Any:  # noqa: ANN401 - see `_model`
        with self._loading:
            if self._model is None:
                self._model = self._open()
                self.revision = weights_hash(self._model)
            return self._model

    def _open(self) -> Any:  # noqa: ANN401 - see `_model`
        try:
            library: Any = import_module("sentence_transformers")
        except ImportError as exc:
            raise MissingExtra.of("sentence-transformers", "sentence-transformers") from exc
        try:
            return library.SentenceTransformer(self._source, truncate_dim=self._dimension)
        except (OSError, ValueError, RuntimeError) as exc:  # not found, no network, damaged: the library's own mix
            raise ProviderUnavailable(f"The model {self.name} cannot be loaded.", remedy=_OTHER_MODEL) from exc


_OTHER_MODEL = "Check its name or path, and that it can be downloaded or is there already."


def weights_hash(model: Any) -> str:  # noqa: ANN401 - see `_model`
    """A few characters that change with the weights: a hash over a sample of every tensor.

    The hub's commit would say the same, but not for a folder, and a copied folder is the same model.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        values = tensor.detach().flatten()
        step = max(1, values.numel() // 256)
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        digest.update(values[::step].double().cpu().numpy().tobytes())
    return digest.hexdigest()[:8]
