"""Data sets that were published as folders.

MADial-Bench (He et al., 2024): `*memory.json`, a line a memory, and `*dialogue.json`, a line a dialogue. The question
is the dialogue up to the turn that should recall something.

MemoryBank (Zhong et al., 2023): `memory_bank*.json` and `probing_questions*.jsonl`. It was published without saying
which exchanges answer a question; that comes from a file `gold*.json` of your own beside them: for each person a list
with the ids of the exchanges for each question, such as `{"Emily": [["2023-04-30#3"], …]}` (the day, and the number of
the exchange on it, from 0).
"""

from __future__ import annotations

from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

import msgspec

from hindsight_core.benchmark.sets import Bank, DataSet, Document, Question, moment
from hindsight_core.decoding import decode
from hindsight_core.errors import InvalidInput

T = TypeVar("T")
_MADIAL = ("*memory.json", "*dialogue.json")
_MEMORY_BANK = ("memory_bank*.json", "probing_questions*.jsonl", "gold*.json")


class _Event(msgspec.Struct, frozen=True):
    event: str
    time: str | None = None
    user: int | None = msgspec.field(name="user-id", default=None)


class _Dialogue(msgspec.Struct, frozen=True):
    dialogue: list[str]
    turns: list[int] = msgspec.field(name="test-turn")
    relevant: list[int] = msgspec.field(name="relevant-id")
    user: int = msgspec.field(name="user-id")


class _Exchange(msgspec.Struct, frozen=True):
    query: str
    response: str


class _Person(msgspec.Struct, frozen=True):
    history: dict[str, list[_Exchange]] = {}


def read(folder: Path) -> DataSet:
    """The data set in a folder. Raises `InvalidInput` when it is neither of the two."""
    memories, dialogues = (_one(folder, pattern) for pattern in _MADIAL)
    if dialogues is not None and memories is not None:
        return _madial(folder.name, memories, dialogues)
    bank, questions, gold = (_one(folder, pattern) for pattern in _MEMORY_BANK)
    if bank is not None and questions is not None:
        if gold is None:
            raise InvalidInput.of(
                str(folder), "has no gold*.json that says which exchanges answer each of MemoryBank's questions"
            )
        return _memory_bank(folder.name, bank, questions, gold)
    raise InvalidInput.of(str(folder), "holds no data set: MADial-Bench's and MemoryBank's folders are known")


def dated(text: str | None, place: str) -> tuple[datetime | None, bool]:
    """The instant of a date and whether it names a day only; raises `InvalidInput` naming the place."""
    if not text:
        return None, False
    found = moment(text)
    if found is None:
        raise InvalidInput.of(place, f"{text!r} is no date such as 2023-05-08 or '1:56 pm on 8 May, 2023'")
    return found


def _madial(name: str, memories: bytes, dialogues: bytes) -> DataSet:
    events = [(number, event) for row in _lines(memories, dict[str, _Event]) for number, event in row.items()]
    asked = _lines(dialogues, _Dialogue)
    people: dict[int, str] = {}
    for dialogue in asked:
        speaker = next((_speaker(line) for line in dialogue.dialogue if _speaker(line)), "")
        people.setdefault(dialogue.user, speaker)
    banks: list[Bank] = []
    for user, person in sorted(people.items()):
        others = [other for other in people.values() if other != person]
        documents: list[Document] = []
        for number, event in events:
            # The English memories do not say whose they are; they tell of somebody by name.
            others_own = person not in event.event and any(other in event.event for other in others)
            if others_own if event.user is None else event.user != user:
                continue
            at, day_only = dated(event.time, f"{number}.time")
            documents.append(Document(id=number, text=event.event, at=at, day_only=day_only, session=number))
        questions = [
            Question(
                id=f"{row}-{turn}",
                text="".join(line for line in dialogue.dialogue[:turn] if line.strip() != "<BOD>").strip(),
                gold=tuple(str(number) for number in dialogue.relevant),
            )
            for row, dialogue in enumerate(asked)
            if dialogue.user == user
            for turn in dialogue.turns
        ]
        documents.sort(key=lambda document: (document.at is None, document.at and document.at.timestamp()))
        banks.append(Bank(name=f"user{user}", documents=tuple(documents), questions=tuple(questions)))
    return DataSet(name=name, banks=tuple(banks))


def _speaker(line: str) -> str:
    """The name in `<Bart>: …`, the assistant's and the marks of beginning and end left out."""
    name, found, _ = line.strip().removeprefix("<").partition(">:")
    return name if found and line.startswith("<") and name != "Assistant" else ""


def _memory_bank(name: str, bank: bytes, questions: bytes, gold: bytes) -> DataSet:
    answers = decode(gold, dict[str, list[list[str]]])
    asked = {person: texts for row in _lines(questions, dict[str, list[str]]) for person, texts in row.items()}
    banks: list[Bank] = []
    for person, found in decode(bank, dict[str, _Person]).items():
        documents: list[Document] = []
        for day, exchanges in sorted(found.history.items()):
            at, day_only = dated(day, f"{person}.history.{day}")
            documents += [
                Document(
                    id=f"{day}#{order}",
                    text=f"{exchange.query}\n{exchange.response}",
                    at=at,
                    day_only=day_only,
                    session=day,
                )
                for order, exchange in enumerate(exchanges)
            ]
        texts = asked.get(person, [])
        if len(answers.get(person, [])) != len(texts):
            raise InvalidInput.of(f"gold.{person}", f"has not an entry for each of the {len(texts)} questions")
        banks.append(
            Bank(
                name=person,
                documents=tuple(documents),
                questions=tuple(
                    Question(id=f"{person}-{n}", text=text, gold=tuple(answers[person][n]))
                    for n, text in enumerate(texts)
                ),
            )
        )
    return DataSet(name=name, banks=tuple(banks))


def _lines(data: bytes, kind: type[T]) -> list[T]:
    return [decode(line, kind) for line in data.splitlines() if line.strip()]


def holds(name: str) -> bool:
    """Whether a file of this name belongs to a set that is a folder."""
    return any(fnmatchcase(name, pattern) for pattern in (*_MADIAL, *_MEMORY_BANK))


def _one(folder: Path, pattern: str) -> bytes | None:
    """The only file of a pattern."""
    found = sorted(folder.glob(pattern))
    if len(found) > 1:
        raise InvalidInput.of(str(folder), f"has several files {pattern}: {', '.join(path.name for path in found)}")
    return found[0].read_bytes() if found else None
