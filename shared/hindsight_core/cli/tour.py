"""The one-minute tour: a few days of conversation, what became of them, and three questions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
from rich.console import Console
from rich.text import Text

from hindsight_core.cli import tables
from hindsight_core.client import AsyncHindsight
from hindsight_core.config import Settings
from hindsight_core.inprocess import InProcess
from hindsight_core.requests import Message, Request, Role, SearchRequest, WriteRequest
from hindsight_core.service import MemoryService

NAMESPACE = "tour"


class Day(msgspec.Struct, frozen=True):
    """What was said on one day, so many days ago."""

    title: str
    ago: int
    said: tuple[tuple[Role, str], ...]


DAYS = (
    Day(
        "Three days ago",
        3,
        (
            ("user", "My shipping address is 12 Elm Street, Leeds."),
            ("user", "From now on, show temperatures in Celsius."),
            ("user", "我对花生过敏，点餐时请一定避开。"),
            ("user", "What's the weather in Beijing tomorrow?"),
            ("assistant", "Perhaps you like window seats."),
        ),
    ),
    Day("Yesterday", 1, (("user", "I moved, my new shipping address is 7 Oak Road, York."), ("user", "谢谢！"))),
)
QUESTIONS = ("What is my shipping address?", "我对什么食物过敏？", "What was my shipping address before?")


async def take_tour(service: MemoryService, settings: Settings, console: Console) -> bool:
    """Show the tour in a namespace of its own, unless the store holds something already; whether it was shown."""
    memories = AsyncHindsight.by(InProcess(service, NAMESPACE, actor="cli", started=True))
    for namespace in (NAMESPACE, settings.namespace):
        if (await memories.stats(Request(namespace=namespace))).events:
            return False
    now = datetime.now(UTC)
    console.rule("A one-minute tour")
    for day in DAYS:
        at = now - timedelta(days=day.ago)
        messages = tuple(Message(role=role, text=text, at=at) for role, text in day.said)
        answer = await memories.write(WriteRequest(messages=messages, now=at))
        console.print(Text(f"\n{day.title}, this was said, and this became of it:", "bold"))
        console.print(tables.decisions(answer.results))
    for question in QUESTIONS:
        found = await memories.search(SearchRequest(query=question, top_k=2, explain=True))
        console.print(Text(f"\nToday: {question}", "bold"))
        console.print(tables.hits(found))
    console.print(
        f"\nAll of this is in the namespace {NAMESPACE!r}, apart from yours. To look around, and to erase it:"
    )
    console.print(f"  hindsight list -n {NAMESPACE}")
    console.print(f"  hindsight forget --all --mode erase -n {NAMESPACE}")
    console.rule()
    return True
