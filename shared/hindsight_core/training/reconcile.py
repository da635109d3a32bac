"""Train the pair judge and measure it on writers it has not seen.

``python -m hindsight_core.training.reconcile --data DIR [--data DIR …] [--own DIR] [--out DIR]``

Every ``reconcile*.jsonl`` of a ``--data`` folder is one writer; all files of an ``--own`` folder together are one.
Each line is ``{"lang", "old": {content, source, confidence}, "new": {…}, "expect": relation}``. Each writer is judged
by a model that never saw that writer; the figures go into the card beside the weights. `--read SAID` are the words of
readers (`training/reader.py`) that have not seen that writer either: with it, the figures are those of both together.
What a new text means among several neighbours is learned from the stories (``stories*.jsonl``) of ``--own`` folders.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.evaluation.reconcile import measures
from hindsight_core.evaluation.report import Line
from hindsight_core.guards import guarded
from hindsight_core.learned import linked
from hindsight_core.pair_model import CLIP, STEPS, Card, Floats, concern, model_of, packed, project
from hindsight_core.relations import CHOSEN, RELATIONS
from hindsight_core.screening import concerned, settled, together
from hindsight_core.slots import read
from hindsight_core.training.among import Among, Rows, among, gate, judged, links
from hindsight_core.training.among import left_out as among_left_out
from hindsight_core.training.lone import Lone, features
from hindsight_core.training.pairs import Corpus, Pair, corpus, load, texts_of, vectors_of
from hindsight_core.training.solving import SHAPE, base, left_out, link, linkage, relevance, solve, weighed
from hindsight_core.training.stories import Meeting, meetings, texts
from hindsight_core.training.stories import load as load_stories
from hindsight_core.verdicts import ReconcileSettings, verdict


def decide(
    data: Corpus, odds: NDArray[np.float64], concerns: NDArray[np.float64], settings: ReconcileSettings
) -> list[str]:
    """What the product does with each pair: the gate, the guards, then the thresholds."""
    found: list[str] = []
    ceiling = settings.supersede_at - 1e-6
    for pair, row, share in zip(data.pairs, odds, concerns, strict=True):
        judged = concerned(row, float(share))
        new, old = pair.new.memory("new"), pair.old.memory("old")
        kept, _ = guarded(judged, new, old, read(old.content), read(new.content))
        sure = share >= settings.concern_alone_at
        found.append(verdict(kept, kept["supersede"] if sure else min(kept["supersede"], ceiling), settings))
    return found


def report(data: Corpus, decided: list[str]) -> dict[str, dict[str, float]]:
    """Figures by writer and language and over all writers but our own; printed as a table, with the confusion."""
    rows: dict[str, list[int]] = {}
    for i, pair in enumerate(data.pairs):
        group = "own" if pair.own else pair.writer.removeprefix("reconcile_")
        for name in (group, *(() if pair.own else (f"all {pair.lang}", "all"))):
            rows.setdefault(name, []).append(i)
    figures: dict[str, dict[str, float]] = {}
    for name, at in sorted(rows.items()):
        found = measures([_line(data.pairs[i], decided[i]) for i in at])
        figures[name] = {measure.name: measure.value for measure in found} | {"pairs": float(len(at))}
        _say(
            f"{name:12} n={len(at)} " + " · ".join(f"{m.name} {m.value:.1%} [{m.low:.1%}, {m.high:.1%}]" for m in found)
        )
    columns = [*RELATIONS, "contest"]
    _say("expected \\ decided: " + " ".join(columns))
    for expected in RELATIONS:
        counts = [
            sum(decided[i] == column and data.pairs[i].expect == expected for i in rows["all"]) for column in columns
        ]
        _say(f"{expected:10} " + " ".join(f"{count:5}" for count in counts))
    return figures


def trade(data: Corpus, odds: NDArray[np.float64], concerns: NDArray[np.float64]) -> None:
    """What other thresholds of contesting would give over all writers but our own, a line each."""
    others = [i for i, pair in enumerate(data.pairs) if not pair.own]
    for at in (0.15, 0.2, 0.25, 0.3, 0.35):
        decided = decide(data, odds, concerns, ReconcileSettings(contest_at=at))
        found = measures([_line(data.pairs[i], decided[i]) for i in others])
        _say(f"contest_at {at:.2f} " + " · ".join(f"{m.name} {m.value:.1%}" for m in found))


def with_reader(
    alone: NDArray[np.float64], both: NDArray[np.float64], concerns: NDArray[np.float64], heard: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """What the product makes of both: (n, 6). Settled pairs are not read, nor are those that no reader left out."""
    found = alone.copy()
    for i in np.flatnonzero(heard).tolist():
        if not settled(concerned(alone[i], float(concerns[i]))):
            found[i] = together(alone[i], both[i], float(concerns[i]))
    return found


def words(file: Path | None) -> dict[str, Floats]:
    """What readers said, (12,) a pair, by the texts of the old one and the new one with a line's end between.

    Of the writers of a fold that the file does not hold, nothing.
    """
    known: dict[str, Floats] = {}
    if file is not None:
        with np.load(file) as found:
            for fold in range(int(found["folds"])):
                if f"pairs{fold}" in found:
                    known |= dict(zip(found[f"pairs{fold}"].tolist(), found[f"fold{fold}"], strict=True))
                else:
                    _say(f"{file} holds nothing of fold {fold}: its writers are judged without a reader")
    return known


def apart(test: NDArray[np.bool_], known: NDArray[np.bool_]) -> list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Whom to judge, from whom: from all others or, where nobody else was read, each half from the other."""
    if not test.any():
        return []
    if (known & ~test).any():
        return [(test, known & ~test)]
    even = np.arange(len(test)) % 2 == 0
    return [(test & even, test & ~even), (test & ~even, test & even)]


