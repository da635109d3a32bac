"""A run: data sets are stored once an embedder, and every configuration asks every question of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import msgspec

from hindsight_core.benchmark.configuration import Configuration
from hindsight_core.benchmark.measures import DEPTH
from hindsight_core.benchmark.sets import Bank, DataSet
from hindsight_core.benchmark.storing import PLACE, write
from hindsight_core.benchmark.vectors import Remembering, Whole
from hindsight_core.benchmark.weighing import Example, example, weighed
from hindsight_core.caller import Caller
from hindsight_core.config import load
from hindsight_core.embedding import Embedder, open_embedder
from hindsight_core.errors import InvalidInput
from hindsight_core.ids import new_id
from hindsight_core.requests import ForgetRequest, SearchRequest
from hindsight_core.reranking import DEPTH as COMPARED
from hindsight_core.reranking import EVIDENCE
from hindsight_core.service import MemoryService
from hindsight_core.stores import MemoryStore, open_store

LONGEST = 8000


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One question, asked: the places (from 1) of its answers among the first ten documents, and the milliseconds."""

    bank: str
    question: str
    kind: str
    gold: int
    ranks: tuple[int, ...]
    ms: float


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """All questions of a data set, asked in one configuration; `embedding_ms` is what embedding a question took."""

    data: DataSet
    configuration: Configuration
    outcomes: tuple[Outcome, ...]
    memories: int
    embedder: str
    embedding_ms: tuple[float, ...]


class Progress(Protocol):
    """Told what is being done: a name and a number of steps, then each step."""

    def begin(self, what: str, steps: int) -> None: ...

    def advance(self, steps: int = 1) -> None: ...


async def run(
    data: Sequence[DataSet],
    configurations: Sequence[Configuration],
    *,
    store: str | None,
    clock: Callable[[], datetime],
    progress: Progress,
    later: timedelta = timedelta(days=1),
    vectors: Path | None = None,
    api_key: str = "",
    leave_one_out: bool = False,
) -> list[Asked]:
    """Ask every question of every data set in every configuration; by data set, then configuration.

    With `leave_one_out` there is one configuration more: the first, each bank asked with the weights of the second
    stage that suit the data set's other banks.

    `store` is the URL of a store whose namespaces `benchmark-…` are used and erased afterwards, None a temporary file.
    A question that does not say when it is asked is asked `later` than the last of its memories. `vectors` is a
    folder in which vectors are kept from run to run. Raises what the store and the embedder raise, and `InvalidInput`
    where one store would have to hold the vectors of several embedders, or nothing is left to choose weights on.
    """
    found: dict[tuple[int, int], Asked] = {}
    if leave_one_out and any(len(one.banks) < 2 for one in data):
        raise InvalidInput.of("--leave-one-out", "needs a data set of at least two banks")
    if leave_one_out and not all(getattr(configurations[0].ranking, name) for name in EVIDENCE):
        raise InvalidInput.of("--leave-one-out", "needs all kinds of evidence in the first configuration")
    by_embedder: dict[tuple[str, str, int], list[int]] = {}
    for number, configuration in enumerate(configurations):
        key = (configuration.embedder, configuration.calibration, configuration.dimension)
        by_embedder.setdefault(key, []).append(number)
    if store is not None and len(by_embedder) > 1:
        raise InvalidInput.of(
            "--store", "holds the vectors of one embedder; leave it out, and each has a store of its own"
        )
    for (name, calibration, dimension), numbers in by_embedder.items():
        embedder = Remembering(
            open_embedder(
                name,
                api_key=api_key,
                dimension=dimension or None,
                calibration=Path(calibration) if calibration else None,
            ),
            vectors,
        )
        try:
            with TemporaryDirectory() as folder:
                url = store or str(Path(folder) / "benchmark.db")
                chosen = [configurations[number] for number in numbers]
                for place, one in enumerate(data):
                    leave = leave_one_out and 0 in numbers
                    asked = await _one(one, chosen, embedder, url, Path(folder), clock, progress, later, leave)
                    places = [*numbers, len(configurations)] if leave else numbers
                    found.update(((place, number), answer) for number, answer in zip(places, asked, strict=True))
        finally:
            await embedder.aclose()
    return [found[key] for key in sorted(found)]


