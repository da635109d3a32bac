"""Import reads exports, chat logs in the shapes that programs write, and LoCoMo's; nothing is stored twice."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commandline import Cli, command_line, written
from hindsight_core.cli.chats import LONGEST, read_chat, split
from hindsight_core.cli.locomo import read_locomo
from hindsight_core.errors import InvalidInput

TURNS = [
    {"role": "user", "content": "I adopted a parrot named Kiwi.", "timestamp": "2025-05-01T08:00:00Z"},
    {"role": "assistant", "content": "Congratulations!", "timestamp": "2025-05-01T08:00:05Z"},
    {"role": "user", "content": "它每天早上六点就开始唱歌。", "timestamp": "2025-05-01T08:01:00Z"},
]
LOCOMO: list[dict[str, Any]] = [
    {
        "sample_id": "pair-1",
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Bob",
            "session_2_date_time": "9:05 am on 2 June, 2024",
            "session_2": [{"speaker": "Bob", "dia_id": "D2:1", "text": "I planted tomatoes on the balcony."}],
            "session_10_date_time": "12:00 am on 1 August, 2024",
            "session_10": [{"speaker": "Ann", "dia_id": "D10:1", "text": "My sister moved to Oslo."}],
            "session_1_date_time": "1:56 pm on 8 May, 2024",
            "session_1": [
                {"speaker": "Ann", "dia_id": "D1:1", "text": "I started to learn the cello."},
                {"speaker": "Bob", "dia_id": "D1:2", "text": "Look.", "blip_caption": "a photo of a red kayak"},
            ],
        },
        "qa": [
            {"question": "Which instrument does Ann learn?", "answer": "cello", "evidence": ["D1:1"], "category": 4},
            {"question": "What did Bob plant?", "answer": "tomatoes", "evidence": ["D2:1; D1:2"], "category": 1},
            {"question": "Does Bob sing?", "adversarial_answer": "yes", "evidence": ["D1:2"], "category": 5},
            {"question": "Nothing shows this.", "answer": "", "evidence": [], "category": 2},
        ],
    }
]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return command_line(tmp_path, monkeypatch, capsys)


def put(folder: Path, value: object, name: str = "log.json") -> str:
    file = folder / name
    file.write_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), encoding="utf-8")
    return str(file)


def listed(cli: Cli, *options: str) -> list[dict[str, Any]]:
    memories: list[dict[str, Any]] = cli("list", "--json", "--limit", "1000", *options).json["memories"]
    return memories


def test_an_export_is_imported_as_it_was(cli: Cli, tmp_path: Path):
    memory_id = written(cli, "My dog is called Biscuit.", "--tag", "pet", "--user", "ann")
    cli("forget", memory_id)
    written(cli, "我住在杭州。")
    file = str(tmp_path / "all.jsonl")
    assert cli("export", file).code == 0
    first, second = [cli("import", file, "-n", "copy", "--json") for _ in range(2)]
    assert (first.code, first.json["stored"], first.json["existing"]) == (0, 2, 0)
    assert (second.code, second.json["stored"], second.json["existing"]) == (0, 0, 2)
    copied = cli("get", memory_id, "-n", "copy", "--json").json
    assert (copied["status"], copied["tags"], copied["user_id"]) == ("archived", ["pet"], "ann")


def test_an_export_goes_to_standard_output_by_default(cli: Cli):
    memory_id = written(cli, "My dog is called Biscuit.")
    lines = [json.loads(line) for line in cli("export", "--no-history").out.splitlines()]
    assert [line["memory"]["id"] for line in lines[1:]] == [memory_id]
    header, memory, runs, end = [json.loads(line) for line in cli("export").out.splitlines()]
    assert (header["history"], memory["memory"]["id"], memory["history"][0]["action"]) == (True, memory_id, "added")
    assert (runs["runs"][0]["operation"], end["end"]) == ("write", {"memories": 1, "events": 1, "runs": 1, "erased": 0})


def test_an_export_that_was_cut_off_is_imported_and_reported(cli: Cli, tmp_path: Path):
    for text in ("My dog is called Biscuit.", "我住在杭州。"):
        written(cli, text)
    lines = cli("export").out.splitlines()
    for number, (kept, why) in enumerate(((lines[:2], "cut off"), ([*lines[:2], lines[-1]], "held 2 memories"))):
        answer = cli("import", put(tmp_path, "\n".join(kept), f"{number}.jsonl"), "-n", f"copy{number}")
        assert answer.code == 2
        assert "1 stored with 1 events" in answer.out
        assert why in answer.out


def test_a_wrong_line_of_an_export_is_named_by_its_number_and_the_others_are_stored(cli: Cli, tmp_path: Path):
    written(cli, "My dog is called Biscuit.")
    lines = cli("export").out.splitlines()
    file = put(tmp_path, "\n".join([lines[0], '{"memory": {"id": "x"}}', lines[1]]), "bad.jsonl")
    answer = cli("import", file, "-n", "copy")
    assert answer.code == 2
    assert "1 stored" in answer.out
    assert "line 2" in answer.out


def test_a_chat_log_is_kept_turn_by_turn_with_who_said_it_and_when(cli: Cli, tmp_path: Path):
    answer = cli("import", put(tmp_path, TURNS), "--user", "ann", "--json")
    assert (answer.code, answer.json["stored"]) == (0, 3)
    memories = sorted(listed(cli), key=lambda memory: memory["observed_at"])
    assert [memory["content"] for memory in memories] == [turn["content"] for turn in TURNS]
    assert [memory["source"] for memory in memories] == ["user", "agent", "user"]
    assert memories[2]["observed_at"].startswith("2025-05-01T08:01:00")
    assert memories[2]["context"] == "Congratulations!"
    assert {memory["memory_type"] for memory in memories} == {"episodic"}
    assert {memory["user_id"] for memory in memories} == {"ann"}


def test_a_chat_log_that_was_imported_is_not_stored_again_unless_asked(cli: Cli, tmp_path: Path):
    file = put(tmp_path, TURNS)
    cli("import", file)
    second = cli("import", file, "--json")
    assert (second.code, second.json["stored"], second.json["existing"]) == (0, 0, 3)
    assert "3 were there already" in cli("import", file).out
    assert cli("import", file, "--again", "--json").json["stored"] == 3


def test_a_secret_in_a_log_is_left_out_and_said(cli: Cli, tmp_path: Path):
    turns = [TURNS[0], {"role": "user", "content": "My password is hunter2-Xy!9, please remember it."}]
    answer = cli("import", put(tmp_path, turns))
    assert "1 stored" in answer.out
    assert "turn 2" in answer.out
    assert "hunter2" not in answer.out
    assert len(listed(cli)) == 1


def test_times_without_an_offset_are_read_in_the_zone_that_is_named(cli: Cli, tmp_path: Path):
    file = put(tmp_path, [{"role": "user", "text": "Lunch was noodles.", "date": "2025-05-01 12:00:00"}])
    cli("import", file, "--timezone", "Asia/Shanghai")
    assert listed(cli)[0]["observed_at"].startswith("2025-05-01T04:00:00")


def test_a_locomo_file_becomes_a_user_with_sessions_and_its_questions_are_asked(cli: Cli, tmp_path: Path):
    answer = cli("import", put(tmp_path, LOCOMO), "--evaluate", "--json")
    assert (answer.code, answer.json["stored"]) == (0, 4)
    memories = {memory["metadata"]["dia_id"]: memory for memory in listed(cli)}
    assert set(memories) == {"D1:1", "D1:2", "D2:1", "D10:1"}
    assert (memories["D1:1"]["user_id"], memories["D1:1"]["session_id"]) == ("pair-1", "session_1")
    assert memories["D1:1"]["speaker"] == "Ann"
    assert memories["D1:1"]["observed_at"].startswith("2024-05-08T13:56:00")
    assert memories["D10:1"]["observed_at"].startswith("2024-08-01T00:00:00")
    assert "a red kayak" in memories["D1:2"]["content"]
    evaluation = answer.json["evaluation"]
    assert evaluation["answered"] == {"questions": 2, "recall_at_10": 1.0}
    assert evaluation["all"]["questions"] == 3
    assert set(evaluation["by_kind"]) == {"1", "4", "5"}


def test_recall_is_the_share_of_the_turns_that_answer(cli: Cli, tmp_path: Path):
    missing = json.loads(json.dumps(LOCOMO))
    missing[0]["qa"] = [{"question": "What did Bob plant?", "evidence": ["D2:1", "D7:7"], "category": 1}]
    answer = cli("import", put(tmp_path, missing), "--evaluate")
    assert "recall@10, kinds 1-4: 50.0% of 1 questions" in answer.out


def test_only_a_locomo_file_can_be_evaluated(cli: Cli, tmp_path: Path):
    answer = cli("import", put(tmp_path, TURNS), "--evaluate")
    assert answer.code == 2
    assert cli("list").code == 1


@pytest.mark.parametrize(
    "log",
    [
        TURNS,
        {"messages": TURNS},
        {"id": "c1", "conversation": TURNS},
        [{"id": "c1", "messages": TURNS}],
        [TURNS],
        [{"from": turn["role"], "value": turn["content"], "time": turn["timestamp"]} for turn in TURNS],
        [{"speaker": turn["role"], "text": turn["content"], "at": turn["timestamp"]} for turn in TURNS],
        [{"author": {"role": turn["role"]}, "content": {"parts": [turn["content"]]}} for turn in TURNS],
        [{"role": turn["role"], "content": [{"type": "text", "text": turn["content"]}]} for turn in TURNS],
        "\n".join(json.dumps(turn) for turn in TURNS),
        "\n\n" + "\n".join(json.dumps(turn) for turn in TURNS) + "\n",
        json.dumps({"messages": TURNS[:2]}) + "\n" + json.dumps({"messages": TURNS[2:]}),
    ],
)
def test_every_usual_shape_of_a_chat_log_is_read(log: object):
    data = log if isinstance(log, str) else json.dumps(log)
    messages = [message for conversation in read_chat(data.encode()) for message in conversation.messages]
    assert [message.text for message in messages] == [turn["content"] for turn in TURNS]
    assert [message.role for message in messages] == ["user", "assistant", "user"]


@pytest.mark.parametrize(
    ("who", "role", "speaker"),
    [
        ({"role": "human"}, "user", None),
        ({"role": "AI"}, "assistant", None),
        ({"role": "function"}, "tool", None),
        ({"speaker": "Ann"}, "user", "Ann"),
        ({"role": "assistant", "name": "Hal"}, "assistant", "Hal"),
        ({}, "user", None),
    ],
)
def test_who_spoke_is_a_role_or_a_name(who: dict[str, str], role: str, speaker: str | None):
    [conversation] = read_chat(json.dumps([{**who, "text": "x"}]).encode())
    assert (conversation.messages[0].role, conversation.messages[0].speaker) == (role, speaker)


@pytest.mark.parametrize(
    "when",
    [
        "2025-05-01T08:00:00Z",
        1746086400,
        1746086400000,
        "2025-05-01T10:00:00+02:00",
        "2025-05-01T08:00Z",
        "2025-05-01 10:00+02:00",
        " 2025-05-01T08Z",
    ],
)
def test_when_it_was_said_is_a_time_or_unix_seconds_or_milliseconds(when: object):
    [conversation] = read_chat(json.dumps([{"text": "x", "timestamp": when}]).encode())
    at = conversation.messages[0].at
    assert at is not None
    assert at.timestamp() == 1746086400


@pytest.mark.parametrize("when", ["2025-05-01 08:00", "2025-05-01T08:00", "2025-05-01T08:00:00", "20250501T0800"])
def test_when_it_was_said_may_lack_seconds_and_an_offset(when: str):
    [conversation] = read_chat(json.dumps([{"text": "x", "timestamp": when}]).encode())
    assert conversation.messages[0].at == datetime(2025, 5, 1, 8)  # noqa: DTZ001 - the import says the zone
    [conversation] = read_chat(json.dumps([{"text": "x", "timestamp": "2025-05-01"}]).encode())
    assert conversation.messages[0].at == datetime(2025, 5, 1)  # noqa: DTZ001


def test_a_turn_that_is_a_number_is_its_digits():
    [conversation] = read_chat(b'[{"text": 5}, {"text": true}, {"content": ["a", 2.5]}]')
    assert [message.text for message in conversation.messages] == ["5", "a\n2.5"]


@pytest.mark.parametrize(
    ("log", "place"),
    [
        ("", "file"),
        ("hello", "file"),
        ("{}", "file"),
        ("[]", "file"),
        ("5", "file"),
        ('[{"text": "x"}, {"nothing": 1}]', "[0]"),
        ('[{"messages": [{"text": "x"}, 7]}]', "[0][1]"),
        ('[{"text": "x", "date": "a while ago"}]', "[0].date"),
        ('[{"text": "x", "timestamp": 1e30}]', "[0].timestamp"),
        ('[{"text": "x", "role": 7}]', "[0].role"),
        ('{"text": "x"}\n{"text": ', "line 2"),
    ],
)
def test_what_is_no_chat_log_is_refused_naming_the_place(log: str, place: str):
    with pytest.raises(InvalidInput) as refused:
        read_chat(log.encode())
    assert refused.value.errors[0].field == place


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"session_1_date_time": "yesterday"}, "[0].conversation.session_1_date_time"),
        ({"session_1": [{"speaker": "Ann", "dia_id": "D1:1"}]}, "[0].conversation.session_1[0].text"),
        ({"session_1": 5}, "[0].conversation.session_1"),
    ],
)
def test_what_is_no_locomo_file_is_refused_naming_the_place(change: dict[str, Any], place: str):
    sample = {**LOCOMO[0], "conversation": {**LOCOMO[0]["conversation"], **change}}
    with pytest.raises(InvalidInput) as refused:
        read_locomo(json.dumps([sample]).encode())
    assert refused.value.errors[0].field == place


@given(st.lists(st.sampled_from(["word", "a. b", "句子。", "\n", "x" * 3000]), max_size=12), st.integers(0, 3000))
def test_a_long_turn_is_split_into_pieces_that_fit_and_lose_no_word(words: list[str], more: int):
    text = " ".join(words) + "y" * more
    pieces = list(split(text * 3))
    assert all(len(piece) <= LONGEST for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join((text * 3).split())


NAMES = st.sampled_from(["messages", "text", "role", "content", "timestamp", "parts", "id"])
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner)
)


@given(ANY_JSON)
def test_any_json_is_a_chat_log_or_refused(value: object):
    with suppress(InvalidInput):
        assert read_chat(json.dumps(value).encode())
