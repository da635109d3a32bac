"""Train the gate's learned part and measure it on writers it has not seen.

``python -m hindsight_core.training.gate --data DIR [--data DIR …] [--own DIR] [--out DIR]``

Every ``gate*.jsonl`` holds lines ``{"lang", "role", "text", "task", "expect": {"keep", "kind", "durable"?}}``. Files
whose names differ only in their language are one writer; all files of an ``--own`` folder together are one. Each
writer is judged by a model that never saw that writer; the figures go into the card beside the weights. Of the stories
of an ``--own`` folder (``stories*.jsonl``), a part of what they are full of and all the rest teach what is kept; of
which kind something is, and how long it holds, they do not teach, for their writers drew those lines elsewhere.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.learned import Card, Floats
from hindsight_core.spans import statement
from hindsight_core.training.command import command, labelled
from hindsight_core.training.stories import load as load_stories
from hindsight_core.training.texts import Texts, blank, evaluate, fit, write
from hindsight_core.wording import read

CLASSES = ("none", "fact", "preference", "instruction", "event", "speculation")
RIDGE = 0.4
OWN_RIDGE = 0.8
GAMMA = 1.2
# Of what stories are full of, one in so many is learned from: all would make a decision half as slow again.
PLENTY, STORIES = frozenset(["fact", "event", "speculation"]), 4
# Where a writer did not say whether something lasts, what its kind makes likely.
_USUALLY_LASTS = {"none": -1.0, "fact": 0.8, "preference": 1.0, "instruction": 0.4, "event": -0.6, "speculation": -0.6}


class Expected(msgspec.Struct, frozen=True):
    keep: bool
    kind: str
    durable: bool | None = None


class Item(msgspec.Struct, frozen=True):
    lang: str
    role: str
    text: str
    expect: Expected
    writer: str = ""
    of_story: bool = False


def load(data: Sequence[Path], own: Sequence[Path]) -> list[Item]:
    """All items of these folders, without what only leads over to a user's text; one that comes twice counts once."""
    found: dict[tuple[str, str], Item] = {}
    for writer, line in labelled("gate", data, own):
        item = msgspec.structs.replace(msgspec.json.decode(line, type=Item), writer=writer)
        if item.role == "user":
            item = msgspec.structs.replace(item, text=statement(item.text))
        found.setdefault((item.role, item.text), item)
    passed: Counter[str] = Counter()
    for story in load_stories(list(own)):
        for _, turn in story.lines:
            passed[turn.kind] += 1
            if turn.kind not in PLENTY or passed[turn.kind] % STORIES == 0:
                keep = turn.kind != "skip"
                expect = Expected(keep=keep, kind=turn.kind if keep else "none")
                item = Item(story.lang, "user", statement(turn.text), expect, writer="own", of_story=True)
                found.setdefault((item.role, item.text), item)
    return list(found.values())


def corpus(items: list[Item], vectors: Floats) -> Texts:
    classes = np.array([CLASSES.index(item.expect.kind if item.expect.keep else "none") for item in items])
    lasts = [_lasts(item) for item in items]
    targets = np.hstack([2.0 * np.eye(len(CLASSES))[classes] - 1.0, np.array(lasts)[:, None]])
    return Texts(
        wordings=[read(item.text, item.role) for item in items],
        vectors=vectors,
        targets=targets,
        classes=classes,
        writers=np.array([item.writer for item in items]),
        languages=np.array([item.lang for item in items]),
        apart=np.array([not item.of_story for item in items]),
    )


def _lasts(item: Item) -> float:
    """Whether it holds in three months, from -1 to 1, as its writer said or as its kind makes likely."""
    if item.expect.durable is not None:
        return 1.0 if item.expect.durable else -1.0
    if item.of_story and item.expect.keep:
        return 0.0
    return _USUALLY_LASTS[item.expect.kind if item.expect.keep else "none"]


def measures(truth: NDArray[np.int64], odds: NDArray[np.float64], threshold: NDArray[np.float64]) -> dict[str, float]:
    """F1 of keeping, accuracy of the kind where both keep, accuracy of the status (skip, active, pending)."""
    keep, kept = truth > 0, 1 - odds[:, 0] >= threshold
    kind = odds[:, 1:].argmax(axis=1) + 1
    both = keep & kept
    last = len(CLASSES) - 1
    status = np.where(keep, np.where(truth == last, 2, 1), 0)
    said = np.where(kept, np.where(kind == last, 2, 1), 0)
    return {
        "keep_f1": float(2 * both.sum() / max(1, keep.sum() + kept.sum())),
        "kind": float((kind == truth)[both].mean()) if both.any() else 1.0,
        "status": float((status == said).mean()),
    }


def train(items: list[Item], model: str, vectors: Floats, out: Path) -> Card:
    """Measure, fit, write; returns the card with the figures.

    The link and the threshold come from writers of look-alikes who labelled what lasts: plain or own items would move
    the threshold away from what strangers write.
    """
    texts = corpus(items, vectors)
    ridge = np.where(texts.writers == "own", OWN_RIDGE, RIDGE)
    strict = {item.writer for item in items if item.expect.durable is not None} - {"own"}
    strangers = np.isin(texts.writers, sorted(strict))
    card = evaluate(texts, blank(model, CLASSES, GAMMA, texts), ridge, strangers, measures, "keep_f1")
    write(out, "gate", card, fit(texts, card, ridge))
    return card


def main(arguments: list[str] | None = None) -> int:
    return command(__doc__, load, train, lambda item: item.text, arguments)


if __name__ == "__main__":
    sys.exit(main())
