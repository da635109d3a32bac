"""Records of tools: a newer one of the same thing replaces the older, and nothing else."""

from __future__ import annotations

import pytest

from hindsight_core.succession import succession


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("订单TB-1：状态=待揽收", "订单TB-1：状态=派送中", "replaces"),
        ("hr: employee=Ines balance=19.5", "hr: employee=Ines balance=11", "replaces"),
        ("cluster eu-1: version=1.28", "cluster eu-1: version=1.30 nodes=12", "replaces"),
        ("cluster eu-1: version=1.30 nodes=16", "cluster eu-1: nodes=16 state=ok", "adds"),
        ("cluster eu-1: version=1.28 nodes=12", "cluster eu-1: nodes=16", None),
        ("cluster eu-1: version=1.28", "cluster eu-2: version=1.30", None),
        ("hr: employee=Ines balance=19.5", "hr: employee=Tom balance=11", None),
        ("订单TB-1：状态=待揽收", "订单TB-2：状态=派送中", None),
        ("build=412 state=failed", "build=413 state=passed", None),
        ('{"id": 7, "state": "open"}', '{"id": 8, "state": "shut"}', "other"),
        ('{"orderNo": "A1", "state": "open"}', '{"orderNo": "A2", "state": "open"}', "other"),
        ('{"id": 7, "state": "open"}', '{"id": 7, "state": "shut"}', "replaces"),
        ('{"id": 7, "state": "open"}', '{"id": 7, "owner": "Ines"}', "adds"),
        ('{"state": "open"}', '{"state": "shut"}', None),
        ('{"id": 7, "state"', '{"id": 8, "state": "shut"}', None),
        ("sku=K-7 stock=3", "sku=K-9 stock=3", "other"),
        ("the door is open", "the door is shut", None),
    ],
)
def test_only_a_record_of_the_same_thing_that_says_every_field_again_replaces(old, new, expected):
    assert succession(old, new) == expected
