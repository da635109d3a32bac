from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hindsight_core.temporal import TimeRange, en, event_days, find_range, find_ranges, holidays, range_and_days, zh
from hindsight_core.temporal.calendar import Span, third
from hindsight_core.temporal.en.words import words as english_words
from hindsight_core.temporal.lexer import Lexer
from hindsight_core.temporal.zh.words import Vocabulary
from hindsight_core.temporal.zh.words import words as chinese_words

OWN = Path(__file__).parent / "data" / "temporal_own.jsonl"
NOW = datetime.fromisoformat("2025-09-10T14:30:00+08:00")  # a Wednesday
BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def span(text: str, now: datetime = NOW) -> str | None:
    """The range as `2025-09-09 12:00 > 2025-09-10`, in the zone of now, midnights without their hour."""
    found = find_range(text, now)
    if found is None:
        return None
    assert found.start is not None or found.end is not None
    return f"{shown(found.start, now)} > {shown(found.end, now)}"


def shown(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return "…"
    if moment == now:
        return "now"
    return moment.strftime("%Y-%m-%d %H:%M").removesuffix(" 00:00")


# The whole: accuracy and cost


@pytest.mark.parametrize("language", ["en", "zh"])
def test_its_own_sentences_are_read_as_labelled(language: str, capsys: pytest.CaptureFixture[str]):
    right = ranges = false = traps = 0
    for line in OWN.read_text("utf-8").splitlines():
        item = json.loads(line)
        if item["lang"] != language:
            continue
        found = find_range(item["text"], datetime.fromisoformat(item["now"]))
        if item["expect"] is None:
            traps += 1
            false += found is not None
        else:
            ranges += 1
            expected = (at(item["expect"]["start"]), at(item["expect"]["end"]))
            right += found is not None and (found.start, found.end) == expected
    with capsys.disabled():
        print(f"\n{language}: {right}/{ranges} exact ranges, {false}/{traps} false ranges on traps")
    assert right / ranges >= 0.97
    assert false / traps <= 0.03


def test_a_call_takes_less_than_a_millisecond_of_processor_time(capsys: pytest.CaptureFixture[str]):
    items = [json.loads(line) for line in OWN.read_text("utf-8").splitlines()]
    calls = [(item["text"], datetime.fromisoformat(item["now"])) for item in items]
    costs = []
    for text, now in calls + calls:  # the first round compiles
        start = time.thread_time()
        find_range(text, now)
        costs.append(1000 * (time.thread_time() - start))
    costs = sorted(costs[len(calls) :])
    median, most = costs[len(costs) // 2], costs[int(len(costs) * 0.95)]
    with capsys.disabled():
        print(f"\n{len(calls)} calls: median {median:.2f} ms, 95 % under {most:.2f} ms")
    assert median < 1


# Conventions, one test each


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("what happened last week", "2025-09-01 > 2025-09-08"),
        ("上周怎么样", "2025-09-01 > 2025-09-08"),
        ("this week's rota", "2025-09-08 > 2025-09-15"),
        ("下下周有空吗", "2025-09-22 > 2025-09-29"),
    ],
)
def test_a_week_is_a_calendar_week_from_monday(text: str, expected: str):
    assert span(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("three days ago", "2025-09-07 > 2025-09-08"),
        ("two weeks ago", "2025-08-25 > 2025-09-01"),
        ("a month ago", "2025-08-01 > 2025-09-01"),
        ("five years ago", "2020-01-01 > 2021-01-01"),
        ("two hours ago", "2025-09-10 12:00 > 2025-09-10 13:00"),
        ("半年前体检过", "2025-03-01 > 2025-04-01"),
        ("三个星期后复查", "2025-09-29 > 2025-10-06"),
    ],
)
def test_a_count_of_units_names_the_calendar_unit_so_far_away(text: str, expected: str):
    assert span(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("last Friday", "2025-09-05 > 2025-09-06"),
        ("last Tuesday", "2025-09-09 > 2025-09-10"),
        ("上周二", "2025-09-02 > 2025-09-03"),
        ("next Friday", "2025-09-19 > 2025-09-20"),
        ("下周五", "2025-09-19 > 2025-09-20"),
        ("the Friday before last", "2025-08-29 > 2025-08-30"),
    ],
)
def test_last_friday_is_the_latest_one_and_shangzhouwu_that_of_the_week_before(text: str, expected: str):
    assert span(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("how did it go on Monday?", "2025-09-08 > 2025-09-09"),
        ("are you free on Monday?", "2025-09-15 > 2025-09-16"),
        ("周一开的会", "2025-09-08 > 2025-09-09"),
        ("周一有会", "2025-09-15 > 2025-09-16"),
        ("in March I moved", "2025-03-01 > 2025-04-01"),
        ("in March I will move", "2026-03-01 > 2026-04-01"),
        ("12月我去了趟云南", "2024-12-01 > 2025-01-01"),
        ("12月我要去趟云南", "2025-12-01 > 2026-01-01"),
    ],
)
def test_the_tense_tells_which_weekday_or_month_is_meant(text: str, expected: str):
    assert span(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("by Friday", "now > 2025-09-13"),
        ("before Friday", "now > 2025-09-12"),
        ("周五之前", "now > 2025-09-12"),
        ("最迟周五", "now > 2025-09-13"),
        ("by 5pm", "now > 2025-09-10 17:00"),
        ("月底前报税", "now > 2025-10-01"),
        ("photos before 2020", "… > 2020-01-01"),
        ("2020年以前的照片", "… > 2020-01-01"),
        ("anything after 15 August?", "2025-08-16 > …"),
    ],
)
def test_a_limit_to_come_counts_from_now_and_a_past_one_has_no_start(text: str, expected: str):
    assert span(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("since March", "2025-03-01 > now"),
        ("从四月到现在", "2025-04-01 > now"),
        ("in the last 3 days", "2025-09-07 14:30 > now"),
        ("最近三天", "2025-09-07 14:30 > now"),
        ("over the next two weeks", "now > 2025-09-24 14:30"),
        ("so far this month", "2025-09-01 > now"),
        ("the rest of the week", "now > 2025-09-15"),
    ],
)
def test_since_and_rolling_ranges_touch_now(text: str, expected: str):
    assert span(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from 28 Dec to 2 Jan we were away", "2024-12-28 > 2025-01-03"),
        ("8月10号到15号", "2025-08-10 > 2025-08-16"),
        ("between 3 and 7 July", "2025-07-03 > 2025-07-08"),
        ("yesterday between 2 and 4pm", "2025-09-09 14:00 > 2025-09-09 16:00"),
        ("昨天下午三点到五点", "2025-09-09 15:00 > 2025-09-09 17:00"),
        ("2019到2021年", "2019-01-01 > 2022-01-01"),
        ("从去年11月到今年2月", "2024-11-01 > 2025-03-01"),
        ("11月到2月的电费", "2024-11-01 > 2025-03-01"),
    ],
)
def test_both_ends_of_a_named_range_are_included_and_complete_each_other(text: str, expected: str):
    assert span(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("in early April", "2025-04-01 > 2025-04-11"),
        ("三月中旬", "2025-03-11 > 2025-03-21"),
        ("6月底交的", "2025-06-21 > 2025-07-01"),
        ("the second half of 2023", "2023-07-01 > 2024-01-01"),
        ("去年第四季度", "2024-10-01 > 2025-01-01"),
        ("the last Friday of May 2024", "2024-05-31 > 2024-06-01"),
        ("10月第一周", "2025-10-01 > 2025-10-08"),
        ("今年前三个月", "2025-01-01 > 2025-04-01"),
        ("the late nineties", "1997-01-01 > 2000-01-01"),
    ],
)
def test_parts_of_months_and_years_follow_the_thirds(text: str, expected: str):
    assert span(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("yesterday morning", "2025-09-09 06:00 > 2025-09-09 12:00"),
        ("last night", "2025-09-09 18:00 > 2025-09-10"),
        ("凌晨两点的报警", "2025-09-10 02:00 > 2025-09-10 03:00"),
        ("明天下午三点半", "2025-09-11 15:30 > 2025-09-11 16:30"),
        ("昨晚十一点", "2025-09-09 23:00 > 2025-09-10"),
        ("at half past nine tomorrow", "2025-09-11 09:30 > 2025-09-11 10:30"),
    ],
)
def test_parts_of_the_day_and_clock_times_have_their_hours(text: str, expected: str):
    assert span(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("last Christmas", "2024-12-25 > 2024-12-26"),
        ("Thanksgiving 2022", "2022-11-24 > 2022-11-25"),
        ("on Good Friday 2024", "2024-03-29 > 2024-03-30"),
        ("去年除夕", "2024-02-09 > 2024-02-10"),
        ("中秋节吃什么", "2025-10-06 > 2025-10-07"),
        ("五一假期", "2026-05-01 > 2026-05-06"),
        ("the day after Christmas", "2025-12-26 > 2025-12-27"),
        ("国庆前一天", "2025-09-30 > 2025-10-01"),
    ],
)
def test_holidays_fixed_movable_and_lunar_are_known(text: str, expected: str):
    assert span(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "our cat Friday is asleep",
        "every Friday",
        "closed on Mondays",
        "my daughter April loves pottery",
        "May I come in?",
        "we watched The Day After Tomorrow",
        "on the 3rd floor",
        "room 2025",
        "in his eighties",
        "the 24-hour gym",
        "for three years",
        "flight BA2019",
        "每周五打球",
        "五一路12号",
        "他十一岁了",
        "工作了三年",
        "三七二十一",
        "坐3号线",
        "版本 2024.1.3",
        "《昨日重现》",
        "农历三月初五",
        "王国庆来了没",
        "比分21:19",
        "周一三五去健身",
    ],
)
def test_names_frequencies_durations_and_numbers_of_things_are_no_times(text: str):
    assert span(text) is None


