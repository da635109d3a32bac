"""Ids sort by time, never repeat, and are the same for the same parts."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from hindsight_core.caller import millis
from hindsight_core.ids import IdSource, dated_id, new_id, stable_id

AT = datetime(2025, 5, 1, 8, tzinfo=UTC)
CROCKFORD = set("0123456789ABCDEFGHJKMNPQRSTVWXYZ")


def test_an_id_is_a_ulid_of_its_instant():
    # 1 469 918 176 385 ms and no bits after it: the time part of the example in ULID's specification.
    at = datetime.fromtimestamp(1_469_918_176, UTC) + timedelta(milliseconds=385)
    assert IdSource(lambda _: 0)(at) == "01ARYZ6S41" + "0" * 16


@given(st.datetimes(timezones=st.just(UTC)))
def test_an_id_has_26_characters_whatever_the_instant(at: datetime):
    found = new_id(at)
    assert len(found) == 26
    assert set(found) <= CROCKFORD
    assert found[0] <= "7"


def test_ids_of_later_instants_sort_after_those_of_earlier_ones():
    ids = [new_id(AT + timedelta(milliseconds=ms)) for ms in range(100)]
    assert ids == sorted(ids)


def test_ids_of_one_millisecond_sort_in_the_order_they_were_asked_for_even_when_instants_alternate():
    asked = [(AT + timedelta(days=n % 3), n) for n in range(300)]
    ids = [(new_id(at), at, n) for at, n in asked]
    assert [(at, n) for _, at, n in sorted(ids)] == sorted(asked)


def test_threads_never_share_an_id():
    found: list[list[str]] = [[] for _ in range(8)]

    def ask(mine: list[str]) -> None:
        mine.extend(new_id(AT) for _ in range(2000))

    threads = [threading.Thread(target=ask, args=(mine,)) for mine in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({memory_id for mine in found for memory_id in mine}) == 16_000
    assert all(mine == sorted(mine) for mine in found)


def test_two_processes_do_not_make_the_same_ids():
    first, second = IdSource(), IdSource()
    assert {first(AT) for _ in range(1000)}.isdisjoint({second(AT) for _ in range(1000)})


@given(st.lists(st.text(max_size=5), max_size=4), st.lists(st.text(max_size=5), max_size=4))
def test_a_stable_id_is_the_same_for_the_same_parts_only(one: list[str], other: list[str]):
    assert (stable_id(*one) == stable_id(*other)) == (one == other)
    assert len(stable_id(*one)) == 26
    assert set(stable_id(*one)) <= CROCKFORD
    assert stable_id(*one)[0] <= "7"


def test_a_stable_id_never_changes_between_releases():
    assert stable_id("default", "key-1", "0") == "0F2BN1BNGP16J1JADM7G8SQMXY"
    assert dated_id(AT, 7, "default", "key-1", "0") == "01JT5DR400003PEEHVZXR95JV7"


@given(st.lists(st.tuples(st.datetimes(timezones=st.just(UTC)), st.integers(0, 65_535), st.text(max_size=5))))
def test_a_dated_id_sorts_by_its_instant_and_then_by_its_position(given: list[tuple[datetime, int, str]]):
    def moment(one: tuple[datetime, int, str]) -> tuple[int, int]:
        return max(0, millis(one[0])), one[1]

    ids = {one: dated_id(*one) for one in given}
    assert [moment(one) for one in sorted(ids, key=lambda one: ids[one])] == sorted(map(moment, ids))
    assert len({*ids.values()}) == len({(moment(one), one[2]) for one in ids})
    assert all(len(found) == 26 and set(found) <= CROCKFORD and found[0] <= "7" for found in ids.values())
