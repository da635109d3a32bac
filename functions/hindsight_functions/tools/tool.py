"""A tool as data: what an agent reads of it, what it takes, what it answers, and what it does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from hindsight_functions.tools.connection import Connection

# A name such as Asia/Shanghai; models know.
Timezone: TypeAlias = str


class Answer(msgspec.Struct, frozen=True):
    """What a tool answers: words for a model, and the same as data."""

    text: str
    data: msgspec.Struct


Run: TypeAlias = Callable[[Any, Connection], Awaitable[Answer]]


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool. `run` takes an `arguments` and answers with an `answer`; it raises the errors of `hindsight_core`."""

    name: str
    title: str
    description: str
    arguments: type[msgspec.Struct]
    answer: type[msgspec.Struct]
    run: Run
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False


def given(**fields: object) -> dict[str, Any]:
    """The fields that were sent."""
    return {name: value for name, value in fields.items() if value is not UNSET}


def value(field: Any) -> Any:  # noqa: ANN401 (whatever the field holds)
    """A field, or None where it was not sent."""
    return None if field is UNSET else field


def moment(at: datetime | None) -> str | UnsetType:
    """An instant for an answer; absent when nobody knows it."""
    return UNSET if at is None else at.isoformat(timespec="seconds").replace("+00:00", "Z")
