"""What `bench retrieval` measures, what it reads, and how sure it says it is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commandline import Cli, command_line
from hindsight_core.benchmark import reading, sets
from hindsight_core.benchmark.configuration import load
from hindsight_core.benchmark.measures import differences, measured, summary
from hindsight_core.benchmark.vectors import Whole
from hindsight_core.benchmark.weighing import Example, weighed
from hindsight_core.embedding import Embedder
from hindsight_core.errors import InvalidInput
from hindsight_core.ranking import Weights
from hindsight_core.reranking import EVIDENCE, compares
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
    assert re.search(r"fact +lexical +2 +100\.0", answer.out)
    assert "Python 3." in answer.out


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
        (["{set}", "--bank", "three"], "no question"),
        (["{set}", "{set}"], "same name"),
        (["{broken}"], "broken.json: banks[0].queries[0]"),
        (["{torn}"], "torn.json"),
        (["{set}", "--bank", "one", "--leave-one-out"], "at least two banks"),
        (["{set}", "-c", "dense", "--leave-one-out"], "all kinds of evidence"),
        (["{set}", "-c", "default", "-c", "{other}", "--store", "some.db"], "--store"),
    ],
)
def test_what_is_wrong_is_named(cli: Cli, tmp_path: Path, arguments: list[str], told: str):
    broken = json.loads(json.dumps(PLAIN))
    del broken["banks"][0]["queries"][0]["gold"]
    files = {
        "set": put(tmp_path, PLAIN),
        "bad": put(tmp_path, "[weights]\nalfa = 1\n", "bad.toml"),
        "broken": put(tmp_path, broken, "broken.json"),
        "torn": put(tmp_path, '{"name": "torn', "torn.json"),
        "other": put(tmp_path, 'embedder = "openai:other@http://localhost:1"\n', "other.toml"),
    }
    answer = cli("bench", "retrieval", *(argument.format(**files) for argument in arguments))
    assert answer.code == 2
    assert told in answer.err


@pytest.mark.parametrize(("name", "alpha"), [("dense", 1.0), ("lexical", 0.0)])
def test_one_signal_is_that_one_alone(name: str, alpha: float):
    weights = load(name).ranking
    assert (weights.alpha, weights.speaker, weights.date, weights.question, weights.offset) == (alpha, 0, 0, 0, 0)
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
            [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}],
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
