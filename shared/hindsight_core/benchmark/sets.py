"""What a retrieval benchmark asks about: banks of documents, each with its questions and the documents that answer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec
import numpy as np

from hindsight_core.errors import InvalidInput
from hindsight_core.requests import Role

_WHEN = ("%I:%M %p on %d %B, %Y", "%Y-%m-%d", "%Y/%m/%d (%a) %H:%M", "%Y/%m/%d %H:%M", "%Y/%m/%d")


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """One memory. `dated` tells whether `at` is known to the day only; `session` groups what follows each other."""

    id: str
    text: str
    speaker: str = ""
    role: Role = "user"
    at: datetime | None = None
    day_only: bool = False
    session: str = ""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question, the ids of the documents that answer it, and its kind. `at` is when it is asked, where that is set.

    Questions that no document answers (`gold` is empty) are not measured.
    """

    id: str
    text: str
    gold: tuple[str, ...]
    kind: str = "all"
    at: datetime | None = None


class Bank(msgspec.Struct, frozen=True, kw_only=True):
    """Memories of one person or pair, documents in their order, and the questions about these alone."""

    name: str
    documents: tuple[Document, ...]
    questions: tuple[Question, ...]

    @property
    def latest(self) -> datetime:
        """When the last document was said; a fixed day where none is dated."""
        return max((found.at for found in self.documents if found.at is not None), default=_UNDATED)

    @property
    def measured(self) -> list[Question]:
        """The questions that have an answer."""
        return [question for question in self.questions if question.gold]


class DataSet(msgspec.Struct, frozen=True, kw_only=True):
    """A named list of banks. `kinds` that ask for what was never said are in `unanswerable`.

    `known` names all banks there are, also those that were left out.
    """

    name: str
    banks: tuple[Bank, ...]
    unanswerable: frozenset[str] = frozenset()
    known: tuple[str, ...] = ()

    @property
    def questions(self) -> int:
        """How many questions are measured."""
        return sum(len(bank.measured) for bank in self.banks)

    @property
    def unanswered(self) -> int:
        """How many questions have no answer, and are left out."""
        return sum(len(bank.questions) for bank in self.banks) - self.questions

    @property
    def unknown(self) -> int:
        """How many answers are no document of their bank, and so are missed whatever is found."""
        return sum(
            len(set(question.gold) - {document.id for document in bank.documents})
            for bank in self.banks
            for question in bank.questions
        )


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of a data set is measured: banks of these names (None: all), and at most so many questions.

    The questions are the first of all that have an answer, in an order that is drawn from `seed`.
    """

    banks: tuple[str, ...] | None = None
    questions: int | None = None
    seed: int = 0

    def names(self, bank: str) -> bool:
        return self.banks is None or bank in self.banks

    def drawn(self, count: int) -> set[int]:
        """The places of the questions among `count`."""
        places: list[int] = np.random.default_rng(self.seed).permutation(count)[: self.questions].tolist()
        return set(places)


_UNDATED = datetime(2025, 1, 1, tzinfo=UTC)
_FIRST_YEAR, _LAST_YEAR = 1000, 3000


def moment(text: str) -> tuple[datetime, bool] | None:
    """The instant (read as UTC) of a date in one of the sets' forms, and whether it names a day only; None for none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        for form in _WHEN:
            try:
                found = datetime.strptime(text, form).replace(tzinfo=UTC)
            except ValueError:
                continue
            return found, "%H" not in form and "%I" not in form
        return None
    day_only = len(text) <= len("2025-01-31")
    return found if found.tzinfo else found.replace(tzinfo=UTC), day_only


def sessions(bank: Bank) -> list[list[Document]]:
    """The documents by session, in the order in which the sessions first appear; without one each stands alone."""
    found: dict[str, list[Document]] = {}
    for number, document in enumerate(bank.documents):
        found.setdefault(document.session or f"#{number}", []).append(document)
    return list(found.values())


def aged(bank: Bank, newest: float, oldest: float) -> Bank:
    """The bank with its sessions' dates spread evenly from `oldest` to `newest` days before its last one, in order.

    What a text says about its date then no longer fits, so this is for measuring recency alone.
    """
    groups = sorted(sessions(bank), key=lambda group: group[0].at or _UNDATED)
    moved: dict[str, datetime] = {}
    for place, group in enumerate(groups):
        share = place / (len(groups) - 1) if len(groups) > 1 else 1.0
        at = bank.latest - timedelta(days=oldest - (oldest - newest) * share)
        moved.update({document.id: at for document in group})
    documents = [msgspec.structs.replace(document, at=moved[document.id]) for document in bank.documents]
    questions = [msgspec.structs.replace(question, at=bank.latest) for question in bank.questions]
    return msgspec.structs.replace(bank, documents=tuple(documents), questions=tuple(questions))


