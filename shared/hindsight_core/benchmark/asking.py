"""A question of a data set, asked in one configuration."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from hindsight_core.benchmark.configuration import Configuration
from hindsight_core.benchmark.measures import DEPTH
from hindsight_core.benchmark.sets import Bank, Question
from hindsight_core.benchmark.storing import PLACE
from hindsight_core.benchmark.weighing import Example, example
from hindsight_core.caller import Caller
from hindsight_core.config import load
from hindsight_core.embedding import Embedder
from hindsight_core.ids import new_id
from hindsight_core.requests import SearchRequest
from hindsight_core.reranking import DEPTH as COMPARED
from hindsight_core.responses import SearchResponse
from hindsight_core.service import MemoryService
from hindsight_core.stores import MemoryStore

LONGEST = 8000


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One question, asked: the places (from 1) of its answers among the first ten documents, and the milliseconds."""

    bank: str
    question: str
    kind: str
    gold: int
    ranks: tuple[int, ...]
    ms: float


class Asker:
    """One configuration, over banks that are stored in `namespaces`, by their names.

    A question that does not say when it is asked is asked `later` than the last of its memories.
    """

    def __init__(
        self,
        store: MemoryStore,
        embedder: Embedder,
        configuration: Configuration,
        namespaces: Mapping[str, str],
        folder: Path,
        later: timedelta,
    ) -> None:
        self.name = configuration.name
        self.embeds = configuration.signals != "lexical"
        self._service = service(store, embedder, configuration, folder)
        self._configuration = configuration
        self._namespaces = namespaces
        self._later = later

    async def search(
        self, bank: Bank, question: Question, *, top_k: int = DEPTH, explain: bool = False
    ) -> SearchResponse:
        """What the service answers."""
        request = SearchRequest(
            query=question.text[-LONGEST:], top_k=top_k, profile=self._configuration.profile, explain=explain
        )
        return await self._service.search(
            request, caller(self._namespaces[bank.name], question.at or bank.latest + self._later)
        )

    async def outcome(self, bank: Bank, question: Question) -> Outcome:
        """The outcome; its time is without the question's embedding where its vector is known already."""
        answer = await self.search(bank, question)
        # A long document may be stored in several pieces: the best of them counts.
        documents = dict.fromkeys(hit.memory.metadata.get(PLACE) for hit in answer.hits)
        ranks = [rank for rank, document in enumerate(documents, start=1) if document in question.gold]
        return Outcome(
            bank=bank.name,
            question=question.id,
            kind=question.kind,
            gold=len(question.gold),
            ranks=tuple(ranks),
            ms=answer.took_ms,
        )

    async def example(self, bank: Bank, question: Question) -> Example:
        """What the compared hits show of themselves."""
        answer = await self.search(bank, question, top_k=COMPARED, explain=True)
        gold = [hit.memory.metadata.get(PLACE) in question.gold for hit in answer.hits]
        return example(bank.name, answer, gold, self._configuration.ranking)

    async def flush(self) -> None:
        await self._service.flush()


def service(store: MemoryStore, embedder: Embedder, configuration: Configuration, folder: Path) -> MemoryService:
    """The service that searches as a configuration says."""
    settings = load(
        {}, data_dir=folder, ranking=msgspec.json.encode(configuration.ranking).decode(), retrieval_log="false"
    )
    return MemoryService(store, None if configuration.signals == "lexical" else embedder, settings)


def caller(namespace: str, now: datetime) -> Caller:
    return Caller(now=now, new_id=new_id, namespace=namespace, actor="benchmark")
