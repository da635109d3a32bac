"""For any memories and any order of calls, over both stores: a dry run is the run, an undo is what was before, and
nothing is lost or revived when writes, accesses, sweeps, forgetting and restoring meet."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from datetime import datetime
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from hindsight_core.caller import Caller
from hindsight_core.config import Settings, load
from hindsight_core.embedding import Embedder
from hindsight_core.errors import Conflict
from hindsight_core.ids import new_id
from hindsight_core.models import AuditEvent, Memory
from hindsight_core.requests import (
    ForgetRequest,
    Policy,
    RestoreRequest,
    SearchRequest,
    SweepRequest,
    UndoRequest,
    UpdateRequest,
    WriteRequest,
)
from hindsight_core.responses import SweepReport
from hindsight_core.service import MemoryService
from hindsight_core.stores import MemoryStore, Record, Where, open_store
from samples import DAY, START, memory, puts, record

T = TypeVar("T")
PICK = st.integers(0, 9_999)
# To make a failing life shorter takes minutes.
PHASES = (Phase.explicit, Phase.generate)
QUIET = settings(deadline=None, suppress_health_check=list(HealthCheck), database=None, phases=PHASES)
NOW = START + 400 * DAY
POOL = (
    "I took the 7:40 train to Leeds.",
    "I take the 7:40 train to Leeds.",
    "Took the 7:40 train to Leeds.",
    "晚上加班到十点。",
    "又加班到十点多才下班。",
    "加班，十点才走。",
    "The kettle in the office is blue.",
    "我的猫叫饼干。",
    "The user may like window seats.",
)
USERS = (None, "ann", "安")
# Small places and short lives, so that every policy has something to do.
SMALL = {
    "capacity_namespace": 9,
    "capacity_user": 5,
    "capacity_episodic": 3,
    "access_extends": "3d",
    "access_extends_until": "20d",
    "idle_after": "8d",
    "purge_after": "15d",
    "task_idle": "1d",
    "consolidate_within": "90d",
    "sweep_rate": 0,
    "sweep_share": 1.0,
}


class Place:
    """A store and its service on a loop of their own; every example takes a namespace that is new."""

    def __init__(self, runner: asyncio.Runner, store: MemoryStore, service: MemoryService) -> None:
        self._runner = runner
        self.store = store
        self.service = service
        self._spaces = 0

    def space(self) -> str:
        self._spaces += 1
        return f"space-{self._spaces}"

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    async def everything(self, namespace: str) -> dict[str, Memory]:
        found: dict[str, Memory] = {}
        after: str | None = None
        while page := await self.store.scan(namespace, Where(), after=after, limit=500, vectors=False):
            found.update((r.memory.id, r.memory) for r in page)
            after = page[-1].memory.id
        return found


@pytest.fixture
def place(store_url: str, embedder: Embedder, tmp_path: Any) -> Generator[Place]:
    with asyncio.Runner() as runner:
        store = open_store(store_url)
        runner.run(store.prepare(None))
        chosen: Settings = load({}, data_dir=tmp_path)
        yield Place(runner, store, MemoryService(store, embedder, replace(chosen, **SMALL)))
        runner.run(store.aclose())


@pytest.fixture(scope="session")
def vectors(embedder: Embedder) -> dict[str, Any]:
    return dict(zip(POOL, asyncio.run(embedder.embed(POOL, "passage")), strict=True))


def here(namespace: str, now: datetime) -> Caller:
    return Caller(now=now, new_id=new_id, namespace=namespace, actor="tester", request_id="r")


@st.composite
def memories(draw: st.DrawFn) -> list[Memory]:
    """Memories of every status and age, of few texts, so that some recur, some are alike and some quote each other."""
    found: list[Memory] = []
    for number in range(draw(st.integers(3, 24))):
        created = NOW - draw(st.integers(0, 60)) * DAY
        type_ = draw(st.sampled_from(["episodic", "episodic", "episodic", "semantic", "working"]))
        user = draw(st.sampled_from(USERS))
        known = [one.id for one in found if one.user_id == user]
        found.append(
            memory(
                f"{number:03}",
                draw(st.sampled_from(POOL)),
                namespace="any",
                user_id=user,
                memory_type=type_,
                task_id="t" if type_ == "working" else None,
                session_id=draw(st.sampled_from([None, "s1", "s2"])),
                context=draw(st.sampled_from([None, None, *POOL])),
                status=draw(st.sampled_from(["active"] * 5 + ["pending", "superseded", "archived", "suppressed"])),
                source=draw(st.sampled_from(["user", "user", "agent"])),
                pinned=draw(st.integers(0, 5)) == 0,
                confidence=draw(st.sampled_from([0.2, 0.5, 1.0])),
                created_at=created,
                updated_at=created,
                observed_at=created,
                valid_from=created,
                forgotten_at=draw(st.sampled_from([None, created])),
                expires_at=draw(st.sampled_from([None, None, None, NOW, NOW + DAY, NOW - DAY])),
                access_count=draw(st.sampled_from([0, 0, 3])),
                last_accessed_at=draw(st.sampled_from([None, created])),
                derived_from=tuple(draw(st.lists(st.sampled_from(known), max_size=3, unique=True))) if known else (),
            )
        )
    return found


def as_before(one: Memory, contexts: dict[str, str | None]) -> Memory:
    """A memory but for what no undo touches: its version, and a turn beside it that was erased."""
    return replace(one, version=1, context=contexts[one.id])


def test_a_dry_run_is_the_run_and_its_undo_is_what_was_before(place: Place, vectors: dict[str, Any], examples: int):
    @settings(
        max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None, phases=PHASES
    )
    @given(memories(), st.lists(st.sampled_from(ALL), max_size=4, unique=True))
    def check(given_ones: list[Memory], policies: list[Policy]) -> None:
        place.run(swept(place, vectors, given_ones, tuple(policies)))

    check()


ALL: tuple[Policy, ...] = ("promote", "expire", "idle", "evict", "tasks", "purge", "consolidate")


async def swept(place: Place, vectors: dict[str, Any], given_ones: list[Memory], policies: tuple[Policy, ...]) -> None:
    namespace = place.space()
    caller = here(namespace, NOW)
    records: list[Record] = []
    for one in given_ones:
        of = replace(one, namespace=namespace)
        records.append(record(of, None if of.memory_type == "working" else vectors[of.content]))
    await place.store.commit(namespace, puts(*records, run_id="fill"))
    before = await place.everything(namespace)
    dry = await place.service.sweep(SweepRequest(policies=policies, dry_run=True), caller)
    assert await place.everything(namespace) == before
    real = await place.service.sweep(SweepRequest(policies=policies), caller)
    assert real.affected == dry.affected
    assert [(p.policy, p.actions) for p in real.policies] == [(p.policy, p.actions) for p in dry.policies]
    erased = {one.id for one in real.affected if one.after == "erased"}
    made = {one.id for one in real.affected if one.before == "absent"}
    assert not {one.id for one in given_ones if one.pinned} & {
        one.id for one in real.affected if one.after in {"archived", "erased"} and one.id not in erased
    }
    swept_up = await place.everything(namespace)
    assert swept_up.keys() == (before.keys() | made) - erased
    undone = await place.service.undo(real.run_id, UndoRequest(), caller) if real.count else None
    after = await place.everything(namespace)
    contexts = {memory_id: one.context for memory_id, one in after.items()}
    assert {id_: as_before(one, contexts) for id_, one in after.items() if id_ not in made} == {
        id_: as_before(one, contexts) for id_, one in before.items() if id_ not in erased
    }
    assert {after[id_].status for id_ in made} <= {"retracted"}
    assert undone is None or set(undone.kept) == erased


class Life(RuleBasedStateMachine):
    """A namespace that lives: every rule is a call, and what it answered is all that the model knows."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place
        self.namespace = place.space()
        self.now = NOW
        self.known: dict[str, datetime] = {}
        self.erased: set[str] = set()
        self.suppressed: set[str] = set()
        self.runs: list[str] = []
        self.accesses: dict[str, int] = {}

    @property
    def caller(self) -> Caller:
        return here(self.namespace, self.now)

    def one_of(self, pick: int) -> str | None:
        """One of the memories ever known; what is drawn must not depend on what happened to be stored."""
        return sorted(self.known)[pick % len(self.known)] if self.known else None

    @initialize(count=st.integers(0, 3))
    def begin(self, count: int) -> None:
        for number in range(count):
            self.write(POOL[number], None, "episodic", None, pinned=False, surely=True)
            self.now += DAY

    @rule(
        text=st.sampled_from(POOL),
        user=st.sampled_from(USERS),
        memory_type=st.sampled_from(["episodic", "episodic", "semantic"]),
        ttl=st.sampled_from([None, None, "2d", "30d"]),
        pinned=st.integers(0, 5).map(lambda n: n == 0),
        surely=st.booleans(),
    )
    def write(
        self, text: str, user: str | None, memory_type: Any, ttl: str | None, *, pinned: bool, surely: bool
    ) -> None:
        self.place.run(self.writing(text, user, memory_type, ttl, pinned=pinned, surely=surely))

    async def writing(
        self, text, user=None, memory_type="episodic", ttl=None, *, pinned=False, surely=True, alone=True
    ) -> None:
        request = WriteRequest(
            content=text,
            user_id=user,
            memory_type=memory_type,
            ttl=ttl,
            pinned=pinned,
            confidence=1.0 if surely else 0.3,
            force=True,
            reconcile="none",
        )
        (decision,) = (await self.place.service.write(request, self.caller)).results
        if decision.memory is not None:
            self.known[decision.memory.id] = decision.memory.created_at
        else:
            # Only what the user never wants to hear of again is not stored.
            assert decision.decision == "refuse"
            assert self.suppressed or not alone

    @rule(days=st.integers(1, 12))
    def wait(self, days: int) -> None:
        self.now += days * DAY

    @rule(text=st.sampled_from(POOL), user=st.sampled_from(USERS))
    def search(self, text: str, user: str | None) -> None:
        self.place.run(self.searching(text, user))

    async def searching(self, text: str, user: str | None = None) -> None:
        found = await self.place.service.search(SearchRequest(query=text, user_id=user, top_k=50), self.caller)
        shown = {hit.memory.id: hit.memory for hit in found.hits}
        assert not shown.keys() & (self.erased | self.suppressed)
        assert all(one.status in {"active", "pending", "superseded"} for one in shown.values())
        assert all(one.pinned or one.expires_at is None or one.expires_at > self.now for one in shown.values())
        await self.place.service.flush()

    @rule(pick=PICK, mode=st.sampled_from(["archive", "suppress", "erase", "retract"]))
    def forget(self, pick: int, mode: Any) -> None:
        if (memory_id := self.one_of(pick)) is not None:
            self.place.run(self.forgetting(memory_id, mode))

    async def forgetting(self, memory_id: str, mode: Any, *, alone: bool = True) -> None:
        request = ForgetRequest(ids=(memory_id,), mode=mode)
        dry = await self.place.service.forget(replace(request, dry_run=True), self.caller)
        real = await self.place.service.forget(request, self.caller)
        if alone:
            assert real.affected == dry.affected
        self.learn(real.affected, real.run_id)

    @rule(pick=PICK)
    def restore(self, pick: int) -> None:
        memory_id = self.one_of(pick)
        if memory_id is None or memory_id in self.erased:
            return
        try:
            self.place.run(self.place.service.restore(memory_id, RestoreRequest(), self.caller))
        except Conflict:
            return
        self.suppressed.discard(memory_id)

    @rule(pick=PICK, text=st.sampled_from(POOL))
    def update(self, pick: int, text: str) -> None:
        memory_id = self.one_of(pick)
        if memory_id is not None and memory_id not in self.erased | self.suppressed:
            self.place.run(self.place.service.update(memory_id, UpdateRequest(content=text), self.caller))

    @rule(policies=st.lists(st.sampled_from(ALL), max_size=3, unique=True), limit=st.sampled_from([2, 10_000]))
    def sweep(self, policies: list[Policy], limit: int) -> None:
        self.place.run(self.sweeping(tuple(policies), limit))

    async def sweeping(self, policies: tuple[Policy, ...], limit: int = 10_000, *, alone: bool = True) -> None:
        request = SweepRequest(policies=policies, limit=limit)
        before = await self.place.everything(self.namespace)
        dry = await self.place.service.sweep(replace(request, dry_run=True), self.caller)
        reports = [await self.place.service.sweep(request, self.caller)]
        if alone:
            assert reports[0].affected == dry.affected
        while (cursor := reports[-1].cursor) is not None:
            reports.append(await self.place.service.sweep(replace(request, cursor=cursor), self.caller))
        for report in reports:
            self.learn(report.affected, report.run_id, lifts=False)
            self.check_swept(report, before if alone else {})

    def check_swept(self, report: SweepReport, before: dict[str, Memory]) -> None:
        for one in report.affected:
            memory = before.get(one.id)
            if memory is not None and memory.pinned and not memory.derived_from:
                assert one.after not in {"archived", "erased"}

    @rule(pick=PICK)
    def undo(self, pick: int) -> None:
        if not self.runs:
            return
        run_id = self.runs.pop(pick % len(self.runs))
        try:
            undone = self.place.run(self.place.service.undo(run_id, UndoRequest(), self.caller))
        except Conflict:
            return  # an erasure
        self.learn(undone.affected, None)
        assert not {one.id for one in undone.affected} & self.erased

    @rule(pick=PICK, mode=st.sampled_from(["suppress", "erase", "archive"]), texts=st.permutations(POOL))
    def at_once(self, pick: int, mode: Any, texts: list[str]) -> None:
        """Everything at the same time, as several clients and a scheduler would."""
        memory_id = self.one_of(pick)
        if memory_id is None:
            return

        async def all_of_it() -> None:
            await asyncio.gather(
                self.sweeping((), alone=False),
                self.writing(texts[0], alone=False),
                self.writing(texts[1], alone=False),
                self.forgetting(memory_id, mode, alone=False),
                self.place.service.search(SearchRequest(query=texts[2]), self.caller),
            )

        self.place.run(all_of_it())

    def learn(self, affected: Any, run_id: str | None, *, lifts: bool = True) -> None:
        """What a run says it did; a sweep never lifts a suppression."""
        for one in affected:
            if one.after == "erased":
                self.erased.add(one.id)
                self.suppressed.discard(one.id)
            elif one.after == "suppressed":
                self.suppressed.add(one.id)
            elif lifts:
                self.suppressed.discard(one.id)
            if one.before == "absent":
                self.known[one.id] = self.now
        if run_id is not None and affected:
            self.runs.append(run_id)

    @invariant()
    def nothing_is_lost_or_revived(self) -> None:
        self.place.run(self.looking())

    async def looking(self) -> None:
        held = await self.place.everything(self.namespace)
        assert held.keys() == self.known.keys() - self.erased
        assert await self.place.store.erased(self.namespace, sorted(self.known)) == self.erased
        assert {id_ for id_, one in held.items() if one.status == "suppressed"} == self.suppressed
        assert all(self.known[id_] == one.created_at for id_, one in held.items())
        for id_, one in held.items():
            assert one.access_count >= self.accesses.get(id_, 0)
            self.accesses[id_] = one.access_count
        await self.look_at_history(held)

    async def look_at_history(self, held: dict[str, Memory]) -> None:
        """The last event of each memory tells what it is now; of an erased one nothing is told."""
        last: dict[str, AuditEvent] = {}
        after: str | None = None
        while page := await self.place.store.read(self.namespace, "events", after=after, limit=500):
            for event in page:
                assert isinstance(event, AuditEvent)
                last[event.memory_id] = event
                assert event.memory_id not in self.erased or (event.before, event.after) == (None, None)
            after = event.id
        for id_, one in held.items():
            told = last[id_].after
            assert told is not None
            plain = {"context": None, "access_count": 0, "last_accessed_at": None}
            assert replace(one, **plain) == replace(told, **plain)


def test_nothing_is_lost_or_revived_whatever_is_called_in_whatever_order(place: Place, examples: int):
    run_state_machine_as_test(
        lambda: Life(place),
        settings=settings(QUIET, max_examples=max(2, examples // 2), stateful_step_count=20),
    )
