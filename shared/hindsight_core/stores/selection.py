"""The conditions of a `Where` over a resident namespace: which slots satisfy them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import TypeAlias

import numpy as np

from hindsight_core.ids import stamp
from hindsight_core.scoring import UNDATED, Mask
from hindsight_core.stores import Where
from hindsight_core.stores.conditions import derived, key_label, wanted_labels
from hindsight_core.stores.resident import Resident

_CHUNK = 500

Condition: TypeAlias = tuple[Hashable, Callable[[], Mask]]


class Selection:
    """Masks of one resident for the time of one call; a condition that several `Where` share is evaluated once."""

    def __init__(self, resident: Resident, connection: sqlite3.Connection) -> None:
        self._resident = resident
        self._connection = connection
        self._masks: dict[Hashable, Mask] = {}

    def matching(self, where: Where, among: Mask) -> Mask:
        """Which slots of `among` satisfy the conditions."""
        found = among.copy()
        for name, evaluate in self._conditions(where):
            mask = self._masks.get(name)
            if mask is None:
                mask = self._masks[name] = evaluate()
            found &= mask
        return found

    def _conditions(self, where: Where) -> Iterator[Condition]:
        resident = self._resident
        for name, scope_id in (
            ("user_id", where.user_id),
            ("session_id", where.session_id),
            ("task_id", where.task_id),
        ):
            if scope_id is not None:
                yield (name, scope_id), partial(self._is, name, np.uint64(stamp(scope_id)))
        if where.no_user:
            yield "no_user", partial(self._is, "user_id", np.uint64(0))
        if where.reader is None:
            yield "shared", lambda: resident["shared"]
        elif where.reader != "*":
            agent = np.uint64(stamp(where.reader))
            yield ("reader", where.reader), lambda: resident["shared"] | self._is("agent_id", agent)
        for name, values in (
            ("status", where.statuses),
            ("memory_type", where.memory_types),
            ("kind", where.kinds),
            ("source", where.sources),
        ):
            if values is not None:
                yield (name, values), partial(resident.one_of, name, values)
        yield from self._instants(where)
        if where.key is not None:
            label = key_label(where.key)
            yield ("label", label), lambda: resident.holding([label])
        for group in wanted_labels(where):
            yield ("label", *group), partial(resident.holding, group)
        if where.ids is not None:
            yield ("ids", where.ids), partial(self._named, where.ids)
        if where.derived_from is not None:
            yield ("derived", where.derived_from), partial(self._derived, where.derived_from)

    def _instants(self, where: Where) -> Iterator[Condition]:
        resident = self._resident
        if (start := where.observed_from) is not None:
            yield ("observed_from", start), lambda: resident["observed_at"] >= max(start, UNDATED + 1)
        if (end := where.observed_to) is not None:
            yield (
                ("observed_to", end),
                lambda: (resident["observed_at"] < end) & (resident["observed_at"] != UNDATED),
            )
        if (begun := where.begun_at) is not None:
            yield ("begun_at", begun), lambda: resident["valid_from"] <= begun
        if (lasting := where.lasting_at) is not None:
            yield ("lasting_at", lasting), lambda: resident["valid_to"] > lasting
        if (alive := where.alive_at) is not None:
            yield ("alive_at", alive), lambda: resident["expires_at"] > alive
        if (expired := where.expired_at) is not None:
            yield ("expired_at", expired), lambda: resident["expires_at"] <= expired

    def _is(self, name: str, value: np.uint64) -> Mask:
        mask: Mask = self._resident[name] == value
        return mask

    def _named(self, ids: tuple[str, ...]) -> Mask:
        rows: list[int] = []
        for start in range(0, len(ids), _CHUNK):
            some = ids[start : start + _CHUNK]
            found = self._connection.execute(
                "SELECT m.row FROM namespaces n JOIN memories m ON m.namespace = n.number"  # noqa: S608 - question marks
                f" WHERE n.name = ? AND m.id IN ({','.join('?' * len(some))})",
                (self._resident.namespace, *some),
            )
            rows.extend(row for (row,) in found)
        return self._at(rows)

    def _derived(self, ids: tuple[str, ...]) -> Mask:
        rows: list[int] = []
        for start in range(0, len(ids), _CHUNK):
            some = ids[start : start + _CHUNK]
            found = self._connection.execute(
                f"SELECT row FROM memories WHERE row IN ({derived(len(some))})"  # noqa: S608 - question marks
                " AND namespace = (SELECT number FROM namespaces WHERE name = ?)",
                (*some, self._resident.namespace),
            )
            rows.extend(row for (row,) in found)
        return self._at(rows)

    def _at(self, rows: list[int]) -> Mask:
        mask = np.zeros(self._resident.size, np.bool_)
        mask[self._resident.slots_of(rows)] = True
        return mask
