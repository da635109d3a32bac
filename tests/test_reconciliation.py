"""What becomes of a new memory beside old ones: rules that hold in Chinese and English, with and without the model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from hindsight_core.embedding import Embedder, open_embedder
from hindsight_core.indexing import index_fields
from hindsight_core.models import Memory
from hindsight_core.pair_model import BLOCK, PairModel, Points, blocks, kernel, shipped
from hindsight_core.pairs import Candidate, order_of
from hindsight_core.reconciliation import Outcome, ReconcileSettings, decide_pair, reconcile
from hindsight_core.relations import AMONG, CHOSEN, RELATIONS
from hindsight_core.screening import JUDGED, screen
from hindsight_core.slots import language_of, read, same_text
from hindsight_core.stores import Neighbour, Record, Vector
from hindsight_core.values import han_number, normalised, read_values
from samples import DAY, START, memory


class Reader:
    """Texts to vectors, each once."""

    def __init__(self) -> None:
        self._embedder: Embedder = open_embedder()
        self._known: dict[str, Vector] = {}

    @property
    def model(self) -> str:
        return self._embedder.identity.name

    def vector(self, text: str) -> Vector:
        if text not in self._known:
            self._known[text] = asyncio.run(self._embedder.embed([text], "passage"))[0]
        return self._known[text]


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader()


@pytest.fixture(params=["model", "rules"])
def judge(request: pytest.FixtureRequest) -> str:
    """Who judges: the trained model with its vectors, or the rules, with cosines of the same vectors."""
    return str(request.param)


def old(content: str, memory_id: str = "old", **fields: object) -> Memory:
    return memory(memory_id, content, **fields)


def new(content: str, **fields: object) -> Memory:
    later = START + DAY
    given: dict[str, object] = {"valid_from": later, "observed_at": later, "created_at": later, "updated_at": later}
    return memory("new", content, **(given | fields))


def settle(
    reader: Reader, judge: str, fresh: Memory, *olds: Memory, settings: ReconcileSettings | None = None
) -> Outcome:
    model = reader.model if judge == "model" else None
    vector = reader.vector(fresh.content)
    neighbours = [
        Neighbour(
            record=Record(
                memory=msgspec.structs.replace(each, embedding_model=model),
                index=index_fields(each),
                bare=reader.vector(each.content),
                mixed=None,
            ),
            cosine=float(vector @ reader.vector(each.content)),
        )
        for each in olds
    ]
    return reconcile(fresh, vector, neighbours, settings=settings or ReconcileSettings(), embedding_model=model)


MOVES = [
    ("我的收货地址是杭州市西湖区文三路 18 号", "我搬家了，新地址是成都市武侯区人民南路 7 号"),
    ("My shipping address is 12 Oak Street, Leeds", "I moved, my new address is 4 Elm Road, York"),
]


@pytest.mark.parametrize(("before", "after"), MOVES)
def test_a_new_address_supersedes_the_old_one(reader: Reader, judge: str, before: str, after: str) -> None:
    outcome = settle(reader, judge, new(after), old(before))
    assert (outcome.decision, outcome.targets) == ("supersede", ("old",))
    assert before[:10] in outcome.reason


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("My sister's address is 3 Hill Road.", "My address is 12 Oak Street."),
        ("我姐姐的地址是文三路 18 号", "我的地址是人民南路 7 号"),
        ("The QA server has 16 GB of RAM.", "The build server has 32 GB of RAM."),
        ("测试环境用的是 Redis 6", "生产环境用的是 Redis 7"),
        ("I live in Leeds.", "My parents moved to York."),
    ],
)
def test_another_subject_is_never_superseded(reader: Reader, judge: str, before: str, after: str) -> None:
    outcome = settle(reader, judge, new(after), old(before))
    assert outcome.decision in {"add", "coexist"}
    assert not outcome.contests


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("I have a dog called Rex.", "I have another dog called Fido."),
        ("我养了只狗叫来福", "我又养了一只狗叫旺财"),
    ],
)
def test_a_second_dog_stands_beside_the_first(reader: Reader, before: str, after: str) -> None:
    assert settle(reader, "model", new(after), old(before)).decision in {"coexist", "add"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("User loves jazz.", "user loves  JAZZ"),
        ("用户住在苏州。", "用户住在苏州"),
        ("ＡＢＣ-12 is the code", "abc-12 is the code."),
    ],
)
def test_the_same_words_are_a_duplicate(reader: Reader, judge: str, before: str, after: str) -> None:
    outcome = settle(reader, judge, new(after), old(before))
    assert (outcome.decision, outcome.targets) == ("duplicate", ("old",))
    assert outcome.evidence["corroborates"] is True


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("我们公司在深圳", "我们公司在东莞"),
        ("我老板姓王", "我老板姓李"),
        ("我儿子叫小明", "我儿子叫小刚"),
        ("用户在腾讯工作", "用户在字节工作"),
        ("用户在腾讯上班", "用户在阿里巴巴上班"),
        ("用户对青霉素过敏", "用户对头孢类抗生素过敏"),
        ("The user works at Acme", "The user works at Globex"),
    ],
)
def test_the_same_sentence_with_another_value_is_never_lost(reader: Reader, before: str, after: str) -> None:
    outcome = settle(reader, "model", new(after), old(before))
    assert outcome.decision in {"contest", "supersede", "coexist"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("门口的灯晚上别关", "院子的灯晚上十点关"),
        ("The gate is locked at night", "The shed is locked at 9 at night"),
    ],
)
def test_a_text_that_may_say_the_same_but_states_a_time_of_its_own_is_not_lost(
    reader: Reader, before: str, after: str
) -> None:
    eager = ReconcileSettings(duplicate_at=0.0, contest_at=0.8)
    assert settle(reader, "model", new(after), old(before), settings=eager).decision != "duplicate"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Order 10023 was paid.", "Order 10024 was paid."),
        ("订单 8801231 已付款", "订单 8801213 已付款"),
        ("The review is on 3 May.", "The review is on 13 May."),
        ("例会在周二", "例会在周三"),
        ("The door code is A17-B.", "The door code is A71-B."),
        ("Anna leads the team.", "Our team is led by Anja."),
        ("My room is 4.10", "My room is 4.1"),
        ("房租三千二", "房租三千五"),
    ],
)
def test_a_different_number_date_code_or_name_is_never_a_duplicate(
    reader: Reader, judge: str, before: str, after: str
) -> None:
    assert settle(reader, judge, new(after), old(before)).decision not in {"duplicate", "refuse"}


@pytest.mark.parametrize(
    ("before", "after"), [("I live in Leith.", "I might move to Hull next year."), ("我住在扬州", "我可能要搬去无锡")]
)
@pytest.mark.parametrize(
    "doubt",
    [
        {"status": "pending", "confidence": 0.4},
        {"kind": "speculation", "confidence": 0.5},
        {"source": "agent", "confidence": 0.5},
        {"confidence": 0.4},
    ],
)
def test_a_guess_replaces_and_contests_nothing(
    reader: Reader, judge: str, before: str, after: str, doubt: dict[str, object]
) -> None:
    outcome = settle(reader, judge, new(after, **doubt), old(before))
    assert outcome.decision in {"pending", "coexist", "add"}
    assert not outcome.contests


@pytest.mark.parametrize(("before", "after"), MOVES)
def test_what_is_older_than_its_neighbour_is_stored_as_superseded_by_it(
    reader: Reader, judge: str, before: str, after: str
) -> None:
    later = START + 3 * DAY
    outcome = settle(reader, judge, new(after), old(before, valid_from=later, observed_at=later))
    assert (outcome.decision, outcome.late, outcome.targets) == ("add", True, ("old",))
    assert outcome.evidence["late"] is True


LATE = [("I live in Leeds.", "I moved to York."), ("我住在杭州。", "我搬到了成都。")]


@pytest.mark.parametrize(("late", "known"), [*LATE, ("I work at Acme.", "I now work at Globex.")])
def test_what_comes_late_is_judged_as_if_the_known_one_were_the_news(reader: Reader, late: str, known: str) -> None:
    past = {"observed_at": START - 900 * DAY, "valid_from": START - 900 * DAY}
    outcome = settle(reader, "model", new(late, **past), old(known))
    assert outcome.targets == ("old",)
    assert outcome.late or [contender.late for contender in outcome.contests] == [True]


@pytest.mark.parametrize(("late", "known"), LATE)
def test_what_comes_late_and_may_be_outdated_is_the_one_in_doubt(reader: Reader, late: str, known: str) -> None:
    past = {"observed_at": START - 900 * DAY, "valid_from": START - 900 * DAY}
    outcome = settle(
        reader, "model", new(late, **past), old(known), settings=ReconcileSettings(supersede_at=1.1, contest_at=0.01)
    )
    (contender,) = outcome.contests
    assert (outcome.decision, contender.id, contender.late) == ("contest", "old", True)
    assert contender.ask.index(late) < contender.ask.index(known)


@pytest.mark.parametrize(
    ("late", "known"),
    [
        ("I might move to York next year.", "I live in Leeds."),
        ("I own a Toyota Corolla, 2015, in red.", "I own a Toyota."),
        ("My sister lives in Leeds.", "I moved to York."),
        ("我姐姐住在杭州。", "我搬到了成都。"),
    ],
)
def test_a_late_guess_a_fuller_late_text_and_one_of_somebody_else_are_not_replaced(
    reader: Reader, late: str, known: str
) -> None:
    past = {"observed_at": START - 900 * DAY, "valid_from": START - 900 * DAY}
    guess = {"status": "pending", "confidence": 0.4} if "might" in late else {}
    outcome = settle(reader, "model", new(late, **past, **guess), old(known))
    assert not outcome.late
    assert outcome.decision != "duplicate"


def test_a_year_alone_does_not_win_by_recency(reader: Reader) -> None:
    before, after = MOVES[1]
    year = old(before, valid_from=START - 100 * DAY, observed_at=START - 100 * DAY, precision="year")
    outcome = settle(reader, "model", new(after), year)
    assert outcome.decision == "contest"
    assert [contender.id for contender in outcome.contests] == ["old"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("My shipping address is 12 Oak Street, Leeds.", "I moved, my new address is 4 Elm Road, York."),
        ("我的收货地址是杭州市西湖区文三路 18 号", "我搬家了，新地址是成都市武侯区人民南路 7 号"),
    ],
)
def test_returning_to_an_earlier_value_replaces_the_one_between(
    reader: Reader, judge: str, first: str, second: str
) -> None:
    # The earlier one is superseded, so only the one between is a neighbour.
    between = old(second, valid_from=START, observed_at=START)
    back = ("I moved back, my address is " if first.isascii() else "我又搬回来了，地址是") + first.split(
        " is " if first.isascii() else "是"
    )[1]
    assert settle(reader, judge, new(back), between).decision in {"supersede", "contest"}
    # Still active because it was only contested: both are settled by the new one.
    outcome = settle(
        reader, judge, new(first), old(first, "first"), old(second, "second", valid_from=START + timedelta(hours=1))
    )
    assert outcome.decision in {"supersede", "duplicate"}
    assert "first" in outcome.targets


@pytest.mark.parametrize(("before", "after"), [("I like tea.", "I like cocoa."), ("我喜欢喝茶", "我喜欢喝咖啡")])
def test_preferences_stand_side_by_side(reader: Reader, judge: str, before: str, after: str) -> None:
    outcome = settle(reader, judge, new(after, kind="preference"), old(before, kind="preference"))
    assert outcome.decision in {"coexist", "add", "contest"}
    assert outcome.decision != "supersede"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("I like coffee.", "I don't like coffee any more."),
        ("我不喜欢香菜", "我喜欢香菜"),
        ("我喜欢喝茶", "我不喜欢喝茶了"),
        ("I don't eat meat.", "I eat meat again."),
    ],
)
def test_a_denied_preference_is_replaced_and_never_a_repetition(
    reader: Reader, judge: str, before: str, after: str
) -> None:
    outcome = settle(reader, judge, new(after, kind="preference"), old(before, kind="preference"))
    assert outcome.decision in {"supersede", "contest"}
    if judge == "model":
        assert outcome.decision == "supersede"


@pytest.mark.parametrize("text", ["My ex is called Kim.", "我前夫姓梁"])
def test_a_suppressed_memory_is_not_learned_again(reader: Reader, judge: str, text: str) -> None:
    outcome = settle(reader, judge, new(text), old(text, status="suppressed"), old("The sky is blue.", "other"))
    assert (outcome.decision, outcome.targets) == ("refuse", ("old",))
    assert outcome.reason


@pytest.mark.parametrize(
    ("one", "two"), [("My code is 4471.", "My code is 9902."), ("我的代码是 4471", "我的代码是 9902")]
)
def test_suppressing_one_value_does_not_block_another(reader: Reader, judge: str, one: str, two: str) -> None:
    assert settle(reader, judge, new(two), old(one, status="suppressed")).decision != "refuse"


def test_an_echo_by_the_agent_is_no_corroboration(reader: Reader, judge: str) -> None:
    echo = new("User lives in Bath", source="agent", confidence=0.5)
    outcome = settle(reader, judge, echo, old("User lives in Bath"))
    assert outcome.decision == "duplicate"
    assert outcome.evidence["corroborates"] is False


def test_the_same_key_is_the_same_slot(reader: Reader, judge: str) -> None:
    slot = {"key": "user.colour"}
    assert settle(reader, judge, new("green", **slot), old("blue", **slot)).decision == "supersede"
    assert settle(reader, judge, new("Blue", **slot), old("blue", **slot)).decision == "duplicate"
    weak = new("green", source="agent", confidence=0.5, **slot)
    assert settle(reader, judge, weak, old("blue", **slot)).decision == "pending"
    later = START + 5 * DAY
    outcome = settle(reader, judge, new("green", **slot), old("blue", valid_from=later, observed_at=later, **slot))
    assert (outcome.decision, outcome.late) == ("add", True)


def test_two_keys_are_two_slots_however_alike(reader: Reader, judge: str) -> None:
    before, after = MOVES[1]
    outcome = settle(reader, judge, new(after, key="user.address"), old(before, key="office.address"))
    assert outcome.decision in {"add", "coexist"}


def test_one_write_supersedes_only_so_many_and_contests_the_rest(reader: Reader) -> None:
    before, after = MOVES[1]
    olds = [old(before, f"old-{i}") for i in range(4)]
    outcome = settle(reader, "model", new(after), *olds, settings=ReconcileSettings(max_superseded=2))
    assert outcome.decision == "supersede"
    assert len(outcome.targets) == 2
    assert {*outcome.targets, *(contender.id for contender in outcome.contests)} == {each.id for each in olds}


def test_a_fuller_version_refines(reader: Reader) -> None:
    outcome = settle(reader, "model", new("I own a Toyota Corolla, 2015, in red."), old("I own a Toyota."))
    assert (outcome.decision, outcome.targets) == ("refine", ("old",))


def test_confirming_a_pending_memory_names_it(reader: Reader) -> None:
    guess = old("User lives in Hull.", status="pending", confidence=0.4)
    outcome = settle(reader, "model", new("User lives in Hull."), guess)
    assert (outcome.decision, outcome.targets) == ("duplicate", ("old",))


@pytest.mark.parametrize("text", ["The museum opens at ten.", "博物馆十点开门"])
def test_nothing_near_means_add(reader: Reader, judge: str, text: str) -> None:
    assert settle(reader, judge, new(text)).decision == "add"
    outcome = settle(reader, judge, new(text), old("My brother repairs violins in Cremona."))
    assert outcome.decision == "add"


def test_bystanders_of_a_change_are_left_alone(reader: Reader) -> None:
    before, after = MOVES[1]
    others = [
        "I play chess on Mondays.",
        "My boss is called Ida.",
        "I am allergic to shrimp.",
        "The rent is 900 a month.",
    ]
    olds = [old(text, f"old-{i}") for i, text in enumerate(others)]
    outcome = settle(reader, "model", new(after), old(before, "address"), *olds)
    assert (outcome.decision, outcome.targets, outcome.contests) == ("supersede", ("address",), ())


@pytest.mark.parametrize(
    ("before", "after", "ask"),
    [
        ("User has a room with a view.", "I have a room without a view.", "still hold"),
        ("会议在周三", "会议在周四", "还成立吗"),
    ],
)
def test_a_contest_asks_in_the_language_of_the_text(reader: Reader, before: str, after: str, ask: str) -> None:
    never = ReconcileSettings(supersede_at=1.1, contest_at=0.01, contest_among_at=0.01)
    outcome = settle(reader, "rules", new(after), old(before), settings=never)
    assert outcome.decision == "contest"
    assert ask in outcome.contests[0].ask
    assert before.rstrip(".") in outcome.contests[0].ask


def test_the_same_input_gives_the_same_outcome(reader: Reader, judge: str) -> None:
    before, after = MOVES[0]
    assert settle(reader, judge, new(after), old(before)) == settle(reader, judge, new(after), old(before))


def test_probabilities_are_a_distribution_and_evidence_names_the_judge(reader: Reader) -> None:
    before, after = MOVES[0]
    u, v = reader.vector(before), reader.vector(after)
    by_model = decide_pair(
        new(after), old(before), cosine=float(u @ v), new_vector=v, old_vector=u, embedding_model=reader.model
    )
    by_rules = decide_pair(new(after), old(before), cosine=float(u @ v))
    assert (by_model.evidence["judge"], by_rules.evidence["judge"]) == ("model", "rules")
    for decision in (by_model, by_rules):
        assert set(decision.probabilities) == set(RELATIONS)
        assert sum(decision.probabilities.values()) == pytest.approx(1.0)


CROWD = [
    "Anna's violin lesson is on Mondays",
    "The printer on the second floor is out of toner",
    "My sister works for the railway",
    "I take my coffee without sugar",
    "The office coffee machine is broken",
    "Our cat is called Minou",
    "The boiler was serviced in March",
    "My passport runs out in 2031",
    "I have a dentist's appointment on Friday",
    "我对花生过敏",
    "我姐姐住在苏州",
    "车在二手市场买的",
]


def others(*texts: str) -> list[Memory]:
    return [old(text, f"other-{i:02}") for i, text in enumerate(texts)]


def test_of_many_neighbours_few_are_put_to_the_model(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    scores = PairModel.scores

    def counted(self: PairModel, likenesses: Sequence[dict[str, float]], *vectors: Any) -> Any:
        asked.append(len(likenesses))
        return scores(self, likenesses, *vectors)

    monkeypatch.setattr(PairModel, "scores", counted)
    outcome = settle(reader, "model", new("Anna's violin lesson has moved to Thursdays"), *others(*CROWD))
    assert outcome.targets or outcome.contests
    assert sum(asked) <= JUDGED


@pytest.mark.parametrize(
    ("before", "again"),
    [
        ("My wife is allergic to penicillin", "Penicillin is what my wife is allergic to"),
        ("我对青霉素过敏", "青霉素我过敏"),
    ],
)
def test_what_is_said_again_among_many_is_a_duplicate(reader: Reader, before: str, again: str) -> None:
    outcome = settle(reader, "model", new(again), old(before), *others(*CROWD))
    assert (outcome.decision, outcome.targets) == ("duplicate", ("old",))


@pytest.mark.parametrize("text", ["The new office manager is Dana now", "我现在换成每天跑步上班了"])
def test_news_replaces_no_bystander(reader: Reader, judge: str, text: str) -> None:
    outcome = settle(reader, judge, new(text), *others(*CROWD))
    assert outcome.decision in {"add", "coexist", "contest"}
    assert not outcome.targets or outcome.decision != "supersede"


def test_everyday_messages_put_little_in_doubt(reader: Reader) -> None:
    """Each among the sixteen nearest of all others: many of them alike, none of them news about another."""
    lines = (Path(__file__).parent / "data" / "gate_everyday.jsonl").read_text("utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    vectors = np.stack([reader.vector(text) for text in texts])
    contested = 0
    for i, text in enumerate(texts):
        nearest = [j for j in np.argsort(-(vectors @ vectors[i]), kind="stable").tolist() if j != i][:16]
        contested += bool(settle(reader, "model", new(text), *(old(texts[j], f"{j:03}") for j in nearest)).contests)
    assert contested <= 16, f"{contested} of {len(texts)}"


@pytest.mark.parametrize(
    ("before", "again"),
    [
        ("My wife is allergic to penicillin", "Penicillin is what my wife is allergic to"),
        ("我对青霉素过敏", "青霉素我过敏"),
    ],
)
def test_several_suppressed_memories_are_each_compared_by_themselves(reader: Reader, before: str, again: str) -> None:
    banned = [msgspec.structs.replace(each, status="suppressed") for each in (old(before), *others(*CROWD))]
    assert settle(reader, "model", new(again), *banned).decision == "refuse"
    assert settle(reader, "model", new("I bought a kayak in Norway"), *banned).decision == "add"


def test_a_tools_record_replaces_its_older_one_among_many(reader: Reader) -> None:
    stock = [old(f"stock item=SKU{i} qty={i}", f"r{i}", source="tool", confidence=0.8) for i in range(10)]
    outcome = settle(reader, "model", new("stock item=SKU7 qty=30", source="tool", confidence=0.8), *stock)
    assert outcome.targets == ("r7",)


@pytest.mark.parametrize(("beside", "heard"), [((), "duplicate"), (("I play the cello",), "supersede")])
def test_a_reader_is_heard_as_of_one_chosen_pair_or_as_of_one_neighbour_of_several(
    reader: Reader, beside: tuple[str, ...], heard: str
) -> None:
    olds = [
        msgspec.structs.replace(each, embedding_model=reader.model)
        for each in (old("I live in Bristol"), *others(*beside))
    ]
    fresh = new("Signed the lease on a flat in Leeds")
    vector = reader.vector(fresh.content)
    candidates = [
        Candidate(old=each, cosine=float(vector @ reader.vector(each.content)), vector=reader.vector(each.content))
        for each in olds
    ]
    said = np.full(2 * len(RELATIONS), np.log(0.01), dtype=np.float32)
    said[CHOSEN][RELATIONS.index("duplicate")] = said[AMONG][RELATIONS.index("supersede")] = np.log(0.95)
    screening = screen(fresh, vector, candidates, embedding_model=reader.model)
    assert "old" in screening.unread
    found = screening.decided({"old": said})[0].evidence["read"]
    assert max(found, key=found.__getitem__) == heard


def test_vectors_of_another_model_are_left_to_the_rules(reader: Reader) -> None:
    before, after = MOVES[0]
    u, v = reader.vector(before), reader.vector(after)
    for model in (None, "other@1/384#d9c1ef5b", reader.model + "0"):
        decision = decide_pair(new(after), old(before), cosine=0.5, new_vector=v, old_vector=u, embedding_model=model)
        assert decision.evidence["judge"] == "rules"


def test_the_shipped_weights_fit_the_shipped_embedder(reader: Reader) -> None:
    model = shipped()
    assert model is not None
    assert model.fits(reader.model)


def test_memories_without_vectors_are_judged_all_the_same() -> None:
    record = Record(memory=old("I like tea."), index=index_fields(old("I like tea.")))
    outcome = reconcile(new("I like tea!"), None, [Neighbour(record=record, cosine=0.0)])
    assert outcome.decision == "duplicate"


@pytest.mark.parametrize(
    "text", ["\x00", "。。。", "🙂🙂", "a" * 8000, "3" * 8000, "一" * 8000, "١٢٣", "\ud800", "1-" * 999]
)
def test_no_text_breaks_it(text: str) -> None:
    record = Record(memory=old("I like tea."), index=index_fields(old("I like tea.")))
    assert reconcile(new(text), np.zeros(384, np.float32), [Neighbour(record=record, cosine=0.0)]).decision


@pytest.mark.parametrize(
    ("run", "number"),
    [
        ("五点三", 5.3),
        ("三百二", 320),
        ("两万五", 25_000),
        ("一千零五", 1005),
        ("二〇二四", 2024),
        ("十二", 12),
        ("一亿两千万", 120_000_000),
    ],
)
def test_chinese_numerals_are_numbers(run: str, number: float) -> None:
    assert han_number(run) == pytest.approx(number)


@pytest.mark.parametrize(
    ("zh", "en"),
    [
        ("五点三公斤", "5.3 kg"),
        ("早上九点半", "09:30"),
        ("晚上七点", "7 pm"),
        ("2026年2月12日", "12 February 2026"),
        ("礼拜四", "Thursday"),
        ("二十一分钟", "twenty-one minutes"),
    ],
)
def test_both_languages_state_the_same_value(zh: str, en: str) -> None:
    def values(text: str) -> list[tuple[str, str, str]]:
        return [(value.kind, value.norm, value.unit) for value in read_values(normalised(text))]

    assert values(zh) == values(en) != []


def test_same_text_keeps_the_signs_inside_values() -> None:
    assert not same_text(read("3.5 km"), read("35 km"))
    assert not same_text(read("-4 degrees"), read("4 degrees"))
    assert same_text(read("It’s 3.5 km!"), read("it's  3.5 km"))


def test_language_is_that_of_most_letters() -> None:
    assert [language_of(text) for text in ("我用 PostgreSQL 数据库", "I like 茶 a lot", "123")] == ["zh", "en", "en"]


def test_order_is_unclear_within_the_precision() -> None:
    year = old("x", observed_at=START, valid_from=START, precision="year")
    assert order_of(new("y"), year) == "unclear"
    assert order_of(new("y"), old("x")) == "newer"
    assert order_of(old("x"), new("y")) == "older"
    assert order_of(old("x"), old("y")) == "newer"


def test_a_kernel_in_blocks_is_that_of_all_rows() -> None:
    model = shipped()
    assert model is not None
    rng = np.random.default_rng(3)

    def rows(count: int, width: int) -> NDArray[np.float32]:
        drawn = rng.normal(size=(count, width)).astype(np.float32)
        return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)

    for count in (1, BLOCK, BLOCK + 1, 3 * BLOCK - 1):
        many = rows(count, 9), rows(count, 6), rows(count, 6)
        few = Points(rows(3, 9), rows(3, 6), rows(3, 6)[:1])
        whole = kernel(few, Points(*many), model.card.kernel, model.card.spread)
        parted = kernel(few, Points(*map(blocks, many)), model.card.kernel, model.card.spread)
        assert np.allclose(np.hstack([*parted])[:, :count], whole, atol=1e-5)
        weights = rows(count, 6)
        assert np.allclose((parted @ blocks(weights)).sum(axis=0), whole @ weights, atol=1e-4)
