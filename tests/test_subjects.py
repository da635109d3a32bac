"""Who a statement begins with, and what two statements say besides their values."""

from __future__ import annotations

import pytest

from hindsight_core.alignment import align
from hindsight_core.slots import read
from hindsight_core.subjects import Subject, contents, subjects


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("I live in Leeds.", Subject("self", "")),
        ("User lives in Leeds.", Subject("self", "")),
        ("My sister's flat is in York.", Subject("kin", "sister")),
        ("Grandad goes fishing", Subject("kin", "grandfather")),
        ("She's in York", Subject("pronoun", "")),
        ("My laptop is old", Subject("owned", "laptop")),
        ("The gates open at six", Subject("thing", "gate")),
        ("我住在南京", Subject("self", "")),
        ("用户的妈妈吃素", Subject("kin", "mother")),
        ("我妈吃素", Subject("kin", "mother")),
        ("她吃素", Subject("pronoun", "")),
        ("仓库六点开门", Subject("thing", "仓库")),
        ("…", Subject("none", "")),
    ],
)
def test_a_statement_begins_with_the_user_a_relative_or_a_thing(text: str, subject: Subject):
    found = read(text).subject
    assert found == subject or (subject.kind == "none" and found.kind in {"none", "thing"})


@pytest.mark.parametrize(
    ("old", "new", "true"),
    [
        ("I live in Leeds", "User lives in York", "subject_same"),
        ("My mum lives in Leeds", "我妈住南京", "subject_same"),
        ("I live in Leeds", "My parents live in York", "subject_self_or_kin"),
        ("My wife swims", "My brother swims", "subject_kin_other"),
        ("The gates open at six", "The pool opens at six", "subject_thing_other"),
        ("The gates open at six", "At five the gate opens", "subject_kept"),
    ],
)
def test_two_subjects_are_told_apart(old: str, new: str, true: str):
    assert subjects(read(old), read(new))[true] == 1.0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Prod logs are kept for 14 days.", "The logs of prod are kept for 90 days."),
        ("The gate opens at 7.", "The gates open at 8."),
        ("套餐10G", "30G套餐"),
        ("分机412", "是418"),
    ],
)
def test_another_value_in_the_same_words_is_an_exchange(old: str, new: str):
    found = contents(read(old), read(new))
    assert found["exchange"] == found["exchange_inside"] == found["exchange_most"] == 1.0
    assert contents(read(old), read(old))["exchange"] == 0.0


def test_a_word_and_its_forms_align():
    assert align("the gate opens", "gates open").left_new == ()
    assert align("套餐10g", "30g套餐").matched == 2


def test_an_attribute_told_in_other_words_shares_its_topic():
    alike = (
        ("I live in Leeds", "moved to York"),
        ("My manager is Ana", "I report to Tom"),
        ("我住南京", "租了上海的房"),
    )
    for old, new in alike:
        assert read(old).topics & read(new).topics
    assert not read("I live in Leeds").topics & read("Grandad smokes").topics
