"""Any cross-encoder for natural language inference of the sentence-transformers library, by name or folder."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hindsight_core.errors import MissingExtra, ProviderUnavailable
from hindsight_core.judging import Question, Ruling, Verdict

CERTAIN = 0.8
_LABELS = ("entailment", "neutral", "contradiction")
_OTHER_MODEL = "Check its name or path, and that it can be downloaded or is there already."


class NliJudge:
    """Loaded on first use, on one thread of its own. What is less than `CERTAIN` stays unclear.

    Contradiction either way replaces; entailment both ways is a duplicate, that of the old text by the new one a fuller
    version, and neutrality both ways lets both stand.
    """

    def __init__(self, name_or_path: str, *, timeout: float = 10.0) -> None:
        self._source = name_or_path
        self._timeout = timeout
        self._loading = threading.Lock()
        self._model: Any = None  # the library comes without types that hold across its versions
        self._columns: list[int] = []
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hindsight-judge")

    @property
    def name(self) -> str:
        return "sentence-transformers:" + (Path(self._source).name or self._source)

    async def rule(self, questions: Sequence[Question]) -> list[Ruling]:
        """See `Judge.rule`. A model that is still loading when the time is up goes on loading."""
        if not questions:
            return []
        work = asyncio.get_running_loop().run_in_executor(self._pool, self._run, list(questions))
        try:
            odds = await asyncio.wait_for(asyncio.shield(work), self._timeout)
        except TimeoutError as exc:
            work.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise ProviderUnavailable(
                f"The judge {self.name} did not answer within {self._timeout:g} s.",
                remedy="Try again: a large model takes long to load. Raise HINDSIGHT_JUDGE_TIMEOUT if it is always so.",
            ) from exc
        return [Ruling(verdict=verdict_of(forth, back), by=self.name) for forth, back in odds]

    async def aclose(self) -> None:
        await asyncio.to_thread(self._pool.shutdown)

    def _run(self, questions: list[Question]) -> NDArray[np.float64]:
        """Shape (n, 2, 3): for each question, old to new and new to old, the probabilities of `_LABELS`."""
        model = self._loaded()
        pairs = [pair for each in questions for pair in ((each.old, each.new), (each.new, each.old))]
        scores = np.asarray(model.predict(pairs, apply_softmax=True, show_progress_bar=False), dtype=np.float64)
        if scores.shape != (len(pairs), len(_LABELS)) or not np.isfinite(scores).all():
            raise ProviderUnavailable(f"The judge {self.name} answers with no probabilities.", remedy=_OTHER_MODEL)
        return scores[:, self._columns].reshape(len(questions), 2, len(_LABELS))

    def _loaded(self) -> Any:  # noqa: ANN401 - see `_model`
        with self._loading:
            if self._model is None:
                self._model = self._open()
            return self._model

    def _open(self) -> Any:  # noqa: ANN401 - see `_model`
        try:
            library: Any = import_module("sentence_transformers")
        except ImportError as exc:
            raise MissingExtra.of("sentence-transformers", "sentence-transformers") from exc
        try:
            model = library.CrossEncoder(self._source)
        except (OSError, ValueError, RuntimeError) as exc:  # not found, no network, damaged: the library's own mix
            raise ProviderUnavailable(f"The judge {self.name} cannot be loaded.", remedy=_OTHER_MODEL) from exc
        labels = {str(label).lower(): int(column) for column, label in model.config.id2label.items()}
        if set(labels) != set(_LABELS):
            raise ProviderUnavailable(
                f"The judge {self.name} tells {', '.join(sorted(labels))} apart.",
                remedy="Name a cross-encoder for natural language inference, with these labels: " + ", ".join(_LABELS),
            )
        self._columns = [labels[label] for label in _LABELS]
        return model


def verdict_of(forth: NDArray[np.float64], back: NDArray[np.float64]) -> Verdict:
    """From the probabilities of entailment, neutrality and contradiction, old to new (`forth`) and new to old."""
    if max(forth[2], back[2]) >= CERTAIN:
        return "supersede"
    if back[0] >= CERTAIN:
        return "duplicate" if forth[0] >= CERTAIN else "refine"
    return "coexist" if min(forth[1], back[1]) >= CERTAIN else "unclear"