async def _one(
    data: DataSet,
    configurations: Sequence[Configuration],
    embedder: Remembering,
    url: str,
    folder: Path,
    clock: Callable[[], datetime],
    progress: Progress,
    later: timedelta,
    leave_one_out: bool,
) -> list[Asked]:
    await embedder.embed([], "passage")
    texts = [document.text for bank in data.banks for document in bank.documents]
    progress.begin(f"{data.name}: embedding", len(texts))
    await embedder.fill(texts, "passage", progress.advance)
    mark = new_id(clock()).lower()
    kinds = sorted({configuration.summaries for configuration in configurations}, reverse=True)
    names = {
        (bank.name, summaries): f"benchmark-{mark}-{number}{'' if summaries else '-whole'}"
        for summaries in kinds
        for number, bank in enumerate(data.banks)
    }
    opened = open_store(url)
    service = _service(opened, embedder, Configuration(), folder)
    try:
        await opened.prepare(embedder.identity.name)
        for summaries in kinds:
            progress.begin(f"{data.name}: storing", len(texts))
            writing = _service(opened, embedder if summaries else Whole(embedder, texts), Configuration(), folder)
            for bank in data.banks:
                await write(writing, bank, _caller(names[bank.name, summaries], bank.latest), progress.advance)
            await writing.flush()

        async def ask(
            chosen: Configuration, banks: Sequence[Bank], examples: list[Example] | None = None
        ) -> list[Outcome]:
            service = _service(opened, embedder, chosen, folder)
            found: list[Outcome] = []
            for bank in banks:
                place = names[bank.name, chosen.summaries]
                found += await _ask(service, bank, place, chosen, later, progress, embedder, examples)
            await service.flush()
            return found

        asked: list[Asked] = []
        for configuration in configurations:
            progress.begin(f"{data.name}: {configuration.name}", data.questions)
            embedder.question_ms.clear()
            found = await ask(configuration, data.banks)
            asked.append(
                Asked(
                    data=data,
                    configuration=configuration,
                    outcomes=tuple(found),
                    memories=len(texts),
                    embedder=embedder.identity.name,
                    embedding_ms=tuple(embedder.question_ms),
                )
            )
        if leave_one_out:
            first = configurations[0]
            examples: list[Example] = []
            progress.begin(f"{data.name}: what the hits show", data.questions)
            await ask(first, data.banks, examples)
            progress.begin(f"{data.name}: left out", data.questions)
            outcomes: list[Outcome] = []
            for bank in data.banks:
                weights = weighed([one for one in examples if one.bank != bank.name], first.weights)
                outcomes += await ask(msgspec.structs.replace(first, weights=weights), [bank])
            named = msgspec.structs.replace(first, name=f"{first.name}, left out")
            asked.append(
                msgspec.structs.replace(asked[0], configuration=named, outcomes=tuple(outcomes), embedding_ms=())
            )
        return asked
    finally:
        try:
            if not url.startswith(str(folder)):  # somebody's store: nothing stays in it, also of a run that failed
                await _erase(service, list(names.values()), clock())
        finally:
            await opened.aclose()


def _service(store: MemoryStore, embedder: Embedder, configuration: Configuration, folder: Path) -> MemoryService:
    settings = load(
        {}, data_dir=folder, ranking=msgspec.json.encode(configuration.ranking).decode(), retrieval_log="false"
    )
    return MemoryService(store, None if configuration.signals == "lexical" else embedder, settings)


def _caller(namespace: str, now: datetime) -> Caller:
    return Caller(now=now, new_id=new_id, namespace=namespace, actor="benchmark")


async def _ask(
    service: MemoryService,
    bank: Bank,
    namespace: str,
    configuration: Configuration,
    later: timedelta,
    progress: Progress,
    embedder: Remembering,
    examples: list[Example] | None,
) -> list[Outcome]:
    """The outcome of each question; with `examples` also what the compared hits show of themselves."""
    found: list[Outcome] = []
    for question in bank.questions:
        if not question.gold:
            continue
        request = SearchRequest(
            query=question.text[-LONGEST:],
            top_k=DEPTH if examples is None else COMPARED,
            profile=configuration.profile,
            explain=examples is not None,
        )
        caller = _caller(namespace, question.at or bank.latest + later)
        embedded = len(embedder.question_ms)
        answer = await service.search(request, caller)
        if examples is not None:
            gold = [hit.memory.metadata.get(PLACE) in question.gold for hit in answer.hits]
            examples.append(example(bank.name, answer, gold, configuration.ranking))
        # A long document may be stored in several pieces: the best of them counts.
        documents = dict.fromkeys(hit.memory.metadata.get(PLACE) for hit in answer.hits)
        ranks = [rank for rank, document in enumerate(documents, start=1) if document in question.gold]
        found.append(
            Outcome(
                bank=bank.name,
                question=question.id,
                kind=question.kind,
                gold=len(question.gold),
                ranks=tuple(ranks),
                ms=answer.took_ms - sum(embedder.question_ms[embedded:]),
            )
        )
        progress.advance()
    return found


async def _erase(service: MemoryService, namespaces: Sequence[str], now: datetime) -> None:
    for namespace in namespaces:
        await service.forget(ForgetRequest(all=True, mode="erase", reason="benchmark"), _caller(namespace, now))


def utc_now() -> datetime:
    """The clock of a command."""
    return datetime.now(UTC)
