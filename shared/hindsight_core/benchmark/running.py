"""A run: data sets are stored once an embedder, and every configuration asks every question of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import msgspec

from hindsight_core.benchmark.configuration import Configuration
from hindsight_core.benchmark.measures import DEPTH
from hindsight_core.benchmark.sets import Bank, DataSet, Document, sessions
from hindsight_core.benchmark.vectors import Remembering
from hindsight_core.caller import Caller
from hindsight_core.config import load
from hindsight_core.embedding import open_embedder
from hindsight_core.errors import HindsightError
from hindsight_core.ids import new_id
from hindsight_core.requests import BATCH_LIMIT, ForgetRequest, Message, SearchRequest, WriteRequest
from hindsight_core.service import MemoryService
from hindsight_core.stores import MemoryStore, open_store

LONGEST = 8000
_PLACE = "benchmark_document"


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
) -> list[Asked]:
    """Ask every question of every data set in every configuration; by data set, then configuration.

    `store` is the URL of a store whose namespaces `benchmark-…` are used and erased afterwards, None a temporary file.
    A question that does not say when it is asked is asked `later` than the last of its memories. `vectors` is a
    folder in which vectors are kept from run to run. Raises what the store and the embedder raise.
    """
    found: dict[tuple[int, int], Asked] = {}
    by_embedder: dict[tuple[str, str, int], list[int]] = {}
    for number, configuration in enumerate(configurations):
        key = (configuration.embedder, configuration.calibration, configuration.dimension)
        by_embedder.setdefault(key, []).append(number)
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
                    asked = await _one(one, chosen, embedder, url, Path(folder), clock, progress, later)
                    found.update(((place, number), answer) for number, answer in zip(numbers, asked, strict=True))
        finally:
            await embedder.aclose()
    return [found[place, number] for place in range(len(data)) for number in range(len(configurations))]


async def _one(
    data: DataSet,
    configurations: Sequence[Configuration],
    embedder: Remembering,
    url: str,
    folder: Path,
    clock: Callable[[], datetime],
    progress: Progress,
    later: timedelta,
) -> list[Asked]:
    await embedder.embed([], "passage")
    texts = [document.text for bank in data.banks for document in bank.documents]
    progress.begin(f"{data.name}: embedding", len(texts))
    await embedder.fill(texts, "passage", progress.advance)
    mark = new_id(clock()).lower()
    names = {bank.name: f"benchmark-{mark}-{number}" for number, bank in enumerate(data.banks)}
    opened = open_store(url)
    service = _service(opened, embedder, Configuration(), folder)
    try:
        await opened.prepare(embedder.identity.name)
        progress.begin(f"{data.name}: storing", len(texts))
        for bank in data.banks:
            await _write(service, bank, _caller(names[bank.name], bank.latest), progress)
        await service.flush()
        asked: list[Asked] = []
        for configuration in configurations:
            progress.begin(f"{data.name}: {configuration.name}", data.questions)
            service = _service(opened, embedder, configuration, folder)
            embedder.question_ms.clear()
            outcomes = [
                outcome
                for bank in data.banks
                for outcome in await _ask(service, bank, names[bank.name], configuration, later, progress)
            ]
            await service.flush()
            asked.append(
                Asked(
                    data=data,
                    configuration=configuration,
                    outcomes=tuple(outcomes),
                    memories=len(texts),
                    embedder=embedder.identity.name,
                    embedding_ms=tuple(embedder.question_ms),
                )
            )
        return asked
    finally:
        try:
            if not url.startswith(str(folder)):  # somebody's store: nothing stays in it, also of a run that failed
                await _erase(service, list(names.values()), clock())
        finally:
            await opened.aclose()


def _service(store: MemoryStore, embedder: Remembering, configuration: Configuration, folder: Path) -> MemoryService:
    settings = load(
        {}, data_dir=folder, ranking=msgspec.json.encode(configuration.ranking).decode(), retrieval_log="false"
    )
    return MemoryService(store, None if configuration.signals == "lexical" else embedder, settings)


def _caller(namespace: str, now: datetime) -> Caller:
    return Caller(now=now, new_id=new_id, namespace=namespace, actor="benchmark")


async def _write(service: MemoryService, bank: Bank, caller: Caller, progress: Progress) -> None:
    """Each document becomes one memory, unjudged; the one before it in its session is its context."""
    items = [item for session in sessions(bank) for item in _items(session)]
    for some in _batches(items):
        answer = await service.write_batch([msgspec.Raw(msgspec.json.encode(item)) for item in some], caller)
        for result in answer.results:
            if result.problem is not None:
                raise HindsightError(f"{bank.name}: {result.problem.detail}")
        progress.advance(sum(len(item.messages or ()) for item in some))


def _items(session: Sequence[Document]) -> Iterator[WriteRequest]:
    for start in range(0, len(session), BATCH_LIMIT):
        some = session[start : start + BATCH_LIMIT]
        yield WriteRequest(
            session_id=some[0].session or None,
            messages=tuple(
                Message(
                    role=document.role,
                    text=document.text,
                    speaker=document.speaker or None,
                    at=document.at,
                    metadata={_PLACE: document.id},
                )
                for document in some
            ),
            precision="day" if some[0].day_only else "instant",
            extract="none",
            reconcile="none",
            force=True,
            memory_type="episodic",
            kind="event",
        )


def _batches(items: Sequence[WriteRequest]) -> Iterator[list[WriteRequest]]:
    batch: list[WriteRequest] = []
    for item in items:
        count = sum(len(one.messages or ()) for one in [*batch, item])
        if batch and count > BATCH_LIMIT:
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch


async def _ask(
    service: MemoryService,
    bank: Bank,
    namespace: str,
    configuration: Configuration,
    later: timedelta,
    progress: Progress,
) -> list[Outcome]:
    found: list[Outcome] = []
    for question in bank.questions:
        if not question.gold:
            continue
        request = SearchRequest(query=question.text[-LONGEST:], top_k=DEPTH, profile=configuration.profile)
        caller = _caller(namespace, question.at or bank.latest + later)
        answer = await service.search(request, caller)
        # A long document may be stored in several pieces: the best of them counts.
        documents = dict.fromkeys(hit.memory.metadata.get(_PLACE) for hit in answer.hits)
        ranks = [rank for rank, document in enumerate(documents, start=1) if document in question.gold]
        found.append(
            Outcome(
                bank=bank.name,
                question=question.id,
                kind=question.kind,
                gold=len(question.gold),
                ranks=tuple(ranks),
                ms=answer.took_ms,
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
