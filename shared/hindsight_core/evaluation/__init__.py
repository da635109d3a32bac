"""How well Hindsight decides: files of judged examples, run through the real service, and what came of them.

A task (`Task`) says what an item of its files looks like, how one is judged and what is measured; `TASKS` holds all of
them by name. Each item gets a namespace of its own, so nothing of one reaches another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from hindsight_core.errors import InvalidInput
from hindsight_core.evaluation import dialogues, gate, reconcile, temporal, trigger
from hindsight_core.evaluation.reconcile import among
from hindsight_core.evaluation.report import Line, Report, summed_up
from hindsight_core.evaluation.task import Item, Memories, Task

__all__ = ["TASKS", "Line", "Memories", "Report", "Task", "among", "evaluate", "read"]

TASKS: Mapping[str, Task] = {
    "gate": Task(item=gate.Utterance, judge=gate.judge, measure=gate.measures),
    "reconcile": Task(item=reconcile.Pair, judge=reconcile.judge, measure=reconcile.measures),
    "temporal": Task(item=temporal.Expression, judge=temporal.judge, measure=temporal.measures),
    "trigger": Task(item=trigger.Asked, judge=trigger.judge, measure=trigger.measures),
    "dialogues": Task(item=dialogues.Story, judge=dialogues.judge, measure=dialogues.measures),
}


def read(data: bytes, task: Task) -> list[Item]:
    """The items of a JSON Lines file; raises `InvalidInput` naming the line that is none."""
    return list(_items(data, task))


async def evaluate(
    name: str, items: list[Item], memories: Memories, *, prefix: str, step: Callable[[], object]
) -> Report:
    """Judge every item in the namespace `prefix` and its number; `step` is called after each."""
    task = TASKS[name]
    lines: list[Line] = []
    for number, item in enumerate(items):
        lines += await task.judge(memories, f"{prefix}{number}", item)
        step()
    return summed_up(name, len(items), lines, task.measure)


def _items(data: bytes, task: Task) -> Iterator[Item]:
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            yield msgspec.json.decode(line, type=task.item)
        except msgspec.DecodeError as exc:
            raise InvalidInput.of(f"line {number}", f"is no item of this kind: {exc}") from exc