def said(pairs: list[Pair], known: dict[str, Floats]) -> NDArray[np.float64]:
    """Log-probabilities (n, 6) of every pair; of what no reader has left out, nothing: NaN."""
    nothing = np.full(len(RELATIONS), np.nan)
    rows = [
        nothing if pair.own else known.get(f"{pair.old.content}\n{pair.new.content}", nothing)[CHOSEN] for pair in pairs
    ]
    return np.array(rows, dtype=np.float64)


def stand(met: list[Meeting], data: Among, found: Rows, odds: NDArray[np.float64]) -> None:
    """What probabilities alone make of the neighbours of unseen writers, before any rule: a line a language.

    Counted are all neighbours that were to be superseded, found again or not, of writers that have probabilities.
    """
    at = ReconcileSettings()
    heard = ~np.isnan(odds[:, 0])
    sure = heard & (odds[:, 0] >= at.supersede_at)
    asked = heard & ~sure & (odds[:, 0] >= at.contest_among_at)
    same = heard & (odds.argmax(axis=1) == found.relation)
    languages = np.array([each.story.lang for each in met])
    writers = np.unique(found.writer[heard])
    for lang in sorted({str(each) for each in languages}):
        here = heard & (languages[data.meeting[found.at]] == lang)
        some = [each for each in met if each.story.lang == lang and each.story.writer in writers]
        if not some:
            continue
        replaced, wrong = here & (found.relation == 0), here & (found.relation != 0)
        true = sum(relation == "supersede" for each in some for relation in each.expect)
        shares = [
            f"{name} {(same & here & (found.relation == i)).sum() / max(1, (here & (found.relation == i)).sum()):.1%}"
            for i, name in enumerate(RELATIONS)
        ]
        lost = -np.log(odds[here, found.relation[here]]).mean()
        _say(
            f"{lang} {len(some)} writes; of {true} to be replaced superseded {(replaced & sure).sum() / true:.1%},"
            f" asked {(replaced & asked).sum() / true:.1%}; of 100 writes {100 * (wrong & sure).sum() / len(some):.1f}"
            f" supersede and {100 * (wrong & asked).sum() / len(some):.1f} contest what holds; log-loss {lost:.4f};"
            f" likeliest is right: {', '.join(shares)}"
        )