@pytest.mark.parametrize(
    "text", ["wat did i do yesturday", "tomow's call", "next wendesday", "２０２４年３月５日", "週五開會", "上個月"]
)
def test_misspelt_wide_and_traditional_words_are_read(text: str):
    found = find_range(text, NOW)
    assert found is not None
    assert found.text in text


# The result


@pytest.mark.parametrize(
    ("text", "kind", "certainty"),
    [
        ("on 5 May 2023", "date", "stated"),
        ("on 5 May", "date", "inferred"),
        ("yesterday", "relative", "stated"),
        ("on Friday", "relative", "inferred"),
        ("最近三天", "rolling", "stated"),
        ("since 2019", "since", "stated"),
        ("by tomorrow", "deadline", "stated"),
        ("before 2020", "before", "stated"),
        ("after 2020", "after", "stated"),
    ],
)
def test_kind_and_certainty_tell_a_filter_from_a_preference(text: str, kind: str, certainty: str):
    found = find_range(text, NOW)
    assert found is not None
    assert (found.kind, found.certainty) == (kind, certainty)


def test_all_times_are_found_in_order_with_their_words_and_places():
    text = "今早签了租约，14号搬"
    found = find_ranges(text, NOW)
    assert [(f.at, f.text) for f in found] == [(0, "今早"), (7, "14号")]
    assert found[0] == find_range(text, NOW)


