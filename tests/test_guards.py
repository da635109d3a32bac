"""Rules about pairs that hold whatever a model thinks."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from hindsight_core.guards import guarded
from hindsight_core.labels import labels_differ
from hindsight_core.relations import RELATIONS, Odds, Relation
from hindsight_core.slots import facets_of, read, value_conflict
from samples import memory


def after(old: str, new: str, likeliest: Relation, **fields: object) -> tuple[Odds, list[str]]:
    """What becomes of a model's word for `likeliest`."""
    odds: Odds = {name: 0.9 if name == likeliest else 0.02 for name in RELATIONS}
    a, b = memory("a", old, **fields), memory("b", new, **fields)
    return guarded(odds, b, a, read(old), read(new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("We rent a flat in York", "We bought a house in York"),
        ("我们在厦门租房", "我们在厦门买房了"),
        ("My car is blue.", "My car is grey."),
        ("Wants updates by email.", "Wants updates by phone."),
        ("She goes by Bob.", "Robert, not Bob"),
        ("叫我小波", "别叫小波"),
        ("I run 5 km every morning", "I run 10k every morning"),
    ],
)
def test_another_value_is_no_duplicate(old: str, new: str):
    odds, spoke = after(old, new, "duplicate")
    assert odds["duplicate"] == 0
    assert "differs" in spoke
    assert sum(odds.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("old", "new"),
    [("We rent a flat in York", "We bought a house in York"), ("我们在厦门租房", "我们在厦门全款买房")],
)
def test_another_value_of_what_a_thing_has_one_of_is_asked_about(old: str, new: str):
    assert 0.5 < after(old, new, "duplicate")[0]["supersede"] < 0.85
    assert after(old, new, "duplicate", confidence=0.4)[0]["supersede"] < 0.85


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("We rent a flat in York", "In York we are tenants"),
        ("He is afraid of dogs", "Dogs scare him, he is not joking"),
        ("No onions, no garlic", "Leave off the garlic, please, no onions"),
        ("We have had this for three days", "We have had this for 72 hours"),
    ],
)
def test_the_same_in_other_words_may_be_one(old: str, new: str):
    assert after(old, new, "duplicate")[0]["duplicate"] == pytest.approx(0.9, abs=0.05)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Forklift 3 lifts two metres.", "Forklift 1 lifts four metres now."),
        ("Team Red uses Jira.", "Team Blue dropped Jira for Linear"),
        ("红队用 Jira", "蓝队改用 Linear 了"),
        ("三号楼的水电班长姓农", "五号楼的水电班长换成姓粟的了"),
    ],
)
def test_what_is_said_of_one_leaves_the_other_alone(old: str, new: str):
    odds, spoke = after(old, new, "supersede")
    assert "label" in spoke
    assert odds["supersede"] < 0.25 < odds["unrelated"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Forklift 3 lifts two metres.", "Forklift 3 lifts four metres now."),
        ("Desk on level 2", "Desk on level 4"),
        ("Ines is in year 8", "Ines is in year 9"),
        ("工位在二楼", "工位在四楼"),
        ("The printer is in room B.", "The printer is in room C."),
        ("打印机在甲区", "打印机在乙区"),
        ("Forklift 3 lifts two metres.", "四号叉车"),
    ],
)
def test_a_number_that_is_a_value_names_no_other_thing(old: str, new: str):
    assert not labels_differ(read(old), read(new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Petty cash limit is 300.", "The limit of petty cash is 150"),
        ("The gate opens at 7.", "The gates open at 8"),
        ("套餐10G", "套餐30G"),
        ("课在六点", "课七点上"),
    ],
)
def test_another_value_of_the_same_in_the_same_words_is_asked_about(old: str, new: str):
    odds, spoke = after(old, new, "unrelated")
    assert "restated" in spoke
    assert 0.3 < odds["supersede"] < 0.5
    assert sum(odds.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("My sister pays 300.", "My brother pays 150."),
        ("The gate opens at 7.", "The pool opens at 8."),
        ("The gate opens at 7.", "The gate opens at 7, on Sundays too."),
    ],
)
def test_another_value_of_something_else_is_not_asked_about_for_its_words(old: str, new: str):
    assert "restated" not in after(old, new, "unrelated")[1]


