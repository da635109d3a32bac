"""A run: data sets are stored once an embedder, and every configuration asks every question of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import msgspec

from hindsight_core.benchmark.asking import Asker, Outcome, caller, service
from hindsight_core.benchmark.configuration import Configuration
from hindsight_core.benchmark.sets import DataSet
from hindsight_core.benchmark.storing import Stored, write
from hindsight_core.benchmark.vectors import Remembering, Whole
from hindsight_core.benchmark.weighing import Example, weighed
from hindsight_core.embedding import open_embedder
from hindsight_core.errors import InvalidInput
from hindsight_core.ids import new_id
from hindsight_core.requests import ForgetRequest
from hindsight_core.reranking import EVIDENCE
from hindsight_core.stores import MemoryStore, open_store

_LEFT_OUT = "those of the second stage chosen on the other banks"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """All questions of a data set, asked in one configuration; `embedding_ms` is what embedding a question took.

    `note` says what the configuration does not.
    """

    data: DataSet
    configuration: Configuration
    outcomes: tuple[Outcome, ...]
    stored: Stored
    embedder: str
    embedding_ms: tuple[float, ...]
    note: str = ""


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
    groups = _by_embedder(configurations)
    _check(data, configurations, several=store is not None and len(groups) > 1, leave_one_out=leave_one_out)
    for numbers in groups:
        chosen = [configurations[number] for number in numbers]
        first = chosen[0]
        embedder = Remembering(
            open_embedder(
                first.embedder,
                api_key=api_key,
                dimension=first.dimension or None,
                calibration=Path(first.calibration) if first.calibration else None,
            ),
            vectors,
        )
        leave = leave_one_out and 0 in numbers
        places = [*numbers, len(configurations)] if leave else numbers
        try:
            with TemporaryDirectory() as folder:
                for place, one in enumerate(data):
                    opened = open_store(store or str(Path(folder) / "benchmark.db"))
                    part = _Part(one, chosen, embedder, opened, Path(folder), clock, later, progress)
                    try:
                        asked = await part.measured(leave_one_out=leave)
                    finally:
                        try:
                            if store is not None:  # nothing stays in it, also of a run that failed
                                await part.erase()
                        finally:
                            await opened.aclose()
                    found.update(((place, number), answer) for number, answer in zip(places, asked, strict=True))
        finally:
            await embedder.aclose()
    return [found[key] for key in sorted(found)]


def utc_now() -> datetime:
    """The clock of a command."""
    return datetime.now(UTC)


def _check(
    data: Sequence[DataSet], configurations: Sequence[Configuration], *, several: bool, leave_one_out: bool
) -> None:
    if leave_one_out and any(len(one.banks) < 2 for one in data):
        raise InvalidInput.of("--leave-one-out", "needs a data set of at least two banks")
    if leave_one_out and not all(getattr(configurations[0].ranking, name) for name in EVIDENCE):
        raise InvalidInput.of("--leave-one-out", "needs all kinds of evidence in the first configuration")
    if several:
        raise InvalidInput.of(
            "--store", "holds the vectors of one embedder; leave it out, and each has a store of its own"
        )


def _by_embedder(configurations: Sequence[Configuration]) -> list[list[int]]:
    """The places of the configurations that have one embedder in common."""
    groups: dict[tuple[str, str, int], list[int]] = {}
    for number, configuration in enumerate(configurations):
        key = (configuration.embedder, configuration.calibration, configuration.dimension)
        groups.setdefault(key, []).append(number)
    return list(groups.values())


class _Part:
    """One data set in one store, and the configurations of one embedder."""

    def __init__(
        self,
        data: DataSet,
        configurations: Sequence[Configuration],
        embedder: Remembering,
        store: MemoryStore,
        folder: Path,
        clock: Callable[[], datetime],
        later: timedelta,
        progress: Progress,
    ) -> None:
        self._data = data
        self._configurations = configurations
        self._embedder = embedder
        self._store = store
        self._folder = folder
        self._clock = clock
        self._later = later
        self._progress = progress
        mark = new_id(clock()).lower()
        kinds = sorted({configuration.summaries for configuration in configurations}, reverse=True)
        self._namespaces = {
            summaries: {
                bank.name: f"benchmark-{mark}-{number}{'' if summaries else '-whole'}"
                for number, bank in enumerate(data.banks)
            }
            for summaries in kinds
        }

    async def measured(self, *, leave_one_out: bool) -> list[Asked]:
        """All questions, asked in each configuration, and in one more that leaves each bank out."""
        stored = await self._stored()
        self._embedder.question_ms.clear()
        left_out = await self._left_out() if leave_one_out else {}
        outcomes = await self._outcomes(left_out)
        configurations = list(self._configurations)
        if leave_one_out:
            first = configurations[0]
            configurations.append(msgspec.structs.replace(first, name=f"{first.name}, left out"))
        return [
            Asked(
                data=self._data,
                configuration=configuration,
                outcomes=tuple(found),
                stored=stored,
                embedder=self._embedder.identity.name,
                embedding_ms=() if configuration.signals == "lexical" else tuple(self._embedder.question_ms),
                note=_LEFT_OUT if place == len(self._configurations) else "",
            )
            for place, (configuration, found) in enumerate(zip(configurations, outcomes, strict=True))
        ]

    async def erase(self) -> None:
        """Nothing of it stays in the store."""
        erasing = service(self._store, self._embedder, Configuration(), self._folder)
        request = ForgetRequest(all=True, mode="erase", reason="benchmark")
        for namespaces in self._namespaces.values():
            for namespace in namespaces.values():
                await erasing.forget(request, caller(namespace, self._clock()))

    async def _stored(self) -> Stored:
        """Embed and store the documents, those of `Whole` as well where one configuration has no summaries."""
        texts = [document.text for bank in self._data.banks for document in bank.documents]
        await self._embedder.embed([], "passage")
        self._progress.begin(f"{self._data.name}: embedding", len(texts))
        await self._embedder.fill(texts, "passage", self._progress.advance)
        self._embedder.save()
        await self._store.prepare(self._embedder.identity.name)
        stored = Stored()
        for summaries, namespaces in self._namespaces.items():
            self._progress.begin(f"{self._data.name}: storing", len(texts))
            embedder = self._embedder if summaries else Whole(self._embedder, texts)
            writing = service(self._store, embedder, Configuration(), self._folder)
            stored = Stored()  # both kinds hold the same
            for bank in self._data.banks:
                to = caller(namespaces[bank.name], bank.latest)
                stored += await write(writing, bank, to, self._progress.advance)
            await writing.flush()
        return stored

    async def _left_out(self) -> dict[str, Configuration]:
        """By bank: the first configuration with the weights that suit all other banks."""
        first = self._configurations[0]
        asker = self._asker(first)
        examples: list[Example] = []
        self._progress.begin(f"{self._data.name}: what the hits show", self._data.questions)
        for bank in self._data.banks:
            for question in bank.measured:
                examples.append(await asker.example(bank, question))
                self._progress.advance()
        await asker.flush()
        return {
            bank.name: msgspec.structs.replace(
                first, weights=weighed([one for one in examples if one.bank != bank.name], first.weights)
            )
            for bank in self._data.banks
        }

    async def _outcomes(self, left_out: Mapping[str, Configuration]) -> list[list[Outcome]]:
        """By configuration, the outcome of each question.

        A question is asked in all configurations before the next one, each time another one being first, so that
        whatever else the machine does, or a first search loads, falls on all of them alike.
        """
        fixed = [self._asker(configuration) for configuration in self._configurations]
        found: list[list[Outcome]] = [[] for _ in range(len(fixed) + bool(left_out))]
        self._progress.begin(f"{self._data.name}: asking", self._data.questions * len(found))
        for bank in self._data.banks:
            askers = [*fixed, *([self._asker(left_out[bank.name])] if left_out else [])]
            embedding = [asker for asker in askers if asker.embeds]
            for number, question in enumerate(bank.measured):
                # Every configuration has seen the bank once, and then the vector of every question is known.
                for asker in askers if number == 0 else embedding[:1]:
                    await asker.search(bank, question)
                turn = len(found[0]) % len(askers)
                for place in [*range(turn, len(askers)), *range(turn)]:
                    found[place].append(await askers[place].outcome(bank, question))
                    self._progress.advance()
            for asker in askers:
                await asker.flush()
        return found

    def _asker(self, configuration: Configuration) -> Asker:
        namespaces = self._namespaces[configuration.summaries]
        return Asker(self._store, self._embedder, configuration, namespaces, self._folder, self._later)