def test_the_zone_of_now_tells_day_first_from_month_first():
    text = "it expires on 12/11/2027"
    assert span(text) == "2027-11-12 > 2027-11-13"
    assert span(text, NOW.astimezone(timezone(timedelta(hours=-5)))) == "2027-12-11 > 2027-12-12"


# Clock changes


def test_a_calendar_day_lasts_23_hours_when_the_clocks_go_forward():
    found = find_range("yesterday", datetime(2025, 3, 31, 9, tzinfo=BERLIN))
    assert found is not None
    assert found.start is not None
    assert found.end is not None
    assert found.end.astimezone(UTC) - found.start.astimezone(UTC) == timedelta(hours=23)


def test_the_last_24_hours_are_24_hours_across_a_clock_change():
    now = datetime(2025, 3, 30, 12, tzinfo=BERLIN)
    found = find_range("in the last 24 hours", now)
    assert found is not None
    assert found.start is not None
    assert now.astimezone(UTC) - found.start.astimezone(UTC) == timedelta(hours=24)
    assert found.start.strftime("%H:%M") == "11:00"


def test_a_time_that_a_clock_change_skips_is_moved_on():
    found = find_range("yesterday at 02:30", datetime(2025, 3, 31, 9, tzinfo=BERLIN))
    assert found is not None
    assert found.start is not None
    assert found.start.strftime("%H:%M %z") == "03:30 +0200"


