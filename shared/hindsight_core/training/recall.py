"""Train the recall trigger's learned part and measure it on writers it has not seen.

``python -m hindsight_core.training.recall --data DIR [--data DIR …] [--own DIR] [--out DIR]``

Every ``trigger*.jsonl`` holds lines ``{"lang", "text", "recent": [turn or {"role", "text"} …], "expect": bool}``. Files
whose names differ only in their language are one writer; all files of an ``--own`` folder together are one.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.learned import Card, Floats
from hindsight_core.recall import message_wording
from hindsight_core.training.command import command, labelled
from hindsight_core.training.texts import Texts, blank, evaluate, fit, write

CLASSES = ("no", "yes")
RIDGE = 0.2
OWN_RIDGE = 0.4
GAMMA = 1.2


class Turn(msgspec.Struct, frozen=True):
    text: str


class Item(msgspec.Struct, frozen=True):
    lang: str
    text: str
    expect: bool
    recent: list[str | Turn] = []
    writer: str = ""

    @property
    def turns(self) -> list[str]:
        return [turn if isinstance(turn, str) else turn.text for turn in self.recent]


def load(data: Sequence[Path], own: Sequence[Path]) -> list[Item]:
    """All items of these folders."""
    return [
        msgspec.structs.replace(msgspec.json.decode(line, type=Item), writer=writer)
        for writer, line in labelled("trigger", data, own)
    ]


def corpus(items: list[Item], vectors: Floats) -> Texts:
    classes = np.array([int(item.expect) for item in items])
    return Texts(
        wordings=[message_wording(item.text, item.turns) for item in items],
        vectors=vectors,
        targets=2.0 * np.eye(2)[classes] - 1.0,
        classes=classes,
        writers=np.array([item.writer for item in items]),
        languages=np.array([item.lang for item in items]),
    )


def measures(truth: NDArray[np.int64], odds: NDArray[np.float64], threshold: NDArray[np.float64]) -> dict[str, float]:
    """F1 of searching, and accuracy."""
    want, said = truth > 0, odds[:, 1] >= threshold
    both = (want & said).sum()
    return {"f1": float(2 * both / max(1, want.sum() + said.sum())), "accuracy": float((want == said).mean())}


def train(items: list[Item], model: str, vectors: Floats, out: Path) -> Card:
    """Measure, fit, write; returns the card with the figures."""
    texts = corpus(items, vectors)
    ridge = np.where(texts.writers == "own", OWN_RIDGE, RIDGE)
    card = evaluate(texts, blank(model, CLASSES, GAMMA, texts), ridge, texts.writers != "own", measures, "f1")
    write(out, "recall", card, fit(texts, card, ridge))
    return card


def main(arguments: list[str] | None = None) -> int:
    return command(__doc__, load, train, lambda item: item.text, arguments)


if __name__ == "__main__":
    sys.exit(main())