def nameless(bank: Bank) -> Bank:
    """The bank as an agent's memory has it: who speaks first is the user, all others are the assistant.

    Documents name no speaker, and questions say “the user” and “the assistant” for the names. Texts stay as they are.
    """
    names = list(dict.fromkeys(document.speaker for document in bank.documents if document.speaker))
    others = [re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE) for name in names]

    def renamed(text: str) -> str:
        for number, name in enumerate(others):
            text = name.sub("the assistant" if number else "the user", text)
        return text

    documents = [
        msgspec.structs.replace(
            document, speaker="", role=document.role if document.speaker in [*names[:1], ""] else "assistant"
        )
        for document in bank.documents
    ]
    questions = [msgspec.structs.replace(question, text=renamed(question.text)) for question in bank.questions]
    return msgspec.structs.replace(bank, documents=tuple(documents), questions=tuple(questions))


def joined(bank: Bank, characters: int) -> Bank:
    """The bank with what follows each other in a session put together until a document has so many characters.

    Each line says who speaks, a document has no one speaker, and it answers what any of its parts does.
    """
    documents: list[Document] = []
    part_of: dict[str, str] = {}
    for session in sessions(bank):
        parts: list[Document] = []
        for document in session:
            parts.append(document)
            if sum(len(part.text) for part in parts) >= characters or document is session[-1]:
                lines = (f"{part.speaker}: {part.text}" if part.speaker else part.text for part in parts)
                documents.append(msgspec.structs.replace(parts[0], text="\n".join(lines), speaker=""))
                part_of.update((part.id, parts[0].id) for part in parts)
                parts = []
    questions = [
        msgspec.structs.replace(question, gold=tuple(dict.fromkeys(part_of.get(one, one) for one in question.gold)))
        for question in bank.questions
    ]
    return msgspec.structs.replace(bank, documents=tuple(documents), questions=tuple(questions))


def some(data: DataSet, choice: Choice) -> DataSet:
    """The part of the data set that was chosen; what is drawn holds no bank without a question of its own."""
    banks = [bank for bank in data.banks if choice.names(bank.name)]
    if choice.questions is not None:
        every = [(place, question) for place, bank in enumerate(banks) for question in bank.measured]
        drawn = [every[place] for place in sorted(choice.drawn(len(every)))]
        banks = [
            msgspec.structs.replace(bank, questions=tuple(question for of, question in drawn if of == place))
            for place, bank in enumerate(banks)
            if any(of == place for of, _ in drawn)
        ]
    return msgspec.structs.replace(data, banks=tuple(banks))


def sound(data: DataSet) -> DataSet:
    """The data set with every answer of a question named once.

    Raises `InvalidInput` where two banks, or two documents of a bank, have one name, where a question is empty, and
    where a date leaves no room for the days that are added to it.
    """
    _all_different((bank.name for bank in data.banks), "banks")
    return msgspec.structs.replace(data, banks=tuple(_sound(bank) for bank in data.banks))


def _sound(bank: Bank) -> Bank:
    _all_different((document.id for document in bank.documents), f"bank {bank.name!r}, documents")
    for document in bank.documents:
        _check_date(document.at, f"bank {bank.name!r}, document {document.id!r}")
    questions: list[Question] = []
    for question in bank.questions:
        place = f"bank {bank.name!r}, question {question.id!r}"
        if not question.text.strip():
            raise InvalidInput.of(place, "is empty")
        _check_date(question.at, place)
        questions.append(msgspec.structs.replace(question, gold=tuple(dict.fromkeys(question.gold))))
    return msgspec.structs.replace(bank, questions=tuple(questions))


def _check_date(at: datetime | None, place: str) -> None:
    if at is not None and not _FIRST_YEAR <= at.year <= _LAST_YEAR:
        raise InvalidInput.of(place, f"has a date outside the years {_FIRST_YEAR} to {_LAST_YEAR}")


def _all_different(names: Iterable[str], place: str) -> None:
    name, count = next(iter(Counter(names).most_common(1)), ("", 0))
    if count > 1:
        raise InvalidInput.of(place, f"{count} have the name {name!r}")
