"""Who expires, who makes room, who is idle, who is purged: the rules by themselves."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hindsight_core.config import Settings
from hindsight_core.errors import ConfigurationError
from hindsight_core.retention import (
    CONFIDENCE,
    FRESHNESS,
    LINKS,
    USE,
    Rules,
    evict,
    expire,
    idle,
    purge,
    rank,
    rules_of,
    worth,
)
from samples import DAY, START, memory

EXTENDING = Rules(extension=7 * DAY, lifetime=30 * DAY)


def test_what_has_expired_is_archived_at_the_very_instant_and_not_before():
    due = memory("a", expires_at=START)
    assert expire(due, Rules(), START).action == "archived"
    assert expire(due, Rules(), START - timedelta(milliseconds=1)) is None
    assert expire(memory("a", expires_at=START, pinned=True), Rules(), START + DAY) is None
    assert expire(memory("a"), Rules(), START + DAY) is None


@pytest.mark.parametrize(
    ("accessed", "until"),
    [
        (None, None),  # never accessed: expires as it is
        (START + 9 * DAY, START + 16 * DAY),  # seven days after the access
        (START + 29 * DAY, START + 30 * DAY),  # never beyond its lifetime
        (START + 1 * DAY, None),  # an access long ago does not shorten the life
    ],
)
def test_an_access_extends_a_life_within_its_cap_and_never_shortens_it(accessed, until):
    ends = START + 10 * DAY if accessed is None or accessed < START + 20 * DAY else accessed + timedelta(hours=1)
    found = expire(memory("a", expires_at=ends, last_accessed_at=accessed), EXTENDING, ends - timedelta(minutes=1))
    assert (None if found is None else found.fields["expires_at"]) == until


@given(st.integers(0, 40), st.integers(0, 40) | st.none(), st.integers(0, 60), st.integers(0, 10), st.integers(1, 50))
@settings(max_examples=200, deadline=None)
def test_extending_is_done_once(ends, accessed, now, extension, lifetime):
    rules = Rules(extension=extension * DAY, lifetime=lifetime * DAY)
    at = START + now * DAY
    one = memory(
        "a",
        expires_at=START + ends * DAY,
        last_accessed_at=None if accessed is None else START + min(accessed, now) * DAY,
    )
    found = expire(one, rules, at)
    if found is not None and found.action == "extended":
        assert found.fields["expires_at"] > max(one.expires_at, at)
        assert expire(memory("a", **{"last_accessed_at": one.last_accessed_at, **found.fields}), rules, at) is None


def test_the_retention_value_is_the_formula_and_says_so():
    used = memory(
        "a", created_at=START - 60 * DAY, last_accessed_at=START - 30 * DAY, access_count=20, confidence=0.6,
        memory_type="episodic", supersedes=("x",),
    )  # fmt: skip
    value = FRESHNESS * 0.5 + USE * 1 + CONFIDENCE * 0.6 + LINKS / 3
    assert worth(used, START).value == pytest.approx(value)
    assert evict(used, "the namespace", 3, 2, START).reason == (
        "Made room: the namespace held 3, and 2 fit. Its retention value was among the lowest: "
        "0.625 = 0.35 × 0.50 freshness + 0.25 × 1.00 use + 0.25 × 0.60 confidence + 0.15 × 0.33 links."
    )


@pytest.mark.parametrize(
    "better",
    [
        {"created_at": START},
        {"last_accessed_at": START},
        {"access_count": 3},
        {"confidence": 0.9},
        {"supersedes": ("x",)},
        {"derived_from": ("x",)},
    ],
)
def test_whatever_speaks_for_a_memory_makes_it_go_later(better):
    base = {"created_at": START - 60 * DAY, "confidence": 0.5}
    assert rank(memory("a", **base), START) < rank(memory("a", **base | better), START)


@given(st.floats(0, 1), st.integers(0, 1000), st.integers(-5, 5000))
@settings(max_examples=100, deadline=None)
def test_the_retention_value_lies_between_zero_and_one(confidence, accesses, days):
    one = memory("a", confidence=confidence, access_count=accesses, created_at=START - days * DAY)
    assert 0 <= worth(one, START).value <= 1


def test_what_is_superseded_or_expired_goes_before_anything_that_is_seen():
    worst = memory("a", created_at=START - 1000 * DAY, confidence=0)
    for unseen in (memory("b", status="superseded"), memory("b", expires_at=START)):
        assert rank(unseen, START) < rank(worst, START)
    holding = memory("b", status="superseded", valid_to=START + DAY)
    assert rank(worst, START) < rank(holding, START)
    assert rank(holding, START + DAY) < rank(worst, START + DAY)


def test_idle_is_what_is_unsure_and_was_not_used_for_long():
    rules = Rules(idle_after=30 * DAY, idle_confidence=0.5)
    old = {"created_at": START - 30 * DAY, "updated_at": START - 30 * DAY}
    assert idle(memory("a", confidence=0.5, **old), rules, START).action == "archived"
    for kept in (
        {"confidence": 0.51},
        {"confidence": 0.5, "last_accessed_at": START - 29 * DAY},
        {"confidence": 0.5, "updated_at": START},
        {"confidence": 0.5, "pinned": True},
        {"confidence": 0.5, "status": "superseded"},
    ):
        assert idle(memory("a", **old | kept), rules, START) is None
    assert idle(memory("a", confidence=0, **old), Rules(idle_after=None), START) is None


def test_only_what_was_archived_long_ago_is_erased():
    rules = Rules(purge_after=10 * DAY)
    gone = {"status": "archived", "forgotten_at": START - 10 * DAY}
    assert purge(memory("a", **gone), rules, START).action == "erased"
    for kept in (
        {"forgotten_at": START - 9 * DAY},
        {"status": "suppressed"},
        {"status": "superseded"},
        {"pinned": True},
    ):
        assert purge(memory("a", **gone | kept), rules, START) is None
    assert purge(memory("a", **gone), Rules(purge_after=None), START) is None


def test_the_settings_are_the_rules_and_never_means_never():
    rules = rules_of(Settings(access_extends="7d", idle_after="never", purge_after="P2W", capacity_episodic=5))
    assert (rules.extension, rules.idle_after, rules.purge_after) == (7 * DAY, None, 14 * DAY)
    assert rules.of_type == {"episodic": 5, "semantic": 0}
    with pytest.raises(ConfigurationError, match="HINDSIGHT_PURGE_AFTER"):
        rules_of(Settings(purge_after="soon"))
