"""How fast a sweep goes, by a clock of its own."""

from __future__ import annotations

import pytest

from hindsight_core.pacing import Pace


class Clock:
    """Seconds that pass by working and by sleeping alone."""

    def __init__(self) -> None:
        self.at = 0.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += seconds

    def pace(self, rate: int = 0, share: float = 1.0) -> Pace:
        return Pace(rate, share, clock=self.now, sleep=self.sleep)


async def test_half_of_the_time_is_rest_as_long_as_the_work_took():
    clock = Clock()
    pace = clock.pace(share=0.5)
    for seconds in (2.0, 0.5):
        clock.at += seconds
        await pace.rest()
    assert clock.slept == [2.0, 0.5]


async def test_a_quarter_of_the_time_leaves_three_quarters():
    clock = Clock()
    pace = clock.pace(share=0.25)
    clock.at += 1.0
    await pace.rest()
    assert clock.slept == [3.0]


async def test_all_of_the_time_takes_no_rest():
    clock = Clock()
    pace = clock.pace()
    clock.at += 9.0
    await pace.rest()
    await pace.turn(1000)
    assert clock.slept == []


async def test_short_work_adds_up_until_it_is_worth_a_rest():
    clock = Clock()
    pace = clock.pace(share=0.5)
    for _ in range(10):
        clock.at += 0.001
        await pace.rest()
    assert sum(clock.slept) == pytest.approx(0.01)
    assert len(clock.slept) == 2


async def test_waiting_for_a_turn_is_rest_too():
    clock = Clock()
    pace = clock.pace(rate=100, share=0.5)
    await pace.turn(100)
    clock.at += 0.4
    await pace.turn(50)
    assert clock.slept == [pytest.approx(0.6)]
    await pace.rest()
    assert len(clock.slept) == 1
    clock.at += 0.3
    await pace.rest()
    assert clock.slept[1:] == [pytest.approx(0.3)]