def _line(pair: Pair, decided: str) -> Line:
    return Line(id="", lang=pair.lang, expected=pair.expect, predicted=decided, right=decided == pair.expect)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def main(arguments: list[str] | None = None) -> None:
    """Read the folders, measure with each writer left out, fit on everything, write both files."""
    parser = argparse.ArgumentParser(description="Train the pair judge of reconciliation.")
    parser.add_argument("--data", type=Path, action="append", required=True, help="a folder; each file is one writer")
    parser.add_argument("--own", type=Path, action="append", default=[], help="a folder; all its files are one writer")
    parser.add_argument("--out", type=Path, help="where both files go (none: measure only)")
    parser.add_argument("--read", type=Path, help="what readers say of writers they have not seen (training/reader.py)")
    parser.add_argument("--vectors", type=Path, help="keep the vectors in this file between runs")
    options = parser.parse_args(arguments)
    pairs, stories = load(options.data, options.own), load_stories(options.own)
    if not stories:
        parser.error("no --own folder has stories*.jsonl, from which neighbours are learned")
    identity, vectors = vectors_of([*texts_of(pairs), *texts(stories)], options.vectors)
    data = corpus(pairs, vectors)
    common = base(data)
    others = np.array([not pair.own for pair in pairs])
    prior = np.bincount(data.labels[others], minlength=len(RELATIONS)) / others.sum()
    scores = left_out(data, common, prior)
    known = words(options.read)
    read = said(pairs, known)
    heard = ~np.isnan(read[:, 0])
    both = np.hstack([scores, read])
    odds, alone = np.zeros_like(scores), np.zeros_like(scores)
    concerns = np.zeros(len(pairs))
    lone = Lone(data)
    for group in sorted(set(data.groups)):
        test = data.groups == group
        # Our own pairs are all contrasts: they teach the model but say little about how often it is right.
        fit = others & ~test
        alone[test] = linked(scores[test], linkage(link(scores[fit], data.labels[fit])))
        for some, rest in apart(test & heard, others & heard):
            odds[some] = linked(both[some], linkage(link(both[rest], data.labels[rest])))
        only = lone.gate(~test)
        for i in np.flatnonzero(test).tolist():
            concerns[i] = concern(only, features(data, i, i))
    if known:
        _say("without a reader")
        report(data, decide(data, alone, concerns, ReconcileSettings()))
        odds = with_reader(alone, odds, concerns, heard)
        _say("with a reader")
    else:
        odds = alone
    figures = report(data, decide(data, odds, concerns, ReconcileSettings()))
    trade(data, odds, concerns)
    if options.vectors:
        np.savez(options.vectors.with_suffix(".odds.npz"), odds=odds, concerns=concerns)
    final = weighed(common, np.round(relevance(common.rows, data.labels), 4))
    told = np.flatnonzero(final.weigh)
    met = [each for story in stories for each in meetings(story, vectors, str(identity))]
    neighbours = among(met, vectors, common)
    nothing = linkage((np.zeros((len(RELATIONS) + 1, len(RELATIONS))), np.zeros(len(RELATIONS))))
    card = Card(
        model=identity.model,
        dimension=identity.dimension,
        calibration=identity.calibration,
        features=tuple(data.names[i] for i in told),
        centre=tuple(round(float(x), 6) for x in common.centre[told]),
        scale=tuple(round(float(x), 6) for x in common.scale[told]),
        weigh=tuple(round(float(x), 4) for x in final.weigh[told]),
        kernel=SHAPE,
        spread=final.spread,
        norm=final.norm,
        alone=linkage(link(scores[others], data.labels[others])),
        alone_read=linkage(link(both[others & heard], data.labels[others & heard])) if known else None,
        among=nothing,
        gate=gate(neighbours, np.ones(len(neighbours.rows), dtype=bool)),
        lone=lone.gate(np.ones(len(pairs), dtype=bool)),
        pairs=len(pairs),
        figures={name: {key: round(v, 4) for key, v in found.items()} for name, found in figures.items()},
    )
    old, old_step = packed(project(data.old, common.middle, common.projection))
    new, new_step = packed(project(data.new, common.middle, common.projection))
    arrays: dict[str, NDArray[np.generic]] = {
        "likeness": np.round(final.points.likeness[:, told] * (STEPS / CLIP)).astype(np.int8),
        "old": old,
        "old_step": old_step,
        "new": new,
        "new_step": new_step,
        "projection": common.projection.astype(np.float16),
        "middle": common.middle,
        "weights": solve(final.gram, data.labels, data.ridge, prior).astype(np.float32),
    }
    found = judged(neighbours, met, vectors, model_of(card, arrays), known)
    everyone = np.ones(len(found.at), dtype=bool)
    _say("among neighbours, without a reader")
    stand(met, neighbours, found, among_left_out(found, heard=False))
    if known:
        _say("among neighbours, with a reader")
        stand(met, neighbours, found, among_left_out(found, heard=True))
    if options.out is None:
        return
    card = msgspec.structs.replace(
        card,
        among=links(found, everyone, heard=False),
        among_read=links(found, everyone, heard=True) if known else None,
    )
    options.out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(options.out / "reconcile.npz", **arrays)  # type: ignore[arg-type]
    text = json.dumps(msgspec.to_builtins(card), ensure_ascii=False, indent=1)
    (options.out / "reconcile.json").write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
