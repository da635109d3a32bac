"""Data sets from files: the plain shape of this benchmark, and the shapes in which others published theirs.

Plain: `{"name", "banks": [{"bank", "docs": [{"id", "text", "speaker", "date", "session", "order"}], "queries": [{"id",
"q", "gold": [ids of docs], "cat"}]}]}`. Published: LoCoMo, LongMemEval, and the folders of MADial-Bench and of
MemoryBank (see `folders`).
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import groupby
from pathlib import Path

import msgspec

from hindsight_core.benchmark import folders
from hindsight_core.benchmark.sets import Bank, Choice, DataSet, Document, Question, some, sound
from hindsight_core.cli.locomo import is_locomo, read_locomo
from hindsight_core.decoding import decode
from hindsight_core.errors import InvalidInput, Malformed
from hindsight_core.requests import Role

# The names that LoCoMo's paper gives to the numbers of its file.
LOCOMO_KINDS = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
UNANSWERABLE = frozenset({"adversarial"})
# How LongMemEval's ids of questions end that nothing answers.
_NEVER_SAID = "_abs"


class _Doc(msgspec.Struct, frozen=True):
    id: str
    text: str
    speaker: str | None = None
    date: str | None = None
    session: str | None = None
    order: float = 0
    role: Role = "user"


class _Query(msgspec.Struct, frozen=True):
    id: str
    q: str
    gold: list[str]
    cat: str = "all"
    date: str | None = None


class _Bank(msgspec.Struct, frozen=True):
    bank: str
    docs: list[_Doc]
    queries: list[_Query]


class _Plain(msgspec.Struct, frozen=True):
    name: str
    banks: list[_Bank]


class _Turn(msgspec.Struct, frozen=True):
    role: Role
    content: str
    has_answer: bool | None = None


class _Named(msgspec.Struct, frozen=True):
    """As much of an item of LongMemEval as tells whether it is to be measured."""

    question_id: str
    answer_session_ids: list[str] = []

    @property
    def answered(self) -> bool:
        return bool(self.answer_session_ids) and not self.question_id.endswith(_NEVER_SAID)


class _LongMemEval(msgspec.Struct, frozen=True):
    question_id: str
    question_type: str
    question: str
    question_date: str
    haystack_dates: list[str]
    haystack_session_ids: list[str]
    haystack_sessions: list[list[_Turn]]
    answer_session_ids: list[str] = []


def load(path: Path, choice: Choice | None = None) -> DataSet:
    """The data set in a file or folder, or what is chosen of it.

    Raises `InvalidInput` naming the file, and the place that has another shape or stands twice.
    """
    try:
        return sound(_load(path, choice or Choice()))
    except Malformed as exc:
        raise InvalidInput.of(str(path), exc.detail) from None
    except InvalidInput as exc:
        fault = exc.errors[0]
        if fault.field.startswith(str(path)):
            raise
        raise InvalidInput.of(f"{path}: {fault.field}", fault.message) from None


def _load(path: Path, choice: Choice) -> DataSet:
    if path.is_dir():
        return _chosen(folders.read(path), choice)
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise InvalidInput.of(str(path), (exc.strerror or str(exc)).lower()) from None
    if is_locomo(data):
        return _chosen(_locomo(path.stem, data), choice)
    if b'"haystack_sessions"' in data:
        return _long_mem_eval(path.stem, data, choice)
    try:
        return _chosen(_plain(decode(data, _Plain)), choice)
    except InvalidInput:
        if folders.holds(path.name):
            raise InvalidInput.of(str(path), "is one file of a folder; give the folder") from None
        raise


def _chosen(data: DataSet, choice: Choice) -> DataSet:
    return msgspec.structs.replace(some(data, choice), known=tuple(bank.name for bank in data.banks))


def _plain(found: _Plain) -> DataSet:
    return DataSet(
        name=found.name,
        banks=tuple(_bank(bank, f"banks[{number}]") for number, bank in enumerate(found.banks)),
        unanswerable=UNANSWERABLE,
    )


def _bank(bank: _Bank, place: str) -> Bank:
    documents: list[Document] = []
    for doc in sorted(bank.docs, key=lambda doc: doc.order):
        at, day_only = folders.dated(doc.date, f"{place}.docs.{doc.id}.date")
        documents.append(
            Document(
                id=doc.id,
                text=doc.text,
                speaker=doc.speaker or "",
                role=doc.role,
                at=at,
                day_only=day_only,
                session=doc.session or "",
            )
        )
    questions: list[Question] = []
    for query in bank.queries:
        asked, _ = folders.dated(query.date, f"{place}.queries.{query.id}.date")
        questions.append(Question(id=query.id, text=query.q, gold=tuple(query.gold), kind=query.cat, at=asked))
    return Bank(name=bank.bank, documents=tuple(documents), questions=tuple(questions))


def _locomo(name: str, data: bytes) -> DataSet:
    banks: list[Bank] = []
    for sample in read_locomo(data):
        documents: list[Document] = []
        for session in sample.sessions:
            # A long turn comes in pieces.
            for turn, pieces in groupby(session.messages, key=lambda message: str(message.metadata["dia_id"])):
                first, *others = pieces
                documents.append(
                    Document(
                        id=turn,
                        text="\n".join([first.text, *(piece.text for piece in others)]),
                        speaker=first.speaker or "",
                        at=first.at,
                        session=session.session or "",
                    )
                )
        questions = [
            Question(
                id=f"{sample.name}-{number}",
                text=asked.question,
                gold=asked.evidence,
                kind=LOCOMO_KINDS.get(asked.kind, str(asked.kind)),
            )
            for number, asked in enumerate(sample.questions)
        ]
        banks.append(Bank(name=sample.name, documents=tuple(documents), questions=tuple(questions)))
    return DataSet(name=name, banks=tuple(banks), unanswerable=UNANSWERABLE)


def _long_mem_eval(name: str, data: bytes, choice: Choice) -> DataSet:
    """One bank a question. What answers are the turns marked so, the whole answering sessions where none is.

    The file may be far larger than what is chosen of it, so one item after the other is read.
    """
    named = decode(data, list[_Named])
    places = [place for place, one in enumerate(named) if choice.names(one.question_id)]
    if choice.questions is not None:
        answered = [place for place in places if named[place].answered]
        drawn = choice.drawn(len(answered))
        places = [place for number, place in enumerate(answered) if number in drawn]
    items = decode(data, list[msgspec.Raw])
    return DataSet(
        name=name,
        banks=tuple(_haystack(items[place], f"[{place}]") for place in places),
        known=tuple(one.question_id for one in named),
    )


def _haystack(data: msgspec.Raw, place: str) -> Bank:
    try:
        item = decode(data, _LongMemEval)
    except InvalidInput as exc:
        fault = exc.errors[0]
        raise InvalidInput.of(f"{place}.{fault.field}", fault.message) from None
    documents: list[Document] = []
    marked: list[str] = []
    spoken: list[str] = []
    seen = Counter[str]()
    asked, _ = folders.dated(item.question_date, f"{place}.question_date")
    if not len(item.haystack_sessions) == len(item.haystack_session_ids) == len(item.haystack_dates):
        raise InvalidInput.of(f"{place}.haystack_sessions", "has not as many entries as its ids and dates")
    parts = zip(item.haystack_session_ids, item.haystack_dates, item.haystack_sessions, strict=True)
    for number, (session, date, turns) in enumerate(parts):
        at, _ = folders.dated(date, f"{place}.haystack_dates[{number}]")
        seen[session] += 1
        # A session may stand in a haystack twice, and is then another one.
        own = session if seen[session] == 1 else f"{session}#{seen[session]}"
        for order, turn in enumerate(turns):
            if not turn.content.strip():
                continue
            found = Document(
                id=f"{own}_{order + 1}",
                text=turn.content,
                role=turn.role,
                # Turns of a session have one date; a second between them keeps their order.
                at=None if at is None else at + timedelta(seconds=order),
                session=own,
            )
            documents.append(found)
            if turn.has_answer:
                marked.append(found.id)
            if session in item.answer_session_ids:
                spoken.append(found.id)
    answered = not item.question_id.endswith(_NEVER_SAID)
    gold = (marked or spoken) if answered else []
    question = Question(id=item.question_id, text=item.question, gold=tuple(gold), kind=item.question_type, at=asked)
    return Bank(name=item.question_id, documents=tuple(documents), questions=(question,))
