"""Questions that name a time, in the zone of who asks, and questions for the last of many."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from hindsight_core.explaining import _HAN_REASONS, _REASONS
from hindsight_core.indexing import MOST_SPANS, day_spans
from hindsight_core.ranking import Weights, formula
from hindsight_core.requests import SearchRequest, WriteRequest
from hindsight_core.reranking import EVIDENCE

DAY_MS = 86_400_000


async def keep(service, caller, content, observed_at, **fields):
    request = WriteRequest(content=content, observed_at=observed_at, now=observed_at, force=True, **fields)
    return (await service.write(request, caller)).results[0].memory_id


async def found(service, caller, query, now, **fields):
    return (await service.search(SearchRequest(query=query, now=now, top_k=5, **fields), caller)).hits


@pytest.mark.parametrize(
    ("zone", "first", "question"),
    [
        ("Asia/Shanghai", datetime(2025, 6, 16, 16, 30, tzinfo=UTC), "Whom did I have dinner with yesterday?"),
        ("Asia/Shanghai", datetime(2025, 6, 17, 15, 30, tzinfo=UTC), "Whom did I have dinner with on 17 June?"),
        ("America/Los_Angeles", datetime(2025, 6, 17, 7, 30, tzinfo=UTC), "Whom did I have dinner with yesterday?"),
        ("America/Los_Angeles", datetime(2025, 6, 18, 5, 30, tzinfo=UTC), "Whom did I have dinner with on 17 June?"),
        ("UTC", datetime(2025, 6, 17, 0, 30, tzinfo=UTC), "Whom did I have dinner with yesterday?"),
    ],
)
async def test_a_day_is_that_of_who_asks(service, caller, zone, first, question):
    there = ZoneInfo(zone)
    asked = datetime(2025, 6, 19, 12 if "17" in question else 0, tzinfo=there) - timedelta(minutes=1)
    wanted = await keep(service, caller, "I had dinner with Wang", first, reconcile="none")
    for name, away in (("Zhang", -1), ("Zhao", 1)):
        await keep(service, caller, f"I had dinner with {name}", first + timedelta(days=away), reconcile="none")
    hits = await found(service, caller, question, asked, timezone=zone, explain=True)
    assert hits[0].memory.id == wanted
    assert [hit.explain.matched["date"] for hit in hits] == [True, False, False]


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "America/Los_Angeles", "Europe/London", "Pacific/Auckland"])
def test_what_is_dated_to_the_day_keeps_its_day_in_every_zone(zone):
    now = datetime(2025, 6, 18, 12, tzinfo=ZoneInfo(zone))
    spans = day_spans(["2025-06-17"], now)
    held = [
        day
        for day in range(14, 21)
        if any(start <= datetime(2025, 6, day, tzinfo=UTC).timestamp() * 1000 < end for start, end in spans)
    ]
    assert held == [17]
    assert sum(end - start for start, end in spans) in {DAY_MS, DAY_MS + 1, DAY_MS - 1}


def test_where_days_begin_at_midnight_utc_nothing_but_their_keys_is_asked_for():
    assert day_spans(["2025-06-17", "06-17"], datetime(2025, 6, 18, tzinfo=UTC)) == ()
    named = formula(calibration=(0.0, 0.6), weights=Weights(), days=("2025-06-17",))
    assert [signal.spans for signal in named.relevance if getattr(signal, "name", "") == "date"] == [()]


def test_a_day_without_a_year_is_that_of_the_last_years_and_the_29_of_february_is_rare():
    spans = day_spans(["02-29"], datetime(2025, 6, 18, tzinfo=ZoneInfo("Asia/Shanghai")))
    assert [datetime.fromtimestamp(start / 1000, UTC).year for start, _ in spans] == [2020, 2024]
    for year, years in ((3, 3), (9000, 7)):
        assert len(day_spans(["05-03"], datetime(year, 6, 1, tzinfo=ZoneInfo("Asia/Shanghai")))) == years
    west = datetime(2025, 6, 18, tzinfo=ZoneInfo("America/New_York"))
    assert len(day_spans(["05-01", "05-02"], west)) <= MOST_SPANS
    assert day_spans([f"{month:02}-{day:02}" for month in range(1, 13) for day in (3, 9)], west) == ()
    assert day_spans(["9999-12-31", "0001-01-01"], datetime(2025, 6, 18, tzinfo=ZoneInfo("Asia/Shanghai"))) == ()


@pytest.mark.parametrize(
    ("contents", "question", "newest"),
    [
        (("My order {} was shipped", "411", "872", "305"), "What was the number of my most recent order?", True),
        (("My order has the number {}", "411", "872", "305"), "What was the number of my last order?", True),
        (("我买了一{}", "本书", "把伞", "个包"), "我上次买了什么？", True),
        (("我买了一{}", "本书", "把伞", "个包"), "我第一次买了什么？", False),
    ],
)
async def test_of_what_happened_more_than_once_the_last_or_the_first_is_found(
    service, caller, contents, question, newest
):
    told = datetime(2026, 1, 10, 12, tzinfo=UTC)
    template, *names = contents
    ids = [
        await keep(service, caller, template.format(name), told + timedelta(days=30 * n), reconcile="none")
        for n, name in enumerate(names)
    ]
    hits = await found(service, caller, question, told + timedelta(days=300))
    assert [hit.memory.id for hit in hits] == (ids[::-1] if newest else ids)


STORIES = {
    "en": ("My office is in Leeds", "My office is in York", "Where was my office on 20 May?", "Where is my office?"),
    "zh": ("我的办公室在三楼", "我的办公室在五楼", "我5月20日的办公室在哪里？", "我的办公室在哪里？"),
}


@pytest.mark.parametrize("language", STORIES)
@pytest.mark.parametrize("settled", [True, False], ids=["superseded", "contested or both kept"])
async def test_of_a_time_that_is_over_what_held_then_comes_first(service, caller, language, settled):
    old, new, then, now = STORIES[language]
    first = await keep(service, caller, old, datetime(2026, 5, 1, 9, tzinfo=UTC))
    replaced = {"supersedes": (first,)} if settled else {}
    second = await keep(service, caller, new, datetime(2026, 6, 5, 9, tzinfo=UTC), **replaced)
    asked = datetime(2026, 6, 20, 9, tzinfo=UTC)
    assert [hit.memory.id for hit in await found(service, caller, then, asked)] == [first, second]
    assert next(hit.memory.id for hit in await found(service, caller, now, asked)) == second


async def test_a_sentence_tells_what_decided_and_no_conversation_where_there_was_none(service, caller):
    at = datetime(2026, 5, 1, 9, tzinfo=UTC)
    await keep(service, caller, "My shipping address is 12 Elm Street, Leeds", at)
    await keep(service, caller, "I was in Leeds on the first of May", at, session_id="s", reconcile="none")
    hits = await found(service, caller, "Where was I on 1 May?", at + timedelta(days=9), explain=True)
    sentences = {hit.memory.session_id: hit.explain.sentence for hit in hits}
    assert "of the time asked about" in sentences["s"]
    assert "conversation" not in sentences[None]


def test_every_kind_of_evidence_but_length_has_its_words_in_both_languages():
    assert _REASONS.keys() == _HAN_REASONS.keys() == {*EVIDENCE, "date", "speaker"} - {"substance"}