def test_an_instant_without_a_zone_gives_ranges_without_one():
    found = find_range("yesterday", datetime(2025, 3, 31, 9))  # noqa: DTZ001 (what is tested)
    assert found is not None
    assert found.start == datetime(2025, 3, 30)  # noqa: DTZ001


# Days


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("What did we do on 8 May 2023?", ("2023-05-08",)),
        ("五月八号跟谁吃的饭", ("05-08",)),
        ("between 3 and 5 July", ("07-03", "07-04", "07-05")),
        ("yesterday I met Tom", ("2025-09-09",)),
        ("上周三和昨天", ("2025-09-03", "2025-09-09")),
        ("hand it in by 12 October 2025", ("2025-10-12",)),
        ("in May 2023", ()),
        ("last week", ()),
        ("nothing at all", ()),
    ],
)
def test_event_days_are_iso_or_yearless_when_the_year_is_not_said(text: str, days: tuple[str, ...]):
    assert event_days(text, NOW) == days
    assert range_and_days(text, NOW) == (find_range(text, NOW), days)


def test_event_days_are_read_in_the_zone_that_is_given():
    midnight_in_london = datetime(2025, 9, 10, 0, 30, tzinfo=ZoneInfo("Europe/London"))
    assert event_days("yesterday", midnight_in_london) == ("2025-09-09",)
    assert event_days("yesterday", midnight_in_london, UTC) == ("2025-09-08",)


# Totality

_WORDS = sorted(
    {name for names in english_words().names.values() for listed in names for name in listed}
    | {name for names in english_words().units.values() for name in names}
    | {name for names in english_words().holidays.values() for name in names}
    | set(english_words().days)
    | set(english_words().parts)
    | set(english_words().numbers.others)
    | set(english_words().numbers.ordinals)
    | {"last", "next", "this", "ago", "in", "the", "of", "before", "after", "by", "since", "until", "from", "to", "and"}
    | {
        "between",
        "early",
        "late",
        "end of",
        "half",
        "quarter",
        "3rd",
        "31",
        "29 february",
        "2024",
        "9999",
        "0",
        "12:30",
    }
    | {"3pm", "99/99/99", "31/2/2025", "2025-02-30", "q3", "h1", "'98", "1990s", "every", "-", ",", "."}
)
_CHARACTERS = sorted(
    set(chinese_words().days)
    | set(chinese_words().years)
    | set(chinese_words().parts)
    | {name for names in chinese_words().holidays.values() for name in names}
    | set("上下这本前后年月日周号点时分半个第末初底中零一二三四五六七八九十百廿到从至以来之内")
    | {
        "星期",
        "礼拜",
        "季度",
        "世纪",
        "年代",
        "以前",
        "开始",
        "最近",
        "未来",
        "每",
        "0",
        "12",
        "31",
        "99",
        "2024",
        "9999",
        " ",
    }
)
_INSTANTS = st.datetimes(
    timezones=st.sampled_from([UTC, BERLIN, ZoneInfo("Asia/Shanghai"), ZoneInfo("America/New_York")])
)


def sound(found: TimeRange, text: str, now: datetime) -> bool:
    ordered = found.start is None or found.end is None or found.start <= found.end
    limited = found.start is not None or found.end is not None
    placed = text[found.at : found.at + len(found.text)] == found.text
    zoned = all(m is None or m.tzinfo == now.tzinfo for m in (found.start, found.end))
    return ordered and limited and placed and zoned and bool(found.text)


