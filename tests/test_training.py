"""`python -m hindsight_core.training`: what the one command runs, with what, and what it refuses at the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from hindsight_core.training import gate, recall, reconcile
from hindsight_core.training.__main__ import main, parsed, reader, steps


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    found = {name: tmp_path / name for name in ("one", "two", "own")}
    for folder in found.values():
        folder.mkdir()
    return found | {"out": tmp_path / "out", "said": tmp_path / "said.npz", "vectors": tmp_path / "kept"}


def test_pairs_gate_and_trigger_are_trained_in_turn_from_all_folders_into_one(folders: dict[str, Path]) -> None:
    given = ["--data", str(folders["one"]), "--data", str(folders["two"]), "--own", str(folders["own"])]
    given += ["--out", str(folders["out"])]
    found = steps(parsed(given))
    assert [step.run for step in found] == [reconcile.main, gate.main, recall.main]
    assert [step.arguments for step in found] == [given, given, given]


def test_what_the_reader_said_goes_to_the_pairs_alone_and_each_keeps_vectors_of_its_own(
    folders: dict[str, Path],
) -> None:
    folders["said"].touch()
    given = ["--data", str(folders["one"]), "--own", str(folders["own"]), "--out", str(folders["out"])]
    more = ["--read", str(folders["said"]), "--vectors", str(folders["vectors"])]
    pairs, *texts = steps(parsed([*given, *more]))
    assert pairs.arguments == [*given, "--vectors", str(folders["vectors"] / "reconcile.npz"), *more[:2]]
    assert [step.arguments for step in texts] == [
        [*given, "--vectors", str(folders["vectors"] / f"{name}.npz")] for name in ("gate", "recall")
    ]
    assert str(folders["said"]) in reader(parsed([*given, *more]))


def test_without_what_a_reader_said_it_says_how_one_is_trained_and_each_step_reads_the_folders(
    folders: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--data", str(folders["one"]), "--own", str(folders["own"]), "--out", str(folders["out"])]
    with pytest.raises(SystemExit) as ended:
        main(given)
    said = capsys.readouterr()
    assert ended.value.code == 2
    assert f"python training/reader.py {' '.join(given)} --said said.npz" in said.out
    # The first step looks for stories in the folder and finds none.
    assert "no --own folder has stories" in said.err


@pytest.mark.parametrize("missing", ["--data", "--own", "--read"])
def test_what_is_not_there_is_named_at_the_start(
    folders: dict[str, Path], missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"--data": folders["one"], "--own": folders["own"], "--out": folders["out"]}
    given[missing] = folders["one"] / "nowhere"
    with pytest.raises(SystemExit) as ended:
        parsed([part for option, path in given.items() for part in (option, str(path))])
    assert ended.value.code == 2
    assert f"{missing}: there is no" in capsys.readouterr().err
