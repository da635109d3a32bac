"""How well a store answers the questions of a LoCoMo file."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.progress import Progress

from hindsight_core.cli.locomo import ANSWERED, Sample
from hindsight_core.cli.target import Target
from hindsight_core.client import AsyncHindsight
from hindsight_core.decoding import convert
from hindsight_core.requests import SearchRequest

TOP = 10


class Recall(msgspec.Struct, frozen=True, kw_only=True):
    """Of the turns that answer a question, the share among the first ten hits, averaged over the questions."""

    questions: int
    recall_at_10: float


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """How well the questions of a LoCoMo file are answered: those of kinds 1 to 4, all of them, and each kind."""

    answered: Recall
    all: Recall
    by_kind: dict[int, Recall]


async def evaluate(
    memories: AsyncHindsight, samples: Sequence[Sample], target: Target, progress: Progress
) -> Evaluation:
    """Ask every question that names its evidence, of its own conversation, and see which turns come back."""
    shares: dict[int, list[float]] = {}
    asked = [(sample, question) for sample in samples for question in sample.questions if question.evidence]
    bar = progress.add_task("questions", total=len(asked))
    for sample, question in asked:
        user = target.user or sample.name
        fields = {**target.scope(), "user_id": user, "query": question.question, "top_k": TOP}
        answer = await memories.search(convert(fields, SearchRequest))
        found = {str(hit.memory.metadata.get("dia_id")) for hit in answer.hits}
        shares.setdefault(question.kind, []).append(len(found & {*question.evidence}) / len(question.evidence))
        progress.advance(bar)
    return Evaluation(
        answered=_mean([share for kind in ANSWERED for share in shares.get(kind, ())]),
        all=_mean([share for found in shares.values() for share in found]),
        by_kind={kind: _mean(found) for kind, found in sorted(shares.items())},
    )


def _mean(shares: Sequence[float]) -> Recall:
    return Recall(questions=len(shares), recall_at_10=sum(shares) / len(shares) if shares else 0.0)
