"""`hindsight eval`: judged examples through the real service, and honest figures about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from commandline import Cli, command_line
from hindsight_core.evaluation import among
from hindsight_core.evaluation.reconcile import Pair
from hindsight_core.evaluation.report import f1, share

NOW = "2025-06-01T10:00:00+08:00"


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return command_line(tmp_path, monkeypatch, capsys)


def lines(tmp_path: Path, *items: dict[str, Any]) -> str:
    file = tmp_path / "items.jsonl"
    file.write_text("\n".join(json.dumps(item, ensure_ascii=False) for item in items) + "\n", "utf-8")
    return str(file)


def measured(report: dict[str, Any], name: str, language: str = "all") -> tuple[float, int]:
    (found,) = [m for m in report["measures"][language] if m["name"] == name]
    assert found["low"] <= found["value"] <= found["high"]
    return found["value"], found["of"]


def pair(number: int, old: str, new: str, expect: str, lang: str = "en") -> dict[str, Any]:
    side = {"source": "user", "confidence": 0.95}
    return {
        "id": f"p{number}",
        "lang": lang,
        "old": side | {"content": old, "at": "2025-01-01T10:00:00+00:00"},
        "new": side | {"content": new, "at": "2025-02-01T10:00:00+00:00"},
        "expect": expect,
    }


def test_pairs_are_judged_each_by_itself_and_counted_by_language(cli: Cli, tmp_path: Path) -> None:
    file = lines(
        tmp_path,
        pair(1, "My dog is called Rex.", "my dog is called rex", "duplicate"),
        pair(2, "我的收货地址是幸福路1号", "我的收货地址是幸福路1号。", "duplicate", "zh"),
        # The same texts once more: a fresh namespace knows nothing of the first pair.
        pair(3, "The train to Bath leaves at nine.", "My dog is called Rex.", "unrelated"),
        pair(4, "The train to Bath leaves at nine.", "My dog is called Rex.", "supersede"),
    )
    ran = cli("eval", "reconcile", file, "--json")
    assert ran.code == 0, ran.err
    assert [(line["predicted"], line["right"]) for line in ran.json["lines"]] == [
        ("duplicate", True),
        ("duplicate", True),
        ("unrelated", True),
        ("unrelated", False),
    ]
    assert measured(ran.json, "accuracy of what was decided") == (0.75, 4)
    assert measured(ran.json, "accuracy of what was decided", "zh") == (1.0, 1)
    assert measured(ran.json, "missed supersession") == (1.0, 1)
    assert ran.json["confusion"] == {
        "all": {"duplicate": {"duplicate": 2}, "unrelated": {"unrelated": 1}, "supersede": {"unrelated": 1}},
        "en": {"duplicate": {"duplicate": 1}, "unrelated": {"unrelated": 1}, "supersede": {"unrelated": 1}},
        "zh": {"duplicate": {"duplicate": 1}},
    }


def test_what_was_taken_for_what_is_printed_over_all_and_by_language_where_there_are_several(
    cli: Cli, tmp_path: Path
) -> None:
    english = pair(1, "My dog is called Rex.", "my dog is called rex", "supersede")
    chinese = pair(2, "我的收货地址是幸福路1号", "我的收货地址是幸福路1号。", "duplicate", "zh")
    both = cli("eval", "reconcile", lines(tmp_path, english, chinese))
    assert both.code == 0, both.err
    assert [row.split() for row in both.out.split("all: expected / predicted")[1].splitlines() if row.strip()] == [
        ["duplicate"],
        ["duplicate", "1"],
        ["supersede", "1"],
        ["en:", "expected", "/", "predicted", "duplicate"],
        ["supersede", "1"],
        ["zh:", "expected", "/", "predicted", "duplicate"],
        ["duplicate", "1"],
    ]
    one = cli("eval", "reconcile", lines(tmp_path, english))
    assert one.out.count("expected / predicted") == 1


def test_pairs_are_judged_among_others_and_what_is_done_to_those_is_measured(cli: Cli, tmp_path: Path) -> None:
    file = lines(
        tmp_path,
        pair(1, "My dog is called Rex.", "my dog is called rex", "duplicate"),
        # Each replaces, or contests, the old text of the other: that is nothing done to its own.
        pair(
            2, "The train to Bath leaves at nine.", "I have moved. My new billing address is 9 Elm Road.", "unrelated"
        ),
        pair(3, "My billing address is 4 Oak Lane.", "The train to Bath now leaves at ten.", "unrelated"),
        pair(4, "我对花生过敏", "我对花生过敏。", "duplicate", "zh"),
    )
    ran = cli("eval", "reconcile", file, "--beside", "9", "--json")
    assert ran.code == 0, ran.err
    found = {line["id"]: line for line in ran.json["lines"]}
    assert [line["bystanders"] for line in found.values()] == [2, 2, 2, 0]
    assert [line["predicted"] for line in found.values()] == ["duplicate", "unrelated", "unrelated", "duplicate"]
    assert {name: line["disturbed"] for name, line in found.items() if "disturbed" in line} == {
        "p2": ["My billing address is 4 Oak Lane."],
        "p3": ["The train to Bath leaves at nine."],
    }
    assert "disturbed: My billing address is 4 Oak Lane." in found["p2"]["reason"]
    assert measured(ran.json, "bystanders disturbed") == (0.3333, 6)
    assert measured(ran.json, "bystanders disturbed", "zh") == (0.0, 0)
    alone = cli("eval", "reconcile", lines(tmp_path, pair(1, "Rex is my dog.", "Rex is my dog", "duplicate")), "--json")
    assert "bystanders disturbed" not in [measure["name"] for measure in alone.json["measures"]["all"]]


def test_bystanders_are_others_of_the_language_said_before_and_of_another_slot_and_the_same_every_time() -> None:
    def made(number: int, old: str, lang: str = "en", at: str = "2025-01-01", slot: str | None = None) -> Pair:
        item = pair(number, old, f"new {number}", "unrelated", lang) | {"slot": slot}
        item["old"]["at"] = f"{at}T10:00:00+00:00"
        return msgspec.convert(item, Pair)

    pairs = [
        made(0, "zero", slot="home"),
        made(1, "one", slot="home"),
        made(2, "two", at="2025-01-20"),
        made(3, "three", at="2024-06-01"),
        made(4, "zero"),
        made(5, "new 0"),
        made(6, "五", "zh"),
    ]
    first, *_, chinese = among(pairs, 9)
    assert {side.content: side.at.date().isoformat() for side in first.beside or ()} == {
        "two": "2025-01-01",
        "three": "2024-06-01",
    }
    assert chinese.beside == ()
    drawn = among([made(i, f"old {i}") for i in range(30)], 4)
    assert {len(one.beside or ()) for one in drawn} == {4}
    assert len({tuple(side.content for side in one.beside or ()) for one in drawn}) == 30
    assert among([made(i, f"old {i}") for i in range(30)], 4) == drawn


def test_only_pairs_are_judged_beside_others(cli: Cli, tmp_path: Path) -> None:
    ran = cli(
        "eval", "gate", lines(tmp_path, message(1, "I am allergic to peanuts", "en", True, "fact")), "--beside", "2"
    )
    assert ran.code == 2
    assert "--beside" in ran.err


def test_times_are_exact_or_wrong_and_traps_are_counted_by_themselves(cli: Cli, tmp_path: Path) -> None:
    day = {"start": "2025-05-31T00:00:00+08:00", "end": "2025-06-01T00:00:00+08:00"}
    file = lines(
        tmp_path,
        {"id": "t1", "lang": "zh", "text": "昨天谁来过", "now": NOW, "expect": day},
        {"id": "t2", "lang": "en", "text": "who came the day before yesterday", "now": NOW, "expect": day},
        {"id": "t3", "lang": "en", "text": "the gym is open 24 hours", "now": NOW, "expect": None},
    )
    ran = cli("eval", "temporal", file, "--json")
    assert ran.code == 0, ran.err
    assert measured(ran.json, "exact range") == (0.5, 2)
    assert measured(ran.json, "false range on traps") == (0.0, 1)
    assert ran.json["confusion"]["all"] == {
        "range": {"exact range": 1, "another range": 1},
        "trap": {"no range": 1},
    }
    assert ran.json["confusion"]["zh"] == {"range": {"exact range": 1}}


def test_stories_are_told_and_asked_about(cli: Cli, tmp_path: Path) -> None:
    def ask(question: str, kind: str, contains: list[str], absent: list[str]) -> dict[str, Any]:
        return {"at": NOW, "q": question, "kind": kind, "expect_contains": contains, "expect_absent": absent}

    story = {
        "id": "s1",
        "lang": "en",
        "sessions": [
            {
                "at": "2025-03-01T10:00:00+08:00",
                "turns": [
                    {"role": "user", "text": "I am allergic to peanuts."},
                    {"role": "assistant", "text": "Noted."},
                ],
            }
        ],
        "questions": [
            ask("What am I allergic to?", "now", ["peanuts"], []),
            ask("What am I allergic to?", "now", ["shellfish"], []),
            ask("What am I allergic to?", "forgotten", [], ["peanuts"]),
            ask("What is my passport number?", "never-said", [], []),
        ],
    }
    ran = cli("eval", "dialogues", lines(tmp_path, story))
    assert ran.code == 0, ran.err
    shown = [line[0] for line in ran.out.splitlines() if "s1/" in line]
    assert shown == ["✓", "✗", "✗"]
    assert "50.0%" in ran.out
    assert "forgotten shown" in ran.out


def test_a_line_that_is_no_item_is_named(cli: Cli, tmp_path: Path) -> None:
    file = lines(tmp_path, pair(1, "a", "b", "duplicate"), pair(2, "a", "b", "perhaps"))
    ran = cli("eval", "reconcile", file)
    assert ran.code == 2
    assert "line 2" in ran.err
    assert "perhaps" in ran.err


def test_the_interval_of_a_share_is_wilson_s() -> None:
    found = share("x", [True] * 8 + [False] * 2)
    assert (found.value, found.low, found.high) == (0.8, 0.4902, 0.9433)
    assert share("x", []).of == 0


def message(number: int, text: str, lang: str, keep: bool, kind: str = "none") -> dict[str, Any]:
    status = "active" if keep else "skip"
    expect = {"keep": keep, "kind": kind, "durable": keep, "status": status}
    return {"id": f"g{number}", "lang": lang, "role": "user", "text": text, "task": None, "expect": expect}


def test_messages_are_written_one_by_one_and_the_kind_counts_where_they_were_rightly_kept(
    cli: Cli, tmp_path: Path
) -> None:
    file = lines(
        tmp_path,
        message(1, "I am allergic to peanuts", "en", True, "fact"),
        message(2, "I am allergic to peanuts", "en", True, "event"),
        message(3, "北京明天天气怎么样？", "zh", False),
        message(4, "我对花生过敏", "zh", False),
    )
    ran = cli("eval", "gate", file, "--json")
    assert ran.code == 0, ran.err
    assert [(line["predicted"], line["right"]) for line in ran.json["lines"]] == [
        ("keep fact active", True),
        ("keep fact active", False),
        ("skip", True),
        ("keep fact active", False),
    ]
    assert all(line["reason"] for line in ran.json["lines"])
    assert measured(ran.json, "keep/skip F1") == (0.8, 4)
    assert measured(ran.json, "kind of what was rightly kept") == (0.5, 2)
    assert measured(ran.json, "status") == (0.75, 4)
    assert measured(ran.json, "status", "zh") == (0.5, 2)
    assert ran.json["confusion"]["all"] == {"fact": {"fact": 1}, "event": {"fact": 1}, "skip": {"skip": 1, "fact": 1}}


def test_messages_that_need_memory_are_told_from_those_that_do_not(cli: Cli, tmp_path: Path) -> None:
    file = lines(
        tmp_path,
        {"id": "r1", "lang": "en", "text": "what did we decide about the roof last time", "recent": [], "expect": True},
        {"id": "r2", "lang": "en", "text": "thanks!", "recent": [{"role": "user", "text": "hi"}], "expect": False},
        {"id": "r3", "lang": "zh", "text": "谢谢啦！", "recent": ["再见"], "expect": True},
    )
    ran = cli("eval", "trigger", file, "--json")
    assert ran.code == 0, ran.err
    assert [line["predicted"] for line in ran.json["lines"]] == ["search", "no search", "no search"]
    assert measured(ran.json, "recall F1") == (0.6667, 3)
    assert measured(ran.json, "recall F1", "en") == (1.0, 2)
    assert measured(ran.json, "accuracy") == (0.6667, 3)


def test_stories_that_nothing_was_tried_on_are_answered_about_as_well_as_when_they_were_written(cli: Cli) -> None:
    """Twenty stories whose answers no rule, word list or training text was made for; `stories_seen.jsonl` was."""
    ran = cli("eval", "dialogues", str(Path(__file__).parent / "data" / "stories_unseen.jsonl"), "--json")
    assert ran.code == 0, ran.err
    assert measured(ran.json, "now")[0] >= 0.68
    assert measured(ran.json, "past")[0] >= 0.8
    assert measured(ran.json, "preference")[0] >= 0.6


def test_f1_counts_both_sorts_of_error_and_its_interval_holds_it() -> None:
    pairs = [(True, True)] * 6 + [(True, False)] * 2 + [(False, True)] + [(False, False)] * 5
    found = f1("x", pairs)
    assert found.value == 0.8
    assert found.low < 0.8 < found.high
    assert f1("x", pairs) == found
    assert (f1("x", []).value, f1("x", []).low, f1("x", []).high) == (0, 0, 1)
