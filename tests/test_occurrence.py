"""What happens again is another episode, from which consolidation learns; what is only told again is not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from hindsight_core.models import Memory
from hindsight_core.occurrence import happened_again
from hindsight_core.requests import ListRequest, Message, SweepRequest, WriteRequest

MONDAY = datetime(2025, 5, 5, 9, tzinfo=UTC)
DAY = timedelta(days=1)
CHICAGO = "America/Chicago"


async def tell(service, caller, text, at, *, zone=None):
    """What became of a message of the user's that stands alone in its session."""
    said = (Message(role="user", text=text, at=at),)
    session = at.isoformat()
    request = WriteRequest(messages=said, now=at, session_id=session, user_id="ann", timezone=zone)
    (decision,) = (await service.write(request, caller)).results
    return decision


async def held(service, caller, memory_type):
    request = ListRequest(user_id="ann", now=MONDAY + 30 * DAY, limit=100)
    memories = (await service.list_memories(request, caller)).memories
    return [one for one in memories if one.memory_type == memory_type and one.status == "active"]


@pytest.mark.parametrize(
    "text",
    [
        "Went for a run along the canal this morning.",
        "今天早上去江边跑了五公里。",
    ],
)
async def test_what_happens_on_several_days_becomes_a_habit_by_messages_alone(service, caller, text):
    for day in (0, 2, 4):
        assert (await tell(service, caller, text, MONDAY + day * DAY)).decision in {"add", "coexist"}
    sweep = SweepRequest(policies=("consolidate",), now=MONDAY + 5 * DAY)
    await service.sweep(sweep, caller)
    (habit,) = await held(service, caller, "semantic")
    assert len(habit.derived_from) == 3
    # The habit that was learned does not swallow the next time: it keeps up with it.
    again = await tell(service, caller, text, MONDAY + 7 * DAY)
    assert again.memory.memory_type == "episodic"
    await service.sweep(SweepRequest(policies=("consolidate",), now=MONDAY + 8 * DAY), caller)
    (habit,) = await held(service, caller, "semantic")
    assert again.memory_id in habit.derived_from


@pytest.mark.parametrize(
    ("first", "then", "later"),
    [
        # Both name their day: another one each time.
        ("I ran ten kilometres this morning.", "I ran ten kilometres this morning.", DAY),
        ("昨天晚上我跑了十公里。", "昨天晚上我跑了十公里。", 3 * DAY),
        # One names a day that had not come yet when the other was told.
        ("I lost my keys on the bus.", "I lost my keys on the bus today.", 4 * DAY),
        ("我把钥匙丢在公交车上了。", "今天我把钥匙丢在公交车上了。", 4 * DAY),
        # It says so itself.
        ("I lost my keys on the bus.", "I lost my keys on the bus again.", 4 * DAY),
        ("我把钥匙丢在公交车上了。", "我又把钥匙丢在公交车上了。", 4 * DAY),
    ],
)
async def test_another_time_is_another_episode(service, caller, first, then, later):
    await tell(service, caller, first, MONDAY)
    assert (await tell(service, caller, then, MONDAY + later)).decision == "coexist"
    assert len(await held(service, caller, "episodic")) == 2


@pytest.mark.parametrize(
    ("first", "then", "later"),
    [
        # Twice on one day, of one morning.
        ("I ran ten kilometres this morning.", "I ran ten kilometres this morning.", timedelta(hours=3)),
        ("今天早上我跑了十公里。", "今天早上我跑了十公里。", timedelta(hours=3)),
        # Told again later: nothing says that it was another time.
        ("I lost my keys on the bus.", "I lost my keys on the bus.", 4 * DAY),
        ("我把钥匙丢在公交车上了。", "我把钥匙丢在公交车上了。", 4 * DAY),
        # A date is the same whenever it is told.
        ("On 3 May I ran ten kilometres.", "On 3 May I ran ten kilometres.", 4 * DAY),
        ("5月3日我跑了十公里。", "5月3日我跑了十公里。", 4 * DAY),
    ],
)
async def test_what_is_told_again_is_one_episode(service, caller, first, then, later):
    await tell(service, caller, first, MONDAY)
    assert (await tell(service, caller, then, MONDAY + later)).decision == "duplicate"
    assert len(await held(service, caller, "episodic")) == 1


async def test_days_are_those_of_the_users_zone(service, caller):
    """Half past six and half past seven in the evening of one day in Chicago lie on two days of UTC."""
    evening = datetime(2025, 5, 5, 23, 30, tzinfo=UTC)
    text = "I ran ten kilometres today."
    await tell(service, caller, text, evening, zone=CHICAGO)
    assert (await tell(service, caller, text, evening + timedelta(hours=1), zone=CHICAGO)).decision == "duplicate"
    await tell(service, caller, "I lost my keys on the bus today.", evening)
    other = await tell(service, caller, "I lost my keys on the bus today.", evening + timedelta(hours=1))
    assert other.decision == "coexist"


def test_one_text_told_at_one_instant_names_another_day_in_another_zone() -> None:
    evening = datetime(2025, 5, 5, 23, 30, tzinfo=UTC)
    text = "I ran ten kilometres today."
    told = [
        Memory(
            id=f"{hours}",
            namespace="n",
            content=text,
            memory_type="episodic",
            observed_at=at,
            valid_from=at,
            created_at=at,
            updated_at=at,
        )
        for hours in (1, 0)
        for at in [evening + timedelta(hours=hours)]
    ]
    for zone, again in ((ZoneInfo(CHICAGO), False), (UTC, True), (ZoneInfo(CHICAGO), False)):
        assert happened_again(told[0], told[1], zone) is again
