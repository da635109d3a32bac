"""A new value replaces what it is a value of: whose, which one, of what kind; the others of that kind stay."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from hindsight_core.requests import Message, WriteRequest
from hindsight_core.slots import fits, read

DAY_1 = datetime(2026, 3, 1, 9, tzinfo=UTC)
BESIDE = {
    "en": (
        "My billing address is PO Box 71, Leeds",
        "My office address is 3 Park Row, Leeds",
        "My mother's address is 22 Mill Road, Norwich",
        "My gym is PureGym on Wellington Street",
        "My sister Anna lives at 4 Oak Street, Bristol",
    ),
    "zh": (
        "我的公司账单地址是北京市海淀区中关村大街1号",
        "我的办公地址是上海市浦东新区世纪大道100号",
        "我妈妈的地址是苏州市姑苏区平江路9号",
        "我的健身房是文一路的乐刻",
        "我姐姐住在南京市鼓楼区中山路5号",
    ),
}
OLD = {
    "en": (
        "My shipping address is 12 Rose Lane, Leeds",
        "My home address is 12 Rose Lane",
        "My address is 12 Rose Lane",
    ),
    "zh": ("我的收货地址是上海市徐汇区漕溪路88号", "我的家庭地址是漕溪路88号", "我的地址是上海市徐汇区漕溪路88号"),
}
MOVED = {
    "en": (
        "I moved. My new address is 7 Hill Street, York",
        "We moved last week. The new address is 7 Hill Street, York.",
    ),
    "zh": ("我搬家了。新地址是杭州市西湖区文三路12号", "上周我搬家了，新地址是杭州市西湖区文三路12号"),
}


async def _write(service, caller, text, day, *, told=False):
    said = {"messages": (Message(role="user", text=text),)} if told else {"content": text}
    at = DAY_1 + timedelta(days=day)
    answer = await service.write(WriteRequest(**said, user_id="u1", now=at, force=day < 2), caller)
    return answer.results


@pytest.mark.parametrize("told", [False, True], ids=["content", "messages"])
@pytest.mark.parametrize("move", [0, 1])
@pytest.mark.parametrize("named", [0, 1, 2])
@pytest.mark.parametrize("language", ["en", "zh"])
async def test_a_move_replaces_where_one_lives_and_no_other_address(language, named, move, told, service, caller):
    for text in BESIDE[language]:
        await _write(service, caller, text, 0)
    (old,) = await _write(service, caller, OLD[language][named], 1)
    (decision,) = await _write(service, caller, MOVED[language][move], 2, told=told)
    assert decision.decision == "supersede"
    assert decision.superseded == (old.memory_id,)
    assert decision.contests == ()


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("other", [0, 1, 2])
async def test_a_move_never_replaces_another_address_even_where_it_is_the_only_one(language, other, service, caller):
    await _write(service, caller, BESIDE[language][other], 0)
    (decision,) = await _write(service, caller, MOVED[language][0], 2)
    assert decision.superseded == ()
    assert other != 2 or decision.contests == (), "hers is not mine"


@pytest.mark.parametrize(
    ("which", "new", "others"),
    [
        (
            "My billing address is PO Box 71, Leeds",
            "My billing address has changed, my new billing address is PO Box 5, York",
            ("My shipping address is 12 Rose Lane, Leeds", "My address is 12 Rose Lane, Leeds"),
        ),
        (
            "我的账单地址是北京市海淀区中关村大街1号",
            "账单地址变了，新的账单地址是上海市徐汇区漕溪路88号",
            ("我的收货地址是杭州市西湖区文三路12号", "我的地址是杭州市西湖区文三路12号"),
        ),
        (
            "My sister's address is 5 Elm Road",
            "My sister moved. Her new address is 9 Lake View",
            ("My address is 3 Ash Row",),
        ),
        ("我姐姐的地址是榆树路5号", "我姐姐搬家了，她的新地址是湖景街9号", ("我的地址是白蜡街3号",)),
    ],
)
async def test_what_is_named_is_replaced_and_its_like_is_not(which, new, others, service, caller):
    for text in others:
        await _write(service, caller, text, 0)
    (old,) = await _write(service, caller, which, 1)
    (decision,) = await _write(service, caller, new, 2)
    assert (decision.superseded, decision.contests) == ((old.memory_id,), ())


@pytest.mark.parametrize(
    ("one", "other", "new"),
    [
        ("My home address is 5 Elm Road, Leeds", "My shipping address is 3 Ash Row, Leeds", MOVED["en"][0]),
        ("我的家庭地址是榆树路5号", "我的收货地址是白蜡街3号", MOVED["zh"][0]),
    ],
)
async def test_of_two_that_fit_alike_both_are_asked_about(one, other, new, service, caller):
    known = [(await _write(service, caller, text, 0))[0].memory_id for text in (one, other)]
    (decision,) = await _write(service, caller, new, 2)
    assert decision.superseded == ()
    assert sorted(contested.id for contested in decision.contests) == sorted(known)


@pytest.mark.parametrize(
    ("old", "new", "decided"),
    [
        ("My address is 5 Elm Road, Leeds", "My address is 9 Lake View, York", "contest"),
        ("I live at 5 Elm Road", "I live at 9 Lake View", "contest"),
        ("我的地址是榆树路5号", "我的地址是湖景街9号", "contest"),
        ("我住在榆树路5号", "我住在湖景街9号", "contest"),
        ("I weigh 80 kg", "I weigh 75 kg", "supersede"),
        ("I earn 3000 a month", "I earn 3500 a month", "supersede"),
        ("My phone number is 555-0101", "My phone number is 555-0199", "supersede"),
        ("我的邮箱是a@x.com", "我的邮箱是b@y.com", "supersede"),
        ("我体重80公斤", "我体重75公斤", "supersede"),
        ("My billing address is PO Box 71, Leeds", "My shipping address is 9 Lake View, York", "add"),
        ("My sister's address is 5 Elm Road", "My address is 9 Lake View", "add"),
        ("我姐姐的地址是榆树路5号", "我的地址是湖景街9号", "add"),
        ("I live at 5 Elm Road", "I live with two cats", "coexist"),
    ],
)
async def test_another_value_of_the_same_is_noticed_without_a_word_of_change(old, new, decided, service, caller):
    await _write(service, caller, old, 0)
    (decision,) = await _write(service, caller, new, 2)
    assert decision.decision == decided


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("My current address is 5 Elm Road", "My new address is 9 Lake View", "same"),
        ("My delivery address is 5 Elm Road", "The new address is 9 Lake View", "default"),
        ("My work email is a@x.com", "My new email is b@y.com", "near"),
        ("My work email is a@x.com", "My private email is b@y.com", "other"),
        ("My mother's address is 5 Elm Road", "My new address is 9 Lake View", "other"),
        ("Anna's address is 5 Elm Road", "My sister moved, her new address is 9 Lake View", None),
        ("My dog is Rex", "My new cat is Tom", None),
        ("我现在的地址是榆树路5号", "我的新地址是湖景街9号", "same"),
        ("我的收货地址是榆树路5号", "新地址是湖景街9号", "default"),
        ("我的工作邮箱是a@x.com", "我的新邮箱是b@y.com", "near"),
        ("我妈妈的地址是榆树路5号", "我的新地址是湖景街9号", "other"),
        ("我住在榆树路5号", "我的新地址是湖景街9号", None),
    ],
)
def test_how_far_a_value_may_be_one_of_what_the_old_one_names(old, new, expected):
    assert fits(read(old), read(new)) == expected
