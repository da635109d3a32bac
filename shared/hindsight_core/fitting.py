"""Which of several things of one kind a new value is of: a move changes where one lives, and not a billing address."""

from __future__ import annotations

import msgspec

from hindsight_core.models import Memory
from hindsight_core.slots import fits, read
from hindsight_core.verdicts import Judged

# What is left of the probability where another one fits as well.
_TIED = 0.85


def fitting(new: Memory, items: list[Judged]) -> list[Judged]:
    """Of the several things of one kind that a new value may be of, the one replaced whose name fits best.

    Where another fits better, what fits less is asked about, or left alone where its name says that it is another one;
    so is what names another kind. Where several fit alike, all are asked about.
    """
    b = read(new.content)
    if b.attribute is None:
        return items
    open_ = [item for item in items if item.old.status in {"active", "pending"} and item.order != "older"]
    ranks = {item.old.id: rank for item in open_ if (rank := fits(read(item.old.content), b)) not in {None, "other"}}
    best = next((rank for rank in ("same", "default") if rank in ranks.values()), None)
    if best is None:
        return items
    alike = {read(item.old.content).attribute for item in open_ if ranks.get(item.old.id) == best}
    replaced = any("named" in item.pair.evidence.get("guards", ()) for item in open_)
    found: list[Judged] = []
    for item in items:
        rank, old = ranks.get(item.old.id), read(item.old.content).attribute
        settled = item.ruling is not None or item.verdict not in {"supersede", "contest"}
        if settled or old is None or (rank == best and len(alike) == 1):
            found.append(item)
        elif rank == "near" or (rank is None and replaced):
            found.append(msgspec.structs.replace(item, verdict="unrelated", probability=0.0))
        else:
            found.append(_asked(item))
    return found


def _asked(item: Judged) -> Judged:
    if item.verdict != "supersede":
        return item
    return msgspec.structs.replace(item, verdict="contest", probability=min(item.probability, _TIED))
