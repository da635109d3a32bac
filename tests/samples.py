"""Memories, records and change sets for tests of stores: small, seeded, and without any clock."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import numpy as np
from msgspec.structs import replace

from hindsight_core.indexing import index_fields, mix
from hindsight_core.models import AuditEvent, Memory, Parts, Retrieval, Run
from hindsight_core.ranking import Formula, Weights, formula
from hindsight_core.stores import ChangeSet, MemoryStore, Query, Record, Vector, Where

OpenStore: TypeAlias = Callable[[], Awaitable[MemoryStore]]

NAMESPACE = "acme"
START = datetime(2024, 5, 1, 12, tzinfo=UTC)
START_MS = 1_714_564_800_000
DAY = timedelta(days=1)
LATER = START + DAY
DAY_MS = 86_400_000
DIMENSION = 16
EVERYTHING = Where()


def memory(memory_id: str, content: str = "The kettle is blue.", **fields: object) -> Memory:
    given: dict[str, object] = {
        "id": memory_id,
        "namespace": NAMESPACE,
        "content": content,
        "valid_from": START,
        "created_at": START,
        "updated_at": START,
        "observed_at": START,
    }
    return Memory(**(given | fields))


def unit(seed: int, dimension: int = DIMENSION) -> Vector:
    vector = np.random.default_rng(seed).standard_normal(dimension).astype(np.float32)
    return vector / np.linalg.norm(vector)


def record(of: Memory, bare: Vector | None = None, previous: Sequence[Vector] = ()) -> Record:
    mixed = None if bare is None else mix(bare, list(previous)) if previous else bare
    return Record(memory=of, index=index_fields(of), bare=bare, mixed=mixed)


def run(run_id: str, **fields: object) -> Run:
    return Run(**({"run_id": run_id, "namespace": NAMESPACE, "at": START, "operation": "write"} | fields))


def event(event_id: str, memory_id: str, run_id: str = "run", **fields: object) -> AuditEvent:
    given: dict[str, object] = {
        "id": event_id,
        "namespace": NAMESPACE,
        "memory_id": memory_id,
        "run_id": run_id,
        "at": START,
        "actor": "test",
        "action": "add",
    }
    return AuditEvent(**(given | fields))


def retrieval(retrieval_id: str, hits: Iterable[str], query: str = "which kettle?", at: datetime = START) -> Retrieval:
    return Retrieval(
        id=retrieval_id,
        namespace=NAMESPACE,
        at=at,
        query=query,
        request={"query": query, "top_k": 8},
        hits=tuple((hit, 0.5, Parts(similarity=0.25)) for hit in hits),
        took_ms=1.5,
    )


def puts(*records: Record, run_id: str = "run") -> ChangeSet:
    return ChangeSet(run=run(run_id, count=len(records)), puts=records)


def search(
    terms: Sequence[str] = (),
    vector: Vector | None = None,
    *,
    scope: Where = EVERYTHING,
    where: Where | None = None,
    by: Formula | None = None,
    now: int = START_MS,
    limit: int = 10,
    min_score: float = 0.0,
) -> Query:
    return Query(
        vector=vector,
        terms=tuple(terms),
        formula=by or formula(calibration=(0.0, 0.6), weights=Weights()),
        scope=scope,
        where=where or scope,
        now=now,
        limit=limit,
        min_score=min_score,
    )


ENGLISH = ["kettle", "tea", "ferry", "ticket", "harbour", "lamp", "violin", "garden"]
WORDS = [*ENGLISH, "北京", "茶壶", "码头", "小提琴", "花园", "船票"]


def successor(of: Record, **changes: object) -> Record:
    """The next version of a memory."""
    return replace(of, memory=replace(of.memory, version=of.memory.version + 1, **changes))


async def found(store: MemoryStore, query: Query, namespace: str = NAMESPACE) -> list[str]:
    """Ids of the best, in order."""
    return [hit.memory.id for hit in (await store.rank(namespace, query)).hits]


async def scanned(store: MemoryStore, where: Where, namespace: str = NAMESPACE) -> list[str]:
    """Ids of all that satisfy the conditions, in order."""
    return [r.memory.id for r in await store.scan(namespace, where, after=None, limit=1000)]


def random_records(seed: int, count: int, *, dimension: int = DIMENSION) -> list[Record]:
    """Records that differ in every field a store searches by, ties included."""
    rng = random.Random(seed)
    found: list[Record] = []
    for number in range(count):
        observed = None if rng.random() < 0.1 else START - DAY * rng.randint(-5, 60)
        valid_from = START - DAY * rng.randint(0, 10)
        of = memory(
            f"{rng.choice('abc')}{number:05}",
            " ".join(rng.choices(WORDS, k=rng.randint(1, 12))) + rng.choice(["", ".", "?", "吗？"]),
            user_id=rng.choice([None, "ann", "ann ", "安"]),
            agent_id=rng.choice([None, "planner", "coder"]),
            session_id=rng.choice([None, "s1", "s2"]),
            task_id=rng.choice([None, "t1"]),
            visibility=rng.choice(["shared", "shared", "private"]),
            memory_type=rng.choice(["working", "episodic", "episodic", "semantic"]),
            kind=rng.choice(["fact", "preference", "instruction", "event", "speculation"]),
            key=rng.choice([None, None, "user.city", "user.tea"]),
            context=rng.choice([None, " ".join(rng.choices(WORDS, k=6))]),
            speaker=rng.choice([None, "Ann", "ANN", "李雷"]),
            source=rng.choice(["user", "agent", "tool"]),
            confidence=rng.choice([0.0, 0.5, 0.8, 1.0]),
            observed_at=observed,
            precision=rng.choice(["instant", "instant", "day", "month", "year"]),
            valid_from=valid_from,
            valid_to=rng.choice([None, None, valid_from + DAY * rng.randint(1, 12)]),
            expires_at=rng.choice([None, None, START + DAY * rng.randint(-3, 3)]),
            half_life_days=rng.choice([None, None, 2.5]),
            status=rng.choice(["active", "active", "pending", "superseded", "archived"]),
            pinned=rng.random() < 0.2,
            tags=tuple(sorted(rng.sample(["red", "green", "blue", "蓝"], rng.randint(0, 3)))),
            derived_from=(f"a{number // 2:05}", f"b{number - 1:05}") if number % 5 == 3 else (),
            metadata=rng.choice([{}, {"n": 1}, {"n": True}, {"n": "1"}, {"n": [1, "x"]}, {"n": 1.5, "m": None}]),
        )
        bare = None if of.memory_type == "working" or rng.random() < 0.1 else unit(seed * 1000 + number, dimension)
        previous = [unit(number + 7, dimension)] if bare is not None and rng.random() < 0.5 else []
        found.append(record(of, bare, previous))
    return found
