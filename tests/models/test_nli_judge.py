"""A real cross-encoder through sentence-transformers: tiny, with weights drawn at random, so it proves wiring alone.

Needs `pip install sentence-transformers`; skipped where it is not installed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import numpy as np
import pytest

from hindsight_core.errors import ProviderUnavailable
from hindsight_core.judging import Question, open_judge
from hindsight_core.judging.nli import NliJudge, verdict_of

pytest.importorskip("sentence_transformers")
transformers = pytest.importorskip("transformers")

QUESTIONS = [Question(old="I live in Leeds.", new="I live in York."), Question(old="我养了一只猫", new="我养了两只猫")]


def make(folder: Path, labels: list[str]) -> Path:
    """A one-layer BERT for these labels, with the letters of the questions as its words."""
    folder.mkdir()
    letters = sorted({letter for each in QUESTIONS for letter in (each.old + each.new).lower() if letter.strip()})
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", "utf-8")
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        num_labels=len(labels),
        id2label=dict(enumerate(labels)),
        label2id={label: i for i, label in enumerate(labels)},
    )
    transformers.set_seed(7)
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


@pytest.fixture
async def judge(tmp_path: Path) -> AsyncGenerator[NliJudge]:
    opened = open_judge(f"sentence-transformers:{make(tmp_path / 'nli', ['contradiction', 'Entailment', 'neutral'])}")
    assert isinstance(opened, NliJudge)
    yield opened
    await opened.aclose()


async def test_its_probabilities_stand_in_the_order_of_the_labels(judge: NliJudge) -> None:
    odds = judge._run(QUESTIONS)
    assert odds.shape == (2, 2, 3)
    np.testing.assert_allclose(odds.sum(axis=2), 1, atol=1e-5)
    model = judge._loaded()
    (forth,) = model.predict([(QUESTIONS[0].old, QUESTIONS[0].new)], apply_softmax=True)
    np.testing.assert_allclose(odds[0, 0], [forth[1], forth[2], forth[0]], atol=1e-5)


async def test_each_question_gets_a_ruling_that_names_the_judge(judge: NliJudge) -> None:
    odds = judge._run(QUESTIONS)
    found = await judge.rule(QUESTIONS)
    assert [ruling.verdict for ruling in found] == [verdict_of(forth, back) for forth, back in odds]
    assert {ruling.by for ruling in found} == {"sentence-transformers:nli"}
    assert await judge.rule([]) == []


async def test_a_model_of_other_labels_is_refused(tmp_path: Path) -> None:
    judge = NliJudge(str(make(tmp_path / "sentiment", ["good", "bad"])))
    with pytest.raises(ProviderUnavailable, match="bad, good"):
        await judge.rule(QUESTIONS)
    await judge.aclose()


async def test_a_model_that_is_not_there_is_unavailable_and_says_so(tmp_path: Path) -> None:
    judge = NliJudge(str(tmp_path / "nosuch"))
    with pytest.raises(ProviderUnavailable, match="nosuch cannot be loaded"):
        await judge.rule(QUESTIONS)
    await judge.aclose()
