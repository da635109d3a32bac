"""The commands do what their help says, in words on a terminal and as JSON, and their exit codes can be relied on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commandline import Cli, command_line, written
from hindsight_core.ranking import INTENTS

ADDRESS = "My shipping address is 12 Elm Street, Leeds."
COMMANDS = (
    "serve", "write", "search", "recall", "get", "list", "history", "update", "resolve", "forget", "restore", "undo",
    "runs", "sweep", "erase", "import", "export", "stats", "doctor", "eval",
)  # fmt: skip
DOG = "My dog is called Biscuit."


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return command_line(tmp_path, monkeypatch, capsys)


def test_help_lists_every_command_and_the_exit_codes(cli: Cli):
    answer = cli("--help")
    assert answer.code == 0
    for name in COMMANDS:
        assert f" {name} " in answer.out, name
    assert "Exit codes: 0 done; 1 nothing was found" in answer.out


@pytest.mark.parametrize("name", ["serve", "write", "search", "forget", "import", "doctor"])
def test_each_command_explains_its_options(cli: Cli, name: str):
    answer = cli(name, "--help")
    assert answer.code == 0
    assert "--store" in answer.out


def test_the_help_names_every_intent(cli: Cli):
    said = " ".join(cli("search", "--help").out.replace("│", " ").split())
    assert f"What it is for: {', '.join(sorted(INTENTS))}." in said


def test_as_json_an_error_keeps_the_names_of_the_interface(cli: Cli):
    answer = cli("search", "x", "--intent", "gossip", "--json")
    assert [fault["field"] for fault in json.loads(answer.err)["errors"]] == ["intent"]


def test_the_version_is_printed(cli: Cli):
    assert cli("--version").out.startswith("hindsight ")


def test_write_says_what_became_of_the_text_and_exits_with_1_when_nothing_was_stored(cli: Cli):
    kept = cli("write", ADDRESS)
    assert kept.code == 0
    assert "add" in kept.out
    skipped = cli("write", "hello")
    assert skipped.code == 1
    assert "skip" in skipped.out


def test_write_reads_standard_input(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    from io import StringIO

    monkeypatch.setattr("sys.stdin", StringIO(f"{ADDRESS}\n"))
    assert cli("write", "-", "--json").json["results"][0]["text"] == ADDRESS


def test_write_takes_every_field_from_its_options(cli: Cli):
    memory_id = written(
        cli, DOG, "--type", "semantic", "--kind", "fact", "--key", "user.dog", "--source", "tool",
        "--confidence", "0.7", "--observed-at", "2025-05-01", "--timezone", "Asia/Shanghai", "--tag", "pet",
        "--tag", "dog", "--metadata", "lot=7", "--metadata", "name=x=y", "--user", "ann",
        "--agent", "a1", "--private", "--pin",
    )  # fmt: skip
    memory = cli("get", memory_id, "--json").json
    assert memory["kind"] == "fact"
    assert memory["key"] == "user.dog"
    assert (memory["source"], memory["confidence"]) == ("tool", 0.7)
    assert memory["observed_at"].startswith("2025-04-30T16:00:00")
    assert memory["tags"] == ["pet", "dog"]
    assert memory["metadata"] == {"lot": 7, "name": "x=y"}
    assert (memory["user_id"], memory["visibility"], memory["pinned"]) == ("ann", "private", True)


def test_search_prints_scores_and_exits_with_1_when_nothing_is_found(cli: Cli):
    written(cli, ADDRESS)
    found = cli("search", "What is my shipping address?")
    assert found.code == 0
    assert ADDRESS in found.out
    assert "1 of 1 memories" in found.out
    nothing = cli("search", "What is my shipping address?", "--kind", "speculation")
    assert nothing.code == 1
    assert "0 of 0 memories; 1 filtered out" in nothing.out


def test_search_explains_each_hit(cli: Cli):
    written(cli, ADDRESS)
    answer = cli("search", "What is my shipping address?", "--explain")
    assert "similarity" in answer.out
    as_json = cli("search", "What is my shipping address?", "--explain", "--json").json
    first_words = as_json["hits"][0]["explain"]["sentence"][:20]
    assert first_words in answer.out


def test_recall_says_whether_memory_is_needed_and_exits_with_1_when_not(cli: Cli):
    asked = cli("recall", "what did I say about the roof last time")
    assert (asked.code, asked.out.startswith("Search: ")) == (0, True)
    plain = cli("recall", "what is the capital of Portugal", "--json")
    assert (plain.code, plain.json["needed"]) == (1, False)
    assert cli("recall", "go on", "--task", "tax", "--previous-task", "holiday").code == 0


def test_search_in_auto_mode_says_why_it_did_not_search(cli: Cli):
    written(cli, ADDRESS)
    answer = cli("search", "thanks a lot!", "--mode", "auto")
    assert (answer.code, answer.out.startswith("Not searched: ")) == (1, True)


def test_list_pages_and_exits_with_1_when_empty(cli: Cli):
    assert cli("list").code == 1
    ids = {written(cli, f"Order {n} was placed in Hull.") for n in range(3)}
    first = cli("list", "--limit", "2", "--json").json
    second = cli("list", "--limit", "2", "--cursor", first["cursor"], "--json").json
    assert {memory["id"] for memory in first["memories"] + second["memories"]} == ids
    assert "--cursor" in cli("list", "--limit", "2").out


def test_update_changes_what_is_named_and_history_tells(cli: Cli):
    memory_id = written(cli, DOG, "--tag", "pet")
    changed = cli("update", memory_id, "--content", "My dog is called Waffle.", "--pin", "--reason", "renamed")
    assert changed.code == 0
    memory = cli("get", memory_id, "--json").json
    assert (memory["content"], memory["pinned"], memory["tags"]) == ("My dog is called Waffle.", True, ["pet"])
    told = cli("history", memory_id)
    assert "renamed" in told.out
    assert "pinned: false → true" in told.out
    assert len(cli("history", memory_id, "--json").json["events"]) == 2


def test_update_without_a_change_is_refused(cli: Cli):
    answer = cli("update", "any")
    assert answer.code == 2
    assert "--help" in answer.err


def test_a_stale_version_is_refused(cli: Cli):
    memory_id = written(cli, DOG)
    assert cli("update", memory_id, "--pin", "--version", "9").code == 2


def test_a_sweep_lists_what_it_would_do_does_it_and_says_how_to_take_it_back(cli: Cli):
    memory_id = written(cli, DOG, "--ttl", "1h")
    later = ("sweep", "expire", "idle", "--now", "2999-01-01T00:00:00Z")
    dry = cli(*later, "--dry-run")
    assert (dry.code, DOG in dry.out, "undo" in dry.out) == (0, True, False)
    assert cli("get", memory_id, "--json").json["status"] == "active"
    done = cli(*later)
    assert "Expired on " in done.out
    assert cli("get", memory_id, "--json").json["status"] == "archived"
    assert cli(*later).code == 1
    assert cli("undo", done.out.split("hindsight undo ")[1].strip()).code == 0
    assert cli("get", memory_id, "--json").json["status"] == "active"
    assert cli("sweep", "everything").code == 2


def test_erase_proves_that_nothing_is_left_and_says_what_is(cli: Cli, tmp_path: Path):
    memory_id = written(cli, 'My "secret" zanzibar plan.')
    written(cli, DOG)
    assert cli("update", memory_id, "--content", "My quokka plan.").code == 0
    assert cli("search", "zanzibar quokka plan").code == 0
    answer = cli("erase", memory_id, "--verify", "--json")
    assert (answer.code, answer.json["count"], answer.json["verified"]) == (0, 1, True)
    files = [file.read_bytes() for file in tmp_path.iterdir() if file.is_file()]
    assert files
    assert not any(word in held for held in files for word in (b"zanzibar", b"quokka"))
    # Proving it is no formality: the same said or asked elsewhere is found.
    first, again = written(cli, "The kiosk opens at noon."), written(cli, "The kiosk opens at noon.")
    left = cli("erase", first, "--verify")
    assert left.code == 1
    assert again in left.out
    assert "hindsight.db holds the text" in left.out


def test_the_working_memory_of_a_task_is_filled_shown_and_ended(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HINDSIGHT_TASK_SHARE", "0.5")
    said = cli("task", "add", "t1", DOG, "--window", "1000", "--pin", "--json").json
    assert (said["messages"], said["budget"]) == (1, 500)
    assert "2 messages" in cli("task", "add", "t1", "好的。", "--role", "assistant").out
    assert cli("task", "add", "t1", "my password is hunter2Xy9!").code == 1
    shown = cli("task", "show", "t1")
    assert f"user (pinned): {DOG}" in shown.out
    assert cli("search", "dog").code == 1
    ended = cli("task", "end", "t1", "--json").json
    assert [one["text"] for one in ended["promoted"]] == [DOG]
    assert cli("task", "show", "t1").code == 1
    assert cli("task", "end", "t1").code == 1


def test_forget_restore_and_undo(cli: Cli):
    memory_id = written(cli, DOG)
    dry = cli("forget", memory_id, "--dry-run")
    assert (dry.code, "1 would change" in dry.out) == (0, True)
    gone = cli("forget", memory_id, "--json").json
    assert gone["affected"][0]["to"] == "archived"
    assert cli("list").code == 1
    assert cli("restore", memory_id).code == 0
    again = cli("forget", memory_id)
    run_id = again.out.split("hindsight undo ")[1].strip()
    assert cli("undo", run_id).code == 0
    assert cli("get", memory_id, "--json").json["status"] == "active"
    assert run_id in cli("runs").out


def test_forget_by_what_it_is_about_and_by_filters(cli: Cli):
    dog, address = written(cli, DOG, "--tag", "pet"), written(cli, ADDRESS)
    assert cli("forget", "--tag", "pet", "--json").json["affected"][0]["id"] == dog
    by_query = cli("forget", "--query", "my shipping address", "--min-score", "0.3", "--json").json
    assert [one["id"] for one in by_query["affected"]] == [address]


def test_forgetting_nothing_in_particular_is_refused_and_an_unknown_id_is_1(cli: Cli):
    written(cli, DOG)
    assert cli("forget").code == 2
    assert cli("forget", "nobody").code == 1
    assert cli("stats", "--json").json["by_status"] == {"active": 1}


def test_erasing_leaves_no_text(cli: Cli, tmp_path: Path):
    memory_id = written(cli, DOG)
    assert cli("forget", memory_id, "--mode", "erase", "--yes").code == 0
    assert cli("get", memory_id).code == 1
    assert DOG not in cli("history", memory_id).out
    assert not [file for file in tmp_path.iterdir() if DOG.encode() in file.read_bytes()]


def test_stats_count(cli: Cli):
    written(cli, DOG)
    assert cli("stats", "--json").json["memories"] == 1
    assert "1 active" in cli("stats").out


def test_namespaces_are_apart(cli: Cli):
    memory_id = written(cli, DOG, "-n", "theirs")
    assert cli("get", memory_id).code == 1
    assert cli("get", memory_id, "--namespace", "theirs").code == 0
    assert cli("list", "-n", "mine").code == 1


def test_now_replaces_the_clock(cli: Cli):
    memory_id = written(cli, DOG, "--now", "2025-05-01T08:00:00Z", "--ttl", "1d")
    assert cli("get", memory_id, "--json").json["created_at"].startswith("2025-05-01T08:00:00")
    assert cli("list", "--now", "2025-05-01T12:00:00Z").code == 0
    assert cli("list", "--now", "2025-05-03T12:00:00Z").code == 1
    assert cli("list", "--now", "2025-05-01T12:00Z").code == 0


def test_a_time_without_an_offset_is_one_of_the_zone_that_is_named(cli: Cli):
    written(cli, DOG, "--observed-at", "2025-05-01T23:30", "--timezone", "Asia/Shanghai")
    for zone, code in (("Asia/Shanghai", 1), ("UTC", 0)):
        assert cli("list", "--to", "2025-05-01T23:30", "--timezone", zone).code == code
        assert cli("search", "dog", "--to", "2025-05-01 23:30", "--timezone", zone).code == code
        exported = cli("export", "--to", "2025-05-01T23:30", "--timezone", zone).out
        assert ('{"memory"' in exported) is (code == 0)
        assert cli("forget", "--dry-run", "--to", "2025-05-01T23:30", "--timezone", zone).code == code
    refused = cli("list", "--from", "2025-05-01")
    assert refused.code == 2
    assert "timezone" in refused.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["get"], "ID"),
        (["bogus"], "bogus"),
        (["search", "x", "--top-k", "0"], "--top-k"),
        (["search", "x", "--kind", "rumour"], "kind"),
        (["search", "x", "--as-of", "yesterday"], "--as-of"),
        (["search", "x", "--intent", "gossip"], "--intent: 'gossip' is not known"),
        (["search", ""], "QUERY: expected"),
        (["write", ""], "CONTENT: expected"),
        (["write", "x", "--ttl", "soon"], "ttl"),
        (["write", "x", "--metadata", "novalue"], "KEY=VALUE"),
        (["list", "-n", "a b"], "NAMESPACE"),
        (["list", "--url", "http://x", "--store", "y"], "--store"),
        (["list", "--url", "nonsense"], "url"),
        (["import", "/nowhere/at/all.json"], "/nowhere/at/all.json"),
        (["serve", "--host", "0.0.0.0"], "127.0.0.1"),
        (["serve", "--port", "99999"], "HINDSIGHT_PORT"),
    ],
)
def test_what_is_wrong_is_said_in_words_and_exits_with_2(cli: Cli, arguments: list[str], said: str):
    answer = cli(*arguments)
    assert answer.code == 2, answer.out + answer.err
    assert said in answer.err
    assert "Traceback" not in answer.err
    assert answer.out == ""


def test_an_unknown_id_exits_with_1_and_a_server_that_is_down_with_3(cli: Cli):
    assert cli("get", "nobody").code == 1
    answer = cli("list", "--url", "http://127.0.0.1:1")
    assert answer.code == 3
    assert "hindsight serve" in answer.err


def test_errors_are_problems_with_json(cli: Cli):
    answer = cli("get", "nobody", "--json")
    assert (answer.code, answer.out) == (1, "")
    assert json.loads(answer.err)["code"] == "not_found"


def test_a_pipe_gets_no_colours_and_whole_lines(cli: Cli):
    written(cli, "A long memory about the kettle, " * 4 + "which is blue.")
    answer = cli("list")
    assert "\x1b" not in answer.out
    assert max(map(len, answer.out.splitlines())) > 80


def test_text_that_looks_like_markup_is_shown_as_it_is(cli: Cli):
    written(cli, "[bold]The kettle[/bold] is :blue_heart: blue [red].")
    assert "[bold]The kettle[/bold] is :blue_heart: blue [red]." in cli("list").out