@settings(deadline=None)
@given(st.text(), _INSTANTS)
def test_any_text_at_any_instant_is_read(text: str, now: datetime):
    assert all(sound(found, text, now) for found in find_ranges(text, now))


@settings(deadline=None, max_examples=400)
@given(st.lists(st.sampled_from(_WORDS), max_size=7).map(" ".join), _INSTANTS)
def test_any_english_words_of_time_are_read(text: str, now: datetime):
    assert all(sound(found, text, now) for found in find_ranges(text, now))
    event_days(text, now)


@settings(deadline=None, max_examples=400)
@given(st.lists(st.sampled_from(_CHARACTERS), max_size=8).map("".join), _INSTANTS)
def test_any_chinese_words_of_time_are_read(text: str, now: datetime):
    assert all(sound(found, text, now) for found in find_ranges(text, now))
    event_days(text, now)


@pytest.mark.parametrize(
    "text", ["400 years ago", "9999年前", "in 4000 years", "last century", "the last 9000 years", "前年"]
)
@pytest.mark.parametrize("year", [1, 9999])
def test_the_ends_of_the_calendar_are_no_error(text: str, year: int):
    now = datetime(year, 6, 1, tzinfo=UTC)
    assert all(sound(found, text, now) for found in find_ranges(text, now))


def test_lone_surrogates_nul_and_endless_text_are_no_error():
    find_ranges("\ud800 yesterday \x00", NOW)
    assert find_range("x" * 9_000 + " yesterday", NOW) is None


# The data


def test_every_named_holiday_has_a_rule_and_a_day_this_year():
    named = {*english_words().holidays, *chinese_words().holidays}
    assert named <= holidays.rules().keys()
    assert all(holidays.in_year(name, 2025) is not None for name in holidays.rules())


@pytest.mark.parametrize(
    ("name", "year", "day"),
    [
        ("spring_festival", 1987, "1987-01-29"),
        ("spring_festival", 2024, "2024-02-10"),
        ("mid_autumn", 2020, "2020-10-01"),
        ("dragon_boat", 2023, "2023-06-22"),
        ("qingming", 2025, "2025-04-04"),
        ("easter", 2025, "2025-04-20"),
        ("easter", 1954, "1954-04-18"),
        ("thanksgiving", 2024, "2024-11-28"),
        ("memorial_day", 2025, "2025-05-26"),
    ],
)
def test_holidays_fall_on_their_published_days(name: str, year: int, day: str):
    found = holidays.in_year(name, year)
    assert found is not None
    assert found.start.date().isoformat() == day


def test_lunar_festivals_outside_the_table_are_unknown():
    assert holidays.in_year("spring_festival", 1900) is None


def test_the_languages_are_compiled_once():
    assert en.language() is en.language()
    assert zh.language() is zh.language()


_ALL_RULES = Lexer(
    [
        *zh.dates.rules(Vocabulary(chinese_words())),
        *zh.relative.rules(Vocabulary(chinese_words())),
        *zh.hours.rules(Vocabulary(chinese_words())),
        *zh.relative.operators(),
    ],
    words=False,
)


def test_no_rule_begins_with_a_character_that_the_lexer_passes_over():
    for line in OWN.read_text("utf-8").splitlines():
        text = json.loads(line)["text"]
        assert zh.language().lexer.tokens(text) == _ALL_RULES.tokens(text)


@settings(deadline=None)
@given(st.lists(st.sampled_from(_CHARACTERS), max_size=8).map("".join))
def test_no_rule_begins_with_a_character_that_the_lexer_passes_over_in_any_text(text: str):
    assert zh.language().lexer.tokens(text) == _ALL_RULES.tokens(text)


def test_a_unit_without_thirds_has_none():
    midnight = datetime(2025, 9, 10)  # noqa: DTZ001 (wall-clock time)
    with pytest.raises(ValueError, match="day"):
        third(Span(midnight, midnight + timedelta(days=1), "day"), 0)