def test_a_denial_taken_for_a_repetition_is_asked_about():
    odds, spoke = after("Coffee is fine for me", "Coffee for me is fine no more", "duplicate")
    assert "denies" in spoke
    assert 0.5 < odds["supersede"] < 0.7


def test_records_of_one_list_leave_each_other_alone():
    odds, spoke = after('{"id": 7, "state": "open"}', '{"id": 8, "state": "shut"}', "supersede", source="tool")
    assert "record" in spoke
    assert max(odds, key=lambda name: odds[name]) == "unrelated"
    assert odds["supersede"] < 0.25


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("three days of warning", "72 hours of warning", False),
        ("three days of warning", "48 hours of warning", True),
        ("五月去日本", "5月4号去日本", False),
        ("五月去日本", "6月4号去日本", True),
        ("on 4 March", "on 4 March 2025", False),
        ("above 5k", "above five thousand and 5000", False),
        ("at half past five", "at 5:30", False),
        ("at noon", "at 12:00", False),
        ("at quarter to six", "at 5:30", True),
        ("twelve grand", "12,000", False),
        ("订单KYT-88到了", "订单KYT-91到了", True),
    ],
)
def test_values_that_can_be_one_do_not_conflict(old: str, new: str, expected: bool):
    assert value_conflict(read(old), read(new)) is expected


def test_facets_count_where_both_state_one():
    assert facets_of(read("The blue car is electric"), read("The grey car is electric")) == (2, 1)
    assert facets_of(read("The blue car"), read("My electric car")) == (1, 0)
    assert facets_of(read("The door"), read("The wall")) == (0, 0)


LONG = {
    "en": " ".join(f"Point {i} of the plan says that step {i} is for the team in week {i}." for i in range(1, 41)),
    "zh": "".join(f"计划第{i}条说第{i}步由团队在第{i}周完成。" for i in range(1, 41)),
}


@pytest.mark.parametrize(
    ("old", "language"), [("I play tennis on Thursdays with Priya", "en"), ("我每周四和小李打网球", "zh")]
)
def test_a_long_text_puts_nothing_in_doubt_that_it_hardly_speaks_of(old: str, language: str):
    odds, spoke = after(old, LONG[language], "supersede")
    assert "label" in spoke
    assert odds["supersede"] < 0.2


@pytest.mark.parametrize(("old", "new"), [("I weigh 80 kg", "I weigh 75 kg"), ("she earns 3000", "she earns 3500")])
def test_the_number_behind_a_verb_is_a_value_and_no_label(old: str, new: str):
    assert not labels_differ(read(old), read(new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("My office is in Leeds.", "My new office is in York, this week only."),
        ("我的办公室在三楼", "我的新办公室在五楼，就这周"),
    ],
)
def test_what_ends_by_itself_replaces_only_what_does_too(old: str, new: str):
    odds: Odds = {name: 0.9 if name == "supersede" else 0.02 for name in RELATIONS}
    ends = datetime(2030, 1, 1, tzinfo=UTC)
    for until, replaces in ((None, False), (ends, True)):
        a, b = memory("a", old, expires_at=until), memory("b", new, expires_at=ends)
        found, spoke = guarded(odds, b, a, read(old), read(new))
        assert (found["supersede"] > 0.5, "passing" in spoke) == (replaces, not replaces)
        assert sum(found.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ("I live in Leeds.", "From Anna:\nI moved to York."),
        ("我住在杭州", "小方发微信说\n我搬到上海了"),
    ],
)
def test_what_somebody_else_wrote_leaves_the_users_own_alone(mine: str, theirs: str):
    assert after(mine, theirs, "supersede")[0]["unrelated"] == 1
    assert after(theirs, mine, "supersede")[0]["unrelated"] == 1
    assert after(theirs, theirs + "!", "supersede")[0]["unrelated"] < 1
