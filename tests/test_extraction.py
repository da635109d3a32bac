"""Messages to candidates: what stands alone, what leans on its neighbour, what states nothing."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hindsight_core.context import CLOSE, OPEN
from hindsight_core.extraction import Candidate, extract, whole
from hindsight_core.requests import Message
from hindsight_core.spans import statement

AT = datetime(2025, 3, 1, tzinfo=UTC)


def user(text: str) -> Message:
    return Message(role="user", text=text)


def stated(*messages: Message) -> list[str]:
    return [c.text for c in extract(messages) if c.dismissed is None]


def dismissed(*messages: Message) -> list[str]:
    return [c.text for c in extract(messages) if c.dismissed is not None]


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        (
            "I live in Porto. My sister runs a bakery in Braga.",
            ["I live in Porto.", "My sister runs a bakery in Braga."],
        ),
        ("我住在成都。我妈对芒果过敏。", ["我住在成都。", "我妈对芒果过敏。"]),
        ("We sold the car. It was eating us alive.", ["We sold the car. It was eating us alive."]),
        ("猫叫豆豆。它只吃兔肉罐头。", ["猫叫豆豆。它只吃兔肉罐头。"]),
        ("I see Dr. Okafor at 3.30 p.m. on Mondays.", ["I see Dr. Okafor at 3.30 p.m. on Mondays."]),
        (
            "Our rent is 1.200 euros, by the way I start at Lund on Monday",
            ["Our rent is 1.200 euros,", "by the way I start at Lund on Monday"],
        ),
        ("单元门换锁了，对了，我下周出差", ["单元门换锁了，", "对了，我下周出差"]),
        (
            "Max 900 a month for me. And btw I'm allergic to cats.",
            ["Max 900 a month for me.", "And btw I'm allergic to cats."],
        ),
        ("每月最多四千五。哦对了，我对猫过敏。", ["每月最多四千五。", "哦对了，我对猫过敏。"]),
        (
            "Curry on Fridays. Has been for years. Nobody argues.",
            ["Curry on Fridays. Has been for years. Nobody argues."],
        ),
        ("I moved. My new address is 7 Hill Street, York", ["I moved. My new address is 7 Hill Street, York"]),
        ("我搬家了。新地址是文三路12号", ["我搬家了。新地址是文三路12号"]),
        ("I quit my job. My new company is Lund.", ["I quit my job. My new company is Lund."]),
        ("We have a dog now. My new job is at Lund.", ["We have a dog now.", "My new job is at Lund."]),
        (
            "Priya moved to Leeds. My new address is 7 Hill Street",
            ["Priya moved to Leeds.", "My new address is 7 Hill Street"],
        ),
    ],
)
def test_a_span_is_one_sentence_with_those_that_lean_on_it(text: str, spans: list[str]) -> None:
    assert stated(user(text)) == spans


@pytest.mark.parametrize(
    "text",
    [
        "What's the weather in Beijing tomorrow?",
        "北京明天天气怎么样？",
        "你吃了吗",
        "hi there!",
        "你好呀",
        "ok, thanks a lot!",
        "好的好的，谢谢",
        "👍",
        "...",
        "```\nprint('my name is Bo')\n```",
        "> I moved to Rome",
        f"{OPEN}\n- (2025-01-02, fact, from user) lives in Rome\n{CLOSE}",
    ],
)
def test_what_states_nothing_is_dismissed_with_a_reason(text: str) -> None:
    found = extract([user(text)])
    assert found
    assert all(c.dismissed for c in found)


def test_the_reason_is_in_the_language_of_the_text() -> None:
    (english,) = extract([user("Is it far?")])
    (chinese,) = extract([user("远不远？")])
    assert english.dismissed is not None
    assert english.dismissed.isascii()
    assert chinese.dismissed is not None
    assert not chinese.dismissed.isascii()


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Is there a ramp? My mother is in a wheelchair.", "My mother is in a wheelchair."),
        ("有坡道没？我妈坐轮椅。", "我妈坐轮椅。"),
        ("can you always answer in Welsh?", "can you always answer in Welsh?"),
        ("I'm coeliac, what can I order?", "I'm coeliac, what can I order?"),
        ("Should we get a dog? maybe, he's lonely", "Should we get a dog? maybe, he's lonely"),
    ],
)
def test_a_question_gives_up_what_it_brings_along(text: str, kept: str) -> None:
    assert stated(user(text)) == [kept]


def test_a_story_or_a_text_handed_over_stays_in_one_piece() -> None:
    for text in (
        "For my novel: Lena is 34. She lives in Ghent. She hates rain.",
        'Translate into French: "I moved to Rome. I am allergic to nuts."',
        "润色下面这段：我住在上海。我喜欢喝茶。",
        "Please polish this\nMy name is Bo. I work in Graz as a cook.",
        "Check my spelling\n\nI live in Graz. I am allergic to cats.",
        "Make it friendlier\n\nI cannot come. I am allergic to cats.",
        "I live in Graz. I am a cook. Please put this into German.",
        "I live in Graz. I am a cook. Could you proofread the text above?",
        "润色一下\n我是厨师。我住在格拉茨。",
        "请把下面几句译成德语\n我是厨师。我住在格拉茨。",
        "我在格拉茨当厨师。我对猫过敏。请把以上文字翻译成德语。",
    ):
        assert [c.text for c in extract([user(text)])] == [text]


def test_the_assistants_repetition_is_an_echo_and_no_news() -> None:
    told = user("My new address is 12 Mill Lane, Ely.")
    echo = Message(role="assistant", text="Noted, your new address is 12 Mill Lane, Ely.")
    news = Message(role="assistant", text="Your parcel to 12 Mill Lane, Ely leaves on 4 May.")
    assert echo.text in dismissed(told, echo)
    assert news.text in stated(told, news)


def test_another_number_is_no_echo() -> None:
    told = user("The order number for the green lamp is 48213.")
    other = Message(role="assistant", text="The order number for the green lamp is 48214.")
    assert other.text in stated(told, other)


def test_system_messages_state_nothing() -> None:
    assert stated(Message(role="system", text="You are a helpful assistant called Bo.")) == []


def test_a_tools_lines_are_records_and_its_json_stays_whole() -> None:
    lines = Message(role="tool", text="order 71: shipped\norder 72: packed\n")
    document = Message(role="tool", text='{"order": 71,\n "state": "shipped"}')
    assert stated(lines) == ["order 71: shipped", "order 72: packed"]
    assert stated(document) == [document.text]


def test_the_turn_before_is_the_context_and_acknowledgements_are_not() -> None:
    found = extract(
        [
            user("We're choosing a hotel in Rome"),
            Message(role="assistant", text="Noted."),
            user("I start work at nine on Mondays"),
        ]
    )
    assert found[-1].context is None
    leaning = extract(
        [user("We're choosing a hotel in Rome"), Message(role="assistant", text="Noted."), user("it needs a lift")]
    )
    assert leaning[-1].context == "We're choosing a hotel in Rome"
    asked = extract(
        [Message(role="assistant", text="Which hotel in Rome do you want?"), user("I want the Hotel Adria")]
    )
    assert asked[-1].context == "Which hotel in Rome do you want?"


def test_a_later_span_has_the_earlier_part_of_its_message_as_context() -> None:
    first, second = extract([user("I live in Porto. My sister runs a bakery in Braga.")])
    assert first.context is None
    assert second.context == first.text


def test_recalled_memories_are_no_context() -> None:
    block = f"{OPEN}\n- lives in Rome\n{CLOSE}"
    found = extract([Message(role="assistant", text=block), user("I start work at nine on Mondays")])
    assert found[-1].previous == ()


@pytest.mark.parametrize(
    ("block", "first", "second"),
    [
        ("- lives in Rome", "I start work at nine.", "My sister runs a bakery."),
        ("- 住在罗马", "我九点上班。", "我姐开面包店。"),
    ],
)
def test_recalled_memories_in_the_same_message_are_no_context_either(block: str, first: str, second: str) -> None:
    one, two = (c for c in extract([user(f"{OPEN}\n{block}\n{CLOSE}\n{first} {second}")]) if c.dismissed is None)
    assert (one.text, one.previous) == (first, ())
    assert (two.text, two.previous) == (second, (first,))


@pytest.mark.parametrize(
    "output",
    [
        '{"hits": [{"memory": {"content": "lives in Rome"}, "score": 0.8}], "retrieval_id": "01J"}',
        '[{"memory_id": "01J", "content": "住在罗马"}, {"memory_id": "01K", "content": "吃素"}]',
        '{"results": [{"id": "01J", "memory": "lives in Rome", "score": 0.8}]}',
        '{"text": "- lives in Rome", "memory_ids": ["01J"]}',
    ],
)
def test_what_a_tool_found_in_a_memory_is_recalled_and_no_news(output: str) -> None:
    told, later = extract([Message(role="tool", text=output), user("I start work at nine on Mondays")])
    assert told.text == output
    assert told.dismissed == "recalled memories, not news"
    assert later.previous == ()


@pytest.mark.parametrize(
    "output",
    ['{"memory": "16 GB", "cores": 4}', '{"hits": [{"title": "Rome"}]}', '[{"id": 1, "memory": "8 GB"}]'],
)
def test_a_tool_that_only_speaks_of_memory_tells_news(output: str) -> None:
    assert stated(Message(role="tool", text=output)) == [output]


@pytest.mark.parametrize(
    ("asked", "answer", "said"),
    [
        ("What size do you take?", "Sure. Size 42.", "Size 42."),
        ("What colour is your car?", "Thanks, good morning! Grey.", "Grey."),
        ("您的车牌尾号是多少？", "好的。尾号8。", "尾号8。"),
        ("您鞋码多大？", "早上好！嗯嗯。42码。", "42码。"),
    ],
)
def test_empty_talk_before_an_answer_takes_no_question_away(asked: str, answer: str, said: str) -> None:
    found = extract([Message(role="assistant", text=asked), user(answer)])[-1]
    assert (found.text, found.context) == (said, asked)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Could you remember that my locker is number 44?", "my locker is number 44"),
        ("Can you note down I'm left-handed?", "I'm left-handed"),
        ("Did I mention that we have twins?", "we have twins"),
        ("Have I told you I can't eat shellfish?", "I can't eat shellfish"),
        ("能帮我记住我是左撇子吗？", "我是左撇子"),
        ("可不可以记一下，车位是B12？", "车位是B12"),
        ("我跟你说过我不吃香菜吗？", "我不吃香菜"),
    ],
)
def test_what_is_told_as_a_question_is_told(text: str, told: str) -> None:
    assert stated(user(text)) == [text]
    assert statement(text) == told


@pytest.mark.parametrize(
    "text",
    [
        "Can you remember what I said?",
        "Can you remember my birthday?",
        "Did I tell you my address?",
        "Did I mention where I live?",
        "你能记住什么？",
        "你能记住我说的话吗？",
        "我告诉过你我住哪里吗？",
        "你记得我对什么过敏吗？",
    ],
)
def test_who_asks_what_is_remembered_tells_nothing(text: str) -> None:
    assert stated(user(text)) == []


def test_who_said_it_and_when_come_along() -> None:
    message = Message(role="tool", text="order 71: shipped", speaker="shop", at=AT, metadata={"a": 1})
    (found,) = extract([message])
    assert found == Candidate(
        index=0, text="order 71: shipped", role="tool", source="tool", speaker="shop", at=AT, metadata={"a": 1}
    )


def test_whole_keeps_each_message_with_the_turn_before() -> None:
    found = whole([user("I live in Porto. Is it far?"), user("  "), Message(role="assistant", text="Quite far.")])
    assert [c.text for c in found] == ["I live in Porto. Is it far?", "Quite far."]
    assert found[1].context == "I live in Porto. Is it far?"
    assert all(c.dismissed is None for c in found)


def test_no_candidate_is_longer_than_a_memory_may_be() -> None:
    assert all(len(c.text) <= 8000 for c in extract([user("word " * 5000)]))
    assert all(len(c.text) <= 8000 for c in whole([user("word " * 5000)]))


@given(
    st.lists(
        st.sampled_from(
            [
                "我住在成都。",
                "It is late. ",
                "Why? ",
                "\n",
                "> q\n",
                "```x```",
                "<memory>m</memory>",
                "对了，",
                "Dr. ",
                "…",
                "“a。b”",
                " ",
            ]
        ),
        max_size=8,
    )
)
def test_spans_are_slices_in_order_that_cover_the_message(pieces: list[str]) -> None:
    text = "".join(pieces)
    at = 0
    for candidate in extract([user(text)]):
        start = text.index(candidate.text, at)
        assert not text[at:start].strip()
        at = start + len(candidate.text)
    assert not text[at:].strip()


@given(st.text(max_size=200))
def test_any_text_is_taken(text: str) -> None:
    assert "".join("".join(c.text.split()) for c in extract([user(text)])) == "".join(text.split())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Oh and by the way, I'm vegetarian.", "I'm vegetarian."),
        ("And btw I'm allergic to cats", "I'm allergic to cats"),
        ("So I'm a nurse", "I'm a nurse"),
        ("哦对了，我对猫过敏。", "我对猫过敏。"),
        ("顺便说一下，我吃素", "我吃素"),
        ("so tired", "so tired"),
        ("well-known bands bore me", "well-known bands bore me"),
        ("Andrea is my sister", "Andrea is my sister"),
        ("对了一半", "对了一半"),
        ("另外一个是红的", "另外一个是红的"),
        ("oh well", "oh well"),
        ("", ""),
    ],
)
def test_words_that_only_lead_over_are_no_part_of_the_statement(text: str, said: str) -> None:
    assert statement(text) == said


def record(text: str) -> list[Candidate]:
    return [c for c in extract([Message(role="tool", text=text)]) if c.dismissed is None]


def test_each_object_of_a_tools_list_is_a_record() -> None:
    plain = '[{"id": 71, "state": "shipped"}, {"id": 72, "items": [{"a": "}"}]}]'
    wrapped = '{"orders": [{"id": 71, "state": "shipped"},\n {"id": 72, "state": "packed"}], "next": null}'
    two_lists = '{"a": [{"id": 1}, {"id": 2}], "b": [{"id": 3}, {"id": 4}]}'
    assert [c.text for c in record(plain)] == ['{"id": 71, "state": "shipped"}', '{"id": 72, "items": [{"a": "}"}]}']
    assert [c.text for c in record(wrapped)] == ['{"id": 71, "state": "shipped"}', '{"id": 72, "state": "packed"}']
    assert [c.text for c in record(two_lists)] == [two_lists]
    assert all(c.source == "tool" for c in record(wrapped))


@pytest.mark.parametrize(
    ("fields", "more"),
    [('"customer": "Ann \\"A.\\" Bo", "tier": "gold"', '"total": 2'), ('"客户": "小方", "等级": "金卡"', '"总数": 2')],
)
def test_fields_beside_a_tools_list_are_records_of_their_own(fields: str, more: str) -> None:
    text = f'{{{fields}, "orders": [{{"id": 71}}, {{"id": 72}}], {more}, "next": null}}'
    assert [c.text for c in record(text)] == [fields, '{"id": 71}', '{"id": 72}', more]


@pytest.mark.parametrize("text", ['[{"id": 1}, {"id":', "[1, 2, 3]", '{"a": }', "[", '[{"a":1},]', "[" * 5000])
def test_what_is_no_list_of_objects_stays_whole(text: str) -> None:
    assert [c.text for c in extract([Message(role="tool", text=text)])] == [text]


def test_neighbouring_keys_and_values_are_one_record() -> None:
    assert [c.text for c in record("order_id=71\nstatus=shipped\n\norder_id=72\nstatus=packed")] == [
        "order_id=71\nstatus=shipped",
        "order_id=72\nstatus=packed",
    ]
    assert [c.text for c in record("订单号：71\n状态：已发货")] == ["订单号：71\n状态：已发货"]
    assert [c.text for c in record("GET https://a.example/x\nretry: https://b.example")] == [
        "GET https://a.example/x",
        "retry: https://b.example",
    ]


@pytest.mark.parametrize(
    "table",
    [
        "| id | state |\n|----|-------|\n| 71 | shipped |\n| 72 | packed |",
        "id\tstate\n71\tshipped\n72\tpacked",
        "ID    STATE\n71    shipped\n72    packed",
        "id,state,eta\n71,shipped,4 May\n72,packed,6 May",
    ],
)
def test_a_short_table_is_one_record_and_each_row_of_a_long_one(table: str) -> None:
    assert [c.text for c in record(table)] == [table]
    assert [c.text for c in record(f"Orders today:\n{table}\n\n2 rows")][1] == table
    head, *_, last = table.splitlines()
    long = record("\n".join([*table.splitlines(), *[last] * 98]))
    assert len(long) == 100
    assert {c.context for c in long} == {head}
    assert long[-1].text == last


@pytest.mark.parametrize(
    "text",
    [
        "Anna emailed me this:\n\nHi! I moved to Ghent. My new number is 0470 11 22 33.",
        "Message from my landlord:\nI am in Spain until May. I hate dogs.",
        "我妈发来消息：\n我住院了。我下周二手术。",
        "房东说：\n我人在西班牙。我不喜欢狗。",
        "From my landlord:\nI am in Spain until May. I hate dogs.",
        "Text from Joan\nI live in Oslo now. I hate dogs.",
        "My sister messaged me\nI got the job in Oslo. I hate dogs.",
        "我姐留言说\n我去奥斯陆工作了。我不喜欢狗。",
        "房东发来的短信\n我人在西班牙。我不喜欢狗。",
    ],
)
def test_what_somebody_else_wrote_stays_with_who_wrote_it(text: str) -> None:
    assert [c.text for c in extract([user(text)])] == [text]


def test_what_the_user_announces_about_oneself_is_the_users() -> None:
    assert stated(user("Things to know about me:\nI live in Porto.\nI am allergic to nuts.")) == [
        "Things to know about me:",
        "I live in Porto.",
        "I am allergic to nuts.",
    ]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Make it shorter\nI am allergic to nuts.", "I am allergic to nuts."),
        ("Translate this into French\nby the way I'm allergic to nuts", "by the way I'm allergic to nuts"),
        ("Put this in my calendar\nI see the dentist on 4 May.", "I see the dentist on 4 May."),
        ("Check this out\nI got the job in Oslo!", "I got the job in Oslo!"),
        ("Always translate my mails into French\nI live in Leeds.", "I live in Leeds."),
        ("I'm vegan. Please translate this menu into German.", "I'm vegan."),
        ("I live in Oslo. Please correct this in your notes.", "I live in Oslo."),
        ("From Monday:\nI work from home.", "I work from home."),
        ("以后都翻译成英文\n我住在杭州。", "我住在杭州。"),
        ("老实说\n我不喜欢香菜。", "我不喜欢香菜。"),
    ],
)
def test_beside_an_order_or_a_time_the_user_speaks_on(text: str, kept: str) -> None:
    assert kept in [c.text for c in extract([user(text)])]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("How often does she take her thyroid tablets?", "half a tablet twice a day"),
        ("她的甲状腺药怎么吃？", "一天两次，每次半片"),
    ],
)
def test_an_answer_without_a_subject_keeps_its_question(asked: str, answer: str) -> None:
    *_, found = extract([Message(role="assistant", text=asked), user(answer)])
    assert (found.text, found.context, found.dismissed) == (answer, asked, None)
